//! Input that has not been handled: its bytes, and their place among those of all clients.

use std::task::Context;

use bytes::BytesMut;
use fogmux_mqtt::{PacketType, ReasonCode};
use tokio::io::{AsyncRead, AsyncWrite};

use super::super::connection::{Connection, End};
use crate::unfinished::{Place, SMALL_BYTES, owner};

/// The first byte of DISCONNECT.
const DISCONNECT: u8 = (PacketType::Disconnect as u8) << 4;
/// A fixed header and the reason code behind it.
const BEGINNING_BYTES: usize = 6;

/// Bytes of unfinished packets.
#[derive(Debug)]
pub(in crate::mqtt) enum Input {
    /// The beginning of a packet that fits the worker's buffer; often empty.
    Partial(Vec<u8>),
    /// Bytes that came with CONNECT and have not been decoded.
    Unread(Vec<u8>),
    /// Bytes that a publisher that pauses has sent already.
    Held(Vec<u8>),
    /// A packet larger than the worker's buffer, in one of its own: its payload is never copied again.
    Large(Box<Large>),
}

/// The packet of [`Input::Large`].
#[derive(Debug)]
pub(in crate::mqtt) struct Large {
    pub(super) bytes: BytesMut,
    pub(super) total: usize,
}

impl Input {
    pub(in crate::mqtt) const fn new(rest: Vec<u8>) -> Self {
        if rest.is_empty() { Self::Partial(rest) } else { Self::Unread(rest) }
    }

    /// The bytes that count as unfinished.
    pub(in crate::mqtt) fn counted(&self) -> usize {
        match self {
            Self::Partial(bytes) | Self::Unread(bytes) | Self::Held(bytes) => bytes.len(),
            Self::Large(large) => large.bytes.capacity(),
        }
    }

    /// The bytes that have come.
    pub(in crate::mqtt) fn filled(&self) -> usize {
        match self {
            Self::Partial(bytes) | Self::Unread(bytes) | Self::Held(bytes) => bytes.len(),
            Self::Large(large) => large.bytes.len(),
        }
    }

    /// The bytes, and how many of what follows belong to a packet of which they are not kept. Of a large DISCONNECT,
    /// which is judged by its reason code, the beginning is kept.
    pub(in crate::mqtt) fn into_rest(self) -> (Vec<u8>, usize) {
        match self {
            Self::Partial(bytes) | Self::Unread(bytes) | Self::Held(bytes) => (bytes, 0),
            Self::Large(large) if large.bytes.first() == Some(&DISCONNECT) => {
                let bytes = &large.bytes;
                (bytes.get(..BEGINNING_BYTES).unwrap_or(bytes).to_vec(), 0)
            }
            Self::Large(large) => (Vec::new(), large.total - large.bytes.len()),
        }
    }

    /// Whether whole packets may be among the bytes.
    pub(in crate::mqtt) const fn is_unhandled(&self) -> bool {
        matches!(self, Self::Unread(_) | Self::Held(_))
    }

    /// Whether a packet larger than the read buffer is under way.
    pub(in crate::mqtt) const fn is_large(&self) -> bool {
        matches!(self, Self::Large(_))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Counts what is left of the input among the unfinished packets of all clients, before the task sleeps. Returns
    /// whether there is more to do. When there is too much of it, a packet of the principal that has most ends with its
    /// connection; input that was only held for a pause is handled at once instead.
    pub(in crate::mqtt) fn poll_unfinished(&mut self, cx: &Context<'_>) -> Result<bool, End> {
        let aside = self.set_aside_bytes();
        let bytes = self.reading.input.counted() + aside;
        if self.reading.unfinished.is_none() && bytes <= SMALL_BYTES {
            return Ok(false);
        }
        let (is_counted, place) = self.count_input(bytes, aside);
        if is_counted && (bytes <= SMALL_BYTES || place.waiter().poll_gave_way(cx).is_pending()) {
            return Ok(false);
        }
        if aside > 0 {
            self.handle_set_aside()?;
            return Ok(true);
        }
        let Input::Held(held) = &mut self.reading.input else { return Err(self.too_much_unfinished()) };
        let held = std::mem::take(held);
        self.reading.input = Input::Partial(Vec::new());
        self.take(&held)?;
        self.reading.unfinished = None;
        Ok(true)
    }

    /// Counts so many bytes of the input among the unfinished packets of all clients; `aside` of them are set aside.
    /// Returns whether there is room.
    pub(in crate::mqtt) fn count_input(&mut self, bytes: usize, aside: usize) -> (bool, &Place) {
        let (door, gate, peer) = (&self.ctx.door, &self.client.gate, self.wakes.listed.address());
        let fresh = || Box::new(Place::new(door.unfinished(), owner(gate.access().principal(), peer)));
        let place = self.reading.unfinished.get_or_insert_with(fresh);
        (place.set(&self.ctx, bytes, self.reading.input.filled() + aside), place)
    }

    /// The input has to end for that of others.
    pub(in crate::mqtt) fn too_much_unfinished(&mut self) -> End {
        self.misbehaved(&"unfinished packets take too much memory", ReasonCode::QUOTA_EXCEEDED)
    }
}
