//! Memory: a hostile mix stays below a bound, and what clients made the process take comes back when they go.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4};
use fogmux_tests::suite::Case;
use fogmux_tests::{tcp, tls, xmpp};

use super::{http, keep};

pub(super) const RETAINED_AND_READERS: Case =
    Case { name: "memory: 50 000 kept values and 20 readers", run: retained_and_readers };
pub(super) const LARGE_PUTS: Case = Case { name: "memory: 500 PUTs of 200 KB", run: large_puts };
pub(super) const GAUGE: Case = Case { name: "memory: what is said of retained messages is what they take", run: gauge };
pub(super) const CLIENTS_GONE: Case = Case { name: "memory: 2 000 clients come and go", run: clients_gone };
pub(super) const TLS_CLIENTS_GONE: Case =
    Case { name: "memory: 900 TLS clients of three doors stay and go", run: tls_clients_gone };

pub(super) const MIX: Case = Case { name: "memory: kept values, large PUTs and readers that do not read", run: mix };

/// The most that the defaults may take for a mix of kept values, large messages and readers: 120 MB with the 14 that a
/// release build has at idle. A build without optimisation has more.
const ABOVE_IDLE_BYTES_MAX: u64 = 106_000_000;

/// In the log, at level debug, when the gateway has given free memory back to the system.
const GAVE_BACK: &str = "gave memory back";
const PATIENCE: Duration = Duration::from_secs(90);

fn peak(gateway: &Gateway, idle_bytes: u64) -> Result<String> {
    let (peak, idle) = (gateway.peak_resident_bytes()?, idle_bytes / 1_000_000);
    let grown = peak.saturating_sub(idle_bytes);
    ensure!(grown <= ABOVE_IDLE_BYTES_MAX, "it grew from {idle} to {} MB", peak / 1_000_000);
    Ok(format!("(idle {idle} MB, peak {})", peak / 1_000_000))
}

fn retained_and_readers() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let idle = gateway.resident_bytes()?;
    keep(&gateway, 50_000, 1_000)?;
    let address = gateway.address("mqtt")?;
    let mut readers = Vec::new();
    for number in 0..20 {
        let mut reader = Connection::open(address, V4, &format!("reader{number}"))?;
        reader.stream.write_all(&mqtt::subscribe(V4, 1, &["kept/#"], 1))?;
        readers.push(reader);
    }
    // They take their time: some of it is in the sockets and the rest in the gateway.
    std::thread::sleep(Duration::from_secs(1));
    for reader in &mut readers {
        let mut received = 0;
        reader.stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        let mut buffer = vec![0; 64 << 10];
        while received < 1_000_000 {
            match reader.stream.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(count) => received += count,
            }
        }
    }
    peak(&gateway, idle)
}

fn large_puts() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let idle = gateway.resident_bytes()?;
    let body = vec![b'x'; 200_000];
    let mut refused = 0;
    for number in 0..500 {
        let (status, text) = http(&gateway, "PUT", &format!("/topics/large/{number}"), &body)?;
        ensure!(status < 300 || status == 503, "PUT {number}: {status} {text}");
        refused += u32::from(status == 503);
    }
    gateway.settle()?;
    Ok(format!("({refused} refused) {}", peak(&gateway, idle)?))
}

/// All at once: readers of everything that take nothing, a map full of small values, and large ones by eight clients.
fn mix() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let idle = gateway.resident_bytes()?;
    let address = gateway.address("mqtt")?;
    let mut readers = Vec::new();
    for number in 0..20 {
        let mut reader = Connection::open(address, V4, &format!("reader{number}"))?;
        reader.stream.write_all(&mqtt::subscribe(V4, 1, &["#"], number % 2))?;
        readers.push(reader);
    }
    // Readers that acknowledge nothing may make it refuse some.
    let _ = keep(&gateway, 50_000, 1_000);
    let http_address = gateway.address("http")?;
    std::thread::scope(|scope| {
        for putter in 0..8 {
            scope.spawn(move || {
                let head = "HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 200000\r\n\r\n";
                for number in 0..63 {
                    let mut request = format!("PUT /topics/large/{putter}/{number} {head}").into_bytes();
                    request.resize(request.len() + 200_000, b'x');
                    // Whether it is taken or refused is for other cases.
                    let _ = tcp::ask(http_address, &request);
                }
            });
        }
    });
    gateway.check_alive()?;
    let told = peak(&gateway, idle)?;
    drop(readers);
    gateway.settle()?;
    // The retained messages stay, with the allocator's share and the store's index; nothing stays of the readers.
    let kept = gateway.sum(&["fogmux_bus_retained_bytes"])?;
    let after = gateway.comes_down(idle + kept / 2 * 3, Instant::now() + Duration::from_secs(10))?;
    let megabytes = |bytes: u64| bytes / 1_000_000;
    Ok(format!("{told} (after {} MB with {} kept)", megabytes(after), megabytes(kept)))
}

/// The gauge of retained messages agrees with the resident set: `bus.retained_bytes_max` depends on it.
fn gauge() -> Result<String> {
    // Beside the 8 MB that are allowed anyhow: route caches, and the index of the store.
    const BESIDE_BYTES: u64 = 5_000_000;
    // Everything is on the disk when it is acknowledged: what waits for the disk is no part of what is weighed.
    let mut gateway = Gateway::start(&["workers.count=1", "store.durability=group"])?;
    let idle = gateway.resident_bytes()?;
    keep(&gateway, 60_000, 100)?;
    let said = gateway.sum(&["fogmux_bus_retained_bytes"])?;
    let after = gateway.comes_down(idle + said / 10 * 11 + BESIDE_BYTES, Instant::now() + Duration::from_secs(20))?;
    gateway.settle()?;
    Ok(format!("{} MB said, {} MB taken", said / 1_000_000, after.saturating_sub(idle) / 1_000_000))
}

fn clients_gone() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let idle = gateway.resident_bytes()?;
    let address = gateway.address("mqtt")?;
    let mut clients = Vec::new();
    for number in 0..2_000 {
        // Where the suite itself has no more files, fewer do.
        let Ok(mut client) = Connection::open(address, V4, &format!("c{number}")) else { break };
        client.subscribe(1, &[&format!("c/{number}/#"), "all"], 1)?;
        clients.push(client);
    }
    let count = clients.len();
    ensure!(count >= 500, "only {count} clients");
    let mut publisher = Connection::open(address, V4, "publisher")?;
    for _ in 0..5 {
        publisher.publish("all", &[7; 2_000])?;
    }
    for client in &mut clients {
        let (first, _) = client.read()?;
        ensure!(first == 0x30, "{first:#x} instead of PUBLISH");
    }
    let most = gateway.resident_bytes()?;
    drop((clients, publisher));
    let after = gateway.returns_to_idle(idle)?;
    let megabytes = |bytes: u64| bytes / 1_000_000;
    Ok(format!("({count} clients: idle {} MB, then {}, after {})", megabytes(idle), megabytes(most), megabytes(after)))
}

/// Connections of each of three doors; together they have to hold more than may be left of them.
const OF_EACH_DOOR: usize = 300;
/// Bytes that an idle one may cost on average. Measured in a release build: 9.5 KB over MQTT, 10.5 over XMPP and 12.7
/// for an event stream. A bare echo server on the same TLS stack takes 9.7.
const TLS_CLIENT_BYTES_MAX: u64 = 14_000;

/// They stay until the gateway has given back what their logins took: from then on the resident set is not larger than
/// what is in use, and does not become smaller by itself when they leave.
fn tls_clients_gone() -> Result<String> {
    let mut gateway = Gateway::start(&["log.filter=info,fogmux=debug", "http.event_stream_grace=1s"])?;
    gateway.wait_log(GAVE_BACK, PATIENCE)?;
    let idle = gateway.resident_bytes()?;
    gateway.forget_log()?;
    let config = tls::config(gateway.ca())?;
    let (mut mqtt, mut xmpp, mut http) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..OF_EACH_DOOR {
        let mut stream = tls::connect(&config, gateway.address("mqtts")?)?;
        stream.write_all(&mqtt::connect(V4, &format!("t{number}")))?;
        stream.read_exact(&mut [0; 4])?;
        mqtt.push(stream);
        xmpp.push(xmpp::Session::anonymous(&config, gateway.address("xmpps")?)?);
        let mut stream = tls::connect(&config, gateway.address("https")?)?;
        write!(stream, "GET /subscribe?filter=t/{number} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        ensure!(&status == b"HTTP/1.1 200", "{}", String::from_utf8_lossy(&status));
        http.push(stream);
    }
    gateway.forget_log()?;
    gateway.wait_log(GAVE_BACK, PATIENCE)?;
    let held = gateway.resident_bytes()?;
    let each = held.saturating_sub(idle) / (3 * OF_EACH_DOOR as u64);
    drop((mqtt, xmpp, http));
    let after = gateway.returns_to_idle(idle)?;
    ensure!(each <= TLS_CLIENT_BYTES_MAX, "{each} bytes for each connection");
    let megabytes = |bytes: u64| bytes / 1_000_000;
    Ok(format!(
        "({each} bytes each; idle {} MB, then {}, after {})",
        megabytes(idle),
        megabytes(held),
        megabytes(after)
    ))
}
