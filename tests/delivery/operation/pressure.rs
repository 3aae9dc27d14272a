//! Memory that subscribers hold who neither read nor acknowledge: publishers wait for it for some seconds at most, and
//! every message that goes is counted.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt;
use fogmux_tests::suite::Case;

use super::http;
use crate::mqtt::client::{Came, Client, Login};
use crate::mqtt::wire::Transport;

pub(super) const AWAY: Case =
    Case { name: "sessions without a connection do not stop publishers for good", run: sessions_away };
pub(super) const SILENT: Case =
    Case { name: "subscribers that acknowledge nothing do not stop publishers for good", run: silent_subscribers };
pub(super) const OVERRUN: Case =
    Case { name: "what a subscriber is sent that is disconnected at once is counted", run: overrun };

/// The mark above which publishers wait; twelve large messages are more.
const SETTINGS: [&str; 2] = ["bus.memory_high_bytes=8MiB", "mqtt.tight_bytes=4MiB"];
const LARGE: usize = 1_000_000;
const SUBSCRIBERS: usize = 12;
const PATIENCE: Duration = Duration::from_secs(20);

/// Publishes a large message, then small ones until one is acknowledged behind the mark; HTTP takes publications, too.
fn publishers_go_on(gateway: &Gateway) -> Result<()> {
    let mut publisher = Client::open(gateway, "publisher", Transport::Tcp)?;
    let began = Instant::now();
    for (id, bytes) in [(1, LARGE), (2, 10), (3, 10)] {
        publisher.send(&mqtt::publish(mqtt::V4, b"t", &vec![b'x'; bytes], 1, false, id))?;
        let came = publisher.next().with_context(|| format!("PUBACK {id}"))?;
        ensure!(came == Came::Acknowledged(id, 0), "{came:?} instead of PUBACK {id}");
    }
    ensure!(began.elapsed() < PATIENCE, "publishers waited for {:?}", began.elapsed());
    let put = http(gateway, "PUT", "/topics/other", b"x")?;
    ensure!(put.0 == 201, "PUT {put:?}");
    Ok(())
}

fn sessions_away() -> Result<String> {
    let mut gateway = Gateway::start(&SETTINGS)?;
    let session = |name: String| -> Result<Client> {
        Client::login(&gateway, &Login { session: 3600, ..Login::new(&name, Transport::Tcp).v5() })
    };
    for number in 0..SUBSCRIBERS {
        session(format!("away-{number}"))?.subscribe(&["t"], 1)?;
    }
    gateway.wait_metric("fogmux_door_connections{door=\"mqtt\"}", PATIENCE, |open| open == 0.0)?;
    publishers_go_on(&gateway)?;
    gateway.check_conservation()?;
    // The messages wait in the store, so nobody lost anything.
    for number in 0..SUBSCRIBERS {
        let mut client = session(format!("away-{number}"))?;
        for bytes in [LARGE, 10, 10] {
            let came = client.message_or("what waited")?.payload.len();
            ensure!(came == bytes, "session {number} was sent {came} bytes instead of {bytes}");
        }
        end_session(&mut client)?;
    }
    gateway.settle()?;
    Ok(String::new())
}

fn silent_subscribers() -> Result<String> {
    let mut gateway = Gateway::start(&SETTINGS)?;
    let readers: Vec<_> = (0..SUBSCRIBERS)
        .map(|number| {
            let mut client = Client::login(&gateway, &Login::new(&format!("silent-{number}"), Transport::Tcp).v5())?;
            client.acknowledges = false;
            client.subscribe(&["t"], 1)?;
            Ok(std::thread::spawn(move || -> Result<Option<u8>> {
                let mut reason = None;
                loop {
                    match client.next()? {
                        Came::Disconnect(code) => reason = Some(code),
                        Came::End => return Ok(reason),
                        Came::Message(_) | Came::Suback(_) | Came::Acknowledged(..) | Came::Pong => {}
                    }
                }
            }))
        })
        .collect::<Result<_>>()?;
    publishers_go_on(&gateway)?;
    gateway.check_conservation()?;
    let names = ["fogmux_mqtt_cut_total{reason=\"queue_full\"}", "fogmux_mqtt_cut_total{reason=\"stalled\"}"];
    // They have two seconds to show that they read. Each is counted before its mailbox is emptied.
    gateway.wait_metric("fogmux_bus_mailbox_bytes", PATIENCE, |bytes| bytes == 0.0)?;
    let cut = gateway.sum(&names)?;
    ensure!(cut >= 1, "{cut} subscribers were disconnected");
    gateway.signal(rustix::process::Signal::TERM)?;
    let mut told = 0;
    for reader in readers {
        let reason = reader.join().map_err(|_| anyhow::anyhow!("panic"))??;
        told += u64::from(reason == Some(0x97));
    }
    ensure!(told == cut, "{told} of {cut} were told that the quota is exceeded");
    gateway.wait_exit(PATIENCE)?;
    Ok(format!("{cut} of {SUBSCRIBERS} subscribers were disconnected"))
}

/// One batch that fills the output and the queue of a subscriber before its connection has a turn. When it has one, the
/// queue is encoded for it, and then it is disconnected.
fn overrun() -> Result<String> {
    // With `mqtt.tight_bytes=0B`, any waiting byte makes memory tight.
    // An owner that holds less than a thousandth of the mark is never limited.
    let settings =
        ["bus.memory_high_bytes=4MiB", "mqtt.tight_bytes=0B", "mqtt.queue_messages_max=20", "workers.count=1"];
    let mut gateway = Gateway::start(&settings)?;
    let away = Login { session: 3600, ..Login::new("away", Transport::Tcp).v5() };
    Client::login(&gateway, &away)?.subscribe(&["held"], 1)?;
    gateway.wait_metric("fogmux_door_connections{door=\"mqtt\"}", PATIENCE, |open| open == 0.0)?;
    let mut subscriber = Client::open(&gateway, "subscriber", Transport::Tcp)?;
    subscriber.acknowledges = false;
    subscriber.subscribe(&["t"], 1)?;
    let mut publisher = Client::open(&gateway, "publisher", Transport::Tcp)?;
    let message = |topic: &[u8], id| mqtt::publish(mqtt::V4, topic, &[b'x'; 100], 1, false, id);
    publisher.send(&message(b"held", 1))?;
    ensure!(publisher.next()? == Came::Acknowledged(1, 0), "no PUBACK");
    let batch: Vec<u8> = (2..=300).flat_map(|id| message(b"t", id)).collect();
    publisher.send(&batch)?;
    for id in 2..=300 {
        let came = publisher.next()?;
        ensure!(came == Came::Acknowledged(id, 0), "{came:?} instead of PUBACK {id}");
    }
    gateway.wait_metric("fogmux_mqtt_cut_total{reason=\"queue_full\"}", PATIENCE, |cut| cut == 1.0)?;
    gateway.check_conservation()?;
    drop((publisher, subscriber));
    // A session that is as large as the memory that is allowed may be cut down: it begins anew.
    drop(Client::login(&gateway, &Login::new("away", Transport::Tcp).v5())?);
    gateway.settle()?;
    Ok(String::new())
}

/// DISCONNECT with a Session Expiry Interval of 0.
fn end_session(client: &mut Client) -> Result<()> {
    client.send(&mqtt::packet(0xE0, &[0, 5, 0x11, 0, 0, 0, 0]))
}
