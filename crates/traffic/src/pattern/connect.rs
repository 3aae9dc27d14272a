//! Connections made over and over: what a handshake costs, and devices that wake, send and sleep again.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::stage::{Stage, nanoseconds};
use super::{Bench, PatternError, stamp};
use crate::driver::{Answer, Client, Driver, DriverError, Request, Role, Sink};
use crate::experiment::Experiment;
use crate::measure::process::{MachineProbe, ThreadProbe, limit};
use crate::outcome::{Bytes, Outcome};

/// Longer than any handshake that succeeds.
const VISIT_MAX: Duration = Duration::from_secs(60);

/// What visitors share.
struct Visits {
    stage: Stage,
    counted: RefCell<Outcome>,
    left: std::cell::Cell<u64>,
    end: Instant,
}

/// One repetition: `publishers` visitors, each of whom begins again when it is done.
pub(crate) async fn run(experiment: &Experiment, bench: &mut Bench) -> Result<Outcome, PatternError> {
    let stage = Stage::new(experiment, bench.conflates);
    let end = Instant::now() + Duration::from_secs_f64(experiment.seconds);
    let visits = Rc::new(Visits {
        counted: RefCell::default(),
        left: std::cell::Cell::new(experiment.count.unwrap_or(u64::MAX)),
        stage,
        end,
    });
    let wire = bench.wire();
    let (machine, thread) = (MachineProbe::start(), ThreadProbe::start());
    bench.start();
    let began = Instant::now();
    let mut visitors = JoinSet::new();
    for number in 0..experiment.publishers {
        visitors.spawn_local(come_and_go(Rc::clone(&visits), Rc::clone(&bench.publishers), number));
    }
    while let Some(visited) = visitors.join_next().await {
        visited.map_err(|error| DriverError::Connection(error.to_string()))?;
    }
    let mut outcome = visits.counted.take();
    outcome.seconds = began.elapsed().as_secs_f64();
    outcome.generator = bench.generator.read();
    outcome.gateway = bench.gateway.as_ref().map(|gateway| gateway.read());
    outcome.gateway_connect = outcome.gateway;
    let known: Vec<_> = outcome.gateway.iter().copied().chain([outcome.generator]).collect();
    outcome.others_cpu_s = machine.others_cpu_s(&known);
    outcome.limited_by_generator = limit(thread.busy(), None);
    outcome.connect_bytes.wire = bench.settled_wire_since(wire).await;
    Ok(outcome)
}

async fn come_and_go(visits: Rc<Visits>, driver: Rc<dyn Driver>, number: u32) {
    while Instant::now() < visits.end && visits.left.get() > 0 {
        visits.left.set(visits.left.get() - 1);
        visits.counted.borrow_mut().sent += 1;
        let visited = timeout_at(Instant::now() + VISIT_MAX, visit(&visits, &*driver, number)).await;
        let mut counted = visits.counted.borrow_mut();
        match visited {
            Ok(Ok(())) => counted.acknowledged += 1,
            Ok(Err(error)) => {
                counted.errors += 1;
                counted.first_error.get_or_insert_with(|| error.to_string());
            }
            Err(_) => {
                counted.errors += 1;
                counted.first_error.get_or_insert_with(|| "a visit took longer than a minute".to_owned());
            }
        }
    }
}

/// Connects, publishes what there is to be published, and goes.
async fn visit(visits: &Visits, driver: &dyn Driver, number: u32) -> Result<(), DriverError> {
    let experiment = &visits.stage.experiment;
    let began = Instant::now();
    let connected = driver.connect(Role::Publisher, number).await?;
    let mut client = connected.client;
    {
        let mut counted = visits.counted.borrow_mut();
        counted.connect.record_ns(nanoseconds(connected.took).max(1));
        counted.cipher = connected.cipher;
        counted.connect_bytes = counted.connect_bytes.plus(client.bytes());
    }
    let connecting = client.bytes();
    if experiment.messages > 0 {
        burst(&mut *client, &visits.stage.topic(number), experiment).await?;
    }
    let carried: Bytes = client.bytes().since(connecting);
    client.close().await;
    let mut counted = visits.counted.borrow_mut();
    counted.bytes = counted.bytes.plus(carried);
    counted.answer.record_ns(nanoseconds(began.elapsed()).max(1));
    Ok(())
}

/// Publishes all messages of one visit, as many at once as the window lets, and waits for all answers.
async fn burst(client: &mut dyn Client, topic: &str, experiment: &Experiment) -> Result<(), DriverError> {
    struct Answers {
        open: u32,
        refused: Option<String>,
    }
    impl Sink for Answers {
        fn done(&mut self, _: u64, answer: Answer<'_>) {
            self.open = self.open.saturating_sub(1);
            match answer {
                Answer::Success(_) => {}
                Answer::Refused(why) => self.refused = Some(why.to_owned()),
                Answer::Lost => self.refused = Some("a message was never acknowledged".to_owned()),
            }
        }
        fn message(&mut self, _: &[u8]) {}
    }
    let payload = stamp::filler(experiment.payload_bytes, experiment.seed);
    let window = if experiment.window == 0 { u32::MAX } else { experiment.window };
    let (mut left, mut answers) = (experiment.messages, Answers { open: 0, refused: None });
    poll_fn(|cx| {
        loop {
            while left > 0 && answers.open < window {
                if let Err(error) = client.submit(Request::Publish { topic, payload: &payload }, u64::from(left)) {
                    return Poll::Ready(Err(error));
                }
                left -= 1;
                answers.open += 1;
            }
            let turned = client.poll_turn(cx, &mut answers);
            match turned {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                _ if left == 0 && answers.open == 0 => return Poll::Ready(Ok(())),
                Poll::Pending if left == 0 || answers.open >= window => return Poll::Pending,
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
        }
    })
    .await?;
    answers.refused.map_or(Ok(()), |why| Err(DriverError::Refused(why)))
}
