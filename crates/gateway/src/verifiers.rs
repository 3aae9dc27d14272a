//! The threads that verify passwords: few, at a lower priority than the workers, and there only while there is
//! something to verify.
//!
//! A verification takes 7 MiB and a core for some hundredths of a second. Each thread has its own memory for it, which
//! it uses for one login after the other; after some seconds without any it ends, and the memory goes back to the system. A
//! login that waits costs a place in the [`LoginQueue`], its name and its password, and no thread.

use std::{
    fmt,
    net::IpAddr,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use fogmux_auth::{LoginQueue, PasswordCheck, Principal, QueueConfig, Refused, Scratch};
use tokio::sync::oneshot;

use crate::metrics::Counter;

/// How long a thread keeps its memory after its last login.
const REST: Duration = Duration::from_secs(2);

/// Added to the niceness of a thread: beside a busy worker (niceness 0) on the same core it gets about a tenth of the
/// time, and a worker that wakes up displaces it at once (sched(7)).
const NICENESS: i32 = 10;

/// How many verify at once, and how many may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifierConfig {
    /// Threads at most; 0: half of the processor cores.
    pub threads_max: usize,
    /// The logins that wait.
    pub queue: QueueConfig,
    /// How long a login waits at most, its verification included; beyond, the client is told that the server is busy.
    pub wait_max: Duration,
}

impl Default for VerifierConfig {
    fn default() -> Self {
        Self { threads_max: 0, queue: QueueConfig::default(), wait_max: Duration::from_secs(30) }
    }
}

impl VerifierConfig {
    fn threads(&self) -> usize {
        match self.threads_max {
            0 => thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)),
            threads => threads,
        }
    }
}

/// Where logins by name and password are verified. One for the whole gateway; clones are the same.
#[derive(Clone, Default)]
pub struct Verifiers(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    work: Condvar,
    refused: Counter,
}

#[derive(Default)]
struct State {
    queue: LoginQueue<Login>,
    threads_max: Option<usize>,
    wait_max: Option<Duration>,
    threads: usize,
    /// Threads that wait for a login.
    idle: usize,
    /// Whether it was said that the priority cannot be lowered.
    niceness_refused: bool,
}

struct Login {
    check: PasswordCheck,
    answer: oneshot::Sender<Result<Principal, Refused>>,
}

impl Verifiers {
    /// Other bounds from now on. Threads beyond a lower number end after their login.
    pub fn configure(&self, config: VerifierConfig) {
        let mut state = self.0.lock();
        state.threads_max = Some(config.threads());
        state.wait_max = Some(config.wait_max);
        state.queue.configure(config.queue);
    }

    /// Logins that wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.lock().queue.len()
    }

    /// Logins that were refused because too many waited.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.0.refused.get()
    }

    /// Verifies a login from that address when its turn comes. A caller that stops waiting gives up its place.
    ///
    /// # Errors
    /// The login is refused; [`Refused::Busy`] when too many wait.
    pub(crate) async fn verify(&self, address: IpAddr, check: PasswordCheck) -> Result<Principal, Refused> {
        let wait_max = self.0.lock().wait_max.unwrap_or(VerifierConfig::default().wait_max);
        let (answer, verified) = oneshot::channel();
        if !self.submit(address, Login { check, answer }) {
            self.0.refused.increment();
            return Err(Refused::Busy);
        }
        // Errors: it took too long; the login lost its place to another, or the verification panicked.
        match tokio::time::timeout(wait_max, verified).await {
            Ok(Ok(verified)) => verified,
            Ok(Err(_)) | Err(_) => {
                self.0.refused.increment();
                Err(Refused::Busy)
            }
        }
    }

    /// Notes that a user has logged in with a password from there: a place is kept for the next time.
    pub(crate) fn succeeded(&self, address: IpAddr, user: &str) {
        self.0.lock().queue.succeeded(address, user);
    }

    /// Whether there was room.
    fn submit(&self, address: IpAddr, login: Login) -> bool {
        let mut state = self.0.lock();
        let user: Box<str> = login.check.user().into();
        let pushed = state.queue.push(address, &user, login).or_else(|login| {
            // Those who have hung up hold places, too.
            state.queue.retain(|login| !login.answer.is_closed());
            state.queue.push(address, &user, login)
        });
        let threads_max = state.threads_max();
        if state.queue.len() > state.idle && state.threads < threads_max {
            self.0.start(&mut state);
        }
        // Without any thread nobody would ever answer.
        let taken = pushed.is_ok() && state.threads > 0;
        drop(state);
        self.0.work.notify_one();
        taken
    }
}

impl fmt::Debug for Verifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifiers").finish_non_exhaustive()
    }
}

impl State {
    fn threads_max(&mut self) -> usize {
        *self.threads_max.get_or_insert_with(|| VerifierConfig::default().threads())
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(self: &Arc<Self>, state: &mut State) {
        let running = Running(Arc::clone(self));
        let spawned = thread::Builder::new().name("fogmux-verifier".into()).spawn(move || running.run());
        match spawned {
            Ok(_) => state.threads += 1,
            Err(error) => tracing::error!(%error, "no thread to verify passwords"),
        }
    }
}

/// A thread that is counted, however it ends.
struct Running(Arc<Inner>);

impl Running {
    fn run(self) {
        self.lower_priority();
        let mut scratch = Scratch::new();
        while let Some(Login { check, answer }) = self.next() {
            // An error: nobody waits any more.
            let _ = answer.send(check.run(&mut scratch));
        }
    }

    /// On Linux this is about the calling thread alone (setpriority(2), "C library/kernel differences").
    fn lower_priority(&self) {
        let Err(error) = rustix::process::setpriority_process(None, NICENESS) else { return };
        if !std::mem::replace(&mut self.0.lock().niceness_refused, true) {
            tracing::warn!(%error, "passwords are verified at normal priority; many logins at once delay other clients");
        }
    }

    /// The next login that somebody waits for; none when the thread is to end.
    fn next(&self) -> Option<Login> {
        let mut state = self.0.lock();
        loop {
            if state.threads > state.threads_max() {
                return None;
            }
            while let Some(login) = state.queue.pop() {
                if !login.answer.is_closed() {
                    return Some(login);
                }
            }
            state.idle += 1;
            let (woken, waited) = self.0.work.wait_timeout(state, REST).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() && state.queue.is_empty() {
                return None;
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.threads -= 1;
        // Whoever still waits would wait for ever.
        if state.threads == 0 && !state.queue.is_empty() {
            self.0.start(&mut state);
        }
    }
}

#[cfg(test)]
mod tests;
