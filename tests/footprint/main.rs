//! The memory of a gateway under a steady load on every door, with the limits for the smallest Pi: its proportional set
//! size (PSS), in which a page that processes share counts by its share, each second.
//!
//! The word on the command line is the number of seconds (600). `FOGMUX_BIN` names the gateway, which is the generator,
//! too, and `FOGMUX_PRESET` the file with the limits.

use std::fs;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::gateway::{Gateway, Plan};

/// A load: the door, its URL behind the address, and its flags.
struct Load {
    listener: &'static str,
    url: fn(&str) -> String,
    flags: &'static [&'static str],
}

/// A hundred messages a second of twenty devices to twenty readers, and some of each other door, on other topics: those
/// of another generator are messages that nobody has sent.
const LOADS: [Load; 4] = [
    Load {
        listener: "mqtt",
        url: |address| format!("mqtt://{address}"),
        flags: &["--qos", "1", "--retain", "--pubs", "20", "--subs", "20", "--topics", "20", "--rate", "100"],
    },
    Load {
        listener: "coap",
        url: |address| format!("coap://{address}/ps"),
        flags: &["--operation", "put", "--pubs", "10", "--topics", "10", "--rate", "20", "--topic", "coap/{}"],
    },
    Load {
        listener: "http",
        url: |address| format!("http://{address}/topics"),
        flags: &[
            "--door",
            "http1",
            "--operation",
            "put",
            "--pubs",
            "5",
            "--topics",
            "5",
            "--rate",
            "20",
            "--topic",
            "http/{}",
        ],
    },
    Load {
        listener: "xmpp",
        url: |address| format!("xmpp://{address}"),
        flags: &[
            "--name",
            "localhost",
            "--pubs",
            "2",
            "--subs",
            "2",
            "--topics",
            "2",
            "--rate",
            "10",
            "--topic",
            "xmpp/{}",
        ],
    },
];

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("footprint: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<()> {
    let word = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let seconds: u64 = word.as_deref().unwrap_or("600").parse().context("the number of seconds")?;
    ensure!(seconds > 0, "at least one second");
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN names no gateway; use `cargo xtask footprint`")?;
    let preset = std::env::var("FOGMUX_PRESET").context("FOGMUX_PRESET names no configuration")?;
    let preset = fs::read_to_string(&preset).with_context(|| preset.clone())?;
    let mut gateway = Gateway::start_as(Plan { configuration: Some(&preset), ..Plan::default() })?;
    // A copy: the gateway would share its pages with generators of the same file, and be smaller by that.
    let place = tempfile::tempdir()?;
    let generator = place.path().join("fogmux");
    fs::copy(&binary, &generator).with_context(|| binary.clone())?;
    let mut loads = Loads(Vec::new());
    for load in &LOADS {
        let address = gateway.address(load.listener)?.to_string();
        let mut bench = Command::new(&generator);
        bench.args(["bench", "peer", &(load.url)(&address), "--pid", &gateway.pid().to_string()]).args(load.flags);
        bench.args(["--repeat", "1", "--warm-up", "0", "--json", "--fail-if", "lost>0", "--fail-if", "errors>0"]);
        bench.args(["--seconds", &seconds.to_string()]).stdin(Stdio::null()).stdout(Stdio::piped());
        loads.0.push(bench.stderr(Stdio::piped()).spawn().context("the generator")?);
    }
    let mut taken = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(seconds) {
        thread::sleep(Duration::from_secs(1));
        taken.push(Pss::of(gateway.pid())?);
    }
    loads.end()?;
    gateway.check_alive()?;
    let shown = |name: &str, of: fn(&Pss) -> u64| {
        let mut sorted: Vec<u64> = taken.iter().map(of).collect();
        sorted.sort_unstable();
        let mb = |kib: Option<&u64>| kib.map_or(0.0, |kib| (kib * 1024) as f64 / 1e6);
        format!("{name} median {:.1}, at most {:.1} MB", mb(sorted.get(sorted.len() / 2)), mb(sorted.last()))
    };
    let parts =
        [shown("PSS", |pss| pss.all), shown("of memory", |pss| pss.anonymous), shown("of files", |pss| pss.files)];
    println!("footprint of {seconds} s: {}", parts.join("; "));
    Ok(())
}

/// The generators; dropped, they are killed.
struct Loads(Vec<Child>);

impl Loads {
    /// Waits for all. One that lost a message or got an error is an error.
    fn end(&mut self) -> Result<()> {
        for child in std::mem::take(&mut self.0) {
            let output = child.wait_with_output()?;
            if !output.status.success() {
                bail!("a generator ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
            }
        }
        Ok(())
    }
}

impl Drop for Loads {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ended = child.kill().and_then(|()| child.wait());
        }
    }
}

/// The proportional set size of a process in KiB.
struct Pss {
    all: u64,
    /// Of memory that no file is behind.
    anonymous: u64,
    /// Of mapped files: code, as far as it has been used.
    files: u64,
}

impl Pss {
    fn of(pid: u32) -> Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let kib = |name: &str| -> Result<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let line = line.with_context(|| format!("smaps_rollup has no {name}"))?;
            line.trim().trim_end_matches(" kB").parse().context("a size")
        };
        Ok(Self { all: kib("Pss:")?, anonymous: kib("Pss_Anon:")?, files: kib("Pss_File:")? })
    }
}
