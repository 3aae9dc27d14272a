//! The way of lines to standard error: a thread of its own writes them. A worker that logs never waits for whoever
//! reads the log, nor for a disk. Lines that find no room, and those that cannot be written, are lost and counted; the
//! log says how many as soon as it takes lines again.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Stderr, Write};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that wait at most: some ten thousand lines, which a reader that is merely busy catches up with.
const BYTES_MAX: usize = 1 << 20;
/// The longest that an end of the process waits for a log that takes nothing.
const END_MAX: Duration = Duration::from_secs(1);
/// The pause before another try where standard error was made not to block, which whoever shares it may do.
const PAUSE: Duration = Duration::from_millis(10);

/// Lines on their way; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    has_lines: Condvar,
    is_empty: Condvar,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines that were lost since the log last said so.
    unsaid: u64,
}

impl Queue {
    /// Starts the thread that writes to standard error. It does not take the lock of [`io::stderr`], which somebody
    /// else would wait for.
    pub(super) fn start(stderr: &Stderr) -> io::Result<Self> {
        let queue = Self::default();
        let (own, stderr) = (queue.clone(), File::from(stderr.as_fd().try_clone_to_owned()?));
        std::thread::Builder::new().name("log".to_owned()).spawn(move || own.write_all(stderr, say))?;
        Ok(queue)
    }

    /// Adds a line, or loses it if there is no room.
    pub(crate) fn push(&self, line: Vec<u8>) {
        let mut state = self.state();
        if state.bytes.saturating_add(line.len()) > BYTES_MAX {
            self.lose(&mut state);
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line);
        self.0.has_lines.notify_one();
    }

    /// The number of lines that were lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.0.lost.load(Relaxed)
    }

    /// Waits until everything is written, but not long for one who takes nothing.
    pub(crate) fn finish(&self) {
        let end = Instant::now() + END_MAX;
        let mut state = self.state();
        while !state.lines.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.0.is_empty.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes lines for as long as the process runs. `say` logs how many were lost.
    fn write_all(&self, mut to: impl Write, say: impl Fn(u64)) {
        let mut is_torn = false;
        let mut state = self.state();
        loop {
            // It stays in the queue while it is written, so that it counts.
            let Some(line) = state.lines.front_mut().map(std::mem::take) else {
                self.0.is_empty.notify_all();
                state = self.0.has_lines.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let written = write(&mut to, &line, &mut is_torn);
            state = self.state();
            state.lines.pop_front();
            state.bytes -= line.len();
            if written.is_err() {
                self.lose(&mut state);
            } else if state.unsaid > 0 && state.bytes < BYTES_MAX / 2 {
                let lost = std::mem::take(&mut state.unsaid);
                drop(state);
                say(lost);
                state = self.state();
            }
        }
    }

    fn lose(&self, state: &mut State) {
        state.unsaid += 1;
        self.0.lost.fetch_add(1, Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn say(lost: u64) {
    tracing::warn!(target: "fogmux::log", "{lost} lines were lost: standard error did not take them");
}

/// Writes a line whole. `is_torn` says that a part of another is the last that was written: a full disk takes what it
/// has room for.
fn write(to: &mut impl Write, line: &[u8], is_torn: &mut bool) -> io::Result<()> {
    let ended = if *is_torn { &b"\n"[..] } else { b"" };
    for mut rest in [ended, line] {
        while !rest.is_empty() {
            match to.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    rest = rest.get(count..).unwrap_or_default();
                    *is_torn = !rest.is_empty();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
