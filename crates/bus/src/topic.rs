//! Topics: what a message is published to.
//!
//! The rules are MQTT's (5.0 §4.7), the strictest of the doors': at least one byte, valid UTF-8, no U+0000
//! ([MQTT-4.7.3-2]), no wildcard ([MQTT-3.3.2-2]). Levels may be empty. Our own limit is [`LEVELS_MAX`].

use std::{borrow::Borrow, fmt, ops::Deref, sync::Arc};

use crate::limits::{LEVELS_MAX, TOPIC_BYTES_MAX};

/// Why a string is not a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// No byte at all ([MQTT-4.7.3-1]).
    #[error("a topic has at least one character")]
    Empty,
    /// More than [`TOPIC_BYTES_MAX`] bytes.
    #[error("a topic has at most {TOPIC_BYTES_MAX} bytes")]
    TooLong,
    /// U+0000 ([MQTT-4.7.3-2]).
    #[error("a topic has no null character")]
    Null,
    /// `+` or `#` ([MQTT-3.3.2-2]).
    #[error("a topic has no wildcard")]
    Wildcard,
    /// Over [`LEVELS_MAX`]; correct by the standard, but not accepted here.
    #[error("a topic has at most {LEVELS_MAX} levels here")]
    TooDeep,
}

/// A valid topic, owned and cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic(Arc<str>);

/// A valid topic, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicRef<'a>(&'a str);

impl<'a> TopicRef<'a> {
    /// Checks a string.
    ///
    /// # Errors
    /// The first rule it breaks.
    pub fn new(text: &'a str) -> Result<Self, TopicError> {
        if text.is_empty() {
            return Err(TopicError::Empty);
        }
        if text.len() > TOPIC_BYTES_MAX {
            return Err(TopicError::TooLong);
        }
        let mut levels = 1_usize;
        for byte in text.bytes() {
            match byte {
                b'/' => levels += 1,
                b'+' | b'#' => return Err(TopicError::Wildcard),
                0 => return Err(TopicError::Null),
                _ => {}
            }
        }
        if levels > LEVELS_MAX { Err(TopicError::TooDeep) } else { Ok(Self(text)) }
    }

    /// The text.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// An owned copy.
    #[must_use]
    pub fn to_topic(self) -> Topic {
        Topic(Arc::from(self.0))
    }
}

impl Deref for TopicRef<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        self.0
    }
}

impl Topic {
    /// Checks and copies a string.
    ///
    /// # Errors
    /// The first rule it breaks.
    pub fn new(text: &str) -> Result<Self, TopicError> {
        TopicRef::new(text).map(TopicRef::to_topic)
    }

    /// Borrowed, without checking again.
    #[must_use]
    pub fn as_ref(&self) -> TopicRef<'_> {
        TopicRef(&self.0)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Topic {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Topic {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for TopicRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_7_3_topic_rules() {
        assert_eq!(TopicRef::new(""), Err(TopicError::Empty));
        assert_eq!(TopicRef::new("a\0b"), Err(TopicError::Null));
        assert_eq!(TopicRef::new("a/+/b"), Err(TopicError::Wildcard));
        assert_eq!(TopicRef::new("a/b#"), Err(TopicError::Wildcard));
        assert_eq!(TopicRef::new(&"/".repeat(65_535)), Err(TopicError::TooDeep));
        assert_eq!(TopicRef::new(&"a".repeat(65_536)), Err(TopicError::TooLong));
        for good in ["/", "//", "a", "a b/ü/", "$SYS/x", &"a".repeat(65_535)] {
            assert_eq!(TopicRef::new(good).map(TopicRef::as_str), Ok(good));
        }
    }
}
