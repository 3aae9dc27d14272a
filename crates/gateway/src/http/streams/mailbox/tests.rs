use std::collections::{BTreeMap, BTreeSet};

use fogmux_bus::{Meaning, Payload, Publisher, Timestamp, TopicRef};
use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { messages: 8, bytes: 4096, all_bytes: 1 << 20 };
const DELIVERY: Delivery<'_> = Delivery {
    tag: 0,
    max_qos: Qos::ExactlyOnce,
    retain_as_published: true,
    ids: &[],
    shared: false,
    topic: None,
    held: 0,
    copy: None,
    gather: None,
};
const PORTION: Portion = Portion { messages: 3, bytes: 1000 };

fn mailbox() -> StreamMailbox {
    StreamMailbox::new(LIMITS, Arc::default(), None)
}

fn publish(mailbox: &mut StreamMailbox, topic: &str, payload: &[u8], retain: bool) -> Arc<Message> {
    let publisher = Publisher::internal();
    let topic = TopicRef::new(topic).unwrap();
    let mut publication = Publication::new(topic, Payload::Slice(payload), &publisher, Timestamp::ZERO, 0);
    publication.meaning = Meaning::of_flag(retain, payload);
    mailbox.deliver(&publication, &DELIVERY);
    Arc::clone(publication.share())
}

fn deliver(mailbox: &mut StreamMailbox, payload: &[u8]) {
    publish(mailbox, "a", payload, false);
}

fn take(mailbox: &mut StreamMailbox) -> Option<(u64, u8)> {
    mailbox.take().map(|taken| (taken.sequence, taken.message.payload[0]))
}

fn gap(sequence: u64, missed: u64) -> Option<Gap> {
    Some(Gap { sequence, missed: Some(missed) })
}

#[test]
fn a_reader_that_comes_back_gets_what_it_has_not_seen() {
    let mut mailbox = mailbox();
    for n in 1..=3 {
        deliver(&mut mailbox, &[n]);
    }
    assert_eq!(take(&mut mailbox), Some((1, 1)));
    assert_eq!(take(&mut mailbox), Some((2, 2)));
    assert!(mailbox.rewind(1));
    deliver(&mut mailbox, &[4]);
    let rest: Vec<_> = std::iter::from_fn(|| take(&mut mailbox)).collect();
    assert_eq!(rest, [(2, 2), (3, 3), (4, 4)]);
    assert_eq!(mailbox.take_gap(), None);
    assert!(!mailbox.rewind(5), "the fifth was never sent");
    assert!(mailbox.rewind(4));
}

#[test]
fn a_slow_reader_loses_the_oldest_and_learns_how_many() {
    let mut mailbox = mailbox();
    for n in 1..=12 {
        deliver(&mut mailbox, &[n]);
    }
    assert_eq!(mailbox.take_gap(), gap(4, 4));
    assert_eq!(take(&mut mailbox), Some((5, 5)));
    assert!(mailbox.rewind(0), "the reader has never received the gap");
    assert_eq!(mailbox.take_gap(), gap(4, 4));
    assert!(mailbox.rewind(4), "now it has");
    assert_eq!((mailbox.take_gap(), take(&mut mailbox)), (None, Some((5, 5))));
}

#[test]
fn what_was_sent_makes_room_first() {
    let mut mailbox = mailbox();
    for n in 1..=8 {
        deliver(&mut mailbox, &[n]);
    }
    while take(&mut mailbox).is_some() {}
    for n in 9..=16 {
        deliver(&mut mailbox, &[n]);
    }
    assert_eq!(mailbox.take_gap(), None);
    assert!(mailbox.rewind(2));
    assert_eq!(mailbox.take_gap(), gap(8, 6), "the third to the eighth are gone");
    assert_eq!(take(&mut mailbox), Some((9, 9)));
}

#[test]
fn a_message_above_the_limit_still_arrives() {
    let mut mailbox = mailbox();
    deliver(&mut mailbox, &[1]);
    deliver(&mut mailbox, &[2; 10_000]);
    assert_eq!(mailbox.take_gap(), gap(1, 1));
    assert_eq!(take(&mut mailbox), Some((2, 2)));
}

#[test]
fn an_empty_queue_gives_its_memory_back() {
    let limits = Limits { messages: 1000, bytes: 1 << 20, all_bytes: 1 << 20 };
    let mut mailbox = StreamMailbox::new(limits, Arc::default(), None);
    for _ in 0..500 {
        deliver(&mut mailbox, &[1]);
    }
    while mailbox.take().is_some() {}
    assert!(mailbox.waiting.capacity() <= SPARE_PLACES);
}

/// A reader behind a connection that may break: what was sent and not received is lost.
#[derive(Default)]
struct Reader {
    under_way: VecDeque<Event>,
    /// The number received last.
    at: u64,
}

enum Event {
    Gap(Gap),
    Message { sequence: u64, topic: Topic, value: u64, retain: bool },
}

impl Reader {
    fn send(&mut self, taken: impl IntoIterator<Item = Taken>) {
        self.under_way.extend(taken.into_iter().map(|taken| Event::Message {
            sequence: taken.sequence,
            topic: taken.message.topic.clone(),
            value: u64::from_be_bytes(taken.message.payload[..8].try_into().unwrap()),
            retain: taken.message.meaning.is_state(),
        }));
    }

    fn receive(&mut self) -> Option<Event> {
        let event = self.under_way.pop_front()?;
        let sequence = match &event {
            Event::Gap(gap) => gap.sequence,
            Event::Message { sequence, .. } => *sequence,
        };
        assert!(sequence > self.at, "numbers grow");
        self.at = sequence;
        Some(event)
    }

    fn come_back(&mut self, mailbox: &mut StreamMailbox) {
        self.under_way.clear();
        assert!(mailbox.rewind(self.at));
    }
}

fn check_bounds(mailbox: &StreamMailbox) {
    let items = mailbox.sent.iter().chain(&mailbox.waiting).map(Item::bytes).sum::<usize>();
    assert_eq!(mailbox.bytes, items);
    assert_eq!(mailbox.all.load(Relaxed), mailbox.bytes);
}

proptest! {
    #[test]
    fn every_message_is_received_or_its_loss_is(
        steps in prop::collection::vec((0_u8..6, 0_usize..1500), 0..200),
    ) {
        let mut mailbox = mailbox();
        let mut reader = Reader::default();
        let mut published = 0_u64;
        let mut accounted = 0_u64;
        let count = |event: Event, accounted: &mut u64| match event {
            Event::Gap(gap) => {
                let missed = gap.missed.expect("without retained messages the number is known");
                assert_eq!(gap.sequence - missed, *accounted, "the gap is where messages are missing");
                *accounted = gap.sequence;
            }
            Event::Message { sequence, value, .. } => {
                assert_eq!((sequence, value), (*accounted + 1, *accounted + 1), "nothing is missing before it");
                *accounted += 1;
            }
        };
        for (what, size) in steps {
            match what {
                0 | 1 => {
                    published += 1;
                    let mut payload = published.to_be_bytes().to_vec();
                    payload.resize(8 + size, 7);
                    deliver(&mut mailbox, &payload);
                }
                2 | 3 => {
                    reader.under_way.extend(mailbox.take_gap().map(Event::Gap));
                    reader.send(mailbox.take_some(PORTION));
                }
                4 => {
                    reader.receive().into_iter().for_each(|event| count(event, &mut accounted));
                }
                _ => reader.come_back(&mut mailbox),
            }
            prop_assert!(mailbox.sent.len() + mailbox.waiting.len() <= LIMITS.messages);
            prop_assert!(mailbox.bytes <= LIMITS.bytes || mailbox.sent.len() + mailbox.waiting.len() == 1);
            check_bounds(&mailbox);
        }
        while mailbox.has_output() {
            reader.under_way.extend(mailbox.take_gap().map(Event::Gap));
            reader.send(mailbox.take_some(PORTION));
        }
        while let Some(event) = reader.receive() {
            count(event, &mut accounted);
        }
        prop_assert_eq!(accounted, published);
    }

    /// Convergence: whatever is published meanwhile and however often the connection breaks, in the end the reader
    /// holds the retained value of every topic, or has been told that something is missing.
    #[test]
    fn the_walk_ends_and_the_reader_holds_what_is_retained(
        retained in 0_usize..40,
        steps in prop::collection::vec((0_u8..8, 0_usize..40, 1_usize..12), 0..300),
    ) {
        let limits = Limits { messages: 24, bytes: 4096, all_bytes: 1 << 20 };
        let mut world: BTreeMap<Topic, Arc<Message>> = BTreeMap::new();
        let mut version = 0_u64;
        let mut value = |size: usize| {
            version += 1;
            let mut payload = version.to_be_bytes().to_vec();
            payload.resize(8 + size, 0);
            payload
        };
        for number in 0..retained {
            let message = publish(&mut self::mailbox(), &format!("t/{number:02}"), &value(number * 5), true);
            world.insert(message.topic.clone(), message);
        }
        let mut mailbox = StreamMailbox::new(limits, Arc::default(), Some(Place::default()));
        let mut reader = Reader::default();
        let mut held: BTreeMap<Topic, u64> = BTreeMap::new();
        let mut told = false;
        let mut published = BTreeSet::new();
        // Up to `size` messages are looked up; the lookup and the rest of the turn are steps of their own.
        let look_up = |world: &BTreeMap<Topic, Arc<Message>>, place: Option<&Place>, size: usize| {
            let place = place?.clone();
            let behind = |topic: &&Topic| place.after.as_ref().is_none_or(|after| *topic > after);
            let all: Vec<&Topic> = world.keys().filter(behind).collect();
            let messages: Vec<_> = all.iter().take(size).map(|topic| Arc::clone(&world[*topic])).collect();
            let next = (all.len() > messages.len()).then(|| Place {
                after: messages.last().map(|message| message.topic.clone()),
                ..place.clone()
            });
            Some(Chunk { place, messages, next })
        };
        let turn = |mailbox: &mut StreamMailbox, reader: &mut Reader, chunk: Option<Chunk>| {
            reader.under_way.extend(mailbox.take_gap().map(Event::Gap));
            let live = mailbox.take_some(PORTION);
            let retained = chunk.map(|chunk| mailbox.take_retained(&chunk, &live, PORTION, Qos::ExactlyOnce));
            reader.send(live);
            reader.send(retained.into_iter().flatten());
        };
        let mut chunk = None;
        for (what, number, size) in steps {
            match what {
                0 | 1 => {
                    let message =
                        publish(&mut mailbox, &format!("t/{number:02}"), &value(size * 10), what == 0);
                    if what == 0 {
                        published.insert(message.topic.clone());
                        world.insert(message.topic.clone(), message);
                    }
                }
                2 | 3 => chunk = look_up(&world, mailbox.place(), size),
                4 | 5 => turn(&mut mailbox, &mut reader, chunk.take()),
                6 => for _ in 0..size {
                    note(reader.receive(), &mut held, &mut told);
                },
                _ => reader.come_back(&mut mailbox),
            }
            check_bounds(&mailbox);
        }
        for round in 0.. {
            prop_assert!(round < 1000, "the walk does not end");
            let chunk = look_up(&world, mailbox.place(), 5);
            if !mailbox.has_output() { break; }
            turn(&mut mailbox, &mut reader, chunk);
        }
        while !reader.under_way.is_empty() {
            note(reader.receive(), &mut held, &mut told);
        }
        for (topic, message) in &world {
            let now = u64::from_be_bytes(message.payload[..8].try_into().unwrap());
            // A gap excuses messages that were published meanwhile, never the walk.
            let excused = told && published.contains(topic);
            prop_assert!(excused || held.get(topic) == Some(&now), "{topic:?}: {:?} for {now}", held.get(topic));
        }
    }
}

fn note(event: Option<Event>, held: &mut BTreeMap<Topic, u64>, told: &mut bool) {
    match event {
        Some(Event::Gap(_)) => *told = true,
        Some(Event::Message { topic, value, retain: true, .. }) => {
            held.insert(topic, value);
        }
        Some(Event::Message { .. }) | None => {}
    }
}
