//! Topic filters: what is subscribed to (MQTT 5.0 §4.7.1).

use std::{fmt, ops::Deref, sync::Arc};

use crate::limits::{FILTER_BYTES_MAX, LEVELS_MAX};

/// Why a string is not a topic filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// No byte at all ([MQTT-4.7.3-1]).
    #[error("a filter has at least one character")]
    Empty,
    /// More than [`FILTER_BYTES_MAX`] bytes.
    #[error("a filter has at most {FILTER_BYTES_MAX} bytes")]
    TooLong,
    /// U+0000 ([MQTT-4.7.3-2]).
    #[error("a filter has no null character")]
    Null,
    /// `#` not alone in the last level ([MQTT-4.7.1-1]).
    #[error("# stands alone in the last level")]
    MultiLevel,
    /// `+` not alone in its level ([MQTT-4.7.1-2]).
    #[error("+ stands alone in its level")]
    SingleLevel,
    /// Over [`LEVELS_MAX`]; correct by the standard, but not accepted here.
    #[error("a filter has at most {LEVELS_MAX} levels here")]
    TooDeep,
}

/// A valid topic filter, owned and cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Filter(Arc<str>);

impl Filter {
    /// Checks and copies a string.
    ///
    /// # Errors
    /// The first rule it breaks.
    pub fn new(text: &str) -> Result<Self, FilterError> {
        if text.is_empty() {
            return Err(FilterError::Empty);
        }
        if text.len() > FILTER_BYTES_MAX {
            return Err(FilterError::TooLong);
        }
        if text.bytes().any(|b| b == 0) {
            return Err(FilterError::Null);
        }
        if text.bytes().filter(|b| *b == b'/').count() >= LEVELS_MAX {
            return Err(FilterError::TooDeep);
        }
        let mut levels = text.split('/').peekable();
        while let Some(level) = levels.next() {
            if level.contains('#') && (level.len() > 1 || levels.peek().is_some()) {
                return Err(FilterError::MultiLevel);
            }
            if level.contains('+') && level.len() > 1 {
                return Err(FilterError::SingleLevel);
            }
        }
        Ok(Self(Arc::from(text)))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it has no wildcard, so that it matches one topic only.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.0.bytes().any(|b| matches!(b, b'+' | b'#'))
    }

    /// The levels before the first wildcard, with the slash behind them: every matching topic begins with it, but for
    /// the parent that `a/#` matches too. Empty when the first level is a wildcard.
    #[must_use]
    pub fn literal_prefix(&self) -> &str {
        let end = self.0.bytes().position(|b| matches!(b, b'+' | b'#')).unwrap_or(self.0.len());
        self.0.get(..end).unwrap_or_default()
    }

    /// Whether a topic matches ([MQTT-4.7.1-1], [MQTT-4.7.1-2]; `$` is hidden from leading wildcards, [MQTT-4.7.2-1]).
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        if topic.starts_with('$') && matches!(self.0.as_bytes().first(), Some(b'+' | b'#')) {
            return false;
        }
        let mut levels = topic.split('/');
        for wanted in self.0.split('/') {
            if wanted == "#" {
                return true;
            }
            match levels.next() {
                Some(level) if wanted == "+" || wanted == level => {}
                _ => return false,
            }
        }
        levels.next().is_none()
    }
}

impl Deref for Filter {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_7_1_filter_rules() {
        for (text, error) in [
            ("", FilterError::Empty),
            ("a\0", FilterError::Null),
            ("a/#/b", FilterError::MultiLevel),
            ("a#", FilterError::MultiLevel),
            ("##", FilterError::MultiLevel),
            ("a+/b", FilterError::SingleLevel),
            ("++", FilterError::SingleLevel),
        ] {
            assert_eq!(Filter::new(text), Err(error), "{text}");
        }
        assert_eq!(Filter::new(&"/".repeat(200)), Err(FilterError::TooDeep));
        for good in ["#", "+", "/", "a/+/b/#", "+/+", "/#", "a//b"] {
            assert!(Filter::new(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn s4_7_1_matching() {
        for (filter, topic, expected) in [
            ("sport/tennis/player1/#", "sport/tennis/player1", true),
            ("sport/tennis/player1/#", "sport/tennis/player1/ranking", true),
            ("sport/#", "sport", true),
            ("#", "a/b", true),
            ("sport/tennis/+", "sport/tennis/player1", true),
            ("sport/tennis/+", "sport/tennis/player1/ranking", false),
            ("sport/+", "sport", false),
            ("sport/+", "sport/", true),
            ("+/+", "/finance", true),
            ("/+", "/finance", true),
            ("+", "/finance", false),
            ("#", "$SYS/uptime", false),
            ("+/uptime", "$SYS/uptime", false),
            ("$SYS/#", "$SYS/uptime", true),
            ("$SYS/+", "$SYS/uptime", true),
            ("a", "A", false),
            ("a/", "a", false),
            ("a/b", "a/b/", false),
        ] {
            assert_eq!(Filter::new(filter).unwrap().matches(topic), expected, "{filter} {topic}");
        }
    }
}
