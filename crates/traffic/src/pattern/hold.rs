//! Connections made and held: what one costs that does nothing.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::comings::{Comings, Departures};
use super::connections::{Connections, Shared};
use super::stage::may_break;
use super::{Bench, Closed, PatternError};
use crate::driver::{Answer, Arrival, Driver, Role, Sink};
use crate::experiment::Experiment;
use crate::measure::gateway::GatewayProbe;
use crate::measure::process::{MachineProbe, ThreadProbe, limit};
use crate::outcome::Outcome;

/// Opens all connections, holds them for the time of the experiment, and closes them.
///
/// `more` has `resident_bytes_per_connection`, the gateway's growth by one connection, and `connects_per_s`.
pub(crate) async fn run(experiment: &Experiment, bench: &mut Bench<'_>) -> Result<Outcome, PatternError> {
    let wire = bench.wire();
    let (machine, thread) = (MachineProbe::start(), ThreadProbe::start());
    bench.start();
    let before = bench.gateway.as_ref().map(|gateway| gateway.read().resident_bytes);
    let numbers = bench.member.publishers(experiment);
    bench.member.meet().await?;
    let began = std::time::Instant::now();
    let mut held = Connections::open(&*bench.publishers, Role::Publisher, numbers.iter().copied()).await?;
    bench.member.meet().await?;
    let seconds = began.elapsed().as_secs_f64();
    let mut outcome = Outcome {
        sent: u64::from(held.count()),
        acknowledged: u64::from(held.count()),
        seconds,
        connect: std::mem::take(&mut held.took),
        cipher: std::mem::take(&mut held.cipher),
        connect_bytes: held.bytes(),
        gateway_connect: bench.gateway.as_ref().map(|gateway| gateway.read()),
        limited_by_generator: limit(thread.busy(), None),
        ..Outcome::default()
    };
    outcome.connect_bytes.wire = bench.wire_since(wire);
    hold(experiment, (&numbers, &held), bench, &mut outcome).await?;
    bench.member.meet().await?;
    bench.end(machine, &mut outcome);
    let connections = f64::from(experiment.publishers);
    outcome.more.insert("connects_per_s".to_owned(), connections / seconds);
    if let (Some(before), Some(after)) = (before, outcome.gateway) {
        #[expect(clippy::cast_precision_loss, reason = "memory is below 2^53 bytes")]
        let grown = after.resident_bytes.saturating_sub(before) as f64;
        outcome.more.insert("resident_bytes_per_connection".to_owned(), grown / connections);
    }
    held.close().await;
    Ok(outcome)
}

/// Holds all connections for the time of the experiment.
async fn hold(
    experiment: &Experiment,
    (numbers, held): (&[u32], &Connections),
    bench: &Bench<'_>,
    outcome: &mut Outcome,
) -> Result<(), Closed> {
    let comings = Rc::new(Comings::new(experiment, held.count()));
    let mut watched = JoinSet::new();
    for (place, (number, client)) in numbers.iter().zip(&held.clients).enumerate() {
        let (comings, driver) = (Rc::clone(&comings), Rc::clone(&bench.publishers));
        watched.spawn_local(one((*number, place), Rc::clone(client), comings, driver));
    }
    let began = Instant::now();
    let end = began + Duration::from_secs_f64(experiment.seconds);
    let mut departures = Departures::new(experiment, held.count());
    loop {
        departures.look(&comings, || bench.gateway.as_ref().map(GatewayProbe::read));
        let ended = tokio::select! {
            ended = watched.join_next() => ended,
            () = departures.due() => continue,
            () = comings.calm() => continue,
            () = sleep_until(end) => break,
        };
        let Some(Ok((number, why))) = ended else { break };
        if !may_break(experiment) {
            return Err(Closed { who: format!("client {number}"), after: Some(began.elapsed()), why });
        }
        outcome.disconnects += 1;
        outcome.first_error.get_or_insert(why);
    }
    watched.shutdown().await;
    departures.write(&comings, 0, [0; 3], outcome);
    Ok(())
}

/// Holds one connection, and the next ones where it leaves and comes back, until one is over. Returns why it is.
async fn one(
    (number, place): (u32, usize),
    client: Shared,
    comings: Rc<Comings>,
    driver: Rc<dyn Driver>,
) -> (u32, String) {
    loop {
        let how = tokio::select! {
            biased;
            how = comings.told(place) => how,
            why = ended(Rc::clone(&client)) => return (number, why),
        };
        let left = std::time::Instant::now();
        comings.reconnect(&*driver, Role::Publisher, number, &client, how).await;
        comings.returned(place, left);
    }
}

/// Does what the protocol asks of an idle client, until the connection is over. Returns why it is.
async fn ended(client: Shared) -> String {
    struct Nothing;
    impl Sink for Nothing {
        fn done(&mut self, _: u64, _: Answer<'_>) {}
        fn message(&mut self, _: Arrival<'_>) {}
    }
    poll_fn(|cx| {
        let mut client = client.borrow_mut();
        let turned = client.poll_turn(cx, &mut Nothing);
        match turned {
            Poll::Ready(Err(error)) => Poll::Ready(error.to_string()),
            _ if !client.is_open() => Poll::Ready("the other end has closed it".to_owned()),
            Poll::Ready(Ok(())) => {
                // Others have their turn before the next read.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
