//! Acknowledgements of messages in flight.

use fogmux_mqtt::{Acknowledged, PacketId, ProtocolError, ReasonCode};

use super::{super::kept::Kept, MqttMailbox};

impl MqttMailbox {
    /// PUBACK.
    pub(in crate::mqtt) fn handle_puback(&mut self, id: PacketId) -> Result<(), ProtocolError> {
        let acknowledged = self.outbound.handle_puback(id)?;
        self.give_back(acknowledged);
        Ok(())
    }

    /// PUBREC; PUBREL is appended to `out`.
    pub(in crate::mqtt) fn handle_pubrec(
        &mut self,
        id: PacketId,
        reason: ReasonCode,
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        let acknowledged = self.outbound.handle_pubrec(id, reason, out)?;
        self.give_back(acknowledged);
        Ok(())
    }

    /// PUBCOMP.
    pub(in crate::mqtt) fn handle_pubcomp(&mut self, id: PacketId) -> Result<(), ProtocolError> {
        if matches!(self.outbound.handle_pubcomp(id)?, Acknowledged::Over(_))
            && let Some(durable) = &mut self.durable
        {
            durable.complete(id);
        }
        Ok(())
    }

    fn give_back(&mut self, acknowledged: Acknowledged<Kept>) {
        let (kept, is_released) = match acknowledged {
            Acknowledged::Over(Some(kept)) => (kept, false),
            Acknowledged::Released(Some(kept)) => (kept, true),
            Acknowledged::Over(None) | Acknowledged::Released(None) | Acknowledged::Unknown => return,
        };
        self.inflight_bytes = self.inflight_bytes.saturating_sub(kept.cost());
        self.note_taken(kept.cost());
        if let (Some(stored), Some(durable)) = (kept.stored, &mut self.durable) {
            if is_released { durable.release(*stored) } else { durable.acknowledge(*stored) }
        }
    }
}
