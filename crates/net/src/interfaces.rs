//! The network interfaces of this machine, and sockets that take what comes to a multicast group on one of them.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
};

/// An interface that is up and takes multicast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, such as `eth0`.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Its addresses, as the system lists them.
    pub networks: Vec<Network>,
}

/// An address of an interface, with the length of its prefix in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The address.
    pub address: IpAddr,
    /// The length of the prefix.
    pub prefix: u32,
}

impl Network {
    /// Whether an address is of the same prefix.
    #[must_use]
    pub fn contains(&self, other: IpAddr) -> bool {
        let differs = match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros(),
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits() ^ other.to_bits()).leading_zeros(),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
        };
        differs >= self.prefix
    }
}

impl Interface {
    /// Its address on the link that a peer is on: of the same prefix. `None` if the peer is on another link.
    #[must_use]
    pub fn towards(&self, peer: IpAddr) -> Option<IpAddr> {
        self.networks.iter().find(|network| network.contains(peer)).map(|network| network.address)
    }

    /// Whether this is one of its addresses.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.address == address)
    }

    /// Whether it has an address of the same family.
    #[must_use]
    pub fn has_family_of(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.address.is_ipv4() == address.is_ipv4())
    }

    /// Opens a socket that takes what comes to a group on this interface, and nothing else. Others of this machine may
    /// take the same. Linux only: elsewhere a socket cannot be kept to one interface.
    ///
    /// # Errors
    /// The system refuses.
    pub fn join(&self, group: SocketAddr) -> io::Result<UdpSocket> {
        self.open(group)
    }

    /// Opens a socket as [`Interface::join`] does, from which the group and hosts of the interface are sent to as well,
    /// with a hop limit of 255 (RFC 6762 §11). Others of this machine hear what is sent to the group.
    ///
    /// # Errors
    /// The system refuses.
    pub fn join_to_send(&self, group: SocketAddr) -> io::Result<UdpSocket> {
        let socket = self.open(group)?;
        #[cfg(target_os = "linux")]
        {
            const HOPS: u32 = 255;
            // It is bound to the device, so nothing else says where it sends to. In IPv4 the address to send from is
            // said as well: the kernel may take one of another interface.
            let settings = socket2::SockRef::from(&socket);
            if group.is_ipv4() {
                let own = self.networks.iter().find_map(|network| match network.address {
                    IpAddr::V4(own) => Some(own),
                    IpAddr::V6(_) => None,
                });
                settings.set_multicast_if_v4(&own.ok_or(io::ErrorKind::AddrNotAvailable)?)?;
                settings.set_multicast_ttl_v4(HOPS)?;
                settings.set_ttl_v4(HOPS)?;
                settings.set_multicast_loop_v4(true)?;
            } else {
                settings.set_multicast_hops_v6(HOPS)?;
                settings.set_unicast_hops_v6(HOPS)?;
                settings.set_multicast_loop_v6(true)?;
            }
        }
        Ok(socket)
    }

    #[cfg(target_os = "linux")]
    fn open(&self, group: SocketAddr) -> io::Result<UdpSocket> {
        use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

        let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        // Beside other programs that take the same, and beside our own socket of all addresses.
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        // Since Linux 5.7 without a capability.
        socket.bind_device(Some(self.name.as_bytes()))?;
        match group.ip() {
            IpAddr::V4(address) => {
                socket.set_multicast_all_v4(false)?;
                socket.bind(&group.into())?;
                socket.join_multicast_v4_n(&address, &InterfaceIndexOrAddress::Index(self.index))?;
            }
            IpAddr::V6(address) => {
                socket.set_only_v6(true)?;
                socket.set_multicast_all_v6(false)?;
                socket.bind(&scoped(group, self.index).into())?;
                socket.join_multicast_v6(&address, self.index)?;
            }
        }
        Ok(socket.into())
    }

    #[cfg(not(target_os = "linux"))]
    fn open(&self, _: SocketAddr) -> io::Result<UdpSocket> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The address with the interface as its scope, which a link-local one needs (RFC 4007 §6).
#[cfg(target_os = "linux")]
fn scoped(address: SocketAddr, index: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(mut v6) => {
            v6.set_scope_id(index);
            v6.into()
        }
        SocketAddr::V4(_) => address,
    }
}

/// The interfaces that are up and take multicast, loopback among them, by number.
///
/// # Errors
/// The system does not say.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    use nix::net::if_::{InterfaceFlags, if_nametoindex};

    let mut found: Vec<Interface> = Vec::new();
    for entry in nix::ifaddrs::getifaddrs()? {
        let takes = entry.flags.intersects(InterfaceFlags::IFF_MULTICAST | InterfaceFlags::IFF_LOOPBACK);
        if !entry.flags.contains(InterfaceFlags::IFF_UP) || !takes {
            continue;
        }
        let ip = |of: &Option<nix::sys::socket::SockaddrStorage>| {
            let of = of.as_ref()?;
            let v4 = of.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            v4.or_else(|| of.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
        };
        let (Some(address), Some(mask)) = (ip(&entry.address), ip(&entry.netmask)) else { continue };
        let network = Network { address, prefix: ones(mask) };
        if let Some(known) = found.iter_mut().find(|known| known.name == entry.interface_name) {
            known.networks.push(network);
        } else if let Ok(index) = if_nametoindex(&*entry.interface_name) {
            // One that has gone meanwhile has no number.
            found.push(Interface { name: entry.interface_name, index, networks: vec![network] });
        }
    }
    found.sort_by_key(|interface| interface.index);
    Ok(found)
}

/// The length of the prefix that a mask has.
const fn ones(mask: IpAddr) -> u32 {
    match mask {
        IpAddr::V4(mask) => Ipv4Addr::to_bits(mask).leading_ones(),
        IpAddr::V6(mask) => Ipv6Addr::to_bits(mask).leading_ones(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(networks: &[(&str, u32)]) -> Interface {
        let network = |(address, prefix): &(&str, u32)| Network { address: address.parse().unwrap(), prefix: *prefix };
        Interface { name: "eth0".to_owned(), index: 2, networks: networks.iter().map(network).collect() }
    }

    #[test]
    fn the_address_towards_a_peer_is_on_its_link() {
        let interface = interface(&[("192.0.2.10", 24), ("10.0.0.1", 8), ("fe80::1", 64), ("2001:db8::1", 64)]);
        let towards = |peer: &str| interface.towards(peer.parse().unwrap()).map(|address| address.to_string());
        assert_eq!(towards("192.0.2.77").as_deref(), Some("192.0.2.10"));
        assert_eq!(towards("10.200.0.1").as_deref(), Some("10.0.0.1"));
        assert_eq!(towards("198.51.100.1"), None);
        assert_eq!(towards("fe80::abcd").as_deref(), Some("fe80::1"));
        assert_eq!(towards("2001:db8::2").as_deref(), Some("2001:db8::1"));
        assert_eq!(towards("2001:db8:0:1::2"), None);
    }

    #[test]
    fn loopback_is_an_interface() {
        let all = interfaces().unwrap();
        let loopback = all.iter().find(|interface| interface.has(Ipv4Addr::LOCALHOST.into())).unwrap();
        assert_eq!(loopback.towards("127.9.9.9".parse().unwrap()), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(loopback.towards("192.0.2.1".parse().unwrap()), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_socket_of_a_group_sends_to_it_from_its_port_and_hears_itself() {
        let all = interfaces().unwrap();
        let loopback = all.iter().find(|interface| interface.has(Ipv4Addr::LOCALHOST.into())).unwrap();
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let group = SocketAddr::new(Ipv4Addr::new(224, 0, 0, 251).into(), port);
        let (socket, other) = (loopback.join_to_send(group).unwrap(), loopback.join(group).unwrap());
        assert_eq!(socket.send_to(b"hello", group).unwrap(), 5);
        let mut buffer = [0; 16];
        for socket in [&socket, &other] {
            socket.set_nonblocking(false).unwrap();
            let from = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
            assert_eq!(socket.recv_from(&mut buffer).unwrap(), (5, from));
        }
        assert_eq!(socket2::SockRef::from(&socket).multicast_ttl_v4().unwrap(), 255);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn two_sockets_of_a_group_both_take_what_comes_to_it_and_other_sockets_of_the_port_do_not() {
        let all = interfaces().unwrap();
        let loopback = all.iter().find(|interface| interface.has(Ipv4Addr::LOCALHOST.into())).unwrap();
        let unicast = crate::listener::udp("0.0.0.0:0".parse().unwrap(), crate::listener::PortSharing::Shared);
        let unicast = unicast.unwrap();
        let group = SocketAddr::new(Ipv4Addr::new(224, 0, 1, 187).into(), unicast.local_addr().unwrap().port());
        let sockets = [loopback.join(group).unwrap(), loopback.join(group).unwrap()];
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket2::SockRef::from(&client).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
        client.send_to(b"hello", group).unwrap();
        let mut buffer = [0; 16];
        for socket in &sockets {
            socket.set_nonblocking(false).unwrap();
            assert_eq!(socket.recv_from(&mut buffer).unwrap(), (5, client.local_addr().unwrap()));
        }
        // It would have come before.
        assert_eq!(unicast.recv_from(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
