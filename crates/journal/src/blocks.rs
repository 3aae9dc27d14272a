//! The layout of bytes in blocks: each block of a segment begins with a mark, and content fills the rest.
//!
//! A block of 4 KiB begins a frame or continues one, and its first four bytes say which. What users store is never
//! there, so that nobody can publish bytes that look like the beginning of a frame.
//!
//! Content is addressed by its position in the segment with the marks left out.

/// Bytes of a block: the page of file systems and the smallest unit that flash cards rewrite.
pub(crate) const BLOCK: u32 = 4096;
/// Bytes of the mark at the beginning of each block.
pub(crate) const MARK: u32 = 4;
/// Content of a block, in bytes.
pub(crate) const ROOM: u32 = BLOCK - MARK;

/// The mark of a block that begins a frame.
pub(crate) const BEGINS: [u8; MARK as usize] = *b"fmJ[";
/// The mark of a block that continues a frame.
pub(crate) const CONTINUES: [u8; MARK as usize] = *b"fmJ+";

/// The offset in the file of a position of content.
pub(crate) const fn offset(position: u32) -> u32 {
    position / ROOM * BLOCK + MARK + position % ROOM
}

/// The position of content at which a block begins.
pub(crate) const fn position_of_block(block: u32) -> u32 {
    block * ROOM
}

/// The blocks that `bytes` of content take from the beginning of a block on.
pub(crate) const fn blocks_for(bytes: u32) -> u32 {
    bytes.div_ceil(ROOM)
}

/// The range of the file, as offset and length, that holds `bytes` of content from `position` on.
pub(crate) const fn range(position: u32, bytes: u32) -> (u32, u32) {
    let start = offset(position);
    if bytes == 0 { (start, 0) } else { (start, offset(position + bytes - 1) + 1 - start) }
}

/// Appends the content of `raw`, which is a piece of a file that begins at `start`, to `content`.
pub(crate) fn gather(raw: &[u8], start: u32, content: &mut Vec<u8>) {
    let into_block = start % BLOCK;
    let (first, rest) = raw.split_at(raw.len().min((BLOCK - into_block) as usize));
    content.extend_from_slice(first.get(MARK.saturating_sub(into_block) as usize..).unwrap_or_default());
    for block in rest.chunks(BLOCK as usize) {
        content.extend_from_slice(block.get(MARK as usize..).unwrap_or_default());
    }
}

/// A frame being written: bytes with the marks between them.
#[derive(Debug)]
pub(crate) struct Spread(Vec<u8>);

impl Spread {
    /// Begins a frame of at most `blocks` blocks.
    pub(crate) fn begin(blocks: u32) -> Self {
        let mut bytes = Vec::with_capacity((blocks * BLOCK) as usize);
        bytes.extend_from_slice(&BEGINS);
        Self(bytes)
    }

    /// Appends content.
    pub(crate) fn push(&mut self, mut content: &[u8]) {
        while !content.is_empty() {
            let into_block = self.0.len() % BLOCK as usize;
            if into_block == 0 {
                self.0.extend_from_slice(&CONTINUES);
                continue;
            }
            let (now, later) = content.split_at(content.len().min(BLOCK as usize - into_block));
            self.0.extend_from_slice(now);
            content = later;
        }
    }

    /// The bytes as they are in the file, without the rest of the last block.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spread_is_gathered_from_any_position() {
        let content: Vec<u8> = (0..3 * ROOM + 17).map(|n| (n % 251) as u8).collect();
        let mut spread = Spread::begin(4);
        content.chunks(1000).for_each(|part| spread.push(part));
        let file = spread.into_bytes();
        assert_eq!(file.len(), offset(3 * ROOM + 17) as usize);
        assert!(file.chunks(BLOCK as usize).skip(1).all(|block| block[..4] == CONTINUES));
        for position in [0, 1, ROOM - 1, ROOM, ROOM + 1, 2 * ROOM + 5] {
            for bytes in [0, 1, 2, ROOM - 1, ROOM, ROOM + 1] {
                let (start, length) = range(position, bytes);
                let mut found = Vec::new();
                gather(&file[start as usize..(start + length) as usize], start, &mut found);
                assert_eq!(found, content[position as usize..(position + bytes) as usize], "{position} {bytes}");
            }
        }
    }
}
