//! A gateway with the preset of the smallest board, in the memory and on the processor that such a board leaves it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::{self, V4};
use fogmux_tests::suite::Case;
use fogmux_tests::{tcp, users};

use super::mixed;

pub(super) const SMALL: Case =
    Case { name: "operation: in 64 MB and on one processor clients of every door are served", run: small };

const PRESET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/pi-zero-2w.toml");
const MEMORY_BYTES: u64 = 64 << 20;
/// A gateway that is in the group takes more than this.
const LEAST_BYTES: u64 = 4 << 20;

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
    let enter = format!("echo $$ > {}/cgroup.procs && exec taskset -c 0 \"$@\"", group.directory.display());
    let files = [("users.toml", &*users::file(&["ada"])), ("psk.toml", &*users::key_file("sensor", mixed::PSK))];
    let launcher = ["sh", "-c", &enter, "sh"];
    // Our clients of DTLS and event streams vanish without a word.
    let settings = ["coap.dtls.idle_timeout=2s", "http.event_stream_grace=1s"];
    let plan = Plan {
        launcher: &launcher,
        files: &files,
        configuration: Some(&preset),
        settings: &settings,
        ..Plan::default()
    };
    let mut gateway = Gateway::start_as(plan)?;
    let mut deaf = mqtt::Connection::over(tcp::connect_narrow(gateway.address("mqtt")?, 4096)?, V4);
    deaf.stream.write_all(&[mqtt::connect(V4, "deaf"), mqtt::subscribe(V4, 1, &["mixed/#"], 1)].concat())?;
    let rounds = mixed::load(&gateway, mixed::LOAD)?;
    gateway.check_alive()?;
    let peak = group.peak_bytes()?;
    ensure!(peak > LEAST_BYTES, "the gateway is not in the group, of which {peak} bytes were used");
    drop(deaf);
    gateway.settle()?;
    drop(gateway);
    Ok(format!("({rounds}; {} of {} MB, with pages of files)", peak / 1_000_000, MEMORY_BYTES / 1_000_000))
}
