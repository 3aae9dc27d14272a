//! Emptied buffers for another use, so that an answer or a Confirmable allocates nothing.

/// Buffers that are kept; more are given back.
const BUFFERS_MAX: usize = 64;

/// The buffers of one machine.
#[derive(Default)]
pub(crate) struct Buffers(Vec<Vec<u8>>);

impl Buffers {
    /// An empty buffer.
    #[inline]
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut buffer = self.0.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// Keeps a buffer whose contents are not needed any more.
    #[inline]
    pub(crate) fn put_back(&mut self, buffer: Vec<u8>) {
        if self.0.len() < BUFFERS_MAX {
            self.0.push(buffer);
        }
    }
}
