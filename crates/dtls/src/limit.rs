//! The size limit of protected records that each end announces (RFC 8449). Records to a peer keep to the peer's limit.
//! Ours is the largest that the protocol has, so a record above it is one that is too long anyway: it is discarded, as
//! RFC 8449 §4 allows in DTLS.

use super::{Alert, hello::extension, wire};

/// The most bytes that a protected record may hold: in DTLS 1.3 with the type of its content and padding, and likewise
/// in DTLS 1.2 under an identifier (RFC 9146 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RecordLimit(u16);

impl RecordLimit {
    /// RFC 8449 §4: no endpoint announces less.
    pub(super) const MIN: Self = Self(64);
    /// The protocol's own in DTLS 1.2 (RFC 5246 §6.2.1).
    pub(super) const V12: Self = Self(1 << 14);
    /// The protocol's own in DTLS 1.3 (RFC 8446 §5.4).
    pub(super) const V13: Self = Self((1 << 14) + 1);

    /// Reads the extension. A limit above the protocol's own is as good as none: a server must take it, and a client,
    /// which may refuse it (RFC 8449 §4), gains nothing by that.
    ///
    /// # Errors
    /// `decode_error`: it has not two bytes. `illegal_parameter`: it is below 64.
    pub(super) fn parse(body: &[u8]) -> Result<Self, Alert> {
        let bytes = <[u8; 2]>::try_from(body).map_err(|_| Alert::DecodeError)?;
        Some(Self(u16::from_be_bytes(bytes))).filter(|limit| *limit >= Self::MIN).ok_or(Alert::IllegalParameter)
    }

    /// Appends the extension.
    pub(super) fn put(self, extensions: &mut Vec<u8>) {
        wire::put_extension(extensions, extension::RECORD_SIZE_LIMIT, &self.0.to_be_bytes());
    }

    pub(super) const fn bytes(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_limits_are_of_two_bytes_and_64_at_least() {
        let parse = |limit: u16| RecordLimit::parse(&limit.to_be_bytes()).map(RecordLimit::bytes);
        for refused in [0, 1, 63] {
            assert_eq!(parse(refused), Err(Alert::IllegalParameter), "{refused}");
        }
        for taken in [64, 65, 1 << 14, (1 << 14) + 1, (1 << 14) + 2, u16::MAX] {
            assert_eq!(parse(taken), Ok(usize::from(taken)));
        }
        for malformed in [&[][..], &[64], &[0, 64, 0]] {
            assert_eq!(RecordLimit::parse(malformed), Err(Alert::DecodeError), "{malformed:?}");
        }
    }

    #[test]
    fn s4_what_is_announced_is_read() {
        for limit in [RecordLimit::MIN, RecordLimit::V12, RecordLimit::V13] {
            let mut extensions = Vec::new();
            limit.put(&mut extensions);
            assert_eq!(extensions[..4], [0, 28, 0, 2]);
            assert_eq!(RecordLimit::parse(&extensions[4..]), Ok(limit));
        }
    }
}
