//! Texts that peers chose, in the form in which a line of the log shows them.

use fogmux_auth::holds_token;

/// Characters of a peer's text that a line holds.
const TEXT_MAX: usize = 128;

/// A client identifier, for a line of the log. Clients also put tokens in its place, which are never logged.
pub(crate) fn shown_client(client: &str) -> &str {
    if holds_token(client) { "" } else { cut(client) }
}

/// The beginning of a text that a peer chose, for a line of the log.
pub(crate) fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(TEXT_MAX).map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or_default()
}
