//! Sockets in use, by `/proc/net`, and whose they are.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::machine::{Machine, Process};

/// The transport of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

/// A socket that takes connections or datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) transport: Transport,
    pub(super) address: SocketAddr,
    pub(super) inode: u64,
}

impl Held {
    /// Whether nobody else can have this address. `[::]` may take IPv4 as well: that depends on an option that
    /// `/proc` does not show.
    pub(super) fn excludes(&self, transport: Transport, wanted: SocketAddr) -> bool {
        let (own, ip) = (self.address.ip(), wanted.ip());
        let overlap = own == ip || (own.is_ipv4() == ip.is_ipv4() && (own.is_unspecified() || ip.is_unspecified()));
        self.transport == transport && self.address.port() == wanted.port() && overlap
    }
}

/// State `LISTEN` of TCP.
const LISTEN: &str = "0A";

/// All of them.
pub(super) fn held(machine: &Machine) -> Vec<Held> {
    let files = [
        ("proc/net/tcp", Transport::Tcp),
        ("proc/net/tcp6", Transport::Tcp),
        ("proc/net/udp", Transport::Udp),
        ("proc/net/udp6", Transport::Udp),
    ];
    let mut all = Vec::new();
    for (file, transport) in files {
        let text = machine.text(file).unwrap_or_default();
        all.extend(text.lines().skip(1).filter_map(|line| parse(transport, line)));
    }
    all
}

/// `sl local remote state queues timer retransmit uid timeout inode …`
fn parse(transport: Transport, line: &str) -> Option<Held> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    if transport == Transport::Tcp && *fields.get(3)? != LISTEN {
        return None;
    }
    Some(Held { transport, address: address(fields.get(1)?)?, inode: fields.get(9)?.parse().ok()? })
}

/// Words of 32 bits in the machine's order, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words = ip.as_bytes().chunks(8).map(|word| {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        Some(word.to_ne_bytes())
    });
    let bytes = words.collect::<Option<Vec<_>>>()?.concat();
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).map(Ipv4Addr::from).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).map(Ipv6Addr::from).ok()?),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The processes that hold these sockets, by inode. A socket of another user is missing unless root looks.
pub(super) fn holders(machine: &Machine, inodes: &[u64]) -> HashMap<u64, Process> {
    let mut found = HashMap::new();
    for pid in machine.processes() {
        let descriptors = std::fs::read_dir(machine.path(format!("proc/{pid}/fd"))).into_iter().flatten().flatten();
        for link in descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok()) {
            let inode = link.to_str().and_then(|link| link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            if let Some(inode) = inode.filter(|inode| inodes.contains(inode)) {
                found.entry(inode).or_insert_with(|| machine.process(pid));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = "   0: 0100007F:075B 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1";
        let held = parse(Transport::Tcp, line).unwrap();
        assert_eq!((held.address, held.inode), ("127.0.0.1:1883".parse().unwrap(), 4711));
        assert_eq!(parse(Transport::Tcp, &line.replace(" 0A ", " 01 ")), None, "a connection");
        let line = " 5: 00000000000000000000000001000000:1633 00000000000000000000000000000000:0000 07 0:0 0:0 0 0 0 9";
        assert_eq!(parse(Transport::Udp, line).unwrap().address, "[::1]:5683".parse().unwrap());
    }

    #[test]
    fn addresses_exclude_each_other_as_the_kernel_has_it() {
        let held = |address: &str| Held { transport: Transport::Tcp, address: address.parse().unwrap(), inode: 1 };
        let excludes = |own: &str, other: &str| held(own).excludes(Transport::Tcp, other.parse().unwrap());
        assert!(excludes("127.0.0.1:1", "127.0.0.1:1") && excludes("0.0.0.0:1", "127.0.0.1:1"));
        assert!(excludes("127.0.0.1:1", "0.0.0.0:1") && excludes("[::]:1", "[::1]:1"));
        assert!(!excludes("127.0.0.1:1", "127.0.0.1:2") && !excludes("127.0.0.1:1", "127.0.0.2:1"));
        assert!(!excludes("[::]:1", "127.0.0.1:1"));
        assert!(!held("127.0.0.1:1").excludes(Transport::Udp, "127.0.0.1:1".parse().unwrap()));
    }

    #[test]
    fn our_own_socket_is_found_as_ours() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let machine = Machine::here();
        let all = held(&machine);
        let own = all.iter().find(|held| held.address == listener.local_addr().unwrap()).unwrap();
        let holders = holders(&machine, &[own.inode]);
        assert_eq!(holders.get(&own.inode).map(|process| process.pid), Some(std::process::id()));
    }
}
