//! UTF-8 checked in pieces: a character may be cut by a frame (RFC 6455 §8.1) or by a read.

/// The incomplete character at the end of the text so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Utf8 {
    open: [u8; 4],
    length: usize,
}

impl Utf8 {
    /// Checks the next piece; returns `false` if the text is not valid UTF-8.
    pub(super) fn push(&mut self, piece: &[u8]) -> bool {
        let mut rest = piece;
        while self.length > 0 {
            let Some((&byte, after)) = rest.split_first() else { return true };
            let Some(place) = self.open.get_mut(self.length) else { return false };
            *place = byte;
            self.length += 1;
            rest = after;
            match std::str::from_utf8(self.open.get(..self.length).unwrap_or_default()) {
                Ok(_) => self.length = 0,
                Err(error) if error.error_len().is_some() => return false,
                Err(_) => {}
            }
        }
        match std::str::from_utf8(rest) {
            Ok(_) => true,
            Err(error) if error.error_len().is_some() => false,
            Err(error) => {
                let tail = rest.get(error.valid_up_to()..).unwrap_or_default();
                let Some(room) = self.open.get_mut(..tail.len()) else { return false };
                room.copy_from_slice(tail);
                self.length = tail.len();
                true
            }
        }
    }

    /// Whether the text may end here.
    pub(super) fn is_complete(&self) -> bool {
        self.length == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_say_what_the_whole_says(
            bytes in prop_oneof![any::<String>().prop_map(String::into_bytes), prop::collection::vec(any::<u8>(), 0..30)],
            sizes in prop::collection::vec(0_usize..5, 1..30),
        ) {
            let mut utf8 = Utf8::default();
            let mut rest = &bytes[..];
            let mut good = true;
            for size in sizes.into_iter().cycle().take(200) {
                let (piece, after) = rest.split_at(size.min(rest.len()));
                good = good && utf8.push(piece);
                rest = after;
            }
            good = good && utf8.push(rest) && utf8.is_complete();
            prop_assert_eq!(good, std::str::from_utf8(&bytes).is_ok());
        }
    }
}
