//! Runs the built binary, and gateways on free ports that end with the test.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The binary with arguments, in an environment of its own.
pub(crate) fn fogmux(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fogmux"));
    command.args(arguments);
    for variable in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "STATE_DIRECTORY", "FOGMUX_LOG", "JOURNAL_STREAM"] {
        command.env_remove(variable);
    }
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

pub(crate) fn run(arguments: &[&str]) -> Done {
    run_with(arguments, "")
}

pub(crate) fn run_with(arguments: &[&str], input: &str) -> Done {
    let mut child = fogmux(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary is built");
    // A command that reads nothing may be gone already.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    Done {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

pub(crate) fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().expect("kill is there");
    assert!(sent.success());
}

/// A running gateway.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) banner: serde_json::Value,
    log: PathBuf,
}

impl Gateway {
    pub(crate) fn start(data: &Path, arguments: &[&str]) -> Self {
        Self::start_at(data, &[&["--free-ports"], arguments].concat())
    }

    /// Starts one at the addresses of its configuration.
    pub(crate) fn start_at(data: &Path, arguments: &[&str]) -> Self {
        std::fs::create_dir_all(data).expect("a directory");
        let log = data.join("test.log");
        let mut child = fogmux(&["serve", "--json", "--data", data.to_str().expect("a plain path")])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(File::create(&log).expect("a log"))
            .spawn()
            .expect("the binary is built");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a banner");
        let banner = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("no banner: {line:?} {}", std::fs::read_to_string(&log).unwrap_or_default()));
        Self { child, banner, log }
    }

    pub(crate) fn address(&self, listener: &str) -> &str {
        self.banner
            .pointer(&format!("/listeners/{listener}"))
            .and_then(|at| at.as_str())
            .unwrap_or_else(|| panic!("no listener {listener}"))
    }

    pub(crate) fn url(&self, scheme: &str, topic: &str) -> String {
        let listener = match scheme {
            "ws" | "coap+ws" => "http",
            "wss" | "coaps+ws" => "https",
            "coap+tcp" => "coap_tcp",
            "coaps+tcp" => "coaps_tcp",
            other => other,
        };
        format!("{scheme}://{}/{topic}", self.address(listener))
    }

    pub(crate) fn ca(&self) -> &str {
        self.banner.get("ca").and_then(|file| file.as_str()).expect("an authority")
    }

    pub(crate) fn hang_up(&self) {
        signal(self.child.id(), "HUP");
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the log says `text`.
    pub(crate) fn wait_for_log(&self, text: &str) {
        self.wait_for_log_times(text, 1);
    }

    /// Waits until the log has said `text` so many times.
    pub(crate) fn wait_for_log_times(&self, text: &str, times: usize) {
        let begun = Instant::now();
        while self.log().matches(text).count() < times {
            assert!(begun.elapsed() < PATIENCE, "{text:?} is not {times} times in the log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// SIGTERM; the exit code.
    pub(crate) fn stop(mut self) -> i32 {
        signal(self.child.id(), "TERM");
        self.child.wait().expect("it ends").code().unwrap_or(-1)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Stopped already, mostly.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
