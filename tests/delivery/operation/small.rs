//! A gateway with the preset of the smallest board, in the memory and on the processor that such a board leaves it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::{self, V4};
use fogmux_tests::suite::Case;
use fogmux_tests::{tcp, users};
use rustix::process::Signal;

use super::mixed;

pub(super) const SMALL: Case =
    Case { name: "operation: in 64 MB and on one processor clients of every door are served", run: small };

const PRESET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/pi-zero-2w.toml");
const MEMORY_BYTES: u64 = 64 << 20;
/// A gateway that is in the group takes more than this.
const LEAST_BYTES: u64 = 4 << 20;
/// A link whose broker is away: nobody listens at the port of the Discard protocol.
const LINK: &str = "[links.away]\nurl = \"mqtt://127.0.0.1:9\"\nout = [{ filter = \"#\" }]\n";
/// `mqtt.queue_messages_max` and `mqtt.queue_bytes_max` of the preset.
const QUEUE_MESSAGES_MAX: u64 = 20_000;
const QUEUE_BYTES_MAX: u64 = 4 << 20;
/// As large as the drivers' messages.
const MESSAGE_BYTES: usize = 40_000;

/// A control group with a limit of memory (cgroups(7)), of version 2 or 1.
struct Group {
    directory: PathBuf,
    /// The file with the most bytes that were in use.
    peak: &'static str,
}

impl Group {
    /// `None` where this process may make none.
    fn new() -> Result<Option<Self>> {
        let name = format!("fogmux-test-{}", std::process::id());
        let versions = [
            ("/sys/fs/cgroup", "memory.max", "memory.peak"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
        ];
        for (root, limit, peak) in versions {
            let group = Self { directory: Path::new(root).join(&name), peak };
            if fs::create_dir(&group.directory).is_ok() && group.directory.join(limit).exists() {
                fs::write(group.directory.join(limit), MEMORY_BYTES.to_string())?;
                return Ok(Some(group));
            }
        }
        Ok(None)
    }

    fn peak_bytes(&self) -> Result<u64> {
        let text = fs::read_to_string(self.directory.join(self.peak)).context(self.peak)?;
        Ok(text.trim().parse()?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Left behind when a process is still in it; the kernel removes none that has one.
        let _ = fs::remove_dir(&self.directory);
    }
}

fn small() -> Result<String> {
    let Some(group) = Group::new()? else { return Ok("(skipped: no control groups here)".to_owned()) };
    let preset = fs::read_to_string(PRESET).context(PRESET)?;
    let configuration = format!("{preset}{LINK}");
    let enter = format!("echo $$ > {}/cgroup.procs && exec taskset -c 0 \"$@\"", group.directory.display());
    let files = [("users.toml", &*users::file(&["ada"])), ("psk.toml", &*users::key_file("sensor", mixed::PSK))];
    let launcher = ["sh", "-c", &enter, "sh"];
    // Our clients of DTLS and event streams vanish without a word.
    let settings = ["coap.dtls.idle_timeout=2s", "http.event_stream_grace=1s"];
    let plan = Plan {
        launcher: &launcher,
        files: &files,
        configuration: Some(&configuration),
        settings: &settings,
        ..Plan::default()
    };
    let mut gateway = Gateway::start_as(plan)?;
    let mut deaf = mqtt::Connection::over(tcp::connect_narrow(gateway.address("mqtt")?, 4096)?, V4);
    deaf.stream.write_all(&[mqtt::connect(V4, "deaf"), mqtt::subscribe(V4, 1, &["mixed/#"], 1)].concat())?;
    let rounds = mixed::load(&gateway, mixed::LOAD)?;
    gateway.check_alive()?;
    let waiting = away(&gateway)?;
    gateway.check_alive()?;
    let peak = group.peak_bytes()?;
    ensure!(peak > LEAST_BYTES, "the gateway is not in the group, of which {peak} bytes were used");
    drop(deaf);
    // A link that is removed loses what waits for it.
    gateway.configure(&preset)?;
    gateway.signal(Signal::HUP)?;
    gateway.wait_log("are read again", tcp::PATIENCE)?;
    gateway.settle()?;
    drop(gateway);
    let (peak, limit) = (peak / 1_000_000, MEMORY_BYTES / 1_000_000);
    Ok(format!("({rounds}; {waiting}; {peak} of {limit} MB, with pages of files)"))
}

/// Looks at the queue after the load, and fills it with more than it takes: the oldest give way.
fn away(gateway: &Gateway) -> Result<String> {
    let queue = || -> Result<(u64, u64)> {
        let of = |what: &str| gateway.sum(&[&*format!("fogmux_link_queue_{what}{{link=\"away\"}}")]);
        Ok((of("messages")?, of("bytes")?))
    };
    // A queue takes a message if it is not full before; it has the name of its topic, too.
    let bytes_max = QUEUE_BYTES_MAX + MESSAGE_BYTES as u64 + 1_000;
    let is_within = |(messages, bytes)| messages > 0 && messages <= QUEUE_MESSAGES_MAX && bytes <= bytes_max;
    let left = queue()?;
    ensure!(is_within(left), "{left:?} messages and bytes wait after the load");
    let count = u16::try_from(2 * QUEUE_BYTES_MAX / MESSAGE_BYTES as u64)?;
    let mut publisher = mqtt::Connection::open(gateway.address("mqtt")?, V4, "publisher")?;
    for id in 1..=count {
        publisher.stream.write_all(&mqtt::publish(V4, b"away", &[b'a'; MESSAGE_BYTES], 1, false, id))?;
        let (first, _) = publisher.read()?;
        ensure!(first == 0x40, "{first:#x} instead of PUBACK");
    }
    let full = queue()?;
    let has_room = full.1 + MESSAGE_BYTES as u64 * 2 < QUEUE_BYTES_MAX;
    ensure!(is_within(full) && !has_room, "{full:?} messages and bytes wait after {count} more");
    ensure!(gateway.sum(&["fogmux_link_up{link=\"away\"}"])? == 0, "the link is up");
    let dropped = gateway.sum(&["fogmux_bus_dropped_full_total"])?;
    ensure!(dropped > 0, "nothing was dropped");
    Ok(format!("{} messages and {} kB for the link, {dropped} dropped", full.0, full.1 / 1_000))
}
