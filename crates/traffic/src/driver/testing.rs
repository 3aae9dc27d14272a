//! The receiver of answers and messages in the tests of several drivers.

use std::future::poll_fn;
use std::task::Poll;

use super::{Answer, Arrival, Client, DriverError, Sink};

/// The outcomes of requests with their tags, and the messages received, in order.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) done: Vec<(u64, Result<Vec<u8>, String>)>,
    pub(super) messages: Vec<Vec<u8>>,
}

impl Sink for Seen {
    fn done(&mut self, tag: u64, answer: Answer<'_>) {
        self.done.push((tag, outcome(answer)));
    }

    fn message(&mut self, arrival: Arrival<'_>) {
        self.messages.push(arrival.payload.to_vec());
    }
}

/// An answer that outlives the client's buffer.
pub(super) fn outcome(answer: Answer<'_>) -> Result<Vec<u8>, String> {
    match answer {
        Answer::Success(payload) => Ok(payload.to_vec()),
        Answer::Refused(why) => Err(why.to_owned()),
        Answer::Lost => Err("lost".to_owned()),
    }
}

/// Turns a client until `enough` of its outcomes have been seen.
pub(super) async fn turn<C, S>(client: &mut C, seen: &mut S, enough: impl Fn(&C, &S) -> bool) -> Result<(), DriverError>
where
    C: Client + ?Sized,
    S: Sink,
{
    poll_fn(|cx| {
        while !enough(client, seen) {
            match client.poll_turn(cx, seen) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    })
    .await
}
