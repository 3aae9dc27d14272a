//! Loads at a steady pace, from clients that are not of the gateway: threads that block.

use std::io::Write as _;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::mqtt::{Connection, V5, packet, publish};

/// Retained topics.
const TOPICS: usize = 100;
/// Bytes of a payload.
const PAYLOAD: usize = 64;
/// Seconds that a session outlives its connection.
const EXPIRY: u32 = 3_600;
/// How long the last acknowledgements may take: a broker that writes everything with each change falls behind.
const PATIENCE: Duration = Duration::from_secs(300);

/// A load.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// Its name on the command line and in the table.
    pub(crate) name: &'static str,
    /// Publications of QoS 1 a second.
    pub(crate) rate: u32,
    /// Where they go to.
    pub(crate) to: To,
}

/// The destination of publications.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    /// Retained messages of a hundred topics, one after the other.
    Retained,
    /// So many sessions that are connected and acknowledge at once.
    Connected(usize),
    /// A session whose client is away.
    Absent,
}

pub(crate) const LOADS: [Load; 4] = [
    Load { name: "1/s", rate: 1, to: To::Retained },
    Load { name: "100/s", rate: 100, to: To::Retained },
    Load { name: "connected", rate: 100, to: To::Connected(10) },
    Load { name: "absent", rate: 100, to: To::Absent },
];

/// Publishes to a retained topic and waits for the acknowledgement.
pub(crate) fn update(connection: &mut Connection, topic: usize) -> Result<()> {
    connection.stream.write_all(&retained(topic, 1))?;
    let (first, _) = connection.read()?;
    ensure!(first == 0x40, "{first:#x} instead of PUBACK");
    Ok(())
}

fn retained(topic: usize, id: u16) -> Vec<u8> {
    let payload = [b'x'; PAYLOAD];
    publish(V5, format!("wear/plant/sensor/{topic:03}").as_bytes(), &payload, 1, true, id)
}

/// A load whose clients are there, and whose topics have their first messages.
pub(crate) struct Ready {
    load: Load,
    publisher: Connection,
    subscribers: Vec<Subscriber>,
}

/// A subscriber that acknowledges in a thread of its own.
struct Subscriber {
    stream: TcpStream,
    thread: JoinHandle<()>,
}

impl Load {
    /// Connects the clients, and publishes the first messages.
    pub(crate) fn prepare(self, address: SocketAddr) -> Result<Ready> {
        let mut publisher = Connection::open(address, V5, "publisher")?;
        let mut subscribers = Vec::new();
        let sessions = match self.to {
            To::Retained => {
                (0..TOPICS).try_for_each(|topic| update(&mut publisher, topic))?;
                0
            }
            To::Connected(sessions) => sessions,
            To::Absent => 1,
        };
        for number in 0..sessions {
            let (mut connection, _) = Connection::resume(address, &format!("session{number}"), EXPIRY, true)?;
            let granted = connection.subscribe(1, &["wear/+"], 1)?;
            ensure!(granted == [1], "SUBACK {granted:?}");
            if self.to == To::Absent {
                connection.stream.write_all(&packet(0xe0, &[]))?;
            } else {
                subscribers.push(Subscriber::begin(connection)?);
            }
        }
        Ok(Ready { load: self, publisher, subscribers })
    }
}

impl Ready {
    /// Publishes at the pace for so long, and waits for all acknowledgements. Returns the number of publications and
    /// the time.
    pub(crate) fn run(&mut self, length: Duration) -> Result<(u32, Duration)> {
        let acknowledged = Arc::new(AtomicU32::new(0));
        let mut acks = Connection::over(self.publisher.stream.try_clone()?, V5);
        let began = Instant::now();
        let count = u32::try_from(u128::from(self.load.rate) * length.as_millis() / 1000)?;
        let counted = Arc::clone(&acknowledged);
        let reader = thread::spawn(move || -> Result<()> {
            while counted.load(Relaxed) < count {
                let (first, _) = acks.read()?;
                ensure!(first == 0x40, "{first:#x} instead of PUBACK");
                counted.fetch_add(1, Relaxed);
            }
            Ok(())
        });
        for number in 0..count {
            thread::sleep((length * number / count).saturating_sub(began.elapsed()));
            // The identifier of a message is free again when 65 534 others have been acknowledged.
            let id = u16::try_from(number % 65_534)? + 1;
            let bytes = match self.load.to {
                To::Retained => retained(number as usize % TOPICS, id),
                To::Connected(_) | To::Absent => publish(V5, b"wear/event", &[b'x'; PAYLOAD], 1, false, id),
            };
            self.publisher.stream.write_all(&bytes)?;
        }
        thread::sleep(length.saturating_sub(began.elapsed()));
        let deadline = Instant::now() + PATIENCE;
        while acknowledged.load(Relaxed) < count {
            ensure!(Instant::now() < deadline, "{} of {count} acknowledged", acknowledged.load(Relaxed));
            thread::sleep(Duration::from_millis(1));
        }
        reader.join().ok().context("a thread has panicked")??;
        Ok((count, began.elapsed()))
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        for subscriber in self.subscribers.drain(..) {
            let _ = subscriber.stream.shutdown(Shutdown::Both);
            let _ = subscriber.thread.join();
        }
    }
}

impl Subscriber {
    fn begin(mut connection: Connection) -> Result<Self> {
        let stream = connection.stream.try_clone()?;
        stream.set_read_timeout(None)?;
        let thread = thread::spawn(move || {
            // It ends with the connection.
            while let Ok((first, body)) = connection.read() {
                if first >> 4 == 3 && acknowledge(&mut connection, &body).is_none() {
                    return;
                }
            }
        });
        Ok(Self { stream, thread })
    }
}

/// Answers PUBLISH of QoS 1.
fn acknowledge(connection: &mut Connection, body: &[u8]) -> Option<()> {
    let topic = u16::from_be_bytes([*body.first()?, *body.get(1)?]);
    let at = 2 + usize::from(topic);
    connection.stream.write_all(&packet(0x40, body.get(at..at + 2)?)).ok()
}
