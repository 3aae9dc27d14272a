//! Sessions that outlive the process: exchanges that go on with the identifiers that they had, and identifiers that are
//! chosen by the caller, so that it knows them without having noted them.

use super::{IDENTIFIERS, Outbound, State};
use crate::{PacketId, Qos};

/// An exchange that was not over when the session was stored.
#[derive(Debug)]
pub enum Unfinished<M> {
    /// A message of this QoS, 1 or 2, that may have been sent and has to be sent again.
    Publish(Qos, M),
    /// PUBREC has come; PUBREL has to be sent again.
    Release,
}

impl<M> Outbound<M> {
    /// Continues an exchange behind those that there are. Everything is sent again, in this order
    /// ([MQTT-4.4.0-1], [MQTT-4.6.0-1]), as after [`resume`](Self::resume). Identifiers between the last exchange and
    /// this one are over.
    ///
    /// # Errors
    /// Its identifier would be in use twice ([MQTT-2.2.1-4]), so it has never been sent.
    pub fn restore(&mut self, id: PacketId, exchange: Unfinished<M>) -> Result<(), Unfinished<M>> {
        if !self.leave_out(id, IDENTIFIERS) {
            return Err(exchange);
        }
        self.entries.push_back(match exchange {
            Unfinished::Publish(Qos::ExactlyOnce, message) => State::AwaitingPubrec(message),
            Unfinished::Publish(Qos::AtMostOnce | Qos::AtLeastOnce, message) => State::AwaitingPuback(message),
            Unfinished::Release => State::AwaitingPubcomp,
        });
        self.resent = 0;
        Ok(())
    }

    /// Has the next message sent with this identifier: those before it belong to messages that are not sent. Returns
    /// whether it can be now; it can when nothing is in flight.
    pub fn skip_to(&mut self, id: PacketId) -> bool {
        if !self.may_skip_to(id) {
            return false;
        }
        // One place more is for the message.
        self.make_way(usize::from(id.steps_from(self.next_id())) + 1);
        let skipped = self.leave_out(id, self.span());
        self.resent = self.entries.len();
        skipped
    }

    /// Whether [`skip_to`](Self::skip_to) would succeed.
    #[must_use]
    pub fn may_skip_to(&self, id: PacketId) -> bool {
        // After all other identifiers its own exchange may not be over ([MQTT-2.2.1-4]).
        let own = self.entries.get(usize::from(id.steps_from(self.first)));
        let is_taken = own.is_some_and(|state| !matches!(state, State::Finished)) || self.is_overtaken(id);
        if self.is_resending() || is_taken {
            return false;
        }
        self.entries.is_empty() || self.may_grow(usize::from(id.steps_from(self.next_id())) + 1)
    }

    /// The messages of unfinished exchanges, oldest first.
    pub fn messages_mut(&mut self) -> impl Iterator<Item = &mut M> {
        let overtaken = self.overtaken.iter_mut().flat_map(|overtaken| overtaken.states_mut());
        overtaken.chain(&mut self.entries).filter_map(State::message_mut)
    }

    // Fills the entries up to an identifier, which then fits with them into `most` places.
    fn leave_out(&mut self, id: PacketId, most: usize) -> bool {
        if self.entries.is_empty() {
            self.first = id;
            return true;
        }
        let length = self.entries.len() + usize::from(id.steps_from(self.next_id()));
        if length >= most {
            return false;
        }
        self.entries.resize_with(length, || State::Finished);
        true
    }
}
