//! The preparation of names and passwords that every mechanism shares: SASLprep (RFC 4013).

use std::borrow::Cow;

/// SASLprep, or nothing when the text holds what it prohibits.
pub(crate) fn prepare_text(text: &str) -> Option<Cow<'_, str>> {
    stringprep::saslprep(text).ok()
}
