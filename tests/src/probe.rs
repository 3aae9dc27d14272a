//! The well-behaved client: an MQTT round trip again and again, on a thread of its own, each one timed; and beside it a
//! bare echo over loopback, which tells how much of the delay is the machine's and not the gateway's.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{mqtt, tcp};

const PACE: Duration = Duration::from_millis(2);
/// Round trips at the least: below, a 99th percentile says nothing.
const SAMPLES_MIN: usize = 300;

/// Round trips in flight on another thread.
#[derive(Debug)]
pub struct Probe {
    enough: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Duration>>>,
}

impl Probe {
    /// Through the gateway: connects, subscribes and starts.
    ///
    /// # Errors
    /// When the gateway does not let it in.
    pub fn mqtt(address: SocketAddr) -> Result<Self> {
        Self::over(mqtt::Connection::open(address, mqtt::V4, "probe")?, "probe/round/trip")
    }

    /// The same over a connection that is logged in by version 3.1.1, by a topic of its own.
    ///
    /// # Errors
    /// When it may not subscribe.
    pub fn over(mut connection: mqtt::Connection, topic: &'static str) -> Result<Self> {
        let granted = connection.subscribe(1, &[topic], 0)?;
        ensure!(granted == [0], "SUBACK {granted:?}");
        Ok(Self::start(move |number| round_trip(&mut connection, topic, number)))
    }

    /// Through nothing but the kernel, to a thread that sends back what it gets.
    ///
    /// # Errors
    /// When loopback does not work.
    pub fn echo() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut stream = tcp::connect(listener.local_addr()?)?;
        let (mut other, _) = listener.accept()?;
        other.set_nodelay(true)?;
        std::thread::spawn(move || {
            let mut byte = [0];
            while other.read_exact(&mut byte).and_then(|()| other.write_all(&byte)).is_ok() {}
        });
        Ok(Self::start(move |_| {
            let began = Instant::now();
            stream.write_all(&[1])?;
            stream.read_exact(&mut [0])?;
            Ok(began.elapsed())
        }))
    }

    fn start(mut round_trip: impl FnMut(usize) -> Result<Duration> + Send + 'static) -> Self {
        let enough = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&enough);
        let thread = std::thread::spawn(move || {
            let mut times = Vec::new();
            while times.len() < SAMPLES_MIN || !stop.load(Ordering::Relaxed) {
                times.push(round_trip(times.len())?);
                std::thread::sleep(PACE);
            }
            Ok(times)
        });
        Self { enough, thread }
    }

    /// Stops, and gives the 99th percentile.
    ///
    /// # Errors
    /// When a round trip failed: the well-behaved client was hurt.
    pub fn p99(self) -> Result<Duration> {
        self.enough.store(true, Ordering::Relaxed);
        let Ok(times) = self.thread.join() else { bail!("the probe panicked") };
        let mut times = times.context("the well-behaved client was cut off")?;
        times.sort_unstable();
        times.get(times.len() * 99 / 100).copied().context("no round trips")
    }
}

fn round_trip(connection: &mut mqtt::Connection, topic: &str, number: usize) -> Result<Duration> {
    let payload = number.to_be_bytes();
    let began = Instant::now();
    connection.publish(topic, &payload)?;
    let (first, body) = connection.read()?;
    ensure!(first & 0xf0 == 0x30, "{first:#x} instead of PUBLISH");
    ensure!(body.ends_with(&payload), "round trip {number} brought another message");
    Ok(began.elapsed())
}
