//! The process that measures: this program again, in a process group of its own. It ends with the gateway, and gives
//! way to it.

use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::limits::{END_MAX, JOB_BYTES_MAX, JOB_MAX, LOOK};
use super::progress::{LIVE, problem};
use super::shelf::{bytes_of, read};
use crate::exit::Status;

/// The file of what the process says.
const LOG: &str = "log";
const LOG_BYTES_MAX: u64 = 1 << 20;
/// Characters of a reason.
const REASON_MAX: usize = 500;
/// The rest of the gateway's environment: programs are found, temporary files have their place. Everything else is
/// between the gateway and its service manager.
const ENVIRONMENT: [&str; 3] = ["PATH", "TMPDIR", "LANG"];

/// The end of a measurement.
#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    /// The results are there, and perhaps something is to be known of them.
    Done(Option<String>),
    /// The reason.
    Failed(String),
}

/// This program with these arguments, and nothing of the gateway's.
///
/// # Errors
/// The path of this program is not known.
pub(super) fn command(arguments: &[String], place: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).current_dir(place).env_clear();
    command.envs(ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).kill_on_drop(true);
    Ok(command)
}

/// Measures in a directory, until it is done or `cancelled` has a reason.
pub(super) async fn measure(
    arguments: &[String],
    place: &Path,
    mut cancelled: watch::Receiver<Option<String>>,
) -> Outcome {
    let mut child = match start(arguments, place) {
        Ok(child) => child,
        Err(error) => return Outcome::Failed(format!("the measuring program cannot be started: {error}")),
    };
    let deadline = Instant::now() + JOB_MAX;
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let why = loop {
        tokio::select! {
            status = child.wait() => return concluded(status, place),
            reason = cancelled.wait_for(Option::is_some) => {
                // The sender lives as long as the job.
                break reason.ok().and_then(|reason| reason.clone()).unwrap_or_default();
            }
            () = sleep_until(deadline) => break format!("it took longer than {} minutes", JOB_MAX.as_secs() / 60),
            _ = look.tick() => {
                if bytes_of(place) > JOB_BYTES_MAX {
                    break format!("its files took more than {} MiB", JOB_BYTES_MAX >> 20);
                }
            }
        }
    };
    end(&mut child).await;
    Outcome::Failed(why)
}

fn start(arguments: &[String], place: &Path) -> io::Result<Child> {
    let mut command = command(arguments, place)?;
    command.args(["--out", ".", "--live", LIVE]).arg(format!("--end-with={}", std::process::id()));
    // It ends with the gateway by itself, and removes what it has laid.
    command.stderr(File::create(place.join(LOG))?).kill_on_drop(false).spawn()
}

/// Has the process remove what it has laid. If it does not, it is killed with all that it has started.
pub(super) async fn end(child: &mut Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    // It has been waited for.
    let Some(pid) = pid else { return };
    let _ = kill_process(pid, Signal::TERM);
    if timeout(END_MAX, child.wait()).await.is_err() {
        // Nobody else can have this number: the process has not been waited for.
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = child.wait().await;
    }
}

fn concluded(status: io::Result<ExitStatus>, place: &Path) -> Outcome {
    let status = match status {
        Ok(status) => status,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    let said = read(&place.join(LOG), LOG_BYTES_MAX).ok().and_then(|text| last_words(&text));
    match (status.code(), said) {
        (Some(0), _) => Outcome::Done(None),
        // A claim that could not be decided is a result.
        (Some(code), said) if code == Status::TempFail as i32 => Outcome::Done(said),
        (Some(_), Some(said)) => Outcome::Failed(explained(said, problem(place))),
        (Some(code), None) => Outcome::Failed(format!("the measuring program ended with {code}")),
        (None, _) => {
            let signal = status.signal().unwrap_or_default();
            Outcome::Failed(format!("the measuring program was ended by signal {signal}"))
        }
    }
}

/// The generator says only that nothing was measured where every repetition has failed for a reason.
fn explained(said: String, problem: Option<String>) -> String {
    let Some(problem) = problem else { return said };
    format!("{said}: {problem}").chars().take(REASON_MAX).collect()
}

/// The last thing that a command said as its failure.
fn last_words(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let last = text.lines().rev().find_map(|line| line.strip_prefix("fogmux: "))?;
    Some(last.chars().take(REASON_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_and_the_last_words_are_the_outcome() {
        let place = tempfile::tempdir().unwrap();
        let of = |status| concluded(Ok(ExitStatus::from_raw(status)), place.path());
        assert_eq!(of(69 << 8), Outcome::Failed("the measuring program ended with 69".to_owned()));
        std::fs::write(place.path().join(LOG), "1/2 mqtt\nfogmux: no root\nreport.csv\n").unwrap();
        assert_eq!(of(0), Outcome::Done(None));
        assert_eq!(of(69 << 8), Outcome::Failed("no root".to_owned()));
        let line = r#"{"experiment":"mqtt","repetition":1,"state":"failed","problem":"a link needs root"}"#;
        std::fs::write(place.path().join(LIVE), line).unwrap();
        assert_eq!(of(69 << 8), Outcome::Failed("no root: a link needs root".to_owned()));
        assert_eq!(of(75 << 8), Outcome::Done(Some("no root".to_owned())));
        assert_eq!(of(9), Outcome::Failed("the measuring program was ended by signal 9".to_owned()));
    }

    #[test]
    fn a_reason_is_short() {
        let text = format!("fogmux: {}\n", "é".repeat(REASON_MAX + 1));
        assert_eq!(last_words(text.as_bytes()).unwrap().chars().count(), REASON_MAX);
    }
}
