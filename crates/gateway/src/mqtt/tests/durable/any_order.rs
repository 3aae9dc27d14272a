//! Whatever becomes of the disk, of connections and of the process: a message of QoS 2 that got PUBREC is delivered
//! once, and one that was refused is not.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const STEPS: usize = 120;
const SEEDS: u64 = 120;
const NAMES: [&str; 3] = ["writer", "one", "two"];
/// Of the tests' clock, of which there are 20 s.
const SECONDS_MAX: u32 = 8;

/// Splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).unwrap()
    }
}

/// A client that loses nothing. The first one publishes, the others subscribe.
#[derive(Default)]
struct Party {
    stream: Option<DuplexStream>,
    buffer: Vec<u8>,
    greeted: bool,
    /// Its messages that are not finished, and whether PUBREC has come.
    sent: BTreeMap<u16, (u16, bool)>,
    /// Messages that wait for PUBREL.
    received: BTreeMap<u16, u16>,
    got: Vec<u16>,
}

impl Party {
    fn leave(&mut self) {
        (self.stream, self.greeted) = (None, false);
        self.buffer.clear();
    }

    async fn write(&mut self, bytes: &[u8]) {
        if let Some(stream) = &mut self.stream {
            // It may have been closed.
            let _ = stream.write_all(bytes).await;
        }
    }

    /// Reads what there is.
    async fn read(&mut self) {
        while let Some(stream) = &mut self.stream {
            let mut read = std::pin::pin!(stream.read_buf(&mut self.buffer));
            let now = std::future::poll_fn(|cx| std::task::Poll::Ready(read.as_mut().poll(cx)));
            match now.await {
                std::task::Poll::Pending => return,
                std::task::Poll::Ready(count) if count.as_ref().is_ok_and(|count| *count > 0) => {}
                std::task::Poll::Ready(_) => return self.leave(),
            }
        }
    }

    fn packet(&mut self) -> Option<Vec<u8>> {
        let length = usize::from(*self.buffer.get(1)?) + 2;
        (self.buffer.len() >= length).then(|| self.buffer.drain(..length).collect())
    }
}

fn publish(id: u16, number: u16, dup: bool) -> Vec<u8> {
    let ([a, b], [c, d]) = (id.to_be_bytes(), number.to_be_bytes());
    vec![if dup { 0x3C } else { 0x34 }, 8, 0, 1, b'q', a, b, 0, c, d]
}

struct World {
    random: Random,
    parties: [Party; 3],
    published: u16,
    taken: BTreeSet<u16>,
    refused: BTreeSet<u16>,
    seconds: u32,
}

impl World {
    async fn turns() {
        for _ in 0..12 {
            tokio::task::yield_now().await;
        }
    }

    async fn connect(&mut self, house: &House, who: usize) {
        if self.parties[who].stream.is_none() {
            let (mut list, mut out) = (PropertyBuffer::new(), Vec::new());
            Client::connect(&lasting(&mut list, NAMES[who]), ClientLimits::default(), &mut out).unwrap();
            self.parties[who].stream = Some(house.open());
            self.parties[who].write(&out).await;
        }
    }

    async fn publish(&mut self) {
        let party = &mut self.parties[0];
        if party.greeted {
            let id = (1..).find(|id| !party.sent.contains_key(id)).unwrap();
            party.sent.insert(id, (self.published, false));
            party.write(&publish(id, self.published, false)).await;
            self.published += 1;
        }
    }

    /// Handles a packet that has come. Returns whether there was one.
    async fn handle(&mut self, who: usize) -> bool {
        let party = &mut self.parties[who];
        party.read().await;
        let Some(packet) = party.packet() else { return false };
        let id = |at| u16::from_be_bytes([packet[at], packet[at + 1]]);
        match packet[0] >> 4 {
            2 => {
                assert_eq!(packet[2..4], [1, 0], "{} has its session", NAMES[who]);
                party.greeted = true;
                let again = party.sent.iter().map(|(id, (number, released))| match released {
                    true => acknowledgement(0x62, *id),
                    false => publish(*id, *number, true),
                });
                let again: Vec<u8> = again.flatten().collect();
                party.write(&again).await;
            }
            3 => {
                let (packet_id, _, qos) = publish_of(&packet);
                let number = id(packet.len() - 2);
                assert_eq!(qos, 2);
                match party.received.insert(packet_id, number) {
                    None => party.got.push(number),
                    Some(before) => assert!(before == number, "{packet_id} of {before} is used for {number}"),
                }
                party.write(&acknowledgement(0x50, packet_id)).await;
            }
            5 => {
                let (packet_id, reason) = (id(2), packet.get(4).copied().unwrap_or(0));
                let number = party.sent.get(&packet_id).map(|(number, _)| *number);
                if reason >= 0x80 {
                    assert_eq!(reason, 0x97);
                    party.sent.remove(&packet_id);
                    self.refused.extend(number);
                } else {
                    party.sent.entry(packet_id).and_modify(|(_, released)| *released = true);
                    self.taken.extend(number);
                    party.write(&acknowledgement(0x62, packet_id)).await;
                }
            }
            6 => {
                party.received.remove(&id(2));
                party.write(&acknowledgement(0x70, id(2))).await;
            }
            7 => drop(party.sent.remove(&id(2))),
            14 => party.leave(),
            other => panic!("{other}: {packet:?}"),
        }
        true
    }

    async fn second(&mut self) {
        if self.seconds < SECONDS_MAX {
            self.seconds += 1;
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }

    /// One step. Returns whether the process is to end.
    async fn step(&mut self, house: &House, store: &MemoryStore) -> bool {
        let who = self.random.below(NAMES.len());
        match self.random.below(54) {
            0..8 => self.publish().await,
            8..24 => drop(self.handle(who).await),
            24..31 => {
                let count = self.random.below(4);
                store.commit(count);
            }
            31..34 => self.parties[who].leave(),
            34..41 => self.connect(house, who).await,
            41 => store.set_full(true),
            42 => {
                store.set_full(true);
                store.fail();
            }
            43..45 => store.set_full(false),
            45 => self.second().await,
            46 => return true,
            47..51 => {
                let count = self.random.below(3);
                store.answer(count);
            }
            51..53 => {
                // As when memory is nearly gone: messages in flight leave it as well.
                let sessions = house.ctx.door.sessions.all();
                sessions.iter().for_each(|(_, slot)| slot.with(|mailbox| mailbox.send_all_away()));
            }
            // The session is taken over.
            _ => {
                self.parties[who].leave();
                self.connect(house, who).await;
            }
        }
        Self::turns().await;
        false
    }

    /// Runs until nothing is left to do.
    async fn settle(&mut self, house: &House, store: &MemoryStore) {
        store.set_full(false);
        self.seconds = 0;
        let mut idle = 0;
        while idle < 4 {
            let mut any = store.waiting() > 0;
            store.commit(usize::MAX);
            store.answer(usize::MAX);
            for who in 0..NAMES.len() {
                self.connect(house, who).await;
                Self::turns().await;
                while self.handle(who).await {
                    any = true;
                }
            }
            if any {
                idle = 0;
            } else {
                idle += 1;
                self.second().await;
            }
        }
    }

    fn check(&self, store: &MemoryStore) {
        for (party, name) in self.parties.iter().zip(NAMES).skip(1) {
            assert!(party.received.is_empty(), "{name} waits for PUBREL of {:?}", party.received);
            for number in 0..self.published {
                let times = party.got.iter().filter(|got| **got == number).count();
                let (taken, refused) = (self.taken.contains(&number), self.refused.contains(&number));
                assert!(taken != refused, "{number} was taken: {taken}, refused: {refused}");
                assert_eq!(times, usize::from(taken), "{name} got {number}");
            }
        }
        assert!(self.parties[0].sent.is_empty(), "PUBREC or PUBCOMP did not come: {:?}", self.parties[0].sent);
        assert_eq!(store.crashed(usize::MAX).len(), 5, "three sessions, two subscriptions");
    }
}

fn run_seed(seed: u64) {
    let mut store = MemoryStore::default();
    let mut world = World {
        random: Random(seed),
        parties: Default::default(),
        published: 0,
        taken: BTreeSet::new(),
        refused: BTreeSet::new(),
        seconds: 0,
    };
    run_committing(&store, async |house: House| {
        leave_behind(&house, NAMES[1], "q", Qos::ExactlyOnce).await;
        leave_behind(&house, NAMES[2], "q", Qos::ExactlyOnce).await;
        house.lasting(NAMES[0]).await.disconnect(ReasonCode::SUCCESS).await;
    });
    let (mut steps, mut settled) = (STEPS, false);
    while !settled {
        store = store.crashed(world.random.below(store.waiting() + 1));
        world.parties.iter_mut().for_each(Party::leave);
        world.seconds = 0;
        store.set_reading_later(true);
        run_stored(&store, async |house: House| {
            tokio::time::pause();
            while steps > 0 {
                steps -= 1;
                if world.step(&house, &store).await {
                    return;
                }
            }
            world.settle(&house, &store).await;
            settled = true;
        });
    }
    world.check(&store);
}

#[test]
fn s4_3_3_what_got_pubrec_is_delivered_once_and_what_was_refused_is_not() {
    for seed in 0..SEEDS {
        let outcome = std::panic::catch_unwind(|| run_seed(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}
