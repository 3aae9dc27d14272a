//! The send queues of the kernel, as `/proc/net/tcp` lists them (proc_pid_net(5)): bytes that were written to a
//! client's socket and that its host has not acknowledged.
//!
//! Megabytes fit into such a queue. A client that reads slowly shows nothing but its queue becoming shorter, for much
//! longer than a shutdown waits for one that takes nothing; and a connection that is closed with a queue loses it as
//! soon as its client sends anything.

use std::{
    collections::HashMap,
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];

/// A queue of so many bytes waits for its client to read; a shorter one may be an answer on its way to a client that
/// goes on asking.
const WAITING_BYTES: u32 = 4 << 10;

/// The queues that are not empty, by the address of the client.
#[derive(Debug, Default)]
pub(crate) struct Unsent(HashMap<SocketAddr, u32>);

impl Unsent {
    /// Reads the queues of connections to these ports of ours.
    ///
    /// # Errors
    /// There is no such table: not on Linux, or hidden from this process.
    pub(crate) fn read(ports: &[u16]) -> io::Result<Self> {
        let mut queues = Self::default();
        let [tcp, tcp6] = TABLES;
        queues.add(&fs::read_to_string(tcp)?, ports);
        // Absent where IPv6 is.
        queues.add(&fs::read_to_string(tcp6).unwrap_or_default(), ports);
        Ok(queues)
    }

    fn add(&mut self, table: &str, ports: &[u16]) {
        let lines = table.lines().skip(1);
        for (local, remote, bytes) in lines.filter_map(line).filter(|(local, ..)| ports.contains(&local.port())) {
            debug_assert!(bytes > 0, "an empty queue at {local}");
            *self.0.entry(remote).or_default() += bytes;
        }
    }

    /// The queues that wait for their clients to read.
    fn waiting(&self) -> impl Iterator<Item = (&SocketAddr, &u32)> {
        self.0.iter().filter(|(_, bytes)| **bytes >= WAITING_BYTES)
    }

    /// Whether a client that was waited for has taken something since an earlier look.
    pub(crate) fn has_progress_since(&self, earlier: &Self) -> bool {
        earlier.waiting().any(|(remote, before)| self.0.get(remote).is_none_or(|now| now < before))
    }

    /// Whether no client is waited for.
    pub(crate) fn is_read(&self) -> bool {
        self.waiting().next().is_none()
    }

    /// Whether something is on its way to this client.
    pub(crate) fn has(&self, remote: SocketAddr) -> bool {
        self.0.contains_key(&SocketAddr::new(remote.ip().to_canonical(), remote.port()))
    }

    /// The number of clients that are waited for, and of bytes.
    pub(crate) fn count(&self) -> (usize, u64) {
        (self.waiting().count(), self.waiting().map(|(_, bytes)| u64::from(*bytes)).sum())
    }
}

/// The addresses of both ends in a line of the table, and the bytes in the send queue, if there are any.
fn line(line: &str) -> Option<(SocketAddr, SocketAddr, u32)> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, remote, _state) = (fields.next()?, fields.next()?, fields.next()?);
    let (send, _receive) = fields.next()?.split_once(':')?;
    let bytes = u32::from_str_radix(send, 16).ok().filter(|bytes| *bytes > 0)?;
    Some((address(local)?, address(remote)?, bytes))
}

/// An address in hexadecimal: words in the order of the host, then the port as a number.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, into) in bytes.chunks_exact_mut(4).enumerate() {
                into.copy_from_slice(&word(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn lines_are_read() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n";
        let rows = "\
            0: 0100007F:075B 0100007F:C5B4 01 00001000:00000000 00:00000000 00000000 0 0 1 1\n\
            1: 0100007F:075B 00000000:0000 0A 00000000:00000003 00:00000000 00000000 0 0 1 1\n\
            2: 0100007F:0016 0100007F:C5B5 01 00000010:00000000 00:00000000 00000000 0 0 1 1\n\
            3: 0000000000000000FFFF00000100007F:075B 0000000000000000FFFF00000100007F:0001 04 000000FF:0 0 0 0\n\
            4: 00000000000000000000000001000000:075B 00000000000000000000000001000000:0002 01 00000001:0 0 0 0\n\
            5: nonsense\n";
        let mut queues = Unsent::default();
        queues.add(&format!("{head}{rows}"), &[1883]);
        assert_eq!(queues.count(), (1, 4096), "the others are on their way");
        assert!(queues.has("127.0.0.1:50612".parse().unwrap()) && queues.has("[::1]:2".parse().unwrap()));
        // The same client, as a listener for both families sees it.
        assert!(queues.has("127.0.0.1:1".parse().unwrap()) && queues.has("[::ffff:127.0.0.1]:1".parse().unwrap()));
        assert!(!queues.has("127.0.0.1:50613".parse().unwrap()), "that is another port of ours");
    }

    #[test]
    fn progress_is_a_queue_that_became_shorter() {
        let queues = |list: &[(u16, u32)]| {
            Unsent(list.iter().map(|(port, kib)| (([127, 0, 0, 1], *port).into(), *kib << 10)).collect())
        };
        let before = queues(&[(1, 10), (2, 10)]);
        for (now, has_progress) in [
            (queues(&[(1, 10), (2, 10)]), false),
            (queues(&[(1, 11), (2, 10), (3, 1)]), false),
            (queues(&[(1, 99), (2, 9)]), true),
            (queues(&[(1, 10)]), true),
            (queues(&[]), true),
            (queues(&[(1, 10), (2, 10), (3, 0)]), false),
        ] {
            assert_eq!(now.has_progress_since(&before), has_progress, "{now:?}");
        }
        assert!(!before.has_progress_since(&queues(&[])));
        let answer = queues(&[(1, 3)]);
        assert!(!queues(&[]).has_progress_since(&answer) && answer.is_read() && !before.is_read());
    }

    #[test]
    fn a_client_that_reads_is_seen_in_the_table_of_this_host() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, peer) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(written) = server.write(&[0; 64 << 10]) {
            sent += written;
        }
        let ports = [listener.local_addr().unwrap().port()];
        let full = Unsent::read(&ports).unwrap();
        assert!(full.has(peer) && full.count().0 == 1, "{full:?}");
        client.read_exact(&mut vec![0; sent]).unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        while Unsent::read(&ports).unwrap().has(peer) {
            assert!(Instant::now() < end, "everything was read");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(Unsent::read(&ports).unwrap().has_progress_since(&full));
    }
}
