//! The output of a connection: bytes, perhaps a large payload behind them, and bytes that were added meanwhile.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

use fogmux_bus::{Door, Publisher};

use super::context::MqttContext;
use crate::delivery_times::Marks;

/// A buffer above this is not kept for others.
const SPARE_BYTES_MAX: usize = 1 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    written: usize,
    tail: Option<Box<Tail>>,
    /// The deliveries in it that are timed.
    marks: Marks,
}

/// A large payload on its way.
#[derive(Debug)]
struct Tail {
    payload: Bytes,
    /// Comes after the payload.
    after: Vec<u8>,
}

impl Output {
    /// Where to append.
    pub(super) fn buffer(&mut self, ctx: &MqttContext) -> &mut Vec<u8> {
        if let Some(tail) = &mut self.tail {
            return &mut tail.after;
        }
        if self.bytes.capacity() == 0 {
            self.bytes = std::mem::take(&mut *ctx.spare.borrow_mut());
        }
        &mut self.bytes
    }

    /// A payload to write behind the bytes.
    pub(super) fn set_tail(&mut self, payload: Bytes) {
        self.tail = Some(Box::new(Tail { payload, after: Vec::new() }));
    }

    /// Adds deliveries that are timed to those in the output.
    pub(super) fn mark(&mut self, marks: Marks) {
        self.marks.append(marks);
    }

    /// Notes that all of it is written.
    pub(super) fn note_written(&mut self, ctx: &MqttContext, reader: &Publisher) {
        ctx.written(&mut self.marks, Door::Mqtt, reader);
    }

    /// Whether a payload is under way, behind which nothing should be put.
    pub(super) const fn has_tail(&self) -> bool {
        self.tail.is_some()
    }

    /// Bytes not written yet.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.written + self.tail.as_ref().map_or(0, |tail| tail.payload.len() + tail.after.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives the empty buffer to whoever needs one next: an idle connection holds none.
    pub(super) fn release(&mut self, ctx: &MqttContext) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut spare = ctx.spare.borrow_mut();
        if spare.capacity() < bytes.capacity() && bytes.capacity() <= SPARE_BYTES_MAX {
            *spare = bytes;
            spare.clear();
        }
    }

    /// Writes as much as the peer takes; gives how many bytes that was, zero when there was nothing.
    pub(super) fn poll_write<S>(&mut self, stream: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<usize>>
    where
        S: AsyncWrite + Unpin,
    {
        if self.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let head = self.bytes.get(self.written..).unwrap_or_default();
        let written = match &self.tail {
            Some(tail) if head.is_empty() => ready!(Pin::new(stream).poll_write(cx, &tail.payload))?,
            Some(tail) => {
                let slices = [IoSlice::new(head), IoSlice::new(&tail.payload)];
                ready!(Pin::new(stream).poll_write_vectored(cx, &slices))?
            }
            None => ready!(Pin::new(stream).poll_write(cx, head))?,
        };
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(written);
        Poll::Ready(Ok(written))
    }

    fn advance(&mut self, written: usize) {
        let of_head = written.min(self.bytes.len() - self.written);
        self.written += of_head;
        if self.written < self.bytes.len() {
            return;
        }
        self.bytes.clear();
        self.written = 0;
        let Some(tail) = &mut self.tail else { return };
        tail.payload.advance((written - of_head).min(tail.payload.len()));
        if tail.payload.is_empty() {
            self.bytes = std::mem::take(&mut tail.after);
            self.tail = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_behind_a_payload_comes_after_it() {
        let mut output = Output { bytes: b"head".to_vec(), ..Output::default() };
        output.set_tail(Bytes::from_static(b"payload"));
        output.tail.as_mut().unwrap().after.extend_from_slice(b"ack");
        let mut all = Vec::new();
        while !output.is_empty() {
            let head = output.bytes[output.written..].to_vec();
            let first = if head.is_empty() { output.tail.as_ref().unwrap().payload.to_vec() } else { head };
            all.push(first[0]);
            output.advance(1);
        }
        assert_eq!(all, b"headpayloadack");
    }
}
