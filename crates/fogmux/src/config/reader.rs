//! Reads a spanned TOML table into settings that already hold their defaults.
//!
//! serde stops at the first error, but an operator needs all of them. A section therefore names its keys one after the
//! other, each with its accepted range. An absent key keeps its default, an invalid value becomes a [`Problem`] with
//! its line, and a key that was never named is reported as unknown, with the nearest known key.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Location, Problem, Source};
use super::units::{parse_duration, parse_size, show_duration, show_size};

/// A value as it may be shown: the user information of a URL has a password (RFC 3986 §3.2.1).
fn without_secret(found: &str) -> String {
    let Some((before, after)) = found.rsplit_once('@') else { return found.to_owned() };
    let (scheme, user) = before.split_once("://").map_or(("", before), |(scheme, user)| (scheme, user));
    match (user.contains(':'), scheme) {
        (false, _) => found.to_owned(),
        (true, "") => format!("…@{after}"),
        (true, scheme) => format!("{scheme}://…@{after}"),
    }
}

/// The beginning of a path to one of systemd's credentials.
const CREDENTIALS: &str = "$CREDENTIALS_DIRECTORY/";

/// The most addresses of a listener; each has a socket, or one for each worker.
const ADDRESSES_MAX: usize = 64;

/// The directory of credentials: of this process, else of the unit, for a command that an administrator runs.
fn credentials() -> PathBuf {
    let own = std::env::var_os("CREDENTIALS_DIRECTORY").filter(|own| !own.is_empty());
    own.map_or_else(|| PathBuf::from("/run/credentials/fogmux.service"), PathBuf::from)
}

/// The findings of reading any number of sources.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The problems found.
    pub(crate) problems: Vec<Problem>,
    /// Where each key was last set.
    pub(crate) origins: BTreeMap<String, Location>,
    /// Every existing key, set or not.
    pub(crate) known: BTreeSet<String>,
}

impl Findings {
    /// Adds a problem that depends on several keys; `key` selects the line to point at.
    pub(crate) fn clash(&mut self, key: &str, found: impl Into<String>, accepted: impl Into<String>) {
        let location = self.origins.get(key).cloned();
        let problem = Problem { location, key: key.to_owned(), found: found.into(), accepted: accepted.into() };
        self.problems.push(problem);
    }

    /// Returns whether any source set this key.
    pub(crate) fn is_set(&self, key: &str) -> bool {
        self.origins.contains_key(key)
    }
}

/// A group of keys that can be read from a table.
pub(crate) trait Section {
    /// Names every key of the section to `reader`.
    fn read(&mut self, reader: &mut Reader<'_>);
}

/// A table being read.
pub(crate) struct Reader<'a> {
    source: &'a Source,
    table: Option<&'a DeTable<'a>>,
    prefix: String,
    named: Vec<String>,
    findings: &'a mut Findings,
}

/// Reads a whole source into `section`; syntax errors become problems like all others.
pub(crate) fn read_source(source: &Source, section: &mut impl Section, findings: &mut Findings) {
    let (table, errors) = DeTable::parse_recoverable(&source.text);
    let mut told = BTreeSet::new();
    for error in errors {
        let location = source.location(error.span().map_or(0, |span| span.start));
        let found = error.message().replace('\n', ", ");
        // Each of nested arrays that are not closed is an error of its own.
        if told.insert((location.line, found.clone())) {
            let (key, accepted) = (String::new(), "TOML 1.0".to_owned());
            findings.problems.push(Problem { location: Some(location), key, found, accepted });
        }
    }
    let mut reader =
        Reader { source, table: Some(table.get_ref()), prefix: String::new(), named: Vec::new(), findings };
    section.read(&mut reader);
    reader.refuse_unknown();
}

impl Reader<'_> {
    /// Reads a nested table.
    pub(crate) fn section(&mut self, key: &str, section: &mut impl Section) {
        self.named.push(key.to_owned());
        let value = self.table.and_then(|table| table.get(key));
        let table = value.and_then(|value| value.get_ref().as_table());
        if let (Some(value), None) = (value, table) {
            self.refuse(key, value, "a table");
        }
        let prefix = self.dotted(key) + ".";
        let mut below = Reader { source: self.source, table, prefix, named: Vec::new(), findings: &mut *self.findings };
        section.read(&mut below);
        below.refuse_unknown();
    }

    /// Reads a list of tables.
    pub(crate) fn tables<S: Section + Default>(&mut self, key: &'static str, target: &mut Vec<S>) {
        self.named.push(key.to_owned());
        let dotted = self.dotted(key);
        self.findings.known.insert(dotted.clone());
        let Some(value) = self.table.and_then(|table| table.get(key)) else { return };
        self.findings.origins.insert(dotted.clone(), self.source.location(value.span().start));
        let Some(list) = value.get_ref().as_array() else { return self.refuse(key, value, "a list of tables") };
        target.clear();
        for (index, item) in list.iter().enumerate() {
            let Some(table) = item.get_ref().as_table() else {
                self.refuse(key, item, "a table");
                continue;
            };
            let (mut section, prefix) = (S::default(), format!("{dotted}[{index}]."));
            let (source, findings) = (self.source, &mut *self.findings);
            let mut below = Reader { source, table: Some(table), prefix, named: Vec::new(), findings };
            section.read(&mut below);
            below.refuse_unknown();
            target.push(section);
        }
    }

    /// Returns the keys of the table, in their order.
    pub(crate) fn keys(&self) -> Vec<String> {
        let keys = self.table.into_iter().flatten();
        keys.map(|(key, _)| key.get_ref().to_string()).collect()
    }

    /// Returns the text at `key` in the table at `name`, which is read as a section later.
    pub(crate) fn word_within(&self, name: &str, key: &str) -> Option<String> {
        let value = self.table?.get(name)?.get_ref().as_table()?.get(key)?;
        value.get_ref().as_str().map(str::to_owned)
    }

    /// Refuses a table whose name is unknown, with the nearest of the `known` names and what else is accepted.
    pub(crate) fn refuse_unknown_table(&mut self, name: &str, known: &[&str], further: &str) {
        let accepted = nearest(name, known.iter().copied()) + further;
        self.refuse_key(name, "there is no such key".to_owned(), accepted);
    }

    /// Refuses a table because of its name.
    pub(crate) fn refuse_table(&mut self, name: &str, found: &str, accepted: &str) {
        self.refuse_key(name, format!("{name:?} {found}"), accepted.to_owned());
    }

    /// Refuses a key once; it counts as read.
    fn refuse_key(&mut self, name: &str, found: String, accepted: String) {
        self.named.push(name.to_owned());
        let Some((key, _)) = self.table.and_then(|table| table.get_key_value(name)) else { return };
        let (location, key) = (Some(self.source.location(key.span().start)), self.dotted(name));
        self.findings.problems.push(Problem { location, key, found, accepted });
    }

    /// Reads `true` or `false`.
    pub(crate) fn flag(&mut self, key: &'static str, target: &mut bool) {
        self.value(key, target, |value| value.as_bool(), || "true or false".to_owned());
    }

    /// Reads a whole number.
    pub(crate) fn count<T: TryFrom<u64>>(&mut self, key: &'static str, target: &mut T, range: RangeInclusive<u64>) {
        let read = |value: &DeValue<'_>| {
            let integer = value.as_integer()?;
            let number = u64::from_str_radix(&integer.as_str().replace('_', ""), integer.radix()).ok()?;
            range.contains(&number).then(|| T::try_from(number).ok()).flatten()
        };
        self.value(key, target, read, || format!("a whole number from {} to {}", range.start(), range.end()));
    }

    /// Reads a number of bytes with its unit.
    pub(crate) fn size<T: TryFrom<u64>>(&mut self, key: &'static str, target: &mut T, range: RangeInclusive<u64>) {
        let read = |value: &DeValue<'_>| {
            let bytes = value.as_str().and_then(parse_size)?;
            range.contains(&bytes).then(|| T::try_from(bytes).ok()).flatten()
        };
        let (least, most) = (*range.start(), *range.end());
        let accepted = || format!("a size from {:?} to {:?}", show_size(least), show_size(most));
        self.value(key, target, read, accepted);
    }

    /// Reads a duration with its unit.
    pub(crate) fn duration(&mut self, key: &'static str, target: &mut Duration, range: RangeInclusive<Duration>) {
        let read = |value: &DeValue<'_>| value.as_str().and_then(parse_duration).filter(|found| range.contains(found));
        let (least, most) = (*range.start(), *range.end());
        let accepted = || format!("a duration from {:?} to {:?}", show_duration(least), show_duration(most));
        self.value(key, target, read, accepted);
    }

    /// Reads a duration with its unit; `""` for none.
    pub(crate) fn duration_unless_empty(
        &mut self,
        key: &'static str,
        target: &mut Option<Duration>,
        range: RangeInclusive<Duration>,
    ) {
        let read = |value: &DeValue<'_>| match value.as_str()? {
            "" => Some(None),
            text => parse_duration(text).filter(|found| range.contains(found)).map(Some),
        };
        let (least, most) = (*range.start(), *range.end());
        let accepted = || format!("a duration from {:?} to {:?}, or \"\"", show_duration(least), show_duration(most));
        self.value(key, target, read, accepted);
    }

    /// Reads a duration of whole seconds with its unit.
    pub(crate) fn seconds<T: TryFrom<u64>>(&mut self, key: &'static str, target: &mut T, range: RangeInclusive<u64>) {
        let read = |value: &DeValue<'_>| {
            let found = value.as_str().and_then(parse_duration).filter(|found| found.subsec_millis() == 0)?.as_secs();
            range.contains(&found).then(|| T::try_from(found).ok()).flatten()
        };
        let shown = |seconds: u64| show_duration(Duration::from_secs(seconds));
        let (least, most) = (shown(*range.start()), shown(*range.end()));
        self.value(key, target, read, || format!("a duration of whole seconds from {least:?} to {most:?}"));
    }

    /// Reads one of a few sizes.
    pub(crate) fn size_of(&mut self, key: &'static str, target: &mut usize, sizes: &[usize]) {
        let read = |value: &DeValue<'_>| {
            let bytes = value.as_str().and_then(parse_size)?;
            sizes.iter().copied().find(|size| u64::try_from(*size).is_ok_and(|size| size == bytes))
        };
        let accepted = || {
            let names: Vec<_> = sizes.iter().map(|size| format!("\"{size}B\"")).collect();
            format!("one of {}", names.join(", "))
        };
        self.value(key, target, read, accepted);
    }

    /// Reads text that `valid` accepts.
    pub(crate) fn text(
        &mut self,
        key: &'static str,
        target: &mut String,
        valid: impl Fn(&str) -> bool,
        accepted: &str,
    ) {
        let read = |value: &DeValue<'_>| value.as_str().filter(|text| valid(text)).map(str::to_owned);
        self.value(key, target, read, || accepted.to_owned());
    }

    /// Reads a list of words, each accepted by `valid`.
    pub(crate) fn words(
        &mut self,
        key: &'static str,
        target: &mut Vec<String>,
        valid: impl Fn(&str) -> bool,
        accepted: &str,
    ) {
        self.words_as(key, target, |word| valid(word).then(|| word.to_owned()), accepted);
    }

    /// Reads a list of words, each converted by `canonical`.
    pub(crate) fn words_as(
        &mut self,
        key: &'static str,
        target: &mut Vec<String>,
        canonical: impl Fn(&str) -> Option<String>,
        accepted: &str,
    ) {
        let read = |value: &DeValue<'_>| {
            let words = value.as_array()?.iter().map(|word| word.get_ref().as_str());
            words.map(|word| canonical(word?)).collect()
        };
        self.value(key, target, read, || format!("a list of {accepted}"));
    }

    /// Reads a path; `""` for none. A relative path starts at the directory of the file that contains it, and one that
    /// begins with `$CREDENTIALS_DIRECTORY/` at systemd's directory of credentials (systemd.exec(5)).
    pub(crate) fn path(&mut self, key: &'static str, target: &mut Option<PathBuf>) {
        let base = self.source.file.parent().map(PathBuf::from).unwrap_or_default();
        let read = |value: &DeValue<'_>| {
            let text = value.as_str()?;
            if let Some(name) = text.strip_prefix(CREDENTIALS) {
                return Some(Some(credentials().join(name)));
            }
            Some(if text.is_empty() { None } else { Some(base.join(text)) })
        };
        self.value(key, target, read, || "a path, or \"\" for none".to_owned());
    }

    /// Reads `IP:PORT`, or a list of up to [`ADDRESSES_MAX`] of them with at least one.
    pub(crate) fn addresses(&mut self, key: &'static str, target: &mut Vec<SocketAddr>) {
        let read = |value: &DeValue<'_>| match value.as_array() {
            Some(list) => {
                let each = list.iter().map(|one| one.get_ref().as_str()?.parse().ok());
                each.collect::<Option<Vec<_>>>().filter(|list| (1..=ADDRESSES_MAX).contains(&list.len()))
            }
            None => Some(vec![value.as_str()?.parse().ok()?]),
        };
        let accepted =
            || "an address and port such as \"127.0.0.1:1883\" or \"[::1]:1883\", or a list of them".to_owned();
        self.value(key, target, read, accepted);
    }

    /// Reads one of a few words.
    pub(crate) fn choice<T: Copy>(&mut self, key: &'static str, target: &mut T, choices: &[(&str, T)]) {
        let read = |value: &DeValue<'_>| {
            let text = value.as_str()?;
            choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice)
        };
        let accepted = || {
            let names: Vec<_> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
            format!("one of {}", names.join(", "))
        };
        self.value(key, target, read, accepted);
    }

    fn value<T>(
        &mut self,
        key: &'static str,
        target: &mut T,
        read: impl FnOnce(&DeValue<'_>) -> Option<T>,
        accepted: impl FnOnce() -> String,
    ) {
        self.named.push(key.to_owned());
        let dotted = self.dotted(key);
        self.findings.known.insert(dotted.clone());
        let Some(value) = self.table.and_then(|table| table.get(key)) else { return };
        self.findings.origins.insert(dotted, self.source.location(value.span().start));
        match read(value.get_ref()) {
            Some(read) => *target = read,
            None => self.refuse(key, value, &accepted()),
        }
    }

    fn refuse(&mut self, key: &str, value: &Spanned<DeValue<'_>>, accepted: &str) {
        let found = self.source.text.get(value.span()).unwrap_or_default();
        let found = found.lines().next().unwrap_or_default();
        self.findings.problems.push(Problem {
            location: Some(self.source.location(value.span().start)),
            key: self.dotted(key),
            found: format!("{} is not accepted", without_secret(found)),
            accepted: accepted.to_owned(),
        });
    }

    fn refuse_unknown(&mut self) {
        let Some(table) = self.table else { return };
        for (key, _) in table {
            let name: &str = key.get_ref();
            if self.named.iter().any(|named| named == name) {
                continue;
            }
            self.findings.problems.push(Problem {
                location: Some(self.source.location(key.span().start)),
                key: self.dotted(name),
                found: "there is no such key".to_owned(),
                accepted: nearest(name, self.named.iter().map(String::as_str)),
            });
        }
    }

    fn dotted(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }
}

/// Returns the known name that was probably meant, or all of them.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let best = known.clone().min_by_key(|candidate| distance(name, candidate));
    match best {
        Some(best) if distance(name, best) <= 1 + name.len() / 4 => format!("perhaps {best:?}"),
        Some(_) | None => known.collect::<Vec<_>>().join(", "),
    }
}

/// The Levenshtein distance, computed row by row.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut previous = i + 1;
        for (cell, right) in row.iter_mut().skip(1).zip(b.chars()) {
            let substituted = diagonal + usize::from(left != right);
            diagonal = *cell;
            previous = substituted.min(previous + 1).min(diagonal + 1);
            *cell = previous;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}
