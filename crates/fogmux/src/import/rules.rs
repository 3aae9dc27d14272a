//! An access file of fogmux as it is made of another broker's.

/// The result of importing an access file.
#[derive(Debug, Default)]
pub(super) struct Translated {
    /// An access file of fogmux.
    pub(super) toml: String,
    /// The number of rules in it.
    pub(super) rules: usize,
    /// Whether a `deny` could not be translated: without it more would be allowed than before.
    pub(super) deny_lost: bool,
    /// The first line that is none of an access file. Mosquitto does not start with such a file, and it is unknown whom
    /// the lines below are about.
    pub(super) no_line: Option<usize>,
}

/// `%u` and `%c` are kept; any other `%` is an ordinary character in Mosquitto.
pub(super) fn placeholders(filter: &str) -> String {
    let mut out = String::with_capacity(filter.len());
    let mut rest = filter;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let placeholder = after.chars().next().filter(|c| matches!(c, 'u' | 'c'));
        out.push_str(match placeholder {
            Some('u') => "%u",
            Some(_) => "%c",
            None => "%%",
        });
        rest = after.get(usize::from(placeholder.is_some())..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// Formats a TOML string.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
