//! Packs records into as few messages as have room for them.

use super::records::Entry;
use crate::encode::{Section, Writer};
use crate::message::{CLASS_IN, Flags, Kind, Question, Record};

/// The longest message that is sent: in one frame of Ethernet with the headers of IPv6 and UDP, and some to spare for
/// links with less (RFC 6762 §17).
const MESSAGE_BYTES: usize = 1400;

/// The longest answer to a legacy query: it may not know of longer ones (RFC 1035 §4.2.1).
const LEGACY_BYTES: usize = 512;
/// The longest lifetime in one, in seconds (RFC 6762 §6.7).
const LEGACY_TTL_MAX: u32 = 10;

/// The probes for all unique names: a question for each, with the records that it would have (RFC 6762 §8.1). They ask
/// for multicast answers, which is what the sockets of a gateway hear.
pub(super) fn probes(entries: &[Entry]) -> Vec<Vec<u8>> {
    let probed = entries.iter().filter(|entry| entry.is_unique() && !entry.is_denial());
    let mut names: Vec<Vec<&Record>> = Vec::new();
    for entry in probed {
        match names.iter_mut().find(|records| records.first().is_some_and(|first| first.name == entry.record.name)) {
            Some(records) => records.push(&entry.record),
            None => names.push(vec![&entry.record]),
        }
    }
    let mut packets = Vec::new();
    let mut rest = &names[..];
    while !rest.is_empty() {
        let fits = (1..=rest.len()).rev().find_map(|count| Some((count, probe(rest.get(..count)?)?)));
        let (count, packet) = fits.map_or((1, None), |(count, packet)| (count, Some(packet)));
        packets.extend(packet);
        rest = rest.get(count..).unwrap_or(&[]);
    }
    packets
}

/// One probe for these names, if it has room for all.
fn probe(names: &[Vec<&Record>]) -> Option<Vec<u8>> {
    let mut writer = Writer::new(0, Flags::QUERY, MESSAGE_BYTES);
    for first in names.iter().filter_map(|records| records.first()) {
        let question = Question { name: first.name.clone(), kind: Kind::ANY, class: CLASS_IN, unicast: false };
        if !writer.question(&question) {
            return None;
        }
    }
    // RFC 6762 §10.2: no cache-flush bit in a probe.
    let mut records = names.iter().flatten().map(|record| Record { flush: false, ..(*record).clone() });
    records.all(|record| writer.record(Section::Authority, &record)).then(|| writer.finish())
}

/// Responses with these answers, and with those additional records that there is room for in the last.
pub(super) fn answers(answers: &[Record], additionals: &[Record]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let mut writer = Writer::new(0, Flags::RESPONSE, MESSAGE_BYTES);
    for record in answers {
        if !writer.record(Section::Answer, record) && !writer.is_empty() {
            let next = Writer::new(0, Flags::RESPONSE, MESSAGE_BYTES);
            packets.push(std::mem::replace(&mut writer, next).finish());
            writer.record(Section::Answer, record);
        }
    }
    if writer.is_empty() {
        return packets;
    }
    for record in additionals {
        writer.record(Section::Additional, record);
    }
    packets.push(writer.finish());
    packets
}

/// The answer to a legacy query (RFC 6762 §6.7): the query's identifier and questions, short lifetimes, and no
/// cache-flush bits. It is cut to what such a client takes.
pub(super) fn legacy(id: u16, questions: &[Question], answers: &[Record], additionals: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(id, Flags::RESPONSE, LEGACY_BYTES);
    let mut is_whole = true;
    for question in questions {
        is_whole &= writer.question(&Question { unicast: false, ..question.clone() });
    }
    let short = |record: &Record| Record { flush: false, ttl: record.ttl.min(LEGACY_TTL_MAX), ..record.clone() };
    for record in answers {
        is_whole &= writer.record(Section::Answer, &short(record));
    }
    for record in additionals {
        writer.record(Section::Additional, &short(record));
    }
    if !is_whole {
        writer.truncate();
    }
    writer.finish()
}
