//! Answers: which records a question asks for, when they are multicast, and which records go along (RFC 6762 §6,
//! RFC 6763 §12).

use std::net::SocketAddr;

use fogmux_time::Timestamp;

use super::{PORT, Transmit, Verdict, hosts::Hosts, link::Link, packet, records::Entry};
use crate::message::{CLASS_ANY, CLASS_IN, Data, Kind, Message, Question, Record};
use crate::random::Random;

/// The delay of an answer that other hosts may give at the same time (RFC 6762 §6), in milliseconds.
const SHARED_MS: (u64, u64) = (20, 120);
/// The delay of an answer to a query of which more known answers come (RFC 6762 §7.2), in milliseconds.
const TRUNCATED_MS: (u64, u64) = (400, 500);

/// Questions of one message that are read.
const QUESTIONS_MAX: usize = 64;

/// How a record is asked for in a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Unicast,
    Multicast,
}

/// Answers the questions of a query, now by unicast or later by multicast.
pub(super) fn query(
    link: &mut Link,
    now: Timestamp,
    from: SocketAddr,
    query: &Message,
    (hosts, random): (&mut Hosts, &mut Random),
) -> (Verdict, Option<Transmit>) {
    if !link.is_claimed() {
        return (Verdict::Heard, None);
    }
    if query.questions.is_empty() {
        more_known_answers(link, from, &query.answers);
        return (Verdict::Heard, None);
    }
    let questions = query.questions.get(..QUESTIONS_MAX).unwrap_or(&query.questions);
    let is_legacy = from.port() != PORT;
    let wanted: Vec<Option<Wanted>> = wanted(&link.entries, questions, is_legacy)
        .zip(&link.entries)
        .map(|(wanted, entry)| wanted.filter(|_| !is_known_answer(entry, &query.answers)))
        .collect();
    if wanted.iter().all(Option::is_none) {
        return (Verdict::Heard, None);
    }
    let is_defence = !query.authorities.is_empty();
    let is_multicast = |(wanted, entry): (&Option<Wanted>, &Entry)| match wanted {
        Some(Wanted::Multicast) => true,
        // RFC 6762 §5.4: now and then all shall hear it. A name is always defended before all: programs that share the
        // port with others of their machine may not get what is sent to them alone.
        Some(Wanted::Unicast) => !is_legacy && (is_defence || !entry.is_known(now)),
        None => false,
    };
    let multicast: Vec<bool> = wanted.iter().zip(&link.entries).map(is_multicast).collect();
    let unicast: Vec<bool> = wanted.iter().zip(&multicast).map(|(wanted, all)| wanted.is_some() && !all).collect();
    let is_shared = multicast.iter().zip(&link.entries).any(|(chosen, entry)| *chosen && !entry.is_unique());
    let (least, most) = match (query.flags.is_truncated(), is_shared && !is_defence) {
        (true, _) => TRUNCATED_MS,
        (false, true) => SHARED_MS,
        (false, false) => (0, 0),
    };
    let due = now + random.millis(least, most);
    for (entry, _) in link.entries.iter_mut().zip(&multicast).filter(|(_, chosen)| **chosen) {
        let at = due.max(entry.earliest(is_defence));
        entry.asker = entry.due.is_none_or(|_| entry.asker == Some(from.ip())).then(|| from.ip());
        entry.due = Some(entry.due.map_or(at, |before| before.min(at)));
    }
    if !unicast.contains(&true) {
        return (Verdict::Answered, None);
    }
    if !hosts.admit(now, from.ip()) {
        return (Verdict::Limited, None);
    }
    let answers = chosen(&link.entries, &unicast);
    let additionals = additionals(&link.entries, &unicast, |_| true);
    let bytes = match is_legacy {
        true => Some(packet::legacy(query.id, questions, &answers, &additionals)),
        // Answers in a second message would be more than the question is worth.
        false => packet::answers(&answers, &additionals).into_iter().next(),
    };
    (Verdict::Answered, bytes.map(|bytes| Transmit { link: link.id, to: Some(from), bytes }))
}

/// Returns what is multicast now.
pub(super) fn due(link: &mut Link, now: Timestamp) -> Vec<Transmit> {
    let due: Vec<bool> = link.entries.iter().map(|entry| entry.due.is_some_and(|due| due <= now)).collect();
    if !due.contains(&true) {
        return Vec::new();
    }
    let answers = chosen(&link.entries, &due);
    let additionals = additionals(&link.entries, &due, |entry| entry.earliest(false) <= now);
    for entry in &mut link.entries {
        let is_sent = |records: &[Record]| records.iter().any(|record| entry.says(record));
        if is_sent(&answers) || is_sent(&additionals) {
            (entry.multicast, entry.due, entry.asker) = (Some(now), None, None);
        }
    }
    link.to_all(packet::answers(&answers, &additionals))
}

/// How each record is asked for by these questions.
fn wanted<'a>(
    entries: &'a [Entry],
    questions: &'a [Question],
    is_legacy: bool,
) -> impl Iterator<Item = Option<Wanted>> + 'a {
    entries.iter().map(move |entry| {
        let asked = questions.iter().filter(|question| asks(question, entry, entries, is_legacy));
        asked.fold(None, |before, question| match (before, question.unicast || is_legacy) {
            (Some(Wanted::Multicast), _) | (_, false) => Some(Wanted::Multicast),
            (Some(Wanted::Unicast) | None, true) => Some(Wanted::Unicast),
        })
    })
}

/// Whether a question asks for a record: by its type, for all, or for one that its name has not (RFC 6762 §6.1).
fn asks(question: &Question, entry: &Entry, entries: &[Entry], is_legacy: bool) -> bool {
    let is_of_class = matches!(question.class, CLASS_IN | CLASS_ANY);
    if !is_of_class || question.name != entry.record.name {
        return false;
    }
    let kind = entry.record.data.kind();
    if !entry.is_denial() {
        return question.kind == kind || question.kind == Kind::ANY;
    }
    let has = |other: &Entry| other.record.data.kind() == question.kind && other.record.name == question.name;
    !is_legacy && question.kind != Kind::ANY && (question.kind == Kind::NSEC || !entries.iter().any(has))
}

/// Whether the asker knows a record for at least half of its lifetime (RFC 6762 §7.1).
fn is_known_answer(entry: &Entry, known: &[Record]) -> bool {
    known.iter().any(|known| known.ttl >= entry.record.ttl / 2 && entry.says(known))
}

/// Takes more known answers of a host into account (RFC 6762 §7.2).
fn more_known_answers(link: &mut Link, from: SocketAddr, known: &[Record]) {
    let asked_by_it = |entry: &&mut Entry| entry.due.is_some() && entry.asker == Some(from.ip());
    for entry in link.entries.iter_mut().filter(asked_by_it) {
        if is_known_answer(entry, known) {
            entry.due = None;
        }
    }
}

fn chosen(entries: &[Entry], chosen: &[bool]) -> Vec<Record> {
    entries.iter().zip(chosen).filter(|(_, chosen)| **chosen).map(|(entry, _)| entry.record.clone()).collect()
}

/// Records that a client asks for next: the service and text of an instance, the addresses of a host (RFC 6763 §12).
fn additionals(entries: &[Entry], chosen: &[bool], may: impl Fn(&Entry) -> bool) -> Vec<Record> {
    let mut taken = chosen.to_vec();
    let mut added = Vec::new();
    // Twice: from a pointer to the service, from the service to the host.
    for _ in 0..2 {
        let sources: Vec<&Entry> =
            entries.iter().zip(&taken).filter(|(_, taken)| **taken).map(|(one, _)| one).collect();
        let leads =
            |entry: &Entry| sources.iter().any(|source| target(source).is_some_and(|to| *to == entry.record.name));
        let more: Vec<bool> = entries
            .iter()
            .zip(&taken)
            .map(|(entry, taken)| !taken && entry.is_unique() && !entry.is_denial() && leads(entry) && may(entry))
            .collect();
        for ((entry, taken), _) in entries.iter().zip(&mut taken).zip(&more).filter(|(_, more)| **more) {
            *taken = true;
            added.push(entry.record.clone());
        }
    }
    added
}

/// The name that a record leads to.
const fn target(entry: &Entry) -> Option<&crate::Name> {
    match &entry.record.data {
        Data::Ptr(name) | Data::Srv { target: name, .. } => Some(name),
        Data::A(_) | Data::Aaaa(_) | Data::Txt(_) | Data::Nsec { .. } | Data::Other { .. } => None,
    }
}
