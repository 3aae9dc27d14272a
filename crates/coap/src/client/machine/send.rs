//! Messages on their way out: the queue, and retransmission (RFC 7252 §4.2).

use super::{Machine, Outgoing, length};
use crate::Timestamp;
use crate::client::event::{CallFailed, Events};
use crate::client::exchanges::{Exchange, Number, Stage};
use crate::client::protection::Protection;

impl<P: Protection> Machine<P> {
    /// The message to send next.
    pub fn front(&mut self) -> Option<&[u8]> {
        // A request that was answered before its turn, or its repeat's, need not be sent any more.
        while let Some(Outgoing::Request(number)) = self.outbox.front() {
            if self.exchanges.get(*number).is_some() {
                break;
            }
            self.outbox.pop_front();
        }
        match self.outbox.front()? {
            Outgoing::Request(number) => self.exchanges.get(*number).map(Exchange::datagram),
            Outgoing::Empty(message) => Some(message),
        }
    }

    /// Notes that [`Machine::front`] is on its way. Returns whether that was the end of its request.
    pub fn sent(&mut self, now: Timestamp, events: &mut dyn Events) -> bool {
        let number = match self.outbox.pop_front() {
            Some(Outgoing::Request(number)) => number,
            Some(Outgoing::Empty(message)) => {
                self.bytes.up += length(&message);
                return false;
            }
            None => return false,
        };
        let reliable = self.config.reliable;
        let Some(exchange) = self.exchanges.get_mut(number) else { return false };
        let bytes = length(&exchange.plain);
        self.bytes.up += if reliable { framed(bytes, self.tokens.length()) } else { bytes };
        if exchange.stage != Stage::Waiting {
            return false;
        }
        let repeated = exchange.confirmable && !reliable;
        if exchange.unanswered && !repeated {
            self.forgotten = true;
            self.done(number, events);
            return true;
        }
        let due = if repeated {
            let timeout = self.config.transmission.first_timeout(&mut self.jitter);
            exchange.stage = Stage::Unacknowledged { repeats: 0, timeout, due: now + timeout };
            now + timeout
        } else {
            let due = now + if reliable { self.config.answer_timeout } else { self.config.unconfirmed_timeout };
            exchange.stage = Stage::Unanswered { due };
            due
        };
        self.wake = Some(self.wake.map_or(due, |wake| wake.min(due)));
        false
    }

    /// When [`Machine::handle_timeout`] has something to do, or would like to look.
    #[must_use]
    pub const fn next_timeout(&self) -> Option<Timestamp> {
        self.wake
    }

    /// Sends again what was not acknowledged, and gives up what was sent as often as it may (RFC 7252 §4.2). Answers do
    /// not move the deadline: it comes once in two seconds, and then everything under way is looked at.
    pub fn handle_timeout(&mut self, now: Timestamp, events: &mut dyn Events) {
        if self.wake.is_none_or(|wake| wake > now) {
            return;
        }
        let is_due = |(number, exchange): (Number, &Exchange<P::Exchange>)| {
            exchange.due().is_some_and(|due| due <= now).then_some(number)
        };
        let overdue: Vec<_> = self.exchanges.iter().filter_map(is_due).collect();
        for number in overdue {
            if !self.repeat(now, number) {
                self.fail(number, CallFailed::TimedOut, events);
            }
        }
        self.next_rests(events);
        self.end_fetched(events);
        self.wake = self.exchanges.iter().filter_map(|(_, exchange)| exchange.due()).min();
        self.next_upload(events);
    }

    /// Sends a request again. Returns whether it may.
    fn repeat(&mut self, now: Timestamp, number: Number) -> bool {
        let Some(exchange) = self.exchanges.get_mut(number) else { return true };
        match exchange.stage {
            Stage::Unacknowledged { repeats, timeout, .. } if repeats < self.config.transmission.max_retransmit => {
                let timeout = timeout * 2;
                exchange.stage = Stage::Unacknowledged { repeats: repeats + 1, timeout, due: now + timeout };
                self.outbox.push_back(Outgoing::Request(number));
                true
            }
            Stage::Unacknowledged { .. } | Stage::Unanswered { .. } => false,
            Stage::Waiting | Stage::Established => true,
        }
    }
}

/// Bytes of a message on a stream that has so many as a datagram: no message ID, but a length (RFC 8323 §3.2).
fn framed(datagram: u64, token: u64) -> u64 {
    let body = datagram.saturating_sub(4 + token);
    let extension = match body {
        0..13 => 0,
        13..269 => 1,
        269..65_805 => 2,
        65_805.. => 4,
    };
    datagram.saturating_sub(2) + extension
}
