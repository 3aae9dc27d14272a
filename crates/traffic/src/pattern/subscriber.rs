//! A client that follows a topic, and counts what comes.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::time::timeout;

use super::comings::Leaving;
use super::connections::{CONNECT_MAX, Shared};
use super::stage::Stage;
use crate::driver::{Answer, Arrival, Driver, DriverError, Request, Role, Sink};

/// One subscriber.
pub(crate) struct Subscriber {
    stage: Rc<Stage>,
    client: Shared,
    number: u32,
    /// Where it is among those of its thread.
    place: usize,
    heard: bool,
    confirmed: Option<Result<(), String>>,
}

impl Subscriber {
    pub(crate) fn new(stage: &Rc<Stage>, client: Shared, number: u32, place: usize) -> Self {
        Self { stage: Rc::clone(stage), client, number, place, heard: false, confirmed: None }
    }

    /// Subscribes; returns when that is confirmed.
    pub(crate) async fn follow(&mut self, topic: &str) -> Result<(), DriverError> {
        self.client.borrow_mut().submit(Request::Subscribe { topic }, 0)?;
        poll_fn(|cx| {
            loop {
                match self.turn(cx) {
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Ready(Ok(())) if self.confirmed.is_none() => {}
                    Poll::Pending if self.confirmed.is_none() => return Poll::Pending,
                    Poll::Ready(Ok(())) | Poll::Pending => return Poll::Ready(Ok(())),
                }
            }
        })
        .await?;
        self.confirmed.take().unwrap_or(Ok(())).map_err(DriverError::Refused)
    }

    /// Receives until it is aborted, or the connection ends; where clients leave and come back, with its next ones.
    pub(crate) async fn receive(mut self, driver: Rc<dyn Driver>, topic: String) {
        let (stage, number, place) = (Rc::clone(&self.stage), self.number, self.place);
        loop {
            let mut how = tokio::select! {
                biased;
                how = stage.comings.told(place) => how,
                error = self.connected() => return stage.disconnected(format!("subscriber {number}"), &error.to_string()),
            };
            let left = Instant::now();
            loop {
                stage.comings.reconnect(&*driver, Role::Subscriber, number, &self.client, how).await;
                match timeout(CONNECT_MAX, self.follow(&topic)).await {
                    Ok(Ok(())) => break,
                    Ok(Err(_)) | Err(_) => stage.comings.failed().await,
                }
                how = Leaving::Abruptly;
            }
            stage.comings.returned(place, left);
            stage.changed.notify_one();
        }
    }

    /// Receives until the connection ends.
    async fn connected(&mut self) -> DriverError {
        poll_fn(|cx| {
            let turned = self.turn(cx);
            if std::mem::take(&mut self.heard) {
                if self.stage.experiment.in_flight > 0 {
                    self.stage.wake();
                }
                if !self.stage.open.get() {
                    self.stage.changed.notify_one();
                }
            }
            match turned {
                Poll::Ready(Ok(())) => {
                    // Others have their turn before the next read.
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Poll::Ready(Err(error)) => Poll::Ready(error),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DriverError>> {
        let client = Rc::clone(&self.client);
        let mut client = client.borrow_mut();
        let mut arrivals = Arrivals { subscriber: self, now_ns: None };
        client.poll_turn(cx, &mut arrivals)
    }
}

/// One turn's arrivals, which all came at the same time: when they were read.
struct Arrivals<'a> {
    subscriber: &'a mut Subscriber,
    now_ns: Option<u64>,
}

impl Sink for Arrivals<'_> {
    fn done(&mut self, _: u64, answer: Answer<'_>) {
        self.subscriber.confirmed = Some(match answer {
            Answer::Success(_) => Ok(()),
            Answer::Refused(why) => Err(why.to_owned()),
            Answer::Lost => Err("the subscription was never answered".to_owned()),
        });
    }

    fn message(&mut self, arrival: Arrival<'_>) {
        let stage = &self.subscriber.stage;
        let now_ns = *self.now_ns.get_or_insert_with(|| stage.now_ns());
        if stage.ledger.borrow_mut().arrived(self.subscriber.place, arrival, now_ns) {
            self.subscriber.heard = true;
        }
    }

    fn stray(&mut self, what: &str) {
        self.subscriber.stage.ledger.borrow_mut().failed(what);
    }
}
