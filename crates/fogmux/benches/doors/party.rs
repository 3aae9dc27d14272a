//! A client, or two, of one gateway, and what they do over and over.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use fogmux_traffic::driver::{self, Answer, Arrival, Client, Driver, DriverError, Request, Role, Sink};
use fogmux_traffic::target::Access;
use fogmux_traffic::{Door, Experiment};

pub(crate) const PAYLOAD_BYTES: usize = 64;
/// Messages of one batch.
pub(crate) const BATCH: u32 = 32;
const TOPIC: &str = "bench/doors";
/// The time after which a message counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// The operation of one round.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Round {
    /// One message, until it is acknowledged.
    Publish,
    /// A read of the retained message, until it arrives.
    Get,
    /// A batch, until all of it has been acknowledged and has arrived.
    Deliver,
}

/// Connected clients.
pub(crate) struct Party {
    publisher: Box<dyn Client>,
    subscriber: Option<Box<dyn Client>>,
    /// Has what its clients share, such as the numbers of OSCORE contexts.
    _driver: Box<dyn Driver>,
    /// Messages that are published at once.
    at_once: u32,
    payload: [u8; PAYLOAD_BYTES],
    /// Of the last batch; payloads begin with it, so that what was kept before is not taken for what is awaited.
    number: u32,
}

impl Party {
    /// Connects who is needed, and does everything that comes before the first round.
    pub(crate) async fn meet(experiment: &Experiment, access: &Access, client: u32, round: Round) -> Self {
        let driver = driver::open(experiment.door, experiment, access).unwrap();
        let publisher = driver.connect(Role::Publisher, client).await.unwrap().client;
        let subscriber = match round {
            Round::Deliver => Some(driver.connect(Role::Subscriber, client).await.unwrap().client),
            Round::Publish | Round::Get => None,
        };
        // A newer value may take the place of one that has not gone out to an observer (RFC 7641 §4.5.2).
        let at_once = if matches!(experiment.door, Door::Coap | Door::CoapTcp) { 1 } else { BATCH };
        let mut party =
            Self { publisher, subscriber, _driver: driver, at_once, payload: [b'x'; PAYLOAD_BYTES], number: 0 };
        if let Some(subscriber) = &mut party.subscriber {
            subscriber.submit(Request::Subscribe { topic: TOPIC }, 0).unwrap();
            party.wait(0, 0, 1).await;
        }
        if let Round::Get = round {
            party.publish(1).await;
        }
        party
    }

    /// One round.
    pub(crate) async fn go(&mut self, round: Round) {
        match round {
            Round::Publish => self.publish(1).await,
            Round::Get => {
                self.publisher.submit(Request::Get { topic: TOPIC }, 0).unwrap();
                self.wait(1, 0, 0).await;
            }
            Round::Deliver => {
                for _ in 0..BATCH / self.at_once {
                    self.publish(self.at_once).await;
                }
            }
        }
    }

    /// Ends the connections in good order.
    pub(crate) async fn part(self) {
        self.publisher.close().await;
        if let Some(subscriber) = self.subscriber {
            subscriber.close().await;
        }
    }

    /// So many messages, until they are acknowledged and, where there is a subscriber, have arrived.
    async fn publish(&mut self, messages: u32) {
        self.number = self.number.wrapping_add(1);
        let mark = mark(self.number);
        self.payload.iter_mut().zip(mark).for_each(|(byte, mark)| *byte = mark);
        for tag in 0..messages {
            self.publisher.submit(Request::Publish { topic: TOPIC, payload: &self.payload }, tag.into()).unwrap();
        }
        let arrivals = if self.subscriber.is_some() { messages } else { 0 };
        self.wait(messages, arrivals, 0).await;
    }

    async fn wait(&mut self, answers: u32, arrivals: u32, confirmations: u32) {
        let mark = mark(self.number);
        let mut publisher = Heard::new(mark, answers, 0);
        let mut subscriber = Heard::new(mark, confirmations, arrivals);
        let all = poll_fn(|cx| {
            loop {
                let turned = self.turn(cx, &mut publisher, &mut subscriber);
                if publisher.is_complete() && subscriber.is_complete() {
                    return Poll::Ready(());
                }
                match turned {
                    Poll::Ready(done) => done.unwrap(),
                    Poll::Pending => return Poll::Pending,
                }
            }
        });
        tokio::time::timeout(PATIENCE, all).await.unwrap();
    }

    /// Pending when neither has anything to do.
    fn turn(
        &mut self,
        cx: &mut Context<'_>,
        publisher: &mut Heard,
        subscriber: &mut Heard,
    ) -> Poll<Result<(), DriverError>> {
        let sent = self.publisher.poll_turn(cx, publisher);
        let Some(reader) = &mut self.subscriber else { return sent };
        match (sent, reader.poll_turn(cx, subscriber)) {
            (Poll::Ready(Err(error)), _) | (_, Poll::Ready(Err(error))) => Poll::Ready(Err(error)),
            (Poll::Pending, Poll::Pending) => Poll::Pending,
            (Poll::Ready(Ok(())), _) | (_, Poll::Ready(Ok(()))) => Poll::Ready(Ok(())),
        }
    }
}

/// Returns the first bytes of the payloads of a batch: letters, which no encoding lengthens.
fn mark(number: u32) -> [u8; 8] {
    let mut mark = [0; 8];
    mark.iter_mut().zip((0..8u32).rev()).for_each(|(letter, place)| {
        let nibble = (number >> (4 * place)) & 0xf;
        *letter = b'a' + u8::try_from(nibble).unwrap();
    });
    mark
}

/// The acknowledgements and messages that are still missing.
struct Heard {
    mark: [u8; 8],
    answers: u32,
    arrivals: u32,
}

impl Heard {
    fn new(mark: [u8; 8], answers: u32, arrivals: u32) -> Self {
        Self { mark, answers, arrivals }
    }

    fn is_complete(&self) -> bool {
        self.answers == 0 && self.arrivals == 0
    }
}

impl Sink for Heard {
    fn done(&mut self, _: u64, answer: Answer<'_>) {
        assert!(matches!(answer, Answer::Success(_)), "{answer:?}");
        self.answers = self.answers.saturating_sub(1);
    }

    fn message(&mut self, arrival: Arrival<'_>) {
        if arrival.payload.starts_with(&self.mark) {
            self.arrivals = self.arrivals.saturating_sub(1);
        }
    }
}
