//! Subjects of a measurement: the gateway at each durability, and Mosquitto with each way of its persistence.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::{Connection, V5};
use fogmux_tests::tcp;
use rustix::process::{Pid, Signal, kill_process};

use crate::load;
use crate::medium::Medium;

/// How long a broker may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Commits before anything is measured: the journal has its smallest number of segments by then, and overwrites them.
const FILLING: u16 = 1_000;
/// The default of the gateway's `mqtt.queue_messages_max`, where Mosquitto's is 1 000.
const QUEUED: u32 = 100_000;

/// A broker and how it persists.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// The gateway with these settings.
    Gateway(&'static [&'static str]),
    /// A Mosquitto: its program, its name and lines of its configuration.
    Mosquitto { program: String, persistence: Persistence },
}

/// The persistence of Mosquitto.
#[derive(Clone, Debug)]
pub(crate) enum Persistence {
    /// The whole of it is written once in so many seconds, or 1 800.
    Autosave(Option<u32>),
    /// The whole of it is written after each change.
    OnChanges,
    /// The plugin of 2.1: its file.
    Sqlite(String),
}

/// The delay of profile `sd`, docs/store.md.
pub(crate) const SD: &[&str] = &["store.durability=group", "store.group_delay=200ms"];
const GATEWAYS: [&[&str]; 5] = [
    &["store.durability=none"],
    &["store.durability=interval"],
    &["store.durability=group"],
    SD,
    &["store.durability=always"],
];

impl Subject {
    /// The gateway at each durability, and each Mosquitto that is there: Debian's, and one of 2.1 if
    /// `FOGMUX_WEAR_MOSQUITTO` names its program and its plugin for SQLite, with a comma between them.
    pub(crate) fn all() -> Result<Vec<Self>> {
        let mut all: Vec<Self> = GATEWAYS.into_iter().map(Self::Gateway).collect();
        let program = "mosquitto".to_owned();
        let persistences = [Persistence::Autosave(None), Persistence::Autosave(Some(1)), Persistence::OnChanges];
        if Command::new(&program).arg("-h").stdout(Stdio::null()).status().is_ok() {
            let mosquitto = |persistence| Self::Mosquitto { program: program.clone(), persistence };
            all.extend(persistences.map(mosquitto));
        }
        if let Ok(named) = std::env::var("FOGMUX_WEAR_MOSQUITTO") {
            let (program, plugin) = named.split_once(',').context("FOGMUX_WEAR_MOSQUITTO is PROGRAM,PLUGIN")?;
            let persistence = Persistence::Sqlite(plugin.to_owned());
            all.push(Self::Mosquitto { program: program.to_owned(), persistence });
        }
        Ok(all)
    }

    /// Its name in the table.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Gateway(settings) if *settings == SD => "group 200 ms".to_owned(),
            Self::Gateway(settings) => settings.concat().replace("store.durability=", ""),
            Self::Mosquitto { persistence: Persistence::Autosave(None), .. } => "mosquitto".to_owned(),
            Self::Mosquitto { persistence: Persistence::Autosave(Some(s)), .. } => format!("mosquitto, {s} s"),
            Self::Mosquitto { persistence: Persistence::OnChanges, .. } => "mosquitto, on changes".to_owned(),
            Self::Mosquitto { persistence: Persistence::Sqlite(_), .. } => "mosquitto, SQLite".to_owned(),
        }
    }

    /// The shortest time between commits, if acknowledgements wait for them.
    pub(crate) fn delay(&self) -> Option<Duration> {
        match self {
            Self::Gateway(settings) if *settings == SD => Some(Duration::from_millis(200)),
            Self::Gateway(["store.durability=group"]) => Some(Duration::from_millis(20)),
            Self::Gateway(["store.durability=always"]) => Some(Duration::ZERO),
            Self::Gateway(_) | Self::Mosquitto { .. } => None,
        }
    }

    /// Starts it. The gateway's journal overwrites its segments by then, as it does for the rest of its life.
    pub(crate) fn start(&self, medium: &Medium) -> Result<Running> {
        match self {
            Self::Gateway(settings) => {
                fill(medium)?;
                Ok(Running::Gateway(Box::new(gateway(medium, settings)?)))
            }
            Self::Mosquitto { program, persistence } => {
                Ok(Running::Mosquitto(Mosquitto::start(program, &persistence.configuration(medium.data()), medium)?))
            }
        }
    }
}

impl Persistence {
    fn configuration(&self, data: &Path) -> String {
        let data = data.display();
        match self {
            Self::Autosave(None) => format!("persistence true\npersistence_location {data}/\n"),
            Self::Autosave(Some(seconds)) => {
                format!("persistence true\npersistence_location {data}/\nautosave_interval {seconds}\n")
            }
            Self::OnChanges => format!(
                "persistence true\npersistence_location {data}/\nautosave_on_changes true\nautosave_interval 1\n"
            ),
            Self::Sqlite(plugin) => format!("plugin {plugin}\nplugin_opt_db_file {data}/mosquitto.sqlite3\n"),
        }
    }
}

fn gateway(medium: &Medium, settings: &[&str]) -> Result<Gateway> {
    let enter = medium.enter();
    let launcher: Vec<&str> = enter.iter().map(String::as_str).collect();
    let settings = [&["log.filter=warn"], settings].concat();
    Gateway::start_as(Plan { data: Some(medium.data()), launcher: &launcher, settings: &settings, ..Plan::default() })
}

fn fill(medium: &Medium) -> Result<()> {
    let mut gateway = gateway(medium, &["store.durability=always"])?;
    let mut connection = Connection::open(gateway.address("mqtt")?, V5, "filling")?;
    (0..FILLING).try_for_each(|number| load::update(&mut connection, usize::from(number % 100)))?;
    drop(connection);
    gateway.signal(Signal::TERM)?;
    gateway.wait_exit(PATIENCE)?;
    Ok(())
}

/// A broker that runs; dropped, it is killed.
pub(crate) enum Running {
    Gateway(Box<Gateway>),
    Mosquitto(Mosquitto),
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        match self {
            Self::Gateway(gateway) => gateway.pid(),
            Self::Mosquitto(mosquitto) => mosquitto.child.id(),
        }
    }

    pub(crate) fn address(&self) -> Result<SocketAddr> {
        match self {
            Self::Gateway(gateway) => gateway.address("mqtt"),
            Self::Mosquitto(mosquitto) => Ok(mosquitto.address),
        }
    }

    /// Commits so far, of the gateway.
    pub(crate) fn commits(&self) -> Result<Option<u64>> {
        match self {
            Self::Gateway(gateway) => Ok(Some(gateway.sum(&["fogmux_store_commits_total"])?)),
            Self::Mosquitto(_) => Ok(None),
        }
    }
}

/// A Mosquitto.
pub(crate) struct Mosquitto {
    child: Child,
    address: SocketAddr,
}

impl Mosquitto {
    fn start(program: &str, persistence: &str, medium: &Medium) -> Result<Self> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let file = medium.seen().join("mosquitto.conf");
        // As root it would become another user, who may not write here.
        let text = format!(
            "listener {} 127.0.0.1\nallow_anonymous true\nlog_type error\nuser root\nmax_queued_messages {QUEUED}\n\
             {persistence}",
            address.port()
        );
        fs::write(&file, text)?;
        let enter = medium.enter();
        let mut words = enter.iter().map(String::as_str).chain([program]);
        let mut command = Command::new(words.next().context("no command")?);
        command.args(words).arg("-c").arg(medium.data().join("mosquitto.conf")).stdin(Stdio::null());
        let mut mosquitto = Self { child: command.spawn()?, address };
        let deadline = Instant::now() + PATIENCE;
        while tcp::connect(address).is_err() {
            ensure!(mosquitto.child.try_wait()?.is_none(), "{program} has ended");
            ensure!(Instant::now() < deadline, "{program} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(mosquitto)
    }

    /// Has it write everything.
    pub(crate) fn save(&self) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("no process")?;
        Ok(kill_process(pid, Signal::USR1)?)
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
