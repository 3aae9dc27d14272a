//! Writes messages of a bounded length. Names are compressed (RFC 1035 §4.1.4), but not in the data of services and
//! NSEC records: a legacy client would not read it (RFC 6762 §18.14), and one form is enough.

use crate::decode::CLASS_TOP_BIT;
use crate::message::{Data, Flags, Message, Question, Record};
use crate::name::Name;

/// The length of the header.
const HEADER_BYTES: usize = 12;

/// The farthest place that a pointer leads to.
const POINTER_MAX: usize = 0x3fff;

/// The sections of records, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// Answers.
    Answer,
    /// Authorities.
    Authority,
    /// Additional records.
    Additional,
}

/// Writes a message: questions first, then records in the order of their sections.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    bytes_max: usize,
    /// Of questions and of each section.
    counts: [u16; 4],
    /// Names that are written, with their places.
    names: Vec<(Box<[u8]>, u16)>,
}

impl Writer {
    /// Begins a message that is not longer than this, and has room for the header at least.
    #[must_use]
    pub fn new(id: u16, flags: Flags, bytes_max: usize) -> Self {
        let mut bytes = Vec::with_capacity(bytes_max.clamp(HEADER_BYTES, 1500));
        bytes.extend_from_slice(&id.to_be_bytes());
        bytes.extend_from_slice(&flags.0.to_be_bytes());
        bytes.resize(HEADER_BYTES, 0);
        Self { bytes, bytes_max, counts: [0; 4], names: Vec::new() }
    }

    /// Adds a question. Returns whether it fits; nothing is written of one that does not, or that comes after a record.
    pub fn question(&mut self, question: &Question) -> bool {
        self.push(0, |writer| {
            writer.name(&question.name);
            writer.number(question.kind.0);
            writer.number(question.class | if question.unicast { CLASS_TOP_BIT } else { 0 });
            true
        })
    }

    /// Adds a record. Returns whether it fits; nothing is written of one that does not, or that comes after a record of
    /// a later section.
    pub fn record(&mut self, section: Section, record: &Record) -> bool {
        let section = match section {
            Section::Answer => 1,
            Section::Authority => 2,
            Section::Additional => 3,
        };
        self.push(section, |writer| {
            writer.name(&record.name);
            writer.number(record.data.kind().0);
            writer.number(record.class | if record.flush { CLASS_TOP_BIT } else { 0 });
            writer.bytes.extend_from_slice(&record.ttl.to_be_bytes());
            writer.data(&record.data)
        })
    }

    /// Sets the truncation bit.
    pub fn truncate(&mut self) {
        if let Some(flags) = self.bytes.get_mut(2) {
            *flags |= Flags::TRUNCATED.0.to_be_bytes()[0];
        }
    }

    /// Whether there are no questions and no records yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts == [0; 4]
    }

    /// Returns the message.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let counts = self.counts.map(u16::to_be_bytes).concat();
        if let Some(header) = self.bytes.get_mut(HEADER_BYTES - counts.len()..HEADER_BYTES) {
            header.copy_from_slice(&counts);
        }
        self.bytes
    }

    /// Writes a part of a section, or takes it back.
    fn push(&mut self, section: usize, write: impl FnOnce(&mut Self) -> bool) -> bool {
        let (length, names) = (self.bytes.len(), self.names.len());
        let is_late = self.counts.iter().skip(section + 1).any(|count| *count > 0);
        let is_full = self.counts.get(section).is_none_or(|count| *count == u16::MAX);
        if is_late || is_full || !write(self) || self.bytes.len() > self.bytes_max {
            self.bytes.truncate(length);
            self.names.truncate(names);
            return false;
        }
        if let Some(count) = self.counts.get_mut(section) {
            *count += 1;
        }
        true
    }

    fn number(&mut self, number: u16) {
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }

    /// Writes a name, with a pointer to the longest part of it that is written already.
    fn name(&mut self, name: &Name) {
        for suffix in name.suffixes() {
            // Byte for byte: what is read is what was given.
            if let Some((_, place)) = self.names.iter().find(|(known, _)| **known == *suffix) {
                return self.number(place | 0xc000);
            }
            if let Some(place) = u16::try_from(self.bytes.len()).ok().filter(|at| usize::from(*at) <= POINTER_MAX) {
                self.names.push((suffix.into(), place));
            }
            let label = suffix.first().map_or(0, |length| usize::from(*length) + 1);
            self.bytes.extend_from_slice(suffix.get(..label).unwrap_or(&[]));
        }
        self.bytes.push(0);
    }

    /// Writes the length of data and the data. Returns whether it has a length.
    fn data(&mut self, data: &Data) -> bool {
        let at = self.bytes.len();
        self.number(0);
        match data {
            Data::Ptr(name) => self.name(name),
            Data::A(_) | Data::Aaaa(_) | Data::Srv { .. } | Data::Txt(_) | Data::Nsec { .. } | Data::Other { .. } => {
                self.bytes.extend_from_slice(&data.to_wire());
            }
        }
        let Ok(length) = u16::try_from(self.bytes.len() - at - 2) else { return false };
        if let Some(place) = self.bytes.get_mut(at..at + 2) {
            place.copy_from_slice(&length.to_be_bytes());
        }
        true
    }
}

impl Message {
    /// Writes the message; `None` if it would be longer.
    #[must_use]
    pub fn encode(&self, bytes_max: usize) -> Option<Vec<u8>> {
        let mut writer = Writer::new(self.id, self.flags, bytes_max);
        let sections = [
            (Section::Answer, &self.answers),
            (Section::Authority, &self.authorities),
            (Section::Additional, &self.additionals),
        ];
        let mut all = sections.into_iter().flat_map(|(section, records)| records.iter().map(move |one| (section, one)));
        let is_whole = self.questions.iter().all(|question| writer.question(question))
            && all.all(|(section, record)| writer.record(section, record));
        is_whole.then(|| writer.finish())
    }
}
