//! Links as they are: frames over them, counted, lost, late, and captured. They need root and iproute2, so plain
//! `cargo test` lists them as ignored; `cargo xtask test unit` includes them where it runs as root.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod rare;

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use fogmux_traffic::link::{CLIENT, Conditions, GATEWAY, Laid, Means};
use fogmux_traffic::outcome::Wire;

/// Ethernet, IPv4 and UDP.
const UDP_HEADERS: u64 = 14 + 20 + 8;
/// Ethernet, IPv4 and TCP with time stamps.
const TCP_HEADERS: u64 = 14 + 20 + 32;
const MTU_FRAME: usize = 1_514;

/// A link under these conditions.
fn laid(conditions: &str) -> Laid {
    Laid::lay(&conditions.parse::<Conditions>().unwrap(), 1).unwrap_or_else(|error| panic!("{conditions}: {error}"))
}

/// Runs something at the gateway's end, on a thread of its own.
fn at_gateway<T: Send>(laid: &Laid, work: impl FnOnce() -> T + Send) -> T {
    let entered = laid.enter_gateway().unwrap();
    let result = thread::scope(|scope| scope.spawn(work).join().unwrap());
    drop(entered);
    result
}

/// Sockets of both ends.
fn udp(laid: &Laid) -> (UdpSocket, UdpSocket) {
    let gateway = at_gateway(laid, || UdpSocket::bind((GATEWAY, 5683)).unwrap());
    let entered = laid.enter_client().unwrap();
    let client = UdpSocket::bind((CLIENT, 0)).unwrap();
    drop(entered);
    client.connect((GATEWAY, 5683)).unwrap();
    gateway.connect(client.local_addr().unwrap()).unwrap();
    for socket in [&client, &gateway] {
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    }
    (client, gateway)
}

/// The next datagram. A wait with a time-out is not begun again by the kernel when something interrupts it (signal(7)).
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.recv(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

fn since(now: Wire, before: Wire) -> Wire {
    Wire {
        bytes_up: now.bytes_up - before.bytes_up,
        bytes_down: now.bytes_down - before.bytes_down,
        packets_up: now.packets_up - before.packets_up,
        packets_down: now.packets_down - before.packets_down,
    }
}

/// Sends `count` datagrams and says how many came, in a time that the link surely needs less of.
fn count_of(from: &UdpSocket, to: &UdpSocket, count: u64) -> u64 {
    let mut buffer = [0; 64];
    to.set_nonblocking(true).unwrap();
    let mut came = 0;
    for _ in 0..count {
        from.send(&[7; 10]).unwrap();
        thread::sleep(Duration::from_micros(20));
        while receive(to, &mut buffer).is_ok() {
            came += 1;
        }
    }
    thread::sleep(Duration::from_millis(100));
    while receive(to, &mut buffer).is_ok() {
        came += 1;
    }
    to.set_nonblocking(false).unwrap();
    came
}

#[test]
#[ignore = "needs root: lays network namespaces; `cargo xtask test unit` runs it as root"]
fn nothing_is_on_the_wire_but_what_is_sent() {
    let laid = laid("lossless");
    thread::sleep(Duration::from_millis(1_500));
    assert_eq!(laid.wire(), Wire::default(), "no ARP, no IPv6, no IGMP");
    let (client, gateway) = udp(&laid);
    let mut buffer = [0; 64];
    client.send(&[1; 10]).unwrap();
    assert_eq!(receive(&gateway, &mut buffer).unwrap(), 10);
    gateway.send(&[2; 20]).unwrap();
    assert_eq!(receive(&client, &mut buffer).unwrap(), 20);
    let counter = laid.counter();
    let expected = Wire { bytes_up: UDP_HEADERS + 10, packets_up: 1, bytes_down: UDP_HEADERS + 20, packets_down: 1 };
    assert_eq!((laid.wire(), counter()), (expected, expected));
    assert_eq!(laid.means(), Means::Nothing);
}

#[test]
#[ignore = "needs root: lays network namespaces; `cargo xtask test unit` runs it as root"]
fn the_gateway_runs_in_its_namespace_and_is_the_process_itself() {
    let laid = laid("lossless");
    let wrapper = laid.wrapper();
    let mut command = Command::new(&wrapper[0]);
    let child = command.args(&wrapper[1..]).args(["sh", "-c", "echo $$; cat /proc/net/fib_trie; :"]);
    let child = child.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(said.lines().next(), Some(pid.to_string().as_str()));
    assert!(said.contains("10.77.0.1"), "{said}");
}

#[test]
#[ignore = "needs root: lays network namespaces; `cargo xtask test unit` runs it as root"]
fn the_thread_comes_back_and_nothing_is_left() {
    let home = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let laid = laid("lossless");
    let before = home();
    let entered = laid.enter_client().unwrap();
    assert_ne!(home(), before);
    drop(entered);
    assert_eq!(home(), before);
    let namespace = std::path::Path::new("/run/netns").join(&laid.wrapper()[3]);
    assert!(namespace.exists());
    drop(laid);
    assert!(!namespace.exists());
}

#[test]
#[ignore = "needs root: lays network namespaces; `cargo xtask test unit` runs it as root"]
fn what_a_killed_process_left_is_removed() {
    // No process has this number: 2^22 is the greatest.
    let name = "fogmux-4194305-0-gateway";
    assert!(Command::new("ip").args(["netns", "add", name]).status().unwrap().success());
    drop(laid("lossless"));
    assert!(!std::path::Path::new("/run/netns").join(name).exists());
}

/// A megabyte each way over TCP.
fn transfer(laid: &Laid, bytes: usize) -> Duration {
    let listener = at_gateway(laid, || TcpListener::bind((GATEWAY, 1883)).unwrap());
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 65_536];
        let mut left = bytes;
        while left > 0 {
            left -= stream.read(&mut buffer).unwrap();
        }
        stream.write_all(&vec![1; bytes]).unwrap();
    });
    let entered = laid.enter_client().unwrap();
    let began = Instant::now();
    let mut stream = TcpStream::connect((GATEWAY, 1883)).unwrap();
    drop(entered);
    stream.write_all(&vec![1; bytes]).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), bytes);
    server.join().unwrap();
    began.elapsed()
}

/// Lengths of frames by direction: up is from the client's hardware address.
#[derive(Default)]
struct Lengths {
    up: Vec<usize>,
    down: Vec<usize>,
}

impl Lengths {
    fn add(&mut self, frame: &[u8]) {
        let up = frame.get(6..12) == Some(&[2, 0, 0, 0, 0, 2]);
        if up { self.up.push(frame.len()) } else { self.down.push(frame.len()) }
    }

    fn wire(&self) -> Wire {
        let bytes = |lengths: &[usize]| lengths.iter().map(|length| *length as u64).sum();
        Wire {
            bytes_up: bytes(&self.up),
            packets_up: self.up.len() as u64,
            bytes_down: bytes(&self.down),
            packets_down: self.down.len() as u64,
        }
    }
}

#[test]
#[ignore = "needs root: lays network namespaces; `cargo xtask test unit` runs it as root"]
fn no_frame_exceeds_the_mtu_and_the_capture_has_all_that_was_counted() {
    let laid = laid("lossless");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("frames.pcap");
    let capture = laid.capture(Some(&path), Lengths::default(), Lengths::add).unwrap();
    transfer(&laid, 1 << 20);
    thread::sleep(Duration::from_millis(200));
    let captured = capture.finish().unwrap();
    let (lengths, wire) = (captured.state, laid.wire());
    assert!(captured.problem.is_none(), "{:?}", captured.problem);
    assert_eq!(lengths.wire(), wire);
    assert_eq!(lengths.up.iter().chain(&lengths.down).max(), Some(&MTU_FRAME));
    let segments = (1u64 << 20).div_ceil(MTU_FRAME as u64 - TCP_HEADERS);
    assert!(wire.packets_up >= segments && wire.packets_down >= segments, "{wire:?}");
    check_file(&std::fs::read(&path).unwrap(), captured.frames);
}

/// Follows the records of a pcap from one to the next.
fn check_file(file: &[u8], frames: u64) {
    assert_eq!(file[..8], [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0]);
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    // Frames of both directions are stamped on two cores, and may pass one another by as much as their clocks differ.
    const PASSING_NS: u64 = 1_000_000;
    let (mut at, mut count, mut before) = (24, 0, 0);
    while at < file.len() {
        let (seconds, nanos) = (u64::from(word(at)), u64::from(word(at + 4)));
        let stamp = seconds * 1_000_000_000 + nanos;
        assert!(seconds.abs_diff(now) < 60 && stamp + PASSING_NS >= before, "{stamp} after {before}");
        assert_eq!(file[at + 16 + 12..at + 16 + 14], [8, 0], "IPv4");
        before = stamp;
        at += 16 + word(at + 8) as usize;
        count += 1;
    }
    assert_eq!((at, count), (file.len(), frames));
}

#[test]
#[ignore = "needs root: lays network namespaces; `cargo xtask test unit` runs it as root"]
fn as_much_is_lost_as_asked_for_in_each_direction() {
    for (conditions, up, down) in
        [("loss=20%", 0.2f64, 0.2f64), ("loss_down=25%", 0.0, 0.25), ("loss_up=10%,delay_up=100us", 0.1, 0.0)]
    {
        let laid = laid(conditions);
        let (client, gateway) = udp(&laid);
        for (from, to, loss) in [(&client, &gateway, up), (&gateway, &client, down)] {
            let came = count_of(from, to, 4_000) as f64;
            // Binomial, five standard deviations.
            let expected = 4_000.0 * (1.0 - loss);
            let allowed = 5.0 * f64::sqrt(expected * loss);
            assert!((came - expected).abs() <= allowed, "{conditions} by {}: {came} of {expected}", laid.means());
        }
        let wire = laid.wire();
        assert_eq!((wire.packets_up, wire.packets_down), (4_000, 4_000), "counted before they are lost");
    }
}

/// Round trips of a datagram, in ms, rising.
fn round_trips(laid: &Laid, count: usize) -> Vec<f64> {
    let (client, gateway) = udp(laid);
    let mut buffer = [0; 64];
    let mut times: Vec<f64> = (0..count)
        .map(|_| {
            let began = Instant::now();
            client.send(&[1; 10]).unwrap();
            receive(&gateway, &mut buffer).unwrap();
            gateway.send(&[1; 10]).unwrap();
            receive(&client, &mut buffer).unwrap();
            began.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times
}

#[test]
#[ignore = "needs root: lays network namespaces; `cargo xtask test unit` runs it as root"]
fn frames_are_as_late_as_asked_for() {
    let laid = laid("delay=20ms");
    let times = round_trips(&laid, 30);
    eprintln!("{}: shortest {:.3} ms, median {:.3} ms, longest {:.3} ms", laid.means(), times[0], times[15], times[29]);
    assert!(times[0] >= 40.0, "never early: {times:?}");
    // The machine may be busy; half of them are not held up by that.
    assert!(times[15] < 42.0, "{times:?}");
}

#[test]
#[ignore = "needs root: lays network namespaces; `cargo xtask test unit` runs it as root"]
fn jitter_spreads_them() {
    let laid = laid("delay=10ms,jitter=5ms");
    let times = round_trips(&laid, 60);
    assert_eq!(laid.means(), Means::Relay);
    assert!(times[0] >= 10.0 && times[59] - times[0] > 5.0, "{times:?}");
}

#[test]
#[ignore = "needs root: lays network namespaces; `cargo xtask test unit` runs it as root"]
fn a_rate_is_kept_to() {
    let laid = laid("rate=2mbit");
    let bytes = 100_000;
    let took = transfer(&laid, bytes).as_secs_f64();
    let wire = laid.wire();
    // Both directions are sent one after the other; acknowledgements go beside the other's data.
    let data = wire.bytes_up.min(wire.bytes_down) as f64;
    eprintln!("{}: {took:.3} s for {data} B each way", laid.means());
    let least = 2.0 * (bytes as f64) * 8.0 / 2e6;
    assert!(took >= least && took < 1.5 * least, "{took} s, at least {least}");
}

#[test]
#[ignore = "needs root: lays network namespaces; `cargo xtask test unit` runs it as root"]
fn presets_can_be_laid() {
    for name in ["lan", "wifi", "802.15.4", "lte", "karamina2024", "cui2017", "wiss2016"] {
        let laid = laid(name);
        let times = round_trips_of_any(&laid);
        eprintln!("{name}: by {}, {times:?}", laid.means());
    }
}

/// At least one of some round trips comes back, whatever is lost.
fn round_trips_of_any(laid: &Laid) -> Duration {
    let (client, gateway) = udp(laid);
    client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    gateway.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut buffer = [0; 64];
    for _ in 0..10 {
        let began = Instant::now();
        client.send(&[1; 10]).unwrap();
        if receive(&gateway, &mut buffer).is_ok() {
            gateway.send(&[1; 10]).unwrap();
            if receive(&client, &mut buffer).is_ok() {
                return began.elapsed();
            }
        }
    }
    panic!("nothing came back ten times")
}

/// With `acks=each` a receiver of two segments acknowledges both, though it has nothing to say.
#[test]
#[ignore = "needs root: lays network namespaces; `cargo xtask test unit` runs it as root"]
fn each_segment_is_acknowledged_when_asked_for() {
    let acknowledged = |conditions: &str| -> u64 {
        let laid = laid(conditions);
        let listener = at_gateway(&laid, || TcpListener::bind((GATEWAY, 1883)).unwrap());
        let entered = laid.enter_client().unwrap();
        let mut client = TcpStream::connect((GATEWAY, 1883)).unwrap();
        drop(entered);
        client.set_nodelay(true).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut buffer = [0; 64];
        // Past the first segments, which Linux acknowledges at once in any case.
        for _ in 0..40 {
            client.write_all(&[1; 10]).unwrap();
            server.read_exact(&mut buffer[..10]).unwrap();
            server.write_all(&[2; 10]).unwrap();
            client.read_exact(&mut buffer[..10]).unwrap();
        }
        thread::sleep(Duration::from_millis(100));
        let before = laid.wire();
        for _ in 0..10 {
            client.write_all(&[1; 10]).unwrap();
            server.read_exact(&mut buffer[..10]).unwrap();
            thread::sleep(Duration::from_millis(2));
            server.write_all(&[2; 10]).unwrap();
            client.read_exact(&mut buffer[..10]).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        thread::sleep(Duration::from_millis(100));
        let wire = since(laid.wire(), before);
        wire.packets_up + wire.packets_down
    };
    let (each, delayed) = (acknowledged("lossless,acks=each"), acknowledged("lossless"));
    assert_eq!(each, 40, "data and acknowledgement, both ways, ten times");
    assert!(delayed < each, "{delayed}");
}
