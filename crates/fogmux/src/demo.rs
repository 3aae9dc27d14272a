//! `fogmux demo`: starts a gateway on free ports, publishes one message through every door, and checks that it arrives
//! at every other with the same bytes and content type.

mod doors;
mod table;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use fogmux_client::{Arrived, ClientError, Outgoing, Publisher, Subscription};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, timeout, timeout_at};

use self::doors::DemoDoor;
use self::table::Table;
use crate::cli::Demo;
use crate::client::block_on;
use crate::compose;
use crate::config::{Config, Log as LogConfig};
use crate::exit::{Failure, Status};
use crate::home;
use crate::output::say;
use crate::serve::Log;
use crate::terminal::columns;

/// The common prefix of all topics.
const ROOT: &str = "demo";
/// Columns of a terminal that reports none, and of a file.
const COLUMNS: usize = 80;
/// More than one block of CoAP, and not a multiple of one.
const LONG_BYTES: u32 = 5_000;

/// Runs the demonstration.
pub(crate) fn run(arguments: &Demo) -> Result<(), Failure> {
    let _log = Log::start(&LogConfig { filter: "warn".to_owned(), ..LogConfig::default() })?;
    let patience = Duration::try_from_secs_f64(arguments.timeout)
        .map_err(|_| Failure::new(Status::Usage, format!("{} is not a number of seconds", arguments.timeout)))?;
    let directory = tempfile::tempdir().map_err(|error| Failure::io("a directory for the data", &error))?;
    let mut config = Config::default();
    config.listeners.free_ports();
    let home = home::prepare(&config, directory.path())?;
    let running = compose::start(&config, &home)?;
    let doors = DemoDoor::all(&running.gateway, &home);
    let (table, stopped) = block_on(async {
        let table = LocalSet::new().run_until(show(&doors, patience)).await;
        (table, running.stop(Duration::from_secs(5)).await)
    })?;
    let table = table?;
    if arguments.json {
        say!("{}\n", table.to_json())?;
    } else {
        say!("{}", table.text(columns(std::io::stdout()).unwrap_or(COLUMNS)))?;
    }
    match table.problems() {
        0 => stopped,
        count => Err(Failure::new(Status::Unavailable, format!("{count} messages did not arrive unchanged"))),
    }
}

/// The payloads that each door publishes: text with a type, bytes that must not be interpreted, and more of them than a
/// message of CoAP holds.
fn samples() -> [(&'static str, Bytes, &'static str); 3] {
    [
        ("json", Bytes::from_static("{\"temperature\":21.5,\"unit\":\"°C\"}".as_bytes()), "application/json"),
        ("bytes", Bytes::from_static(b"\x00\x01\xfe\xff\r\n<&'\"]]>"), "application/octet-stream"),
        ("long", (0..LONG_BYTES).map(|index| index.to_le_bytes()[0]).collect(), "application/octet-stream"),
    ]
}

/// Subscribes at every door, publishes at every door, and waits for all messages.
async fn show(doors: &[DemoDoor], patience: Duration) -> Result<Table, Failure> {
    let table = Rc::new(RefCell::new(Table::new(doors)));
    let mut readers = JoinSet::new();
    let mut publishers = Vec::new();
    let expected = doors.len() * samples().len();
    for (index, door) in doors.iter().enumerate() {
        let url = door.url(&format!("{ROOT}/#"));
        let subscription = within(patience, fogmux_client::subscribe(&url, &door.options)).await;
        let subscription = subscription.map_err(|error| named(door, "subscribe", error))?;
        readers.spawn_local(read(subscription, index, expected, Rc::clone(&table)));
        let publisher = within(patience, Publisher::open(&url, &door.options)).await;
        publishers.push(publisher.map_err(|error| named(door, "connect", error))?);
    }
    for (index, (door, publisher)) in doors.iter().zip(&mut publishers).enumerate() {
        publish(door, publisher, index, patience, &table).await?;
    }
    let deadline = Instant::now() + patience;
    while let Ok(Some(ended)) = timeout_at(deadline, readers.join_next()).await {
        if let Ok(Err((index, error))) = ended {
            table.borrow_mut().reader_failed(index, &error);
        }
    }
    readers.abort_all();
    Ok(table.replace(Table::default()))
}

async fn publish(
    door: &DemoDoor,
    publisher: &mut Publisher,
    index: usize,
    patience: Duration,
    table: &RefCell<Table>,
) -> Result<(), Failure> {
    for (sample, payload, content_type) in samples() {
        let topic = format!("{ROOT}/{index}/{sample}");
        let content_type = door.carries_type.then(|| content_type.to_owned());
        let message = Outgoing { topic: topic.clone(), payload, content_type, qos: 1, retain: false };
        table.borrow_mut().sent(&topic, index, message.clone(), std::time::Instant::now());
        let published = within(patience, publisher.publish(&message)).await;
        published.map_err(|error| named(door, "publish", error))?;
    }
    Ok(())
}

async fn within<T>(patience: Duration, work: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
    timeout(patience, work).await.unwrap_or(Err(ClientError::Timeout(patience.as_secs_f64())))
}

async fn read(
    mut subscription: Subscription,
    reader: usize,
    expected: usize,
    table: Rc<RefCell<Table>>,
) -> Result<(), (usize, ClientError)> {
    for _ in 0..expected {
        let message: Arrived = subscription.next().await.map_err(|error| (reader, error))?;
        table.borrow_mut().arrived(reader, &message, std::time::Instant::now());
    }
    Ok(())
}

fn named(door: &DemoDoor, doing: &str, error: ClientError) -> Failure {
    let failure = Failure::from(error);
    Failure { status: failure.status, error: failure.error.context(format!("{}: {doing}", door.name)) }
}
