//! The threads that verify passwords: few, at a lower priority than the workers, and running only while there is work.
//!
//! A verification takes 7 MiB and a core for some hundredths of a second. Each thread uses its own memory for one login
//! after the other; after some idle seconds it ends, and its memory is returned to the system. A waiting login costs a
//! place in the [`LoginQueue`], its name and its password, but no thread.

use std::{
    fmt,
    net::IpAddr,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use fogmux_auth::{HashedPassword, LoginQueue, PasswordCheck, PasswordError, Principal, QueueConfig, Refused, Scratch};
use fogmux_net::channel::Zeroizing;
use tokio::sync::oneshot;

use crate::metrics::Counter;

/// How long an idle thread keeps running.
const REST: Duration = Duration::from_secs(2);

/// Added to the niceness of a thread: beside a busy worker (niceness 0) on the same core it gets about a tenth of the
/// time, and a worker that wakes up preempts it (sched(7)).
const NICENESS: i32 = 10;

/// The limits on verifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifierConfig {
    /// Threads at most; 0: half of the processor cores.
    pub threads_max: usize,
    /// The bounds of the queue.
    pub queue: QueueConfig,
    /// Longest wait of a login, verification included; after it, the client is told that the server is busy.
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

/// Verifies logins by name and password. One for the whole gateway; clones share it.
#[derive(Clone, Default)]
pub struct Verifiers(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    work: Condvar,
    refused: Counter,
}

struct State {
    queue: LoginQueue<Login>,
    threads_max: usize,
    wait_max: Duration,
    threads: usize,
    /// Threads that wait for a login.
    idle: usize,
    /// Whether a failure to lower the priority was logged.
    niceness_refused: bool,
}

/// A login, or a new password, which costs as much.
enum Login {
    Check(PasswordCheck, oneshot::Sender<Result<Principal, Refused>>),
    Hash(Zeroizing<Vec<u8>>, oneshot::Sender<Result<HashedPassword, PasswordError>>),
}

impl Login {
    /// Whether nobody waits for it any more.
    fn is_given_up(&self) -> bool {
        match self {
            Self::Check(_, answer) => answer.is_closed(),
            Self::Hash(_, answer) => answer.is_closed(),
        }
    }

    fn run(self, scratch: &mut Scratch) {
        // Errors: nobody waits any more.
        match self {
            Self::Check(check, answer) => drop(answer.send(check.run(scratch))),
            Self::Hash(password, answer) => drop(answer.send(HashedPassword::of(&password, scratch))),
        }
    }
}

impl Verifiers {
    /// Changes the limits. Threads beyond a lower number end after their login.
    pub fn configure(&self, config: VerifierConfig) {
        let mut state = self.0.lock();
        state.threads_max = config.threads();
        state.wait_max = config.wait_max;
        state.queue.configure(config.queue);
    }

    /// The number of waiting logins.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.lock().queue.len()
    }

    /// Logins refused because too many waited.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.0.refused.get()
    }

    /// Verifies a login from this address when its turn comes. A caller that stops waiting gives up its place.
    ///
    /// # Errors
    /// The login is refused; [`Refused::Busy`] when too many wait.
    pub(crate) async fn verify(&self, address: IpAddr, check: PasswordCheck) -> Result<Principal, Refused> {
        let (answer, verified) = oneshot::channel();
        let user: Box<str> = check.user().into();
        self.wait(address, &user, Login::Check(check, answer), verified).await.unwrap_or(Err(Refused::Busy))
    }

    /// Hashes a password for `user`, who asks from this address, when its turn comes among the logins.
    ///
    /// # Errors
    /// `None` when too many wait, else the password cannot be used.
    pub async fn hash(
        &self,
        address: IpAddr,
        user: &str,
        password: Zeroizing<Vec<u8>>,
    ) -> Option<Result<HashedPassword, PasswordError>> {
        let (answer, hashed) = oneshot::channel();
        self.wait(address, user, Login::Hash(password, answer), hashed).await
    }

    /// Queues work and waits for its answer; `None` when too many wait.
    async fn wait<T>(&self, address: IpAddr, user: &str, login: Login, answered: oneshot::Receiver<T>) -> Option<T> {
        let wait_max = self.0.lock().wait_max;
        if !self.submit(address, user, login) {
            self.0.refused.increment();
            return None;
        }
        // Errors: it took too long; the login lost its place to another, or the verification panicked.
        let answer = tokio::time::timeout(wait_max, answered).await.ok().and_then(Result::ok);
        if answer.is_none() {
            self.0.refused.increment();
        }
        answer
    }

    /// Notes a login by password, so that the source keeps a place in the queue.
    pub(crate) fn succeeded(&self, address: IpAddr, user: &str) {
        self.0.lock().queue.succeeded(address, user);
    }

    /// Queues a login. Returns whether there was room.
    fn submit(&self, address: IpAddr, user: &str, login: Login) -> bool {
        let mut state = self.0.lock();
        let pushed = state.queue.push(address, user, login).or_else(|login| {
            // Callers that have stopped waiting still hold places.
            state.queue.retain(|login| !login.is_given_up());
            state.queue.push(address, user, login)
        });
        if state.queue.len() > state.idle && state.threads < state.threads_max {
            self.0.start(&mut state);
        }
        // Without a thread the login would never be verified.
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

impl Default for State {
    fn default() -> Self {
        let config = VerifierConfig::default();
        Self {
            queue: LoginQueue::default(),
            threads_max: config.threads(),
            wait_max: config.wait_max,
            threads: 0,
            idle: 0,
            niceness_refused: false,
        }
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

/// A thread that is counted until it ends, also by a panic.
struct Running(Arc<Inner>);

impl Running {
    fn run(self) {
        self.lower_priority();
        let mut scratch = Scratch::new();
        while let Some(login) = self.next() {
            login.run(&mut scratch);
        }
    }

    /// On Linux this affects the calling thread only (setpriority(2), "C library/kernel differences").
    fn lower_priority(&self) {
        let Err(error) = rustix::process::setpriority_process(None, NICENESS) else { return };
        if !std::mem::replace(&mut self.0.lock().niceness_refused, true) {
            tracing::warn!(%error, "passwords are verified at normal priority; many logins at once delay other clients");
        }
    }

    /// The next login that a caller waits for; `None` when the thread is to end.
    fn next(&self) -> Option<Login> {
        let mut state = self.0.lock();
        loop {
            if state.threads > state.threads_max {
                return None;
            }
            while let Some(login) = state.queue.pop() {
                if !login.is_given_up() {
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
        // After a panic, waiting logins need another thread.
        if state.threads == 0 && !state.queue.is_empty() {
            self.0.start(&mut state);
        }
    }
}

#[cfg(test)]
mod tests;
