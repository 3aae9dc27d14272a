//! The queue of jobs: those that wait, the one that is measured, and those that have ended.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fogmux_gateway::Shared;
use fogmux_gateway::administration::Refusal;
use fogmux_gateway::administration::bench::{BenchCommand, Ended, Submit, Submitted};
use fogmux_http::api::{Bench, BenchState, ReportFormat};
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::child::{Outcome, measure};
use super::choices::{Plan, choices, plan};
use super::comparison;
use super::job::{Job, now_unix_ms};
use super::limits::{COMPARISON_MAX, COMPARISONS_MAX, END_MAX, KEPT_BYTES_MAX, KEPT_MAX, LOAD_PAUSE, WAITING_MAX};
use super::load;
use super::progress::progress;
use super::shelf::{GATEWAY_ENDED, Shelf};
use crate::data;

/// The jobs, once somebody has asked for them.
#[derive(Debug, Default)]
pub(crate) struct Benches(Option<Arc<Queue>>);

impl Benches {
    /// Answers a command, at once or when it is carried out. `directory` is the data directory.
    pub(crate) fn command(&mut self, directory: &Path, gateway: &Arc<Shared>, command: BenchCommand) {
        // A directory that could not be read may be readable now. There were no jobs then.
        self.0 = self.0.take().filter(|queue| queue.lock().broken.is_none());
        let queue = self.0.get_or_insert_with(|| Arc::new(Queue::open(directory, Arc::clone(gateway))));
        tokio::spawn(answer(Arc::clone(queue), command));
    }

    /// Ends the job that is measured, and begins no other.
    pub(crate) async fn stop(&mut self) {
        if let Some(queue) = self.0.take() {
            queue.stop().await;
        }
    }
}

/// Errors of an answer: nobody waits for it any more.
async fn answer(queue: Arc<Queue>, command: BenchCommand) {
    match command {
        BenchCommand::List(answer) => drop(answer.send(Ok(queue.list().to_json()))),
        BenchCommand::Choices(answer) => drop(answer.send(apart(|| Ok(choices().to_json())).await)),
        BenchCommand::Submit(submit, answer) => drop(answer.send(queue.submit(submit).await)),
        BenchCommand::Show(id, answer) => drop(answer.send(queue.show(id).await)),
        BenchCommand::End(id, by, answer) => drop(answer.send(queue.end(id, &by.name).await)),
        BenchCommand::Report(id, format, answer) => drop(answer.send(queue.report(id, format).await)),
        BenchCommand::Compare(before, after, answer) => drop(answer.send(queue.compare(before, after).await)),
    }
}

/// Has it done by a thread that may wait for a disk.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> Result<T, Refusal> + Send + 'static) -> Result<T, Refusal> {
    spawn_blocking(work).await.unwrap_or(Err(Refusal::Busy))
}

const NO_JOB: Refusal = Refusal::Missing("there is no such job");
const NO_REPORT: Refusal = Refusal::Missing("there is no such job, or it has no report");

#[derive(Debug)]
struct Queue {
    shelf: Shelf,
    gateway: Arc<Shared>,
    state: Mutex<State>,
    /// Tells that a job has ended.
    ended: watch::Sender<()>,
    /// One comparison at a time.
    comparing: tokio::sync::Mutex<()>,
    /// Comparisons that wait, and the one that is made.
    comparisons: Semaphore,
    /// One report is read at a time.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    jobs: BTreeMap<u64, Job>,
    last: u64,
    /// Requests that are about to be jobs.
    coming: usize,
    /// Whether a task works the queue off.
    works: bool,
    /// Ends the job that is measured, for a reason.
    running: Option<(u64, watch::Sender<Option<String>>)>,
    stops: bool,
    /// Why the directory cannot be used.
    broken: Option<String>,
}

impl Queue {
    fn open(directory: &Path, gateway: Arc<Shared>) -> Self {
        let shelf = Shelf::at(directory.join(data::BENCH));
        let (jobs, broken) = match shelf.jobs() {
            Ok(jobs) => (jobs, None),
            Err(error) => (BTreeMap::new(), Some(format!("{}: {error}", shelf.directory().display()))),
        };
        let last = jobs.keys().next_back().copied().unwrap_or_default();
        let state = State { jobs, last, broken, ..State::default() };
        Self {
            shelf,
            gateway,
            state: Mutex::new(state),
            ended: watch::Sender::new(()),
            comparing: Default::default(),
            comparisons: Semaphore::new(COMPARISONS_MAX),
            reading: Default::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(&self) -> Bench {
        let state = self.lock();
        let jobs = state.jobs.values().rev().map(|job| job.document(self.shelf.has_report(job.id))).collect();
        Bench {
            available: state.broken.is_none(),
            reason: state.broken.clone(),
            jobs,
            waiting_max: WAITING_MAX,
            kept_max: KEPT_MAX,
            kept_bytes_max: KEPT_BYTES_MAX,
        }
    }

    async fn show(&self, id: u64) -> Result<Vec<u8>, Refusal> {
        let job = self.lock().jobs.get(&id).cloned().ok_or(NO_JOB)?;
        let shelf = self.shelf.clone();
        apart(move || {
            let mut document = job.document(shelf.has_report(id));
            document.progress = Some(progress(&shelf.place(id)));
            Ok(document.to_json())
        })
        .await
    }

    async fn report(&self, id: u64, format: ReportFormat) -> Result<Vec<u8>, Refusal> {
        if !self.lock().jobs.contains_key(&id) {
            return Err(NO_REPORT);
        }
        let shelf = self.shelf.clone();
        let failed = |error: std::io::Error| Refusal::Failed(error.to_string());
        let _alone = self.reading.lock().await;
        apart(move || shelf.report(id, format).map_err(failed)?.ok_or(NO_REPORT)).await
    }

    async fn compare(&self, before: u64, after: u64) -> Result<Vec<u8>, Refusal> {
        if [before, after].into_iter().any(|id| !self.lock().jobs.contains_key(&id) || !self.shelf.has_report(id)) {
            return Err(NO_REPORT);
        }
        let busy = || Refusal::Failed("other reports are being compared".to_owned());
        let _place = self.comparisons.try_acquire().map_err(|_| busy())?;
        let _alone = timeout(COMPARISON_MAX, self.comparing.lock()).await.map_err(|_| busy())?;
        comparison::compare(self.shelf.directory(), before, after).await
    }

    async fn submit(self: &Arc<Self>, submit: Submit) -> Result<Submitted, Refusal> {
        let Submit { request, by } = submit;
        let Plan { arguments, repetitions } = apart(move || plan(&request.wanted).map_err(Refusal::Unusable)).await?;
        let _place = Coming::of(self)?;
        if !request.anyway
            && let Some(why) = load::look(&self.gateway).await
        {
            return Err(Refusal::Loaded(why));
        }
        let mut state = self.lock();
        if state.stops {
            return Err(Refusal::Busy);
        }
        let id = state.last + 1;
        let job = Job {
            id,
            state: BenchState::Submitted,
            arguments,
            repetitions,
            anyway: request.anyway,
            by: by.name.to_string(),
            submitted_unix_ms: now_unix_ms(),
            started_unix_ms: None,
            ended_unix_ms: None,
            reason: None,
        };
        let failed = |error| Refusal::Failed(format!("{}: {error}", self.shelf.place(id).display()));
        self.shelf.make(&job).map_err(failed)?;
        let submitted = Submitted { id, command: job.command(), document: job.document(false).to_json() };
        state.last = id;
        state.jobs.insert(id, job);
        if !std::mem::replace(&mut state.works, true) {
            tokio::spawn(Arc::clone(self).work());
        }
        Ok(submitted)
    }

    /// Ends a job that has not ended, and waits until it has; removes one that has.
    async fn end(&self, id: u64, by: &str) -> Result<Ended, Refusal> {
        let reason = format!("cancelled by {by}");
        let mut changes = self.ended.subscribe();
        {
            let mut state = self.lock();
            let State { jobs, running, .. } = &mut *state;
            let job = jobs.get_mut(&id).ok_or(NO_JOB)?;
            match (job.state, running) {
                (BenchState::Done | BenchState::Failed, _) => {
                    let removed = self.shelf.remove(id);
                    if let Err(error) = removed.or_else(nothing_there) {
                        return Err(Refusal::Failed(format!("{}: {error}", self.shelf.place(id).display())));
                    }
                    jobs.remove(&id);
                    return Ok(Ended::Removed);
                }
                (BenchState::Running, Some((running, cancel))) if *running == id => drop(cancel.send(Some(reason))),
                (BenchState::Submitted | BenchState::Running, _) => {
                    job.end(BenchState::Failed, Some(reason));
                    self.keep(job);
                    self.make_room(jobs);
                    return Ok(Ended::Cancelled);
                }
            }
        }
        while self.lock().jobs.get(&id).is_some_and(|job| !job.has_ended()) {
            // The sender is this queue's.
            let _ = changes.changed().await;
        }
        Ok(Ended::Cancelled)
    }

    /// Works the queue off, one job after the other.
    async fn work(self: Arc<Self>) {
        while let Some((mut id, anyway)) = self.next() {
            if !anyway && let Some(why) = load::look(&self.gateway).await {
                self.note(id, why);
                // A job that waits for a quiet gateway does not keep those that do not.
                let Some(other) = self.next_anyway() else {
                    sleep(LOAD_PAUSE).await;
                    continue;
                };
                id = other;
            }
            let Some((job, cancelled)) = self.begin(id) else { continue };
            tracing::info!(id, command = job.command(), "a measurement begins");
            let outcome = measure(&job.arguments, &self.shelf.place(id), cancelled).await;
            self.finish(id, outcome);
        }
    }

    /// The job that is the next one. If there is none, the task that asks has to end.
    fn next(&self) -> Option<(u64, bool)> {
        let mut state = self.lock();
        let waiting = state.jobs.values().find(|job| job.state == BenchState::Submitted && !state.stops);
        let next = waiting.map(|job| (job.id, job.anyway));
        state.works = next.is_some();
        next
    }

    /// The next job that is to be measured on a gateway at work as well.
    fn next_anyway(&self) -> Option<u64> {
        let state = self.lock();
        let mut waiting = state.jobs.values().filter(|job| job.state == BenchState::Submitted && !state.stops);
        waiting.find(|job| job.anyway).map(|job| job.id)
    }

    /// Notes why a job still waits.
    fn note(&self, id: u64, why: String) {
        if let Some(job) = self.lock().jobs.get_mut(&id).filter(|job| job.state == BenchState::Submitted) {
            job.reason = Some(format!("it waits for the gateway: {why}"));
        }
    }

    fn begin(&self, id: u64) -> Option<(Job, watch::Receiver<Option<String>>)> {
        let mut state = self.lock();
        if state.stops {
            return None;
        }
        let job = state.jobs.get_mut(&id).filter(|job| job.state == BenchState::Submitted)?;
        (job.state, job.started_unix_ms, job.reason) = (BenchState::Running, Some(now_unix_ms()), None);
        self.keep(job);
        let (job, (cancel, cancelled)) = (job.clone(), watch::channel(None));
        state.running = Some((id, cancel));
        Some((job, cancelled))
    }

    fn finish(&self, id: u64, outcome: Outcome) {
        let mut state = self.lock();
        state.running = None;
        if let Some(job) = state.jobs.get_mut(&id) {
            match outcome {
                Outcome::Done(reason) => job.end(BenchState::Done, reason),
                Outcome::Failed(reason) => job.end(BenchState::Failed, Some(reason)),
            }
            tracing::info!(id, state = ?job.state, reason = job.reason, "a measurement ended");
            self.keep(job);
        }
        self.make_room(&mut state.jobs);
        drop(state);
        self.ended.send_replace(());
    }

    fn make_room(&self, jobs: &mut BTreeMap<u64, Job>) {
        for id in self.shelf.leaving(jobs) {
            match self.shelf.remove(id).or_else(nothing_there) {
                Ok(()) => drop(jobs.remove(&id)),
                Err(error) => tracing::warn!(id, %error, "an old measurement cannot be removed"),
            }
        }
    }

    /// A record that cannot be written leaves the one before: the job is failed at the next start.
    fn keep(&self, job: &Job) {
        if let Err(error) = self.shelf.keep(job) {
            tracing::warn!(id = job.id, %error, "the state of a measurement cannot be written");
        }
    }

    async fn stop(&self) {
        let mut changes = self.ended.subscribe();
        {
            let mut state = self.lock();
            state.stops = true;
            let Some((_, cancel)) = &state.running else { return };
            let _ = cancel.send(Some(GATEWAY_ENDED.to_owned()));
        }
        // Twice the time after which it is killed.
        let _ = timeout(END_MAX * 2, changes.changed()).await;
    }
}

fn nothing_there(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// The place of a request that is about to be a job.
struct Coming<'a>(&'a Queue);

impl<'a> Coming<'a> {
    fn of(queue: &'a Queue) -> Result<Self, Refusal> {
        let mut state = queue.lock();
        if let Some(why) = &state.broken {
            return Err(Refusal::Failed(why.clone()));
        }
        let waiting = state.jobs.values().filter(|job| job.state == BenchState::Submitted).count();
        if waiting + state.coming >= WAITING_MAX {
            return Err(Refusal::Full(format!("{WAITING_MAX} jobs wait already")));
        }
        state.coming += 1;
        Ok(Self(queue))
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.0.lock().coming -= 1;
    }
}
