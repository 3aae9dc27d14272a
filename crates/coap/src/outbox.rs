//! Outgoing datagrams: one buffer that a turn fills, the caller sends, and the next turn reuses.

/// The datagrams that a turn sends, in order.
#[derive(Debug)]
pub struct Outbox<P> {
    bytes: Vec<u8>,
    datagrams: Vec<(P, usize)>,
}

impl<P> Default for Outbox<P> {
    fn default() -> Self {
        Self { bytes: Vec::new(), datagrams: Vec::new() }
    }
}

impl<P: Copy> Outbox<P> {
    /// Adds what `write` appends as one datagram, and gives it back.
    pub fn push_with(&mut self, to: P, write: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.datagrams.push((to, self.bytes.len()));
        self.bytes.get(start..).unwrap_or(&[])
    }

    /// Adds a datagram.
    pub fn push(&mut self, to: P, datagram: &[u8]) {
        self.push_with(to, |bytes| bytes.extend_from_slice(datagram));
    }

    /// The newest datagram.
    pub(crate) fn last(&self) -> &[u8] {
        let start =
            self.datagrams.len().checked_sub(2).and_then(|at| self.datagrams.get(at)).map_or(0, |(_, end)| *end);
        self.bytes.get(start..).unwrap_or(&[])
    }

    /// Takes back the newest datagram.
    pub(crate) fn pop(&mut self) {
        self.datagrams.pop();
        self.bytes.truncate(self.datagrams.last().map_or(0, |(_, end)| *end));
    }

    /// The datagrams, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (P, &[u8])> {
        self.iter_from(0)
    }

    /// The datagrams behind the first `skipped`.
    pub fn iter_from(&self, skipped: usize) -> impl ExactSizeIterator<Item = (P, &[u8])> {
        let datagrams = self.datagrams.get(skipped..).unwrap_or(&[]);
        let before = skipped.checked_sub(1).and_then(|last| self.datagrams.get(last));
        let mut start = before.map_or(0, |(_, end)| *end);
        datagrams.iter().map(move |(to, end)| {
            let datagram = self.bytes.get(start..*end).unwrap_or(&[]);
            start = *end;
            (*to, datagram)
        })
    }

    /// How many datagrams wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// How many bytes they have together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Forgets them all and keeps the room.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.datagrams.clear();
    }
}
