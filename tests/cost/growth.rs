//! The same message beside ever more subscriptions, topics and connections: what it costs must not grow with them.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use fogmux_tests::mqtt::{Connection, V4, publish};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::meter::Meter;
use crate::mqtt::{Client, PUBACK, ack, send};
use crate::plot;

/// Rounds before anything is counted, and rounds that are.
const WARM: usize = 3;
const ROUNDS: usize = 60;
/// Messages of a round.
const BATCH: u16 = 100;
const PAYLOAD: &[u8] = &[b'x'; 64];
/// Filters of a SUBSCRIBE packet, and of a client.
const FILTERS: usize = 1_000;
const FILTERS_OF_CLIENT: usize = 10_000;

/// Nothing is written to the disk while instructions are counted: the committer's thread would do that in its own time.
const SETTINGS: [&str; 4] =
    ["store.durability=none", "store.interval=10m", "store.queue_bytes_max=256MiB", "bus.retained_messages_max=200000"];

/// The thing that there is more and more of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Growing {
    /// Filters of other clients, each of a topic of its own.
    Subscriptions,
    /// Topics that are published to in turn, all read by one subscriber.
    Topics,
    /// The same, and the messages are retained.
    Retained,
    /// Connections of other clients, which are idle.
    Connections,
}

/// A series of the plot.
struct Series {
    name: &'static str,
    growing: Growing,
    counts: &'static [usize],
}

const DECADES: &[usize] = &[1, 10, 100, 1_000, 10_000, 100_000];

const SERIES: [Series; 4] = [
    Series { name: "subscriptions", growing: Growing::Subscriptions, counts: DECADES },
    Series { name: "topics", growing: Growing::Topics, counts: DECADES },
    Series { name: "retained", growing: Growing::Retained, counts: DECADES },
    Series { name: "connections", growing: Growing::Connections, counts: DECADES },
];

/// Descriptors of a process beside those of idle connections, of which each end takes one.
const OTHER_DESCRIPTORS: usize = 200;

/// Measures all series, prints them as a table and writes their plot. The profiles are kept in a directory.
pub(crate) fn measure(file: &Path, profiles: Option<&Path>) -> Result<()> {
    let open_files_max = raise_open_files()?;
    let mut lines = Vec::new();
    for series in &SERIES {
        let mut points = Vec::new();
        for count in series.counts {
            let context = || format!("{count} {}", series.name);
            if series.growing == Growing::Connections && count + OTHER_DESCRIPTORS > open_files_max {
                println!("{} are not measured: a process has {open_files_max} descriptors here", context());
                continue;
            }
            let kept = profiles.map(|directory| directory.join(format!("callgrind.out.{}-{count}", series.name)));
            let instructions = one(series.growing, *count, kept.as_deref()).with_context(context)?;
            println!("cost of a message beside {}: {instructions} instructions", context());
            points.push((*count, instructions));
        }
        lines.push(plot::Line { name: series.name, points });
    }
    println!("{}", table(&lines)?);
    fs::write(file, plot::svg(&lines)?).with_context(|| file.display().to_string())
}

/// Raises the limit of open files, which the gateway inherits, as far as it goes: each has one end of each connection.
/// Returns the limit.
fn raise_open_files() -> Result<usize> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).context("the limit of open files")?;
    Ok(maximum.map_or(usize::MAX, |maximum| usize::try_from(maximum).unwrap_or(usize::MAX)))
}

/// Instructions of a message of QoS 1 from one publisher to one subscriber, beside so many.
fn one(growing: Growing, count: usize, kept: Option<&Path>) -> Result<u64> {
    let mut meter = Meter::start(&SETTINGS)?;
    let address = meter.gateway.address("mqtt")?;
    let others = match growing {
        Growing::Subscriptions => subscribers(address, count - 1)?,
        Growing::Topics | Growing::Retained => Vec::new(),
        Growing::Connections => (1..count).map(|number| idle(address, number)).collect::<Result<_>>()?,
    };
    let topics = if matches!(growing, Growing::Topics | Growing::Retained) { count } else { 1 };
    let mut scene = Scene::open(address, topics, growing == Growing::Retained)?;
    // Each topic has had its first message before anything is counted.
    let warm = WARM.max(topics.div_ceil(usize::from(BATCH)));
    for _ in 0..warm {
        scene.round(&meter)?;
    }
    meter.begin()?;
    for _ in 0..ROUNDS {
        scene.round(&meter)?;
    }
    meter.end()?;
    meter.gateway.check_alive()?;
    drop((scene, others));
    Ok(meter.finish(kept)? / (ROUNDS as u64 * u64::from(BATCH)))
}

fn idle(address: SocketAddr, number: usize) -> Result<Connection> {
    Connection::open(address, V4, &format!("idle{number}"))
}

/// Clients with so many filters together.
fn subscribers(address: SocketAddr, count: usize) -> Result<Vec<Connection>> {
    let filters: Vec<String> = (0..count).map(|number| format!("other/{number:06}")).collect();
    let mut clients = Vec::new();
    for (number, filters) in filters.chunks(FILTERS_OF_CLIENT).enumerate() {
        let mut client = idle(address, number)?;
        for filters in filters.chunks(FILTERS) {
            let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
            let granted = client.subscribe(1, &filters, 1)?;
            ensure!(granted.iter().all(|code| *code == 1), "SUBACK {granted:?}");
        }
        clients.push(client);
    }
    Ok(clients)
}

/// One publisher and one subscriber.
struct Scene {
    publisher: Client,
    subscriber: Client,
    topics: usize,
    retain: bool,
    next: usize,
}

impl Scene {
    fn open(address: SocketAddr, topics: usize, retain: bool) -> Result<Self> {
        let mut subscriber = Connection::open(address, V4, "subscriber")?;
        let granted = subscriber.subscribe(1, &["growth/#"], 1)?;
        ensure!(granted == [1], "SUBACK {granted:?}");
        let publisher = Client::of(Connection::open(address, V4, "publisher")?);
        Ok(Self { publisher, subscriber: Client::of(subscriber), topics, retain, next: 0 })
    }

    /// A batch, each message to the next topic, with all its acknowledgements; the subscriber's are sent with the next.
    fn round(&mut self, meter: &Meter) -> Result<()> {
        let of = |topic: usize, id| publish(V4, format!("growth/{topic:06}").as_bytes(), PAYLOAD, 1, self.retain, id);
        for id in 1..=BATCH {
            self.publisher.out.extend(of(self.next % self.topics, id));
            self.next += 1;
        }
        let length = of(0, 1).len();
        let at = length - PAYLOAD.len() - 2;
        let (publisher, subscriber) = (std::slice::from_mut(&mut self.publisher), &mut self.subscriber);
        send(meter, publisher, std::slice::from_mut(subscriber))?;
        let batch = usize::from(BATCH);
        subscriber.read(batch, length, |packet| Some(ack(PUBACK, [*packet.get(at)?, *packet.get(at + 1)?])))?;
        self.publisher.read_acks(batch, PUBACK, None)
    }
}

/// A table in Markdown: one line for each count.
fn table(lines: &[plot::Line]) -> Result<String> {
    let mut text = String::from("| beside |");
    lines.iter().try_for_each(|line| write!(text, " {} |", line.name))?;
    write!(text, "\n|---|{}\n", "---|".repeat(lines.len()))?;
    for (row, (count, _)) in lines.first().context("no series")?.points.iter().enumerate() {
        write!(text, "| {count} |")?;
        for line in lines {
            let cell = line.points.get(row).map_or("–".to_owned(), |(_, instructions)| instructions.to_string());
            write!(text, " {cell} |")?;
        }
        text.push('\n');
    }
    Ok(text)
}
