//! Sending again what was not acknowledged, on the next connection.

use super::{Outbound, State};
use crate::packet::Transmission;
use crate::{Ack, Outgoing, PacketId, PacketType};

/// The outcome of sending an exchange again.
enum Again {
    Sent,
    TooLarge,
    /// The window is closed, or the message is not at hand.
    Closed,
}

impl<M> Outbound<M> {
    /// Whether [`resend`](Self::resend) has something to send.
    #[must_use]
    #[inline]
    pub fn is_resending(&self) -> bool {
        self.overtaken.as_ref().is_some_and(|overtaken| overtaken.is_resending()) || self.resent < self.entries.len()
    }

    /// Appends what has to be sent again after a resume, in the original order ([MQTT-4.6.0-1]), with DUP
    /// ([MQTT-3.3.1-1]), until the window closes or `out` has `stop` bytes. `describe` returns the message of an `M`.
    /// Gives back messages that count as delivered, because they are too large for the peer's present limit
    /// ([MQTT-3.1.2-25]). An identifier of QoS 2 among theirs is released by PUBREL, as by
    /// [`withdraw`](Self::withdraw).
    pub fn resend(
        &mut self,
        stop: usize,
        describe: impl for<'m> Fn(&'m M) -> Outgoing<'m>,
        out: &mut Vec<u8>,
    ) -> Vec<M> {
        self.resend_but(|_| false, |_| false, stop, |message| Some(describe(message)), out)
    }

    /// The same without the PUBRELs that `holds_back` says: the caller sends them later. Messages of QoS 1 that are
    /// `over` are given back, too, and not sent. It stops before a message that `describe` cannot describe yet.
    pub fn resend_but(
        &mut self,
        holds_back: impl Fn(PacketId) -> bool,
        over: impl Fn(&M) -> bool,
        stop: usize,
        describe: impl for<'m> Fn(&'m M) -> Option<Outgoing<'m>>,
        out: &mut Vec<u8>,
    ) -> Vec<M> {
        let mut unsent = Vec::new();
        while out.len() < stop {
            let overtaken = self.overtaken.as_mut().and_then(|overtaken| overtaken.next_to_resend());
            let (mut entry, id, is_overtaken) = match overtaken {
                Some((id, state)) => (std::mem::replace(state, State::Finished), id, true),
                None => match self.entries.get_mut(self.resent) {
                    Some(state) => (std::mem::replace(state, State::Finished), self.id_at(self.resent), false),
                    None => break,
                },
            };
            let is_over = matches!(&entry, State::AwaitingPuback(message) if over(message));
            let mut again = Again::TooLarge;
            if !is_over {
                again = self.again(&entry, id, &holds_back, &describe, out);
            }
            if matches!(again, Again::TooLarge) {
                let next = entry.withdrawn();
                unsent.extend(std::mem::replace(&mut entry, next).into_message());
                again = self.again(&entry, id, &holds_back, &describe, out);
            }
            let is_closed = matches!(again, Again::Closed);
            match &mut self.overtaken {
                Some(overtaken) if is_overtaken => {
                    if let Some((_, place)) = overtaken.next_to_resend() {
                        *place = entry;
                    }
                    if !is_closed {
                        overtaken.note_resent();
                    }
                }
                _ => {
                    if let Some(place) = self.entries.get_mut(self.resent) {
                        *place = entry;
                    }
                    self.resent += usize::from(!is_closed);
                }
            }
            if is_closed {
                break;
            }
        }
        self.drop_finished();
        unsent
    }

    /// The message that is to be sent again next, if that is a message and not PUBREL.
    #[must_use]
    pub fn next_to_resend(&self) -> Option<&M> {
        let overtaken = self.overtaken.as_ref().and_then(|overtaken| overtaken.first_to_resend());
        overtaken.or_else(|| self.entries.get(self.resent))?.message()
    }

    /// The messages that are to be sent again, in order.
    pub fn to_resend_mut(&mut self) -> impl Iterator<Item = &mut M> {
        let overtaken = self.overtaken.iter_mut().flat_map(|overtaken| overtaken.states_to_resend());
        overtaken.chain(self.entries.iter_mut().skip(self.resent)).filter_map(State::message_mut)
    }

    /// Takes back the messages that were to be sent again and that `keeps` refuses, as for a client that has lost the
    /// right to read them. An identifier of QoS 1 is free at once. One of QoS 2 may be known to the client, which would
    /// take the next message under it for the same one: it is released by PUBREL, whether the client knows it or not
    /// ([MQTT-4.3.3-8], [MQTT-4.3.3-11]).
    pub fn withdraw(&mut self, mut keeps: impl FnMut(&M) -> bool) -> Vec<M> {
        self.withdraw_changed(|message| keeps(message))
    }

    /// The same, where `keeps` may change what it keeps.
    pub fn withdraw_changed(&mut self, mut keeps: impl FnMut(&mut M) -> bool) -> Vec<M> {
        let overtaken = self.overtaken.iter_mut().flat_map(|overtaken| overtaken.states_to_resend());
        let mut taken = Vec::new();
        for entry in overtaken.chain(self.entries.iter_mut().skip(self.resent)) {
            if entry.message_mut().is_none_or(&mut keeps) {
                continue;
            }
            let next = entry.withdrawn();
            taken.extend(std::mem::replace(entry, next).into_message());
        }
        self.drop_finished();
        taken
    }

    /// Takes back, like [`withdraw`](Self::withdraw), the messages to be sent again that are too large for the peer's
    /// present limit ([MQTT-3.1.2-25]). `bytes_max` returns a bound on a packet that costs less than to encode it. One
    /// that `describe` cannot describe stays.
    pub fn withdraw_too_large(
        &mut self,
        bytes_max: impl Fn(&M) -> usize,
        describe: impl for<'m> Fn(&'m M) -> Option<Outgoing<'m>>,
    ) -> Vec<M> {
        let (version, limit) = (self.config.version, self.config.packet_bytes_max);
        let how = Transmission { dup: true, packet_id: Some(PacketId::FIRST), ..Transmission::default() };
        let mut scratch = Vec::new();
        self.withdraw(|message| {
            scratch.clear();
            bytes_max(message) <= limit
                || describe(message).is_none_or(|one| one.transmit(version, how, limit, &mut scratch).is_ok())
        })
    }

    fn again(
        &mut self,
        entry: &State<M>,
        id: PacketId,
        holds_back: &impl Fn(PacketId) -> bool,
        describe: &impl for<'m> Fn(&'m M) -> Option<Outgoing<'m>>,
        out: &mut Vec<u8>,
    ) -> Again {
        let version = self.config.version;
        let sent = match entry {
            State::Finished | State::Reserved => true,
            State::AwaitingPubcomp => {
                self.released_before += 1;
                // A packet without properties always fits.
                holds_back(id) || Ack::success(id).encode(PacketType::Pubrel, version, out).is_ok()
            }
            State::AwaitingPuback(message) | State::AwaitingPubrec(message) => {
                if self.quota == 0 {
                    return Again::Closed;
                }
                let Some(outgoing) = describe(message) else { return Again::Closed };
                let how = Transmission { dup: true, packet_id: Some(id), ..Transmission::default() };
                let sent = outgoing.transmit(version, how, self.config.packet_bytes_max, out).is_ok();
                self.quota -= u16::from(sent);
                sent
            }
        };
        if sent { Again::Sent } else { Again::TooLarge }
    }
}
