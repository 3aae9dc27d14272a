//! The ledger of a running pattern: the messages sent, with their time, and their deliveries.
//!
//! A **lane** is a sequence of numbered messages: those of one publisher or, if payloads are too short for a stamp,
//! those of one topic, where the n-th arrival counts as the n-th message. Times are nanoseconds since the start of the
//! pattern. A message that arrives in order costs a few instructions.

mod followed;
mod row;
mod seen;

use std::collections::BTreeMap;

pub(crate) use self::followed::{Followed, Topics};
use self::row::Row;
use self::seen::{Kind, Seen};
use super::content::{ALTERED, Content};
use super::live::Sample;
use super::slices::Slices;
use super::stamp::Stamp;
use crate::driver::{Answer, Arrival};
use crate::outcome::Outcome;

/// Of `Outcome::per_tenth`.
const TENTH_NS: u64 = 100_000_000;
/// Tenths that are kept: more than a day. A clock gone mad must not fill the memory.
const TENTHS_MAX: usize = 1_000_000;

/// The texts of errors for messages that nobody has sent to their subscriber.
const NOBODYS: &str = "a message that nobody has sent";
const MISROUTED: &str = "a message that was sent to another topic than its subscriber follows";
const MISNAMED: &str = "a message under another topic than it was sent to";

/// The row of messages of one publisher, or of one topic.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// The number of the next message.
    next: u32,
    /// Numbers below were sent before the measurement began.
    measured_from: u32,
    /// Numbers from and below these were sent while all subscribers were away, or some of them still.
    storm: (u32, u32),
    /// Where a new due time begins: messages of one turn share theirs.
    batches: Vec<Batch>,
    /// Deliveries that one message should cause.
    fan_out: u32,
    /// Deliveries that have not come yet.
    outstanding: u64,
    /// Messages that have not been answered yet.
    unanswered: u64,
    /// Where in the batches the last one was found that was answered.
    answered: usize,
}

#[derive(Clone, Copy, Debug)]
struct Batch {
    first: u32,
    due_ns: u64,
}

/// One subscriber.
#[derive(Debug, Default)]
struct Reader {
    /// Lanes of which messages may come.
    followed: Followed,
    lanes: BTreeMap<u32, Seen>,
    /// The lane of the last message, which is mostly that of the next.
    current: Option<(u32, Seen)>,
    /// The only lane, where payloads bear no stamp.
    unstamped: Option<u32>,
    /// Whether its protocol may leave out values that are superseded.
    conflates: bool,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    lanes: Vec<Lane>,
    readers: Vec<Reader>,
    content: Content,
    stamp: Stamp,
    /// The topics that messages have to name, where their protocol has them named.
    topics: Option<Topics>,
    outcome: Outcome,
    /// Of the measured operations, those that have not been answered.
    unanswered: u64,
    /// When the measurement began; none: it has not.
    began_ns: Option<u64>,
    last_ns: u64,
    /// The length of a slice, where the rate changes.
    slice_ns: Option<u64>,
    slices: Slices,
    /// Messages of the storm: expected, delivered and doubled.
    meanwhile: [u64; 3],
    /// Deliveries that were still to come when it began.
    under_way: u64,
    is_storm: bool,
    /// Of deliveries and of answers, what is not yet in the histogram.
    deliveries: Row,
    answers: Row,
}

impl Ledger {
    /// A ledger with this many lanes, of messages with this content.
    pub(crate) fn new(lanes: u32, content: Content) -> Self {
        let lanes = std::iter::repeat_with(Lane::default).take(usize::try_from(lanes).unwrap_or_default()).collect();
        Self { lanes, content, ..Self::default() }
    }

    /// Messages bear stamps of this kind.
    pub(crate) fn stamped(&mut self, stamp: Stamp) {
        self.stamp = stamp;
    }

    /// Messages come on these topics.
    pub(crate) fn named(&mut self, topics: Topics) {
        self.topics = Some(topics);
    }

    /// Counts by slices of this length, too.
    pub(crate) fn slice(&mut self, slice_ns: Option<u64>) {
        self.slice_ns = slice_ns;
    }

    /// One more subscriber, who follows these lanes. Returns its place.
    pub(crate) fn add_reader(&mut self, followed: Followed, stamped: bool, conflates: bool) -> usize {
        for place in followed.of(self.lanes.len()) {
            if let Some(lane) = self.lanes.get_mut(place) {
                lane.fan_out += 1;
            }
        }
        let unstamped = Some(followed.first()).filter(|_| !stamped);
        self.readers.push(Reader { followed, unstamped, conflates, ..Reader::default() });
        self.readers.len() - 1
    }

    fn lane_mut(&mut self, lane: u32) -> Option<&mut Lane> {
        self.lanes.get_mut(usize::try_from(lane).ok()?)
    }

    fn lane(&self, lane: u32) -> Option<&Lane> {
        self.lanes.get(usize::try_from(lane).ok()?)
    }

    /// From now on everything counts.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        (self.deliveries, self.answers) = (Row::default(), Row::default());
        (self.outcome, self.unanswered) = (Outcome::default(), 0);
        self.began_ns = Some(now_ns);
        self.slices = Slices::of(self.slice_ns, now_ns);
        self.last_ns = now_ns;
        for lane in &mut self.lanes {
            lane.measured_from = lane.next;
        }
    }

    /// How long after the beginning of the measurement that is, in nanoseconds; nothing before it.
    pub(crate) fn since_began(&self, now_ns: u64) -> Option<u64> {
        self.began_ns.map(|began| now_ns.saturating_sub(began))
    }

    /// Deliveries of this lane that are still to come.
    pub(crate) fn outstanding(&self, lane: u32) -> u64 {
        self.lane(lane).map_or(0, |lane| lane.outstanding)
    }

    /// How many deliveries one message of this lane makes.
    pub(crate) fn fan_out(&self, lane: u32) -> u32 {
        self.lane(lane).map_or(0, |lane| lane.fan_out)
    }

    /// A message goes out that was due then. Returns its number.
    pub(crate) fn send(&mut self, lane: u32, due_ns: u64) -> u32 {
        let measuring = self.began_ns.is_some();
        let Some(lane) = self.lane_mut(lane) else { return 0 };
        let number = lane.next;
        lane.next += 1;
        if lane.unanswered == 0 && lane.fan_out == 0 {
            // Nobody will ask when the ones before were due: a loop of requests leaves nothing behind.
            lane.batches.clear();
            lane.answered = 0;
        }
        lane.unanswered += 1;
        lane.outstanding += u64::from(lane.fan_out);
        if lane.batches.last().is_none_or(|batch| batch.due_ns != due_ns) {
            lane.batches.push(Batch { first: number, due_ns });
        }
        if measuring {
            let fan_out = lane.fan_out;
            self.outcome.sent += 1;
            self.unanswered += 1;
            self.outcome.expected += u64::from(fan_out);
            self.slices.expect(due_ns, u64::from(fan_out));
            if self.is_storm {
                self.meanwhile[0] += u64::from(fan_out);
            }
        }
        number
    }

    /// All subscribers have left.
    pub(crate) fn storm(&mut self) {
        self.is_storm = true;
        self.under_way = self.lanes.iter().map(|lane| lane.outstanding).sum();
        self.lanes.iter_mut().for_each(|lane| lane.storm = (lane.next, u32::MAX));
    }

    /// All of them are back.
    pub(crate) fn calm(&mut self) {
        self.is_storm = false;
        self.lanes.iter_mut().for_each(|lane| lane.storm.1 = lane.next);
    }

    /// Messages of the storm: expected, delivered and doubled.
    pub(crate) fn meanwhile(&self) -> [u64; 3] {
        self.meanwhile
    }

    /// Deliveries that were still to come when the storm began.
    pub(crate) fn under_way(&self) -> u64 {
        self.under_way
    }

    /// An operation begins that comes at a rate.
    pub(crate) fn begun(&mut self, due_ns: u64, now_ns: u64) {
        if self.began_ns.is_some() {
            self.slices.begun(due_ns, now_ns);
        }
    }

    /// The slices, for operations that are counted elsewhere.
    pub(crate) fn slices(&mut self) -> &mut Slices {
        &mut self.slices
    }

    /// A message was answered; `is_end` where nothing more comes of it.
    pub(crate) fn answered(&mut self, lane: u32, number: u32, answer: Answer<'_>, now_ns: u64, is_end: bool) {
        let measuring = self.began_ns.is_some();
        let Some(lane) = self.lane_mut(lane) else { return };
        lane.unanswered = lane.unanswered.saturating_sub(1);
        if !measuring || number < lane.measured_from {
            return;
        }
        let due_ns;
        (due_ns, lane.answered) = lane.due(number, Some(lane.answered));
        self.unanswered = self.unanswered.saturating_sub(1);
        match answer {
            Answer::Success(_) => {
                self.outcome.acknowledged += 1;
                let latency_ns = now_ns.saturating_sub(due_ns).max(1);
                self.answers.add(latency_ns, &mut self.outcome.answer);
                self.slices.acknowledged(due_ns, is_end.then_some(latency_ns));
                if is_end {
                    self.tick(now_ns);
                }
            }
            Answer::Refused(why) => self.refused(due_ns, why),
            Answer::Lost => self.refused(due_ns, "no answer in the time that the protocol gives"),
        }
        self.last_ns = self.last_ns.max(now_ns);
    }

    fn refused(&mut self, due_ns: u64, why: &str) {
        self.slices.failed(due_ns);
        self.failed(why);
    }

    /// Something went wrong with an operation.
    pub(crate) fn failed(&mut self, why: &str) {
        self.outcome.errors += 1;
        self.outcome.first_error.get_or_insert_with(|| why.to_owned());
    }

    /// A connection ended before it should.
    pub(crate) fn disconnected(&mut self, why: &str) {
        self.outcome.disconnects += 1;
        self.outcome.first_error.get_or_insert_with(|| why.to_owned());
    }

    /// A message arrived. Returns whether it was one of ours. One that nobody has sent to this subscriber, and one with
    /// another payload than was sent, is an error, and not delivered.
    pub(crate) fn arrived(&mut self, reader: usize, arrival: Arrival<'_>, now_ns: u64) -> bool {
        let Arrival { topic, is_kept, payload } = arrival;
        let Some(reader) = self.readers.get_mut(reader) else { return false };
        let stamped = match reader.unstamped {
            Some(lane) => Some((lane, reader.seen(lane).next)),
            None => self.stamp.read(payload),
        };
        let lane = stamped.and_then(|(lane, number)| {
            let known = self.lanes.get_mut(usize::try_from(lane).ok()?)?;
            (number < known.next).then_some((known, lane, number))
        });
        let Some((lane, lane_number, number)) = lane else {
            // A message that was kept is from before this repetition, or for those who ask.
            if self.began_ns.is_some() && !is_kept && !self.content.is_kept(payload) {
                self.unknown(stamped.is_some(), payload);
            }
            return false;
        };
        let is_measured = self.began_ns.is_some() && number >= lane.measured_from;
        if !self.content.is(payload) {
            if is_measured {
                self.failed(ALTERED);
            }
            return true;
        }
        let is_misrouted = !reader.followed.has(lane_number);
        let is_named = |topics: &Topics| topic.is_none_or(|topic| topics.has(lane_number, topic));
        if is_misrouted || !self.topics.as_ref().is_none_or(is_named) {
            if is_measured {
                self.foreign(if is_misrouted { MISROUTED } else { MISNAMED });
            }
            return false;
        }
        let conflates = reader.conflates;
        let seen = reader.seen(lane_number);
        let (kind, skipped) = seen.take(number);
        let due_ns;
        (due_ns, seen.cursor) = lane.due(number, Some(seen.cursor));
        let settled = match kind {
            Kind::New => 1 + if conflates { u64::from(skipped) } else { 0 },
            Kind::Late => u64::from(!conflates),
            Kind::Duplicate => 0,
        };
        lane.outstanding = lane.outstanding.saturating_sub(settled);
        if !is_measured {
            return true;
        }
        let superseded = if conflates { u64::from(skipped.min(number - lane.measured_from)) } else { 0 };
        self.outcome.conflated += superseded;
        if kind == Kind::Late && conflates {
            self.outcome.conflated = self.outcome.conflated.saturating_sub(1);
        }
        if lane.storm.0 <= number && number < lane.storm.1 {
            let [_, delivered, duplicates] = &mut self.meanwhile;
            *(if kind == Kind::Duplicate { duplicates } else { delivered }) += 1;
        }
        self.count(kind, due_ns, now_ns);
        true
    }

    /// A message came that is none of those that were sent. It may be one of them, with a stamp that is damaged.
    fn unknown(&mut self, has_stamp: bool, payload: &[u8]) {
        if self.content.is_damaged(has_stamp, payload) { self.failed(ALTERED) } else { self.foreign(NOBODYS) }
    }

    /// A message came that nobody has sent to its subscriber.
    fn foreign(&mut self, why: &str) {
        self.outcome.foreign += 1;
        self.failed(why);
    }

    fn count(&mut self, kind: Kind, due_ns: u64, now_ns: u64) {
        match kind {
            Kind::Duplicate => {
                self.outcome.duplicates += 1;
                return;
            }
            Kind::New => {}
            Kind::Late => self.outcome.reordered += 1,
        }
        let latency_ns = now_ns.saturating_sub(due_ns).max(1);
        self.outcome.delivered += 1;
        self.slices.delivered(due_ns, latency_ns);
        self.deliveries.add(latency_ns, &mut self.outcome.delivery);
        self.tick(now_ns);
    }

    /// One more in its tenth of a second.
    fn tick(&mut self, now_ns: u64) {
        self.last_ns = self.last_ns.max(now_ns);
        let tenth = now_ns.saturating_sub(self.began_ns.unwrap_or(now_ns)) / TENTH_NS;
        let Some(tenth) = usize::try_from(tenth).ok().filter(|tenth| *tenth < TENTHS_MAX) else { return };
        if self.outcome.per_tenth.len() <= tenth {
            self.outcome.per_tenth.resize(tenth + 1, 0);
        }
        if let Some(count) = self.outcome.per_tenth.get_mut(tenth) {
            *count += 1;
        }
    }

    /// Whether everything that was sent has been delivered (or superseded), and when the last thing happened.
    pub(crate) fn settled(&self) -> (bool, u64) {
        (self.lanes.iter().all(|lane| lane.outstanding == 0), self.last_ns)
    }

    /// The counts of this moment; with the latency of deliveries, else of answers.
    pub(crate) fn sample(&self, delivers: bool, now_ns: u64) -> Sample {
        let Outcome { sent, acknowledged, delivered, errors, delivery, answer, .. } = &self.outcome;
        let latency = if delivers { delivery } else { answer };
        Sample {
            seconds: std::time::Duration::from_nanos(self.since_began(now_ns).unwrap_or_default()).as_secs_f64(),
            sent: *sent,
            acknowledged: *acknowledged,
            delivered: *delivered,
            errors: *errors,
            per_s: 0.0,
            latency_p50_us: latency.percentile_us(50.0),
            latency_p99_us: latency.percentile_us(99.0),
        }
    }

    /// Returns the counts since the measurement began.
    pub(crate) fn finish(&mut self) -> Outcome {
        self.deliveries.flush(&mut self.outcome.delivery);
        self.answers.flush(&mut self.outcome.answer);
        let mut outcome = std::mem::take(&mut self.outcome);
        outcome.slices = std::mem::take(&mut self.slices).finish();
        outcome.unanswered = self.unanswered;
        let began = self.began_ns.unwrap_or(self.last_ns);
        outcome.seconds = std::time::Duration::from_nanos(self.last_ns.saturating_sub(began)).as_secs_f64();
        outcome
    }
}

impl Lane {
    /// When a message was due, and where that was found.
    fn due(&self, number: u32, cursor: Option<usize>) -> (u64, usize) {
        let first = |place: usize| self.batches.get(place).map(|batch| batch.first);
        let near = cursor.filter(|cursor| {
            first(*cursor).is_some_and(|first| first <= number) && first(cursor + 2).is_none_or(|first| first > number)
        });
        let place = match near {
            Some(cursor) if first(cursor + 1).is_some_and(|first| first <= number) => cursor + 1,
            Some(cursor) => cursor,
            None => self.batches.partition_point(|batch| batch.first <= number).saturating_sub(1),
        };
        (self.batches.get(place).map_or(0, |batch| batch.due_ns), place)
    }
}

impl Reader {
    fn seen(&mut self, lane: u32) -> &mut Seen {
        if self.current.as_ref().is_none_or(|(of, _)| *of != lane) {
            let next = self.lanes.remove(&lane).unwrap_or_default();
            if let Some((of, seen)) = self.current.replace((lane, next)) {
                self.lanes.insert(of, seen);
            }
        }
        &mut self.current.get_or_insert_with(|| (lane, Seen::default())).1
    }
}

#[cfg(test)]
mod tests;
