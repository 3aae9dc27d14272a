//! Sockets that listen, and accepting from them without ever spinning.

use std::{
    io,
    net::{SocketAddr, TcpListener, UdpSocket},
    time::Duration,
};

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::admission::{Admission, Admitted};

/// Connections that the kernel queues: after a restart a gateway meets all its devices at once.
const BACKLOG: i32 = 4096;
/// How long accepting pauses without descriptors, for closing connections to free some.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
/// A dead peer behind a NAT is noticed after about two minutes even by protocols that do not ask.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// UDP buffers in bytes; the kernel cuts them to `net.core.rmem_max` and `wmem_max`, which `fogmux doctor` looks at.
pub const UDP_BUFFER_BYTES: usize = 4 << 20;

/// Whether several sockets share a port and the kernel spreads what arrives over them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortSharing {
    /// One socket; binding a taken port fails.
    Exclusive,
    /// `SO_REUSEPORT`: one socket per worker. Only processes of the same user can join.
    Shared,
}

/// A listening TCP socket, non-blocking, ready for `tokio::net::TcpListener::from_std` on some worker.
///
/// An IPv6 address takes IPv6 only, so that `0.0.0.0` and `[::]` can stand beside each other with different rules.
///
/// # Errors
/// The system refuses the address.
pub fn tcp(address: SocketAddr, sharing: PortSharing) -> io::Result<TcpListener> {
    let socket = socket(address, Type::STREAM, Protocol::TCP, sharing)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A UDP socket, non-blocking, with large buffers where the kernel allows them.
///
/// # Errors
/// The system refuses the address.
pub fn udp(address: SocketAddr, sharing: PortSharing) -> io::Result<UdpSocket> {
    let socket = socket(address, Type::DGRAM, Protocol::UDP, sharing)?;
    // Less than we ask for is no reason not to start.
    let _ = socket.set_recv_buffer_size(UDP_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(UDP_BUFFER_BYTES);
    decline_groups_of_others(&socket, address);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Has a socket of all addresses not take what comes to groups that other sockets of this machine have joined: what was
/// sent to a group must not be answered as if it had been sent to this machine (RFC 7252 §8.2).
fn decline_groups_of_others(socket: &Socket, address: SocketAddr) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // Before Linux 4.20 there was no such option for IPv6.
        let _ = match address {
            SocketAddr::V4(_) => socket.set_multicast_all_v4(false),
            SocketAddr::V6(_) => socket.set_multicast_all_v6(false),
        };
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = (socket, address);
}

/// UDP sockets for `count` workers on one port. With port 0 all get the same free one.
///
/// # Errors
/// The system refuses the address.
pub fn udp_group(address: SocketAddr, count: usize) -> io::Result<Vec<UdpSocket>> {
    udp_group_as(address, count, if count > 1 { PortSharing::Shared } else { PortSharing::Exclusive })
}

/// The same with a choice: a port that is shared can also be that of multicast groups, [`Interface::join`].
///
/// # Errors
/// The system refuses the address.
///
/// [`Interface::join`]: crate::interfaces::Interface::join
pub fn udp_group_as(address: SocketAddr, count: usize, sharing: PortSharing) -> io::Result<Vec<UdpSocket>> {
    // Shared sockets of the same user would join each other in silence: a second gateway must fail to start instead.
    // For port 0 Linux counts a port as free that shared sockets have, so it is asked for one that nobody has.
    let first = udp(address, PortSharing::Exclusive)?;
    let address = first.local_addr()?;
    let first = match sharing {
        PortSharing::Exclusive => first,
        PortSharing::Shared => {
            drop(first);
            udp(address, sharing)?
        }
    };
    let mut sockets = vec![first];
    for _ in 1..count {
        sockets.push(udp(address, sharing)?);
    }
    Ok(sockets)
}

fn socket(address: SocketAddr, kind: Type, protocol: Protocol, sharing: PortSharing) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    match sharing {
        PortSharing::Exclusive => {}
        #[cfg(unix)]
        PortSharing::Shared => socket.set_reuse_port(true)?,
        #[cfg(not(unix))]
        PortSharing::Shared => socket.set_reuse_address(true)?,
    }
    Ok(socket)
}

/// Sets up an accepted connection: no delay, because we coalesce writes ourselves, and keep-alive.
///
/// # Errors
/// The connection is already gone.
pub fn prepare(stream: &tokio::net::TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Limits how long the peer's host may leave sent bytes unacknowledged or its window closed; after that the connection
/// fails with `ETIMEDOUT` (RFC 5482 §3). Without it, the system retransmits for about fifteen minutes. Does nothing on
/// systems without this option.
pub fn set_user_timeout(stream: &tokio::net::TcpStream, limit: Duration) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Err(error) = SockRef::from(stream).set_tcp_user_timeout(Some(limit)) {
        tracing::debug!(%error, "no user timeout");
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = (stream, limit);
}

/// Accepts the next connection that is admitted. Others are closed at once and reported to `on_refused`. Never fails:
/// errors of single connections are skipped, and without descriptors connections are closed until some are free.
pub async fn accept(
    listener: &tokio::net::TcpListener,
    admission: &Admission,
    on_refused: impl Fn(),
) -> (tokio::net::TcpStream, SocketAddr, Admitted) {
    let mut exhausted = false;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match admission.admit(peer.ip()) {
                Some(admitted) if prepare(&stream).is_ok() => return (stream, peer, admitted),
                Some(_) => {}
                None => {
                    on_refused();
                    reset(&stream);
                }
            },
            Err(error) if is_out_of_descriptors(&error) && turn_away(listener, admission) => {
                admission.refuse("open files", admission.connections());
                on_refused();
                // One is refused for each that arrives; established connections have their turn in between.
                tokio::task::yield_now().await;
            }
            Err(error) if is_exhaustion(&error) => {
                if !exhausted {
                    tracing::warn!(%error, "cannot accept connections for lack of system resources");
                }
                exhausted = true;
                tokio::time::sleep(EXHAUSTED_PAUSE).await;
            }
            // ECONNABORTED, EPROTO, or EPERM by a firewall concern one connection, which is gone (accept(2)).
            Err(error) => {
                tracing::debug!(%error, "a connection was lost before it was accepted");
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Closes with a reset, so that a flood of refused connections leaves nothing in TIME-WAIT.
fn reset(stream: &tokio::net::TcpStream) {
    // If it cannot be set the connection just closes the ordinary way.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// Accepts one connection with the spare descriptor and closes it. Otherwise its peer would wait until it gives up, and
/// the listener would stay readable.
fn turn_away(listener: &tokio::net::TcpListener, admission: &Admission) -> bool {
    let accepted = admission.with_spare_descriptor(|| {
        let (stream, _) = SockRef::from(listener).accept().ok()?;
        // As in `reset`.
        let _ = stream.set_linger(Some(Duration::ZERO));
        Some(())
    });
    accepted.flatten().is_some()
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

/// EMFILE, ENFILE, ENOBUFS, ENOMEM: retrying at once would only spin.
fn is_exhaustion(error: &io::Error) -> bool {
    const ENOMEM: i32 = 12;
    const ENOBUFS_LINUX: i32 = 105;
    const ENOBUFS_BSD: i32 = 55;
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE | ENOMEM | ENOBUFS_LINUX | ENOBUFS_BSD))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::admission::AdmissionLimits;

    const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    #[tokio::test]
    async fn what_is_not_admitted_is_closed_and_the_next_is_served() {
        let listener = tokio::net::TcpListener::from_std(tcp(ANY_PORT, PortSharing::Exclusive).unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let admission = Admission::new(AdmissionLimits { connections_max: 1, per_address_max: 1 });
        let first = tokio::net::TcpStream::connect(address).await.unwrap();
        let refused = std::cell::Cell::new(0);
        let count = || refused.set(refused.get() + 1);
        let (stream, peer, admitted) = accept(&listener, &admission, count).await;
        assert_eq!(peer, first.local_addr().unwrap());
        assert!(stream.nodelay().unwrap());
        let mut second = tokio::net::TcpStream::connect(address).await.unwrap();
        tokio::select! {
            _ = accept(&listener, &admission, count) => panic!("admitted"),
            read = second.read_u8() => assert!(read.is_err()),
        }
        drop(admitted);
        let third = tokio::net::TcpStream::connect(address).await.unwrap();
        let (_, peer, _admitted) = accept(&listener, &admission, count).await;
        assert_eq!(refused.get(), 1);
        assert_eq!(peer, third.local_addr().unwrap());
    }

    #[test]
    fn a_group_shares_one_port_and_a_second_group_is_refused() {
        let group = udp_group(ANY_PORT, 3).unwrap();
        let address = group[0].local_addr().unwrap();
        assert!(group.iter().all(|socket| socket.local_addr().unwrap() == address));
        assert_eq!(udp_group(address, 3).err().unwrap().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(udp_group(address, 1).err().unwrap().kind(), io::ErrorKind::AddrInUse);
    }

    /// Linux would give out the port of another: of 700 groups eight or nine would share one.
    #[test]
    fn groups_of_any_port_have_one_each() {
        let groups: Vec<_> = (0..700).map(|_| udp_group_as(ANY_PORT, 1, PortSharing::Shared).unwrap()).collect();
        let ports: std::collections::HashSet<_> =
            groups.iter().flatten().map(|socket| socket.local_addr().unwrap().port()).collect();
        assert_eq!(ports.len(), groups.len());
    }

    #[test]
    fn both_families_can_have_the_same_port() {
        let Ok(six) = tcp("[::]:0".parse().unwrap(), PortSharing::Exclusive) else { return };
        let port = six.local_addr().unwrap().port();
        assert!(tcp(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port), PortSharing::Exclusive).is_ok());
    }
}
