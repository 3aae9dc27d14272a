//! Bodies of a client in blocks (RFC 7959), also several blocks in a message (BERT, RFC 8323 §6).

use bytes::Bytes;

use super::ahead::State;
use crate::block::{Block, BlockSize};
use crate::code::Code;
use crate::etag::ETag;
use crate::message::Message;
use crate::option::OptionNumber;

/// A body on its way to the server.
#[derive(Debug)]
pub(super) struct Upload {
    body: Bytes,
    block: Block,
    /// Bytes of the body in one message.
    chunk: usize,
}

/// The next step after an answer to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Uploaded {
    /// Send the next block, or the same in a smaller one.
    Continue,
    /// The answer is that to the whole.
    Done,
    /// The server wants more than there is, or speaks of another block.
    Broken,
}

impl Upload {
    pub(super) const fn new(body: Bytes, size: BlockSize, chunk: usize) -> Self {
        Self { body, block: Block { number: 0, more: true, size }, chunk }
    }

    /// The block to send, its part of the body, and with the first the length of the whole (RFC 7959 §4).
    pub(super) fn part(&self) -> Option<(Block, &[u8], Option<u32>)> {
        let (block, part) = self.block.slice_of(&self.body, self.block.size.chunk(self.chunk))?;
        let size1 = if block.number == 0 { u32::try_from(self.body.len()).ok() } else { None };
        Some((block, part, size1))
    }

    /// Takes in what the server says of the block that was sent (RFC 7959 §2.3, §2.9.3).
    pub(super) fn answered(&mut self, message: &Message<'_>, reliable: bool) -> Uploaded {
        let continues = message.code == Code::CONTINUE;
        let Some(granted) = block(message, OptionNumber::BLOCK1, reliable) else {
            return if continues { Uploaded::Broken } else { Uploaded::Done };
        };
        let sent = self.block;
        if message.code == Code::REQUEST_ENTITY_TOO_LARGE && granted.size < sent.size {
            self.block = sent.shrink(granted.size);
            return Uploaded::Continue;
        }
        if !continues {
            return Uploaded::Done;
        }
        // RFC 7959 §2.9.1: 2.31 is for a block with others behind it. A server that has a smaller size may count the
        // block that it acknowledges in its own.
        let is_last = self.part().is_none_or(|(block, ..)| !block.more);
        if is_last || (granted.number != sent.number && granted.number != sent.shrink(granted.size).number) {
            return Uploaded::Broken;
        }
        let number = sent.number.saturating_add(blocks(sent.size, sent.size.chunk(self.chunk)));
        self.block = Block { number, ..sent }.shrink(granted.size);
        Uploaded::Continue
    }
}

/// A body on its way from the server.
#[derive(Debug)]
pub(super) struct Download {
    pub(super) body: Vec<u8>,
    /// The block to ask for next.
    pub(super) next: Block,
    etag: Option<ETag>,
    /// It was begun again, because the state had changed.
    pub(super) restarted: bool,
    /// Location-Path of the notification of which this is the rest; empty for an observation of one resource.
    pub(super) location: Vec<String>,
    /// Whether that notification was Confirmable.
    pub(super) confirmable: bool,
    /// A newer notification came meanwhile.
    pub(super) superseded: bool,
    /// The state that the newest of these notifications is of.
    pub(super) notified: Option<State>,
}

/// The next step after a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Downloaded {
    /// Ask for [`Download::next`].
    Continue,
    /// The body is whole.
    Done,
    /// The block is one of another state (RFC 7959 §2.4).
    Changed,
    /// The blocks do not fit together.
    Broken,
    /// There is no room for the block.
    TooLarge,
}

impl Download {
    /// A body without any block yet.
    pub(super) const fn new(size: BlockSize, location: Vec<String>, confirmable: bool) -> Self {
        Self {
            body: Vec::new(),
            next: Block { number: 0, more: false, size },
            etag: None,
            restarted: false,
            location,
            confirmable,
            superseded: false,
            notified: None,
        }
    }

    /// Takes in a block.
    pub(super) fn take(&mut self, message: &Message<'_>, part: Block, body_bytes_max: usize) -> Downloaded {
        let etag = message.option(OptionNumber::ETAG).and_then(|option| ETag::new(option.value));
        if self.next.number == 0 && part.number == 0 {
            self.body = Vec::new();
            self.etag = etag;
        }
        // A first block that nobody asked for is none of the same state, and would begin the body anew for ever.
        if self.etag != etag || (self.next.number > 0 && part.number == 0) {
            return Downloaded::Changed;
        }
        let payload = message.payload();
        let endless = part.more && payload.is_empty();
        if endless || self.body.len() != part.offset() {
            return Downloaded::Broken;
        }
        if self.body.len().saturating_add(payload.len()) > body_bytes_max {
            return Downloaded::TooLarge;
        }
        self.body.extend_from_slice(payload);
        if !part.more {
            return Downloaded::Done;
        }
        let number = part.number.saturating_add(blocks(part.size, payload.len()));
        self.next = Block { number, more: false, size: part.size };
        Downloaded::Continue
    }

    /// Begins again, once (RFC 7959 §2.4); returns whether it may.
    pub(super) fn restart(&mut self) -> bool {
        self.body = Vec::new();
        self.next.number = 0;
        !std::mem::replace(&mut self.restarted, true)
    }
}

/// A block option of a message.
pub(super) fn block(message: &Message<'_>, number: OptionNumber, reliable: bool) -> Option<Block> {
    let value = message.option(number)?.uint()?;
    if reliable { Some(Block::decode_reliable(value)) } else { Block::decode(value) }
}

/// The number of blocks in a message of so many bytes: one, but for BERT (RFC 8323 §6).
fn blocks(size: BlockSize, bytes: usize) -> u32 {
    if size.is_bert() { u32::try_from(bytes / size.bytes()).unwrap_or(u32::MAX).max(1) } else { 1 }
}
