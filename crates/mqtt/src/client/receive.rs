//! Packets from the server.

use super::event::{ClientError, Event};
use super::{Client, State};
use crate::authentication::Authentication;
use crate::inbound::{Incoming, Received};
use crate::negotiation::ConnackProperties;
use crate::outbound::{Acknowledged, OutboundConfig};
use crate::packet::{Ack, Auth, Connack, Packet, Publish};
use crate::{PacketId, PacketType, ProtocolError, Qos, ReasonCode};

impl<M> Client<M> {
    pub(super) fn handle_packet<'a>(
        &mut self,
        packet: Packet<'a>,
        out: &mut Vec<u8>,
    ) -> Result<(Event<'a>, Option<M>), ClientError> {
        let event = match (self.state, packet) {
            (State::AwaitingConnack, Packet::Connack(connack)) => self.handle_connack(&connack),
            (_, Packet::Auth(auth)) => self.handle_auth(&auth)?,
            (State::AwaitingConnack, other) | (State::Connected, other @ Packet::Connack(_)) => {
                return Err(ProtocolError::Unexpected(other.kind()).into());
            }
            (State::Connected, packet) => return self.handle_connected(packet, out),
        };
        Ok((event, None))
    }

    fn handle_connack<'a>(&mut self, connack: &Connack<'a>) -> Event<'a> {
        let properties = ConnackProperties::from(connack.properties);
        if connack.reason.is_error() {
            return Event::Refused { reason: connack.reason, text: properties.reason_string };
        }
        self.state = State::Connected;
        self.keep_alive = properties.server_keep_alive.unwrap_or(self.keep_alive);
        self.outbound.resume(OutboundConfig {
            version: self.version,
            window: if self.version.is_v5() { properties.receive_maximum } else { self.limits.window },
            packet_bytes_max: usize::try_from(properties.packet_bytes_max).unwrap_or(usize::MAX),
            topic_alias_maximum: properties.topic_alias_maximum,
        });
        Event::Connected { session_present: connack.session_present, properties }
    }

    /// [MQTT-4.12.0-5], [MQTT-4.12.0-6].
    fn handle_auth<'a>(&self, auth: &Auth<'a>) -> Result<Event<'a>, ClientError> {
        let method = self.method.as_deref().ok_or(ProtocolError::Unexpected(PacketType::Auth))?;
        let said = Authentication::of(auth.properties);
        if said.is_some_and(|said| said.method != method) || auth.reason == ReasonCode::RE_AUTHENTICATE {
            return Err(ProtocolError::AuthenticationMethod.into());
        }
        Ok(Event::Authentication { reason: auth.reason, data: said.and_then(|said| said.data) })
    }

    pub(super) fn handle_connected<'a>(
        &mut self,
        packet: Packet<'a>,
        out: &mut Vec<u8>,
    ) -> Result<(Event<'a>, Option<M>), ClientError> {
        let kind = packet.kind();
        let event = match packet {
            Packet::Publish(publish) => self.handle_publish(&publish, out)?.map_or(Event::Nothing, Event::Message),
            Packet::Puback(ack) | Packet::Pubrec(ack) | Packet::Pubcomp(ack) => {
                return self.handle_ack(kind, &ack, out);
            }
            Packet::Pubrel(ack) => {
                self.release(ack.packet_id, out);
                Event::Nothing
            }
            Packet::Suback(ack) => {
                self.outbound.unreserve(ack.packet_id);
                Event::Subscribed { packet_id: ack.packet_id, codes: ack.codes }
            }
            Packet::Unsuback(ack) => {
                self.outbound.unreserve(ack.packet_id);
                Event::Unsubscribed { packet_id: ack.packet_id, codes: ack.codes }
            }
            Packet::Pingresp => Event::Pong,
            Packet::Disconnect(packet) if self.version.is_v5() => {
                Event::Disconnected { reason: packet.reason, text: packet.properties.reason_string() }
            }
            other @ (Packet::Connect(_)
            | Packet::Connack(_)
            | Packet::Subscribe(_)
            | Packet::Unsubscribe(_)
            | Packet::Pingreq
            | Packet::Disconnect(_)
            | Packet::Auth(_)) => return Err(ProtocolError::Unexpected(other.kind()).into()),
        };
        Ok((event, None))
    }

    /// Acknowledges a message; `None` for one that was handed on before ([MQTT-4.3.3-10]).
    #[inline]
    pub(super) fn handle_publish<'a>(
        &mut self,
        publish: &Publish<'a>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Incoming<'a>>, ClientError> {
        let incoming = self.inbound.handle_publish(publish)?;
        let Some(id) = incoming.packet_id else { return Ok(Some(incoming)) };
        if incoming.qos == Qos::AtLeastOnce {
            self.inbound.release();
            self.acknowledge(PacketType::Puback, id, ReasonCode::SUCCESS, out);
            return Ok(Some(incoming));
        }
        let max = self.limits.receive_maximum.max(1);
        match self.received.insert(id, usize::from(max)) {
            Received::Fresh => {
                self.acknowledge(PacketType::Pubrec, id, ReasonCode::SUCCESS, out);
                Ok(Some(incoming))
            }
            Received::Duplicate => {
                // The first of them is counted still (§4.9).
                self.inbound.release();
                self.acknowledge(PacketType::Pubrec, id, ReasonCode::SUCCESS, out);
                Ok(None)
            }
            Received::Full => Err(ProtocolError::ReceiveMaximum { max }.into()),
        }
    }

    #[inline]
    fn acknowledge(&self, kind: PacketType, id: PacketId, reason: ReasonCode, out: &mut Vec<u8>) {
        // An acknowledgement without properties always fits.
        let _ = Ack::with_reason(id, reason).encode(kind, self.version, out);
    }

    fn release(&mut self, id: PacketId, out: &mut Vec<u8>) {
        let reason = if self.received.remove(id) {
            self.inbound.release();
            ReasonCode::SUCCESS
        } else {
            ReasonCode::PACKET_IDENTIFIER_NOT_FOUND
        };
        self.acknowledge(PacketType::Pubcomp, id, reason, out);
    }

    /// PUBACK, PUBREC or PUBCOMP: its event, and what was kept of the message.
    fn handle_ack<'a>(
        &mut self,
        kind: PacketType,
        ack: &Ack<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(Event<'a>, Option<M>), ClientError> {
        let (packet_id, reason) = (ack.packet_id, ack.reason);
        let done = if kind == PacketType::Puback {
            self.outbound.handle_puback(packet_id)?
        } else if kind == PacketType::Pubrec {
            self.outbound.handle_pubrec(packet_id, reason, out)?
        } else {
            self.outbound.handle_pubcomp(packet_id)?
        };
        let kept = match done {
            Acknowledged::Over(Some(kept)) => Some(kept),
            // Servers answer in order ([MQTT-4.6.0-4]); for one that does not, the list is searched.
            Acknowledged::Over(None) => {
                let at = self.released.iter().position(|(released, _)| *released == packet_id);
                at.and_then(|at| self.released.remove(at)).map(|(_, kept)| kept)
            }
            Acknowledged::Released(kept) => {
                self.released.extend(kept.map(|kept| (packet_id, kept)));
                return Ok((Event::Nothing, None));
            }
            Acknowledged::Unknown => {
                self.unknown += 1;
                return Ok((Event::Nothing, None));
            }
        };
        Ok((Event::Published { packet_id, reason }, kept))
    }
}
