//! Acknowledgements, and the entries of exchanges that are over.

use std::collections::VecDeque;

use super::{Acknowledged, Outbound, State};
use crate::{Ack, PacketId, PacketType, ProtocolError, ReasonCode};

impl<M> Outbound<M> {
    /// Handles PUBACK: whatever its reason, the exchange is over (§4.3.2).
    ///
    /// # Errors
    /// When the message has another QoS.
    #[inline]
    pub fn handle_puback(&mut self, id: PacketId) -> Result<Acknowledged<M>, ProtocolError> {
        let Some(entry) = self.entry(id) else { return Ok(Acknowledged::Unknown) };
        match std::mem::replace(entry, State::Finished) {
            State::AwaitingPuback(message) => {
                self.finish();
                Ok(Acknowledged::Over(Some(message)))
            }
            State::Finished => Ok(Acknowledged::Unknown),
            other @ (State::AwaitingPubrec(_) | State::AwaitingPubcomp | State::Reserved) => {
                *entry = other;
                Err(ProtocolError::WrongAcknowledgement(PacketType::Puback))
            }
        }
    }

    /// Handles PUBREC: with a failure the exchange is over, otherwise PUBREL is appended ([MQTT-4.3.3-4]). For an
    /// unknown identifier, PUBREL carries that reason in version 5 and releases it in the older versions
    /// ([MQTT-4.3.3-7]).
    ///
    /// # Errors
    /// When the message has another QoS.
    pub fn handle_pubrec(
        &mut self,
        id: PacketId,
        reason: ReasonCode,
        out: &mut Vec<u8>,
    ) -> Result<Acknowledged<M>, ProtocolError> {
        let version = self.config.version;
        let known = self.entry(id).map(|entry| (std::mem::replace(entry, State::Finished), entry));
        let (message, known) = match known {
            Some((State::AwaitingPubrec(message), entry)) => {
                if reason.is_error() {
                    self.finish();
                    return Ok(Acknowledged::Over(Some(message)));
                }
                *entry = State::AwaitingPubcomp;
                (Some(message), true)
            }
            Some((State::AwaitingPubcomp, entry)) => {
                *entry = State::AwaitingPubcomp;
                (None, true)
            }
            Some((other @ (State::AwaitingPuback(_) | State::Reserved), entry)) => {
                *entry = other;
                return Err(ProtocolError::WrongAcknowledgement(PacketType::Pubrec));
            }
            Some((State::Finished, _)) | None => (None, false),
        };
        if !known && reason.is_error() {
            return Ok(Acknowledged::Unknown);
        }
        let answer = if known { ReasonCode::SUCCESS } else { ReasonCode::PACKET_IDENTIFIER_NOT_FOUND };
        // An acknowledgement without properties always fits.
        let _ = Ack::with_reason(id, answer).encode(PacketType::Pubrel, version, out);
        Ok(if known { Acknowledged::Released(message) } else { Acknowledged::Unknown })
    }

    /// Handles PUBCOMP: the exchange is over. One for a message that was not released answers nothing that was sent.
    ///
    /// # Errors
    /// When the message has another QoS or has not been released.
    pub fn handle_pubcomp(&mut self, id: PacketId) -> Result<Acknowledged<M>, ProtocolError> {
        let Some(entry) = self.entry(id) else { return Ok(Acknowledged::Unknown) };
        match entry {
            State::AwaitingPubcomp => {
                *entry = State::Finished;
                match self.released_before.checked_sub(1) {
                    Some(left) => self.released_before = left,
                    None => self.finish(),
                }
                self.drop_finished();
                Ok(Acknowledged::Over(None))
            }
            State::Finished => Ok(Acknowledged::Unknown),
            State::AwaitingPuback(_) | State::AwaitingPubrec(_) | State::Reserved => {
                Err(ProtocolError::WrongAcknowledgement(PacketType::Pubcomp))
            }
        }
    }

    /// Frees a place in the window, which never exceeds the peer's limit (§4.9).
    #[inline]
    pub(super) fn finish(&mut self) {
        self.quota = self.quota.saturating_add(1).min(self.config.window.max(1));
        self.drop_finished();
    }

    #[inline]
    pub(super) fn drop_finished(&mut self) {
        while matches!(self.entries.front(), Some(State::Finished)) {
            self.entries.pop_front();
            self.first = self.first.next();
            self.resent = self.resent.saturating_sub(1);
        }
        if self.entries.is_empty() && self.entries.capacity() > 256 {
            self.entries = VecDeque::new();
        }
        if self.overtaken.is_some() {
            self.drop_overtaken();
        }
    }
}
