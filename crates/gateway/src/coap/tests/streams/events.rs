//! Large messages that are not retained: an observer gets the newest of each topic, or is told 5.03.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Messages, each on a topic of its own.
const MESSAGES: u8 = 97;
const BYTES: usize = 1_000_000;

fn topic(number: u8) -> String {
    format!("event{number}")
}

/// A client of observations, each of a topic or of all.
struct Observer {
    wire: Wire,
    /// Of each event that is not whole yet, the bytes that are there.
    parts: BTreeMap<u8, Vec<u8>>,
    /// Events whose next block was asked for.
    asked: BTreeSet<u8>,
    whole: BTreeSet<u8>,
    /// Observations that have ended with 5.03.
    ended: BTreeSet<Vec<u8>>,
    /// Rests that it fetches at a time.
    at_once: usize,
}

impl Observer {
    async fn of(house: &House, at_once: usize) -> Self {
        let (wire, parts) = (house.settled().await, BTreeMap::new());
        let (asked, whole, ended) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Self { wire, parts, asked, whole, ended, at_once }
    }

    async fn observe(&mut self, token: &[u8], options: &[(u16, &[u8])]) {
        let mut all = vec![(6, &b""[..]), (11, b"ps")];
        all.extend(options);
        self.wire.send(&frame(Code::GET, token, &all, b"")).await;
        assert_eq!(self.wire.next().await.unwrap().code, Code::CONTENT);
    }

    async fn ask_for_more(&mut self) {
        while self.asked.len() < self.at_once {
            let next = self.parts.iter().find(|(number, _)| !self.asked.contains(number));
            let Some((number, part)) = next.map(|(number, part)| (*number, part.len())) else { return };
            let number_of_block = u32::try_from(part / 1024).unwrap();
            let block = Block { number: number_of_block, more: false, size: BlockSize::BERT }.encode().to_be_bytes();
            let topic = topic(number);
            let options: [(u16, &[u8]); 3] = [(11, b"ps"), (11, topic.as_bytes()), (23, &block[1..])];
            self.wire.send(&frame(Code::GET, &[b'f', number], &options, b"")).await;
            self.asked.insert(number);
        }
    }

    /// Takes the next message.
    async fn step(&mut self) {
        let came = self.wire.next().await.unwrap();
        match came.token.as_slice() {
            [b'f', number] => {
                self.asked.remove(number);
                assert_eq!(came.code, Code::CONTENT, "the rest of event {number} is gone");
                self.take(*number, &came);
            }
            token if came.code == Code::SERVICE_UNAVAILABLE => {
                self.ended.insert(token.to_vec());
            }
            _ => {
                let number = came.payload()[0];
                self.parts.insert(number, Vec::new());
                self.take(number, &came);
            }
        }
        self.ask_for_more().await;
    }

    fn take(&mut self, number: u8, came: &Came) {
        let part = self.parts.get_mut(&number).unwrap();
        part.extend(came.payload());
        let block = came.option(23).unwrap().iter().fold(0, |sum, byte| (sum << 8) | u32::from(*byte));
        if !Block::decode_reliable(block).more {
            assert_eq!(self.parts.remove(&number), Some(vec![number; BYTES]));
            self.whole.insert(number);
        }
    }

    /// Goes on until each event is whole, or its observation has ended and nothing more is fetched.
    async fn finish(mut self, token_of: impl Fn(u8) -> Vec<u8>) -> (usize, usize) {
        let is_told =
            |observer: &Self, number| observer.whole.contains(&number) || observer.ended.contains(&token_of(number));
        while !(0..MESSAGES).all(|number| is_told(&self, number)) || !self.parts.is_empty() {
            let step = timeout(Duration::from_secs(8), self.step()).await;
            let missing: Vec<u8> = (0..MESSAGES).filter(|number| !is_told(&self, *number)).collect();
            assert!(step.is_ok(), "nothing more comes: {missing:?} are missing, {} whole", self.whole.len());
        }
        (self.whole.len(), self.ended.len())
    }
}

/// The behaviour of the clients while messages come.
#[derive(PartialEq)]
enum Meanwhile {
    /// They read.
    Read,
    /// They do not.
    Wait,
}

/// Publishes, with so many turns between two messages.
async fn publish(house: &House, turns: usize) {
    for number in 0..MESSAGES {
        house.publish(&topic(number), &vec![number; BYTES], None);
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }
}

fn events(turns: usize, meanwhile: Meanwhile, at_once: usize) {
    run(CoapConfig::default(), true, async |house| {
        let (mut all, mut each) = (Observer::of(&house, at_once).await, Observer::of(&house, at_once).await);
        all.observe(b"all", &[(15, b"filter=#")]).await;
        for number in 0..MESSAGES {
            each.observe(&[b'o', number], &[(11, topic(number).as_bytes())]).await;
        }
        if meanwhile == Meanwhile::Wait {
            publish(&house, turns).await;
        }
        let all = tokio::task::spawn_local(all.finish(|_| b"all".to_vec()));
        let each = tokio::task::spawn_local(each.finish(|number| vec![b'o', number]));
        if meanwhile == Meanwhile::Read {
            publish(&house, turns).await;
        }
        let (all, each) = (all.await.unwrap(), each.await.unwrap());
        let lost = house.ctx.shared.metrics.coap_events_lost.get();
        println!("whole and ended: of all {all:?}, of each {each:?}; lost {lost}");
        assert_eq!(lost, 0);
    });
}

#[test]
fn s2_6_events_that_come_at_once_reach_each_observer_or_end_its_observation() {
    events(0, Meanwhile::Read, 4);
}

#[test]
fn s2_6_events_that_come_one_after_the_other_reach_each_observer_or_end_its_observation() {
    events(200, Meanwhile::Read, 4);
}

#[test]
fn s2_6_events_that_come_while_nobody_reads_reach_each_observer_or_end_its_observation() {
    events(20, Meanwhile::Wait, 1);
}

#[test]
fn s5_3_1_a_notification_is_no_longer_than_its_observer_takes_however_long_the_topic_is() {
    run(CoapConfig::default(), true, async |house| {
        let mut wire = house.wire().await;
        wire.send(&csm(&[])).await;
        assert_eq!(wire.next().await.unwrap().code, signal::CSM);
        let observe: [(u16, &[u8]); 3] = [(6, b""), (11, b"ps"), (15, b"filter=#")];
        wire.send(&frame(Code::GET, b"o", &observe, b"")).await;
        assert_eq!(wire.next().await.unwrap().code, Code::CONTENT);
        let long = ["x"; 4].map(|level| level.repeat(200)).join("/");
        house.publish(&long, &[7; 800], None);
        let told = timeout(Duration::from_secs(5), wire.next()).await.expect("nothing is told").unwrap();
        assert!(told.body.len() + 8 <= signal::MESSAGE_BYTES_BASE, "{}", told.body.len());
        assert!(told.option(23).is_some(), "the rest is fetched");
        assert!((1..800).contains(&told.payload().len()));
        // Of this one not even the name fits.
        house.publish(&[&*long, &*long].join("/"), b"1", None);
        house.publish("short", b"2", None);
        assert_eq!(wire.next().await.unwrap().payload(), b"2");
        assert_eq!(house.ctx.shared.metrics.coap_too_long.get(), 1);
    });
}
