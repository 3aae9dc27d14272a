//! Connections made over and over: what a handshake costs, and devices that wake, send or ask, and sleep again.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::connections::Connections;
use super::content::{ALTERED, Content};
use super::deliver;
use super::pacer::Pacer;
use super::stage::{Stage, is_stamped, nanoseconds};
use super::{Bench, PatternError, stamp};
use crate::driver::{Answer, Arrival, Client, Driver, DriverError, Request, Role, Sink};
use crate::experiment::{Experiment, Operation, Visit};
use crate::measure::process::{MachineProbe, ThreadProbe, limit};
use crate::outcome::{Bytes, Outcome};

/// Longer than any handshake that succeeds, and than all repeats of a Confirmable (RFC 7252 §4.8.2).
const VISIT_MAX: Duration = Duration::from_secs(120);

/// The state that all visitors share.
struct Visits {
    experiment: Experiment,
    /// Followers, and what they should hear.
    stage: Rc<Stage>,
    counted: RefCell<Outcome>,
    left: Cell<u64>,
    began: Instant,
    end: Instant,
}

/// One repetition: `publishers` visitors, each of whom begins again when it is done, or due.
pub(crate) async fn run(experiment: &Experiment, bench: &mut Bench<'_>) -> Result<Outcome, PatternError> {
    let stage = Rc::new(Stage::new(&as_heard(experiment), bench.conflates, &bench.member));
    let mut following = JoinSet::new();
    let followers = deliver::subscribe(&stage, bench, &mut following).await?;
    if experiment.visit == Visit::Get {
        keep(experiment, &stage, bench).await?;
    }
    // The traffic of the setup has ended, including delayed acknowledgements.
    bench.settled_wire_since(bench.wire()).await;
    let recording = bench.record();
    let (wire, carried) = (bench.wire(), followers.bytes());
    let (machine, thread) = (MachineProbe::start(), ThreadProbe::start());
    bench.start();
    let visits = Rc::new(Visits::begin(experiment, &stage));
    let mut visitors = JoinSet::new();
    for number in 0..experiment.publishers {
        let pacer =
            Pacer::of(experiment, stage.draw, number).map_err(|error| PatternError::Timer(error.to_string()))?;
        visitors.spawn_local(come_and_go(Rc::clone(&visits), Rc::clone(&bench.publishers), number, pacer));
    }
    visits.all(visitors).await?;
    let seconds = visits.began.elapsed().as_secs_f64();
    deliver::drain(&stage, &Cell::new(0)).await;
    stage.check()?;
    let mut outcome = visits.outcome(seconds);
    stage.offer.write(stage.now_ns(), |_| 1, &mut outcome);
    outcome.bytes = outcome.bytes.plus(followers.bytes().since(carried));
    bench.end(machine, &mut outcome);
    outcome.gateway_connect = outcome.gateway;
    outcome.limited_by_generator = limit(thread.busy(), None);
    outcome.connect_bytes.wire = bench.settled_wire_since(wire).await;
    outcome.more.extend(recording.map(|finish| finish()).unwrap_or_default());
    following.shutdown().await;
    followers.close().await;
    Ok(outcome)
}

/// The experiment as its followers see it.
fn as_heard(experiment: &Experiment) -> Experiment {
    let operation = if experiment.followers > 0 { Operation::Deliver } else { Operation::Connect };
    Experiment { operation, subscribers: experiment.followers, ..experiment.clone() }
}

/// Has something kept on every topic, for those who will ask.
async fn keep(experiment: &Experiment, stage: &Stage, bench: &Bench<'_>) -> Result<(), PatternError> {
    let keeper = Connections::open(&*bench.publishers, Role::Publisher, 0..1).await?;
    for number in 0..experiment.topics {
        for client in &keeper.clients {
            deliver::keep(client, &stage.topic(number), experiment).await?;
        }
    }
    keeper.close().await;
    Ok(())
}

impl Visits {
    fn begin(experiment: &Experiment, stage: &Rc<Stage>) -> Self {
        let began = Instant::now();
        let lasts = Duration::from_secs_f64(experiment.seconds);
        // All of it begins at one time: what is due when the time is over is no part of it.
        let now_ns = stage.now_ns();
        stage.ledger.borrow_mut().begin(now_ns);
        stage.offer.start(now_ns);
        stage.offer.open(now_ns, nanoseconds(lasts));
        Self {
            experiment: experiment.clone(),
            stage: Rc::clone(stage),
            counted: RefCell::default(),
            left: Cell::new(experiment.count.unwrap_or(u64::MAX)),
            began,
            end: began + lasts,
        }
    }

    /// Waits until the last visitor has gone.
    async fn all(&self, mut visitors: JoinSet<()>) -> Result<(), DriverError> {
        let mut is_closed = false;
        loop {
            tokio::select! {
                () = sleep_until(self.end), if !is_closed => {
                    is_closed = true;
                    self.stage.offer.close(self.stage.now_ns());
                }
                visited = visitors.join_next() => match visited {
                    Some(visited) => visited.map_err(|error| DriverError::Connection(error.to_string()))?,
                    None => break,
                }
            }
        }
        if !is_closed {
            self.stage.offer.close(self.stage.now_ns());
        }
        Ok(())
    }

    /// The counts of visitors and subscribers together.
    fn outcome(&self, seconds: f64) -> Outcome {
        let heard = self.stage.ledger.borrow_mut().finish();
        let counted = self.counted.take();
        Outcome {
            seconds,
            errors: counted.errors + heard.errors,
            first_error: counted.first_error.clone().or(heard.first_error),
            foreign: heard.foreign,
            expected: heard.expected,
            delivered: heard.delivered,
            duplicates: heard.duplicates,
            reordered: heard.reordered,
            conflated: heard.conflated,
            disconnects: heard.disconnects,
            delivery: heard.delivery,
            per_tenth: heard.per_tenth,
            slices: heard.slices,
            ..counted
        }
    }

    /// Whether no visit begins any more. One that was due in time may begin while missing messages are waited for.
    fn is_over(&self) -> bool {
        let more = if self.experiment.rate.is_some() { self.stage.patience() } else { Duration::ZERO };
        self.left.get() == 0 || Instant::now() >= self.end + more
    }

    fn succeeded(&self, due_ns: u64) {
        self.counted.borrow_mut().acknowledged += 1;
        let latency_ns = self.stage.now_ns().saturating_sub(due_ns).max(1);
        // Followers have latencies of their own.
        let latency_ns = (self.experiment.followers == 0).then_some(latency_ns);
        self.stage.ledger.borrow_mut().slices().acknowledged(due_ns, latency_ns);
    }

    fn failed(&self, due_ns: u64, why: String) {
        self.stage.ledger.borrow_mut().slices().failed(due_ns);
        let mut counted = self.counted.borrow_mut();
        counted.errors += 1;
        counted.first_error.get_or_insert(why);
    }
}

async fn come_and_go(visits: Rc<Visits>, driver: Rc<dyn Driver>, number: u32, mut pacer: Option<Pacer>) {
    while !visits.is_over() {
        let mut due_ns = visits.stage.now_ns();
        if let Some(pacer) = &mut pacer {
            if visits.stage.offer.is_over_at(pacer.next_ns()) {
                return;
            }
            due_ns = visits.stage.offer.first_due_ns() + pacer.next_ns();
            poll_fn(|cx| poll_due(&visits, pacer, due_ns, cx)).await;
            if visits.is_over() {
                return;
            }
            pacer.advance();
            let now_ns = visits.stage.now_ns();
            visits.stage.offer.begin(number, now_ns);
            visits.stage.ledger.borrow_mut().begun(due_ns, now_ns);
        }
        visits.left.set(visits.left.get() - 1);
        visits.counted.borrow_mut().sent += 1;
        match timeout_at(Instant::now() + VISIT_MAX, visit(&visits, &*driver, number, due_ns)).await {
            Ok(Ok(())) => visits.succeeded(due_ns),
            Ok(Err(error)) => visits.failed(due_ns, error.to_string()),
            Err(_) => visits.failed(due_ns, format!("a visit took longer than {VISIT_MAX:?}")),
        }
        if let Some(gap) = visits.experiment.gap_seconds {
            sleep_until(visits.end.min(Instant::now() + Duration::from_secs_f64(gap))).await;
        }
    }
}

fn poll_due(visits: &Visits, pacer: &mut Pacer, due_ns: u64, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        let wait = Duration::from_nanos(due_ns.saturating_sub(visits.stage.now_ns()));
        if wait.is_zero() || visits.is_over() {
            return Poll::Ready(());
        }
        if pacer.poll_in(wait, cx).is_pending() {
            return Poll::Pending;
        }
    }
}

/// Connects, says or asks what there is to be said or asked, and goes.
async fn visit(visits: &Visits, driver: &dyn Driver, number: u32, due_ns: u64) -> Result<(), DriverError> {
    let connected = driver.connect(Role::Publisher, number).await?;
    let mut client = connected.client;
    {
        let mut counted = visits.counted.borrow_mut();
        counted.connect.record_ns(nanoseconds(connected.took).max(1));
        counted.cipher = connected.cipher;
        counted.connect_bytes = counted.connect_bytes.plus(client.bytes());
    }
    let connecting = client.bytes();
    let done = match visits.experiment.messages {
        0 => Ok(()),
        _ => Burst::new(visits, number).through(&mut *client).await,
    };
    let carried: Bytes = client.bytes().since(connecting);
    client.close().await;
    let mut counted = visits.counted.borrow_mut();
    counted.bytes = counted.bytes.plus(carried);
    if done.is_ok() {
        counted.answer.record_ns(visits.stage.now_ns().saturating_sub(due_ns).max(1));
    }
    done
}

/// The messages of one visit: as many at once as the window lets.
struct Burst<'a> {
    visits: &'a Visits,
    lane: u32,
    number: u32,
    topic: String,
    payload: Vec<u8>,
    left: u32,
    answers: Answers,
}

/// The answers received.
#[derive(Default)]
struct Answers {
    open: u32,
    refused: Option<String>,
    /// The payload that each has to have, where something is asked for.
    kept: Option<Content>,
}

impl Sink for Answers {
    fn done(&mut self, _: u64, answer: Answer<'_>) {
        self.open = self.open.saturating_sub(1);
        match answer {
            Answer::Success(payload) if self.kept.as_ref().is_some_and(|kept| !kept.is(payload)) => {
                self.refused = Some(ALTERED.to_owned());
            }
            Answer::Success(_) => {}
            Answer::Refused(why) => self.refused = Some(why.to_owned()),
            Answer::Lost => self.refused = Some("a message was never answered".to_owned()),
        }
    }

    fn message(&mut self, _: Arrival<'_>) {}

    fn stray(&mut self, what: &str) {
        self.refused = Some(what.to_owned());
    }
}

impl<'a> Burst<'a> {
    fn new(visits: &'a Visits, number: u32) -> Self {
        let experiment = &visits.experiment;
        let kept = (experiment.visit == Visit::Get).then(|| Content::kept(experiment));
        Self {
            visits,
            lane: visits.stage.lane(number),
            number,
            topic: visits.stage.topic(number),
            payload: stamp::filler(experiment.payload_bytes, experiment.seed),
            left: experiment.messages,
            answers: Answers { kept, ..Answers::default() },
        }
    }

    /// Waits for all answers.
    async fn through(mut self, client: &mut dyn Client) -> Result<(), DriverError> {
        poll_fn(|cx| self.poll(client, cx)).await?;
        self.answers.refused.map_or(Ok(()), |why| Err(DriverError::Refused(why)))
    }

    fn poll(&mut self, client: &mut dyn Client, cx: &mut Context<'_>) -> Poll<Result<(), DriverError>> {
        let window = match self.visits.experiment.window {
            0 => u32::MAX,
            window => window,
        };
        loop {
            while self.left > 0 && self.answers.open < window {
                self.submit(client)?;
            }
            let turned = client.poll_turn(cx, &mut self.answers);
            match turned {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                _ if self.left == 0 && self.answers.open == 0 => return Poll::Ready(Ok(())),
                Poll::Pending if self.left == 0 || self.answers.open >= window => return Poll::Pending,
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
        }
    }

    fn submit(&mut self, client: &mut dyn Client) -> Result<(), DriverError> {
        let stage = &self.visits.stage;
        let tag = u64::from(self.left);
        match self.visits.experiment.visit {
            Visit::Get => client.submit(Request::Get { topic: &self.topic }, tag)?,
            Visit::Publish => {
                let number = stage.ledger.borrow_mut().send(self.lane, stage.now_ns());
                if is_stamped(&stage.experiment) {
                    stage.stamp.write(&mut self.payload, self.number, number);
                }
                client.submit(Request::Publish { topic: &self.topic, payload: &self.payload }, tag)?;
            }
        }
        self.left -= 1;
        self.answers.open += 1;
        Ok(())
    }
}
