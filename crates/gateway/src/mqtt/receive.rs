//! Reading: bytes into the worker's buffer, packets out of it, effects in batches.

use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::{BufMut, BytesMut};
use fogmux_bus::Payload;
use fogmux_mqtt::{Disconnect, Frame, Packet, Property, ProtocolError, Publish, ReasonCode, decode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

mod batch;
mod control;
mod input;

use self::batch::{BATCH_MAX, Batch, Step};
pub(super) use self::{
    batch::Item,
    input::{Input, Large},
};
use super::connection::{Connection, End};
use crate::unfinished::finished;

/// The least growth of a large packet's buffer.
const LARGE_STEP_BYTES: usize = 64 << 10;

/// Why no more packets of some bytes are handled.
struct Stopped {
    end: End,
    /// The beginning of the packet that ended it; those before it are handled or lost with the connection.
    at: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Reads once and handles the bytes.
    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, End> {
        if self.has_set_aside() {
            self.handle_set_aside()?;
            return Ok(Poll::Ready(()));
        }
        match std::mem::replace(&mut self.reading.input, Input::Partial(Vec::new())) {
            Input::Unread(bytes) | Input::Held(bytes) => {
                self.take(&bytes)?;
                Ok(Poll::Ready(()))
            }
            Input::Large(large) => self.poll_large(cx, large),
            Input::Partial(bytes) => self.poll_small(cx, bytes),
        }
    }

    fn poll_small(&mut self, cx: &mut Context<'_>, partial: Vec<u8>) -> Result<Poll<()>, End> {
        let ctx = Rc::clone(&self.ctx);
        let mut buffer = ctx.read_buffer.borrow_mut();
        let (front, rest) = buffer.split_at_mut_checked(partial.len()).ok_or(End::Closed)?;
        let most = self.rare.as_ref().and_then(|rare| rare.turn_bytes).unwrap_or(rest.len());
        let room = rest.len().min(most);
        let mut read = ReadBuf::new(rest.get_mut(..room).unwrap_or_default());
        match Pin::new(&mut self.stream).poll_read(cx, &mut read) {
            Poll::Pending => {
                self.reading.input = Input::Partial(partial);
                return Ok(Poll::Pending);
            }
            Poll::Ready(Ok(())) if !read.filled().is_empty() => {}
            Poll::Ready(ended) => {
                self.reading.input = Input::Partial(partial);
                return Err(ended.map_or_else(|error| End::of(&error), |()| End::Closed));
            }
        }
        let count = read.filled().len();
        self.count_read(count);
        let length = partial.len() + count;
        if !partial.is_empty() {
            front.copy_from_slice(&partial);
        }
        self.take(buffer.get(..length).unwrap_or_default())?;
        Ok(Poll::Ready(()))
    }

    fn count_read(&mut self, bytes: usize) {
        self.work.read_bytes = self.work.read_bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.reading.recent.add(bytes, self.now);
        self.reading.boundary.read(bytes);
        self.ctx.shared.metrics.mqtt.bytes_in.add(u64::try_from(bytes).unwrap_or_default());
    }

    /// Handles every whole packet in `bytes` and keeps the rest.
    fn take(&mut self, bytes: &[u8]) -> Result<(), End> {
        let used = self.handle_all(bytes).map_err(|stopped| self.stop(stopped, bytes))?;
        self.reading.boundary.handled(used);
        let rest = bytes.get(used..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(());
        }
        if self.holds_input() {
            self.reading.input = Input::Held(rest.to_vec());
            return Ok(());
        }
        let total = match Frame::read(rest, self.facts.version, &self.limits()) {
            Ok(frame) => frame.map_or(0, |frame| frame.total_len()),
            Err(error) => return Err(self.misbehaved(&error, error.reason())),
        };
        // It must fit the buffer alone, or it could never be finished.
        self.reading.input = if total >= crate::worker::READ_BUFFER_BYTES {
            Input::Large(Box::new(Large { bytes: BytesMut::from(rest), total }))
        } else {
            Input::Partial(rest.to_vec())
        };
        Ok(())
    }

    /// Keeps what was not handled when the session was taken over: it may contain DISCONNECT.
    #[cold]
    fn stop(&mut self, Stopped { end, at }: Stopped, bytes: &[u8]) -> End {
        if end == End::Displaced {
            self.reading.boundary.handled(at);
            self.reading.input = Input::Held(bytes.get(at..).unwrap_or_default().to_vec());
        }
        end
    }

    /// Continues reading a large packet; its buffer grows with the bytes received, not with the announced length.
    fn poll_large(&mut self, cx: &mut Context<'_>, mut large: Box<Large>) -> Result<Poll<()>, End> {
        let Large { bytes, total } = &mut *large;
        let length = bytes.len();
        let missing = *total - length;
        if bytes.capacity() == length {
            bytes.reserve(missing.min(length.max(LARGE_STEP_BYTES)));
        }
        let room = missing.min(bytes.capacity() - length);
        let poll = {
            let mut limited = bytes.limit(room);
            let read = self.stream.read_buf(&mut limited);
            std::pin::pin!(read).poll(cx)
        };
        let is_whole = bytes.len() >= *total;
        let poll = match poll {
            Poll::Pending => Ok(Poll::Pending),
            Poll::Ready(Ok(0)) => Err(End::Closed),
            Poll::Ready(Err(error)) => Err(End::of(&error)),
            Poll::Ready(Ok(count)) => {
                self.count_read(count);
                // A slow but steady sender does not exceed its keep alive.
                self.reading.last_read = self.running();
                Ok(Poll::Ready(()))
            }
        };
        if !is_whole {
            self.reading.input = Input::Large(large);
            return poll;
        }
        self.reading.boundary.handled(large.total);
        self.handle_large(&finished(large.bytes))?;
        poll
    }

    fn handle_large(&mut self, bytes: &bytes::Bytes) -> Result<(), End> {
        let decoded = decode(bytes, self.facts.version, &self.limits());
        let (packet, _) = decoded.map_err(|error| self.misbehaved(&error, error.reason()))?.ok_or(End::Closed)?;
        let Packet::Publish(publish) = packet else {
            return self.handle_all(bytes).map(|_| ()).map_err(|stopped| stopped.end);
        };
        if self.draining.is_some() {
            return Ok(());
        }
        let incoming = self.inbound.handle_publish(&publish);
        let incoming = incoming.map_err(|error| self.misbehaved(&error, error.reason()))?;
        self.reading.last_read = self.running();
        self.facts.publishes = true;
        let shared = bytes.slice_ref(publish.payload);
        let mut batch = Batch::default();
        batch.push(Item { incoming, payload: Payload::Shared(&shared), duplicate: false });
        self.flush(&mut batch)
    }

    /// Handles every whole packet at the front of `bytes`. Returns how many bytes they took.
    fn handle_all(&mut self, bytes: &[u8]) -> Result<usize, Stopped> {
        let (version, limits) = (self.facts.version, self.limits());
        let mut batch = Batch::default();
        let (mut used, mut at) = (0, 0);
        self.facts.publishes = false;
        let (mut control, mut holds) = (0, self.holds_input());
        let end = loop {
            let rest = bytes.get(used..).unwrap_or_default();
            if batch.is_empty() {
                holds = self.holds_input();
            }
            let waits = control::is_publish(rest) || (control::has_filters(rest) && self.work.deliveries.are_enough());
            if holds && (waits || self.has_set_aside()) {
                break None;
            }
            match decode(rest, version, &limits) {
                Ok(Some((packet, length))) => {
                    (at, used) = (used, used + length);
                    // By reference, because a `Packet` is large; PUBLISH first, because most are.
                    let handled = if let Packet::Publish(publish) = &packet {
                        // The others are likely as long.
                        batch.expect(rest.len() / length.max(1));
                        self.handle_publish(publish, &mut batch)
                    } else if is_behind(&packet) && !batch.items.is_empty() {
                        // If a part of the batch is set aside, the packet waits for that.
                        used = at;
                        self.flush(&mut batch)
                    } else {
                        control += 1;
                        self.handle(&packet, &mut batch)
                    };
                    if let Err(end) = handled {
                        break Some(end);
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some(self.misbehaved(&error, error.reason())),
            }
        };
        if used > 0 {
            self.reading.last_read = self.running();
        }
        if control > 0 {
            self.ctx.shared.metrics.mqtt_only.control_in.add(control);
        }
        // Packets before the end of the connection still count.
        let end = self.flush(&mut batch).err().or(end);
        end.map_or(Ok(used), |end| Err(Stopped { end, at }))
    }

    #[inline]
    fn handle_publish<'a>(&mut self, publish: &Publish<'a>, batch: &mut Batch<'a>) -> Result<(), End> {
        // During a shutdown a message might not be delivered, so it is not acknowledged: the client sends it again.
        if self.draining.is_some() {
            return Ok(());
        }
        let incoming = self.inbound.handle_publish(publish);
        let incoming = incoming.map_err(|error| self.misbehaved(&error, error.reason()))?;
        self.facts.publishes = true;
        batch.push(Item { incoming, payload: Payload::Slice(publish.payload), duplicate: false });
        if batch.items.len() >= BATCH_MAX { self.flush(batch) } else { Ok(()) }
    }

    /// Handles an acknowledgement here, everything else that is no PUBLISH in a function of its own: this one is
    /// inlined.
    #[inline]
    fn handle(&mut self, packet: &Packet<'_>, batch: &mut Batch<'_>) -> Result<(), End> {
        match packet {
            Packet::Puback(ack) => {
                self.note_progress();
                batch.step(Step::Puback(ack.packet_id))
            }
            Packet::Pubrec(ack) => batch.step(Step::Pubrec(ack.packet_id, ack.reason)),
            Packet::Pubrel(ack) => batch.step(Step::Pubrel(ack.packet_id)),
            Packet::Pubcomp(ack) => {
                self.note_progress();
                batch.step(Step::Pubcomp(ack.packet_id))
            }
            Packet::Publish(_)
            | Packet::Subscribe(_)
            | Packet::Unsubscribe(_)
            | Packet::Pingreq
            | Packet::Disconnect(_)
            | Packet::Auth(_)
            | Packet::Connect(_)
            | Packet::Connack(_)
            | Packet::Suback(_)
            | Packet::Unsuback(_)
            | Packet::Pingresp => self.handle_other(packet, batch),
        }
    }

    #[inline(never)]
    fn handle_other(&mut self, packet: &Packet<'_>, batch: &mut Batch<'_>) -> Result<(), End> {
        match packet {
            Packet::Subscribe(subscribe) => {
                self.flush(batch)?;
                self.subscribe(subscribe)
            }
            Packet::Unsubscribe(unsubscribe) => {
                self.flush(batch)?;
                self.unsubscribe(unsubscribe)
            }
            Packet::Pingreq => self.answer(&Packet::Pingresp),
            Packet::Disconnect(disconnect) => {
                self.flush(batch)?;
                Err(self.disconnected(disconnect))
            }
            Packet::Auth(auth) => {
                self.flush(batch)?;
                self.reauthenticate(auth)
            }
            // Handled by the callers.
            Packet::Publish(_) | Packet::Puback(_) | Packet::Pubrec(_) | Packet::Pubrel(_) | Packet::Pubcomp(_) => {
                Ok(())
            }
            // A second CONNECT ([MQTT-3.1.0-2]), and what only servers send.
            other @ (Packet::Connect(_)
            | Packet::Connack(_)
            | Packet::Suback(_)
            | Packet::Unsuback(_)
            | Packet::Pingresp) => {
                let error = ProtocolError::Unexpected(other.kind());
                Err(self.misbehaved(&error, error.reason()))
            }
        }
    }

    /// §3.14: DISCONNECT may change the session's expiry, but not give one to a session that had none ([MQTT-3.14.2-2]
    /// and §3.14.2.2.2).
    fn disconnected(&mut self, disconnect: &Disconnect<'_>) -> End {
        for property in &disconnect.properties {
            if let Property::SessionExpiryInterval(seconds) = property {
                if self.facts.session_expiry == 0 && seconds != 0 {
                    let how = &"a session that was to end with its connection (§3.14.2.2.2)";
                    return self.misbehaved(how, ReasonCode::PROTOCOL_ERROR);
                }
                self.facts.session_expiry = seconds.min(self.ctx.door.config.session_expiry_max);
                // It may be taken over before it has left.
                let (sessions, transient) = (&self.ctx.door.sessions, self.facts.session_expiry == 0);
                sessions.set_transient(&self.key(), &self.mailbox.slot, self.mailbox.claim, transient);
            }
        }
        End::Disconnected { will: disconnect.reason != ReasonCode::SUCCESS }
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        self.ctx.shared.shutdown.closed(self.draining.is_some());
    }
}

/// Whether all messages before the packet have to be published when it is handled.
const fn is_behind(packet: &Packet<'_>) -> bool {
    matches!(packet, Packet::Subscribe(_) | Packet::Unsubscribe(_) | Packet::Disconnect(_) | Packet::Auth(_))
}
