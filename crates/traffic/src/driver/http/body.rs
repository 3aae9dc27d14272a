//! The body of a response that arrives in pieces. A single piece is not copied.

use bytes::Bytes;

/// The part of a body that has arrived.
#[derive(Debug, Default)]
pub(super) struct Body {
    first: Bytes,
    /// The whole body, if it consists of several pieces.
    whole: Vec<u8>,
}

impl Body {
    pub(super) fn push(&mut self, piece: Bytes) {
        if self.first.is_empty() && self.whole.is_empty() {
            self.first = piece;
            return;
        }
        if self.whole.is_empty() {
            self.whole.extend_from_slice(&self.first);
        }
        self.whole.extend_from_slice(&piece);
    }

    /// How many bytes have arrived.
    pub(super) fn len(&self) -> usize {
        self.bytes().len()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        if self.whole.is_empty() { &self.first } else { &self.whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_put_together_in_order() {
        for pieces in [&[][..], &[""], &["a"], &["", "a"], &["a", "", "bc"], &["a", "bc", "d"]] {
            let mut body = Body::default();
            pieces.iter().for_each(|piece| body.push(Bytes::from_static(piece.as_bytes())));
            assert_eq!(body.bytes(), pieces.concat().as_bytes());
        }
    }
}
