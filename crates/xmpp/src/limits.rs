//! Limits on the memory that a peer can occupy. Each is enforced before memory is allocated.

/// The limits of one stream. Sizes are in bytes unless the name says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest stanza. The default leaves room for 1 MiB in base64.
    pub stanza_bytes_max: usize,
    /// Anything before authentication, stream headers included. RFC 6120 §13.12 asks for at least 10 000 only *after*
    /// authentication; a SASL exchange fits in a tenth of this.
    pub stanza_bytes_before_authentication_max: usize,
    /// The depth of nested elements, counted from the stream element as the first.
    pub depth_max: usize,
    /// Attributes of one element, namespace declarations counted.
    pub attributes_max: usize,
    /// Elements of one stanza that are held as a tree. The payload of an item is held as text and not counted.
    pub elements_max: usize,
    /// Failed SASL attempts before the stream is closed. RFC 6120 §6.4.5 recommends 2 to 5.
    pub sasl_attempts_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            stanza_bytes_max: 2 * 1024 * 1024,
            stanza_bytes_before_authentication_max: 8 * 1024,
            depth_max: 64,
            attributes_max: 64,
            elements_max: 4096,
            sasl_attempts_max: 3,
        }
    }
}
