//! Messages from publishers to subscribers, and requests that nobody else hears of: the conductor of one repetition.

use std::cell::Cell;
use std::collections::HashSet;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep_until, timeout};

use super::comings::{Change, Departures};
use super::connections::{CONNECT_MAX, Connections, Shared};
use super::crew::Crew;
use super::live::Ticker;
use super::publisher::Publisher;
use super::stage::{Stage, may_break, nanoseconds};
use super::subscriber::Subscriber;
use super::unconnected::unconnected;
use super::{Bench, PatternError, stamp};
use crate::driver::{Answer, Arrival, DriverError, Request, Role, Sink};
use crate::experiment::{Clock, Experiment, Operation};
use crate::measure::gateway::GatewayProbe;
use crate::measure::process::{MachineProbe, ThreadProbe, limit};
use crate::outcome::{Outcome, ProcessUse};

/// How long a subscription, or the first retained message, is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same on a link that loses frames: as long as for a connection.
const PATIENCE_LOSSY: Duration = CONNECT_MAX;
/// How often the conductor looks when nobody tells it anything.
const LOOK: Duration = Duration::from_millis(20);

/// One repetition.
pub(crate) async fn run(experiment: &Experiment, bench: &mut Bench<'_>) -> Result<Outcome, PatternError> {
    let stage = Rc::new(Stage::new(experiment, bench.conflates, &bench.member));
    let mut tasks = JoinSet::new();
    let recording = bench.record();
    let wire = bench.wire();
    bench.start();
    let began_ns = stage.now_ns();
    let numbers = bench.member.publishers(experiment);
    let connected = async {
        let readers = subscribe(&stage, bench, &mut tasks).await?;
        let spread = Duration::from_secs_f64(experiment.start_spread_seconds);
        let writers = Connections::open_over(spread, &*bench.publishers, Role::Publisher, &numbers).await?;
        Ok((readers, writers))
    };
    let (readers, mut writers) = match connected.await {
        Ok(connected) => connected,
        Err(error) if bench.member.has_others() => return Err(error),
        Err(error) => {
            let mut outcome = unconnected(&stage, began_ns, error)?;
            outcome.connect_bytes.wire = bench.wire_since(wire);
            return Ok(outcome);
        }
    };
    if experiment.operation == Operation::Get {
        let mut kept = HashSet::new();
        for (number, client) in numbers.iter().zip(&writers.clients) {
            if kept.insert(number % experiment.topics) {
                keep(client, &stage.topic(*number), experiment).await?;
            }
        }
    }
    bench.member.meet().await?;
    let mut connecting = Outcome { cipher: std::mem::take(&mut writers.cipher), ..Outcome::default() };
    connecting.connect = std::mem::take(&mut writers.took);
    connecting.connect.add(&readers.took);
    connecting.connect_bytes = writers.bytes().plus(readers.bytes());
    connecting.connect_bytes.wire = bench.wire_since(wire);
    connecting.gateway_connect = bench.gateway.as_ref().map(|gateway| gateway.read());

    let under_way = Rc::new(Cell::new(0));
    let mut crew = Crew::default();
    for (number, client) in numbers.iter().zip(&writers.clients) {
        let publisher = Publisher::new(&stage, Rc::clone(client), *number, &under_way);
        let publisher = publisher.map_err(|error| PatternError::Timer(error.to_string()))?;
        if experiment.operation == Operation::Deliver {
            // They take turns with subscribers.
            tasks.spawn_local(publisher.work());
        } else {
            crew.push(publisher.work());
        }
    }
    // It gives way by itself when each has had its turn.
    tasks.spawn_local(unconstrained(crew));
    let outcome = measure(&stage, bench, &writers, &readers, &under_way, began_ns).await?;
    tasks.shutdown().await;
    bench.member.meet().await?;
    let wire = bench.wire();
    writers.close().await;
    readers.close().await;
    let mut outcome = Outcome { connect: connecting.connect, connect_bytes: connecting.connect_bytes, ..outcome };
    outcome.cipher = connecting.cipher;
    outcome.gateway_connect = connecting.gateway_connect;
    if let Some(closing) = bench.settled_wire_since(wire).await {
        outcome.note_closing(closing);
    }
    outcome.more.extend(recording.map(|finish| finish()).unwrap_or_default());
    Ok(outcome)
}

/// Connects all subscribers; they receive from then on.
pub(crate) async fn subscribe(
    stage: &Rc<Stage>,
    bench: &Bench<'_>,
    tasks: &mut JoinSet<()>,
) -> Result<Connections, PatternError> {
    let experiment = &stage.experiment;
    if experiment.operation != Operation::Deliver {
        return Ok(Connections::default());
    }
    let numbers = bench.member.subscribers(experiment);
    let readers = Connections::open(&*bench.subscribers, Role::Subscriber, numbers.iter().copied()).await?;
    let mut following = JoinSet::new();
    for (place, (number, client)) in numbers.iter().zip(&readers.clients).enumerate() {
        let mut subscriber = Subscriber::new(stage, Rc::clone(client), *number, place);
        let topic = stage.followed(*number);
        following.spawn_local(async move { subscriber.follow(&topic).await.map(|()| (subscriber, topic)) });
    }
    let patience = patience(experiment);
    while let Some(followed) = timeout(patience, following.join_next()).await.map_err(|_| silence(patience))? {
        let (subscriber, topic) = followed.map_err(|error| DriverError::Connection(error.to_string()))??;
        tasks.spawn_local(subscriber.receive(Rc::clone(&bench.subscribers), topic));
    }
    Ok(readers)
}

fn patience(experiment: &Experiment) -> Duration {
    if may_break(experiment) { PATIENCE_LOSSY } else { PATIENCE }
}

fn silence(patience: Duration) -> PatternError {
    PatternError::Silence(patience.as_secs())
}

/// Publishes one message for those who will ask for it.
pub(crate) async fn keep(client: &Shared, topic: &str, experiment: &Experiment) -> Result<(), PatternError> {
    struct Kept(Option<Result<(), DriverError>>);
    impl Sink for Kept {
        fn done(&mut self, _: u64, answer: Answer<'_>) {
            self.0 = Some(match answer {
                Answer::Success(_) => Ok(()),
                Answer::Refused(why) => Err(DriverError::Refused(why.to_owned())),
                Answer::Lost => Err(DriverError::Connection("the retained message was never acknowledged".to_owned())),
            });
        }
        fn message(&mut self, _: Arrival<'_>) {}
    }
    let payload = stamp::filler(experiment.payload_bytes, experiment.seed);
    client.borrow_mut().submit(Request::Publish { topic, payload: &payload }, 0)?;
    let mut kept = Kept(None);
    let done = poll_fn(|cx| {
        loop {
            let turned = client.borrow_mut().poll_turn(cx, &mut kept);
            match (kept.0.take(), turned) {
                (Some(done), _) => return Poll::Ready(done),
                (None, Poll::Ready(Err(error))) => return Poll::Ready(Err(error)),
                (None, Poll::Ready(Ok(()))) => {}
                (None, Poll::Pending) => return Poll::Pending,
            }
        }
    });
    let patience = patience(experiment);
    Ok(timeout(patience, done).await.map_err(|_| silence(patience))??)
}

/// Opens the stage, and closes it when the time is over or everything is done. Connecting began at `began_ns`.
async fn measure(
    stage: &Stage,
    bench: &mut Bench<'_>,
    writers: &Connections,
    readers: &Connections,
    under_way: &Cell<u64>,
    began_ns: u64,
) -> Result<Outcome, PatternError> {
    let experiment = &stage.experiment;
    let member = bench.member.clone();
    let from_connecting = experiment.clock == Clock::Connecting;
    let met_ns = member.meet().await?;
    stage.offer.start(if from_connecting { began_ns } else { met_ns });
    if experiment.count.is_none() && experiment.warm_up_seconds > 0.0 {
        open(stage);
        stage.pass(Duration::from_secs_f64(experiment.warm_up_seconds)).await;
        stage.check()?;
    }
    let bytes = writers.bytes().plus(readers.bytes());
    let wire = bench.wire();
    let (machine, thread) = (MachineProbe::start(), ThreadProbe::start());
    bench.start();
    let lasts = Duration::from_secs_f64(experiment.seconds);
    // On one thread it is now; on several all begin when the last of them does.
    let met_ns = member.meet().await?;
    let now_ns = if from_connecting { began_ns } else { met_ns };
    let end = Instant::now() + lasts.saturating_sub(Duration::from_nanos(stage.now_ns() - now_ns));
    stage.ledger.borrow_mut().begin(now_ns);
    if !stage.open.get() {
        stage.offer.start(now_ns);
        open(stage);
    }
    stage.offer.open(now_ns, nanoseconds(lasts));
    let mut ticker = Ticker::new(bench.live.as_ref());
    let mut departures = Departures::new(experiment, readers.count());
    while !(under_way.get() == 0 && stage.all_begun()) && stage.publishers.get() > 0 && !stage.is_void() {
        tokio::select! {
            () = stage.changed.notified() => {}
            () = ticker.due() => ticker.sample(stage),
            () = departures.due() => {}
            () = sleep_until(end) => break,
        }
        note(stage, departures.look(&stage.comings, || used(bench)));
    }
    stage.check()?;
    let (busy, closed_ns) = (thread.busy(), stage.now_ns());
    stage.offer.close(closed_ns);
    catch_up(stage).await;
    stage.open.set(false);
    drain(stage, under_way).await;
    stage.check()?;
    member.meet().await?;
    note(stage, departures.look_back(&stage.comings, || used(bench)));
    let (settled, _) = stage.ledger.borrow().settled();
    let mut outcome = stage.ledger.borrow_mut().finish();
    if !(settled && under_way.get() == 0) && experiment.count.is_none() {
        // A target that hangs does nothing for the rest of the time that was asked for, which counts all the same.
        outcome.seconds = outcome.seconds.max(Duration::from_nanos(closed_ns.saturating_sub(now_ns)).as_secs_f64());
    }
    stage.offer.write(stage.now_ns(), |publisher| stage.weight(publisher), &mut outcome);
    bench.end(machine, &mut outcome);
    // Where the other end has closed every connection, it has set the pace.
    let lateness = stage.late();
    outcome.limited_by_generator = limit(busy, lateness.as_ref()).filter(|_| stage.publishers.get() > 0);
    outcome.bytes = writers.bytes().plus(readers.bytes()).plus(stage.comings.gone()).since(bytes);
    outcome.bytes.wire = bench.settled_wire_since(wire).await;
    let (under_way, meanwhile) = (stage.ledger.borrow().under_way(), stage.ledger.borrow().meanwhile());
    departures.write(&stage.comings, under_way, meanwhile, &mut outcome);
    Ok(outcome)
}

fn used(bench: &Bench<'_>) -> Option<ProcessUse> {
    bench.gateway.as_ref().map(GatewayProbe::read)
}

/// Counts messages of a storm from when all have left until all are back.
fn note(stage: &Stage, change: Option<Change>) {
    match change {
        Some(Change::Storm) => stage.ledger.borrow_mut().storm(),
        Some(Change::Calm) => stage.ledger.borrow_mut().calm(),
        None => {}
    }
}

fn open(stage: &Stage) {
    stage.opened_ns.set(stage.now_ns());
    stage.open.set(true);
    stage.wake();
}

/// Has operations sent that were due and not sent when the time was over, for as long as missing messages are waited
/// for.
async fn catch_up(stage: &Stage) {
    let until = Instant::now() + stage.patience();
    while stage.offer.backlog() > 0 && stage.publishers.get() > 0 && !stage.is_void() && Instant::now() < until {
        let _ = timeout(LOOK, stage.changed.notified()).await;
    }
}

/// Waits for what is missing, as long as something comes.
pub(crate) async fn drain(stage: &Stage, under_way: &Cell<u64>) {
    let patience = stage.patience();
    let mut heard = Instant::now();
    let mut last = 0;
    loop {
        let (settled, at) = stage.ledger.borrow().settled();
        if (settled && under_way.get() == 0) || stage.is_void() {
            return;
        }
        if at != last {
            (last, heard) = (at, Instant::now());
        }
        if heard.elapsed() > patience {
            return;
        }
        let _ = timeout(LOOK, stage.changed.notified()).await;
    }
}
