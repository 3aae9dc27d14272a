//! Bytes for the connection, and queued messages that follow as the window opens.

use std::task::Context;

use bytes::Bytes;
use fogmux_bus::{Qos, Timestamp};
use fogmux_mqtt::Sent;

use super::super::{durable, kept::Kept, translate};
use super::drained::Drained;
use super::stored::Fate;
use super::{LARGE_BYTES, MqttMailbox, OUT_BYTES_MIN, OUT_BYTES_USUAL_MAX, USUAL_UNIT};

impl MqttMailbox {
    /// Moves everything that can be sent into `into`, in exchange for its empty buffer; an empty mailbox keeps none.
    pub(in crate::mqtt) fn drain(&mut self, into: &mut Vec<u8>, now: Timestamp, cx: &mut Context<'_>) -> Drained {
        let overrun = self.is_overrun();
        let mut drained = Drained { overrun, lost: std::mem::take(&mut self.lost), ..Drained::default() };
        let level = self.level();
        self.mark_again(cx);
        while self.outbound.is_resending() {
            let stop = self.bounds.out_bytes;
            let held_back = self.durable.as_ref().map_or(&[][..], |durable| durable.held_back());
            let holds_back = |id| held_back.contains(&id);
            // Of a message that was restored nobody knows for certain that it was sent (ADR 0042).
            let doubtful = self.doubtful;
            let over = |kept: &Kept| doubtful && kept.is_expired(now);
            let out = &mut self.out;
            let unsent = self.outbound.resend_but(holds_back, over, stop, |kept| translate::describe(kept, now), out);
            self.inflight_bytes -= unsent.iter().map(Kept::cost).sum::<usize>().min(self.inflight_bytes);
            self.finish(unsent.into_iter().filter_map(|kept| kept.stored).map(|stored| *stored));
            self.doubtful &= self.outbound.is_resending();
            let is_away = self.out.len() < stop && self.outbound.next_to_resend().is_some_and(Kept::is_away);
            if !is_away || !self.read_back(now, cx, &mut drained) {
                break;
            }
        }
        // Otherwise the window stopped it, which an acknowledgement opens.
        let resends_more = self.outbound.is_resending() && self.out.len() >= self.bounds.out_bytes;
        if !self.queue.is_empty() && !self.outbound.is_resending() {
            self.refill(now, cx, &mut drained);
        }
        // Nothing waits for the end of those that have expired.
        drop(self.append());
        self.hand_over(into);
        drained.marks = std::mem::take(&mut self.marks);
        self.keep_pace(level - self.level(), now);
        // The connection says what it cannot write. Not before that, because when it can, nothing is drained behind it.
        self.unwritten = 0;
        drained.queue_empty = self.queue.is_empty();
        // The output may have had no room for a look at it.
        if !drained.queue_empty && self.fate_of_first(cx) == Some(Fate::Unstored) {
            self.note_asked();
        }
        drained.more = resends_more || self.is_sendable();
        drained.awaiting = self.outbound.in_flight() > 0;
        drained
    }

    /// Notes that the socket has no room for so many bytes. Returns whether the client is to be disconnected.
    pub(in crate::mqtt) fn note_blocked(&mut self, unwritten: usize) -> bool {
        self.unwritten = unwritten;
        if let Some(pace) = &mut self.pace {
            pace.blocked();
        }
        self.is_overrun()
    }

    /// Makes room for a first delivery.
    pub(super) fn reserve(&mut self) {
        let usual = usize::from(self.usual) * USUAL_UNIT;
        // An eighth more, or every other batch would be a little too large.
        self.out.reserve((usual + usual / 8).clamp(OUT_BYTES_MIN, OUT_BYTES_USUAL_MAX));
    }

    /// Moves the encoded bytes into `into`, in exchange for its buffer; with nothing to send the mailbox keeps none.
    fn hand_over(&mut self, into: &mut Vec<u8>) {
        self.note_taken(self.out.len());
        if self.out.is_empty() {
            self.out = Vec::new();
            return;
        }
        self.usual = u16::try_from(self.out.len() / USUAL_UNIT).unwrap_or(u16::MAX);
        if into.is_empty() {
            std::mem::swap(into, &mut self.out);
        } else {
            into.append(&mut self.out);
        }
    }

    /// Encodes from the queue until the output is full, the window closed, or a large payload is to be written.
    fn refill(&mut self, now: Timestamp, cx: &mut Context<'_>, drained: &mut Drained) {
        while self.out.len() < self.bounds.out_bytes && drained.tail.is_none() {
            let Some(front) = self.queue.front() else { break };
            if front.is_expired(now) {
                drained.expired += 1;
                self.drop_oldest();
                continue;
            }
            if front.qos != Qos::AtMostOnce && !self.window_open() {
                break;
            }
            match self.fate(front, cx) {
                Fate::Sendable if front.is_away() => {
                    if self.read_back(now, cx, drained) {
                        continue;
                    }
                    break;
                }
                Fate::Sendable => {}
                Fate::Unmarked => {
                    if self.move_mark(cx) {
                        continue;
                    }
                    break;
                }
                Fate::Behind | Fate::Unstored => break,
                Fate::Refused => {
                    drained.refused += 1;
                    self.drop_oldest();
                    continue;
                }
            }
            let Some(kept) = self.queue.pop_front() else { break };
            let sequence = kept.stored.as_ref().map(|stored| stored.sequence());
            drained.tail = self.send(kept, now, drained);
            if let Some(sequence) = sequence {
                self.follow_mark(sequence);
            }
        }
    }

    /// Appends a queued message, and returns its payload if that is written from where it is. A message that is too
    /// large for the client counts as delivered ([MQTT-3.1.2-25]).
    pub(super) fn send(&mut self, mut kept: Kept, now: Timestamp, drained: &mut Drained) -> Option<Bytes> {
        let mut stored = kept.stored.take();
        self.skip_to(stored.as_deref());
        let chosen = stored.as_deref().map(durable::packet_id);
        let outgoing = translate::describe(&kept, now)?;
        let large = outgoing.payload.len() > LARGE_BYTES;
        let inflight_bytes = &mut self.inflight_bytes;
        let keep = || {
            let kept = kept.with(stored.take());
            *inflight_bytes += kept.cost();
            kept
        };
        let sent = if large {
            self.outbound.publish_head(&outgoing, keep, &mut self.out)
        } else {
            self.outbound.publish(&outgoing, keep, &mut self.out)
        };
        if let (Sent::Sent(given), Some(_)) = (sent, chosen) {
            debug_assert_eq!(given, chosen, "a restart would send it with another identifier");
        }
        let sent = matches!(sent, Sent::Sent(_));
        let message = kept.message()?;
        if sent && kept.timed {
            self.marks.note_message(message);
        }
        #[cfg(feature = "traces")]
        if sent && !kept.timed {
            self.marks.note_uncounted(message, kept.retain);
        }
        drained.sent += u64::from(sent);
        drained.too_large += u64::from(!sent);
        self.finish(stored.map(|stored| *stored));
        (large && sent).then(|| message.payload.clone())
    }
}
