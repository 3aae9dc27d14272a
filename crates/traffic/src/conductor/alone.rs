//! A repetition in a process of its own, for figures of the generator's memory: what other experiments left in this
//! process is not in them.
//!
//! The process is this program again. It takes an order from its standard input and gives the outcome on its standard
//! output. It stops, and removes what it has laid, when its standard input is closed.

use std::io::{self, BufRead as _, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};

use super::{Conductor, ConductorError, Stop, Target};
use crate::experiment::Experiment;
use crate::outcome::Outcome;
use crate::target::Home;

/// The words after the program's name that start such a process.
const COMMAND: [&str; 2] = ["bench", "repetition"];
/// In which it has to end when it is told to stop.
const END_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);
const STOPPED: &str = "the end of standard input";

#[derive(Serialize, Deserialize)]
struct Order {
    experiment: Experiment,
    number: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Done(Box<Outcome>),
    Failed(String),
}

/// The process, until this is dropped.
struct Alone {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Drop for Alone {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let until = Instant::now() + END_MAX;
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(LOOK);
        }
        // It has ended, or has had its time.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Has one repetition done by a new process of the program `binary`.
pub(super) async fn repeat(binary: &Path, experiment: &Experiment, number: u32) -> Result<Outcome, ConductorError> {
    let failed = |error: io::Error| ConductorError::Alone(error.to_string());
    let order = serde_json::to_string(&Order { experiment: experiment.clone(), number });
    let order = order.map_err(|error| failed(error.into()))?;
    let mut command = Command::new(binary);
    let mut child = command.args(COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let mut alone = Alone { child, stdin };
    if let Some(stdin) = &mut alone.stdin {
        writeln!(stdin, "{order}").map_err(failed)?;
    }
    let (said, heard) = oneshot::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.map(|mut stdout| stdout.read_to_string(&mut text)).transpose();
        // Nobody listens to a repetition that was stopped.
        let _ = said.send(read.map(|_| text));
    });
    let text = heard.await.unwrap_or_else(|_| Ok(String::new())).map_err(failed)?;
    match serde_json::from_str(&text) {
        Ok(Answer::Done(outcome)) => Ok(*outcome),
        Ok(Answer::Failed(why)) => Err(ConductorError::Alone(why)),
        Err(_) => Err(ConductorError::Alone("it ended without an outcome".to_owned())),
    }
}

/// Serves as such a process: does one repetition, and writes its outcome. It ends early when there is a reason in
/// `stop`: a signal that a terminal sends to all processes of a command would end it before it has removed what it
/// laid. Has to be called within a `LocalRuntime`.
///
/// # Errors
/// There is no order, or the outcome cannot be written.
pub async fn serve(binary: &Path, mut stop: Stop) -> Result<(), String> {
    let mut order = String::new();
    io::stdin().lock().read_line(&mut order).map_err(|error| error.to_string())?;
    let Order { experiment, number } = serde_json::from_str(&order).map_err(|error| format!("no order: {error}"))?;
    let (tell, closed) = watch::channel(None);
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = tell.send(Some(STOPPED));
        // The channel stays open: a closed one is no reason to stop.
        std::thread::park();
    });
    let done = async {
        let home = Home::temporary(binary.to_owned())?;
        let mut conductor = Conductor::new(Target::Gateway(Box::new(home)), None).until(closed);
        conductor.repeat(&experiment, number).await
    };
    let done = tokio::select! {
        biased;
        why = stop.wait_for(Option::is_some) => Err(ConductorError::Stopped(why.ok().and_then(|why| *why).unwrap_or(STOPPED))),
        done = done => done,
    };
    let answer = match done {
        Ok(outcome) => Answer::Done(Box::new(outcome)),
        Err(error) => Answer::Failed(error.to_string()),
    };
    let answer = serde_json::to_string(&answer).map_err(|error| error.to_string())?;
    writeln!(io::stdout(), "{answer}").map_err(|error| error.to_string())
}
