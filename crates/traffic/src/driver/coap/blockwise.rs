//! Bodies in blocks (RFC 7959), also several blocks in a message (BERT, RFC 8323 §6).

use fogmux_coap::{Block, BlockSize, ETag, Message, OptionNumber};

/// How bodies are cut for one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The size of a block.
    pub(super) size: BlockSize,
    /// Bytes of a body in one message: one block, or several with BERT. What is not longer goes whole.
    pub(super) chunk: usize,
}

impl Cut {
    /// For datagrams: 1024 bytes (RFC 7252 §4.6).
    pub(super) const DATAGRAM: Self = Self { size: BlockSize::MAX, chunk: BlockSize::MAX.bytes() };
}

/// A body on its way to the server.
#[derive(Debug)]
pub(super) struct Upload {
    body: Vec<u8>,
    block: Block,
    chunk: usize,
}

/// What follows from an answer to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Uploaded {
    /// The next block is to be sent, or the same in a smaller one.
    Continue,
    /// The answer is that to the whole.
    Done,
}

impl Upload {
    pub(super) fn new(body: &[u8], cut: Cut) -> Self {
        Self { body: body.to_vec(), block: Block { number: 0, more: true, size: cut.size }, chunk: cut.chunk }
    }

    /// The block that is due, its part of the body, and with the first how long the whole is.
    pub(super) fn part(&self) -> Option<(Block, &[u8], Option<u32>)> {
        let (block, part) = self.block.slice_of(&self.body, self.block.size.chunk(self.chunk))?;
        let size1 = if block.number == 0 { u32::try_from(self.body.len()).ok() } else { None };
        Some((block, part, size1))
    }

    /// Takes in what the server says of the block that was sent (RFC 7959 §2.3, §2.9.3).
    pub(super) fn answered(&mut self, message: &Message<'_>, reliable: bool) -> Uploaded {
        let Some(granted) = block(message, OptionNumber::BLOCK1, reliable) else { return Uploaded::Done };
        let sent = self.block;
        let smaller = message.code == fogmux_coap::Code::REQUEST_ENTITY_TOO_LARGE && granted.size < sent.size;
        if smaller {
            self.block = sent.shrink(granted.size);
            return Uploaded::Continue;
        }
        if message.code != fogmux_coap::Code::CONTINUE {
            return Uploaded::Done;
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
    /// The block that is asked for next.
    pub(super) next: Block,
    etag: Option<ETag>,
    restarted: bool,
}

/// What follows from a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Downloaded {
    /// `next` is to be asked for.
    Continue,
    /// The body is whole.
    Done,
    /// The blocks do not make a whole.
    Broken,
}

impl Download {
    /// A body of which nothing is there yet.
    pub(super) fn new(size: BlockSize) -> Self {
        let next = Block { number: 0, more: false, size };
        Self { body: Vec::new(), next, etag: None, restarted: false }
    }

    /// Takes in a block. When the state has changed meanwhile, the newer one is fetched from its beginning, once
    /// (RFC 7959 §2.4).
    pub(super) fn take(&mut self, message: &Message<'_>, part: Block) -> Downloaded {
        let etag = message.option(OptionNumber::ETAG).and_then(|option| ETag::new(option.value));
        if part.number == 0 {
            self.body.clear();
            self.etag = etag;
        }
        if self.etag != etag || self.body.len() != part.offset() {
            if self.restarted {
                return Downloaded::Broken;
            }
            (self.restarted, self.next) = (true, Block { number: 0, more: false, size: part.size });
            return Downloaded::Continue;
        }
        self.body.extend_from_slice(message.payload());
        if !part.more {
            return Downloaded::Done;
        }
        if message.payload().is_empty() {
            return Downloaded::Broken;
        }
        let number = part.number.saturating_add(blocks(part.size, message.payload().len()));
        self.next = Block { number, more: false, size: part.size };
        Downloaded::Continue
    }
}

/// A block option of a message.
pub(super) fn block(message: &Message<'_>, number: OptionNumber, reliable: bool) -> Option<Block> {
    let value = message.option(number)?.uint()?;
    if reliable { Some(Block::decode_reliable(value)) } else { Block::decode(value) }
}

/// How many blocks a message of so many bytes has: one, but for BERT.
fn blocks(size: BlockSize, bytes: usize) -> u32 {
    if size.is_bert() { u32::try_from(bytes / size.bytes()).unwrap_or(u32::MAX).max(1) } else { 1 }
}
