//! The memory of mailboxes above the mark (ADR 0038).

use std::collections::BTreeMap;

use bytes::Bytes;
use fogmux_bus::{Payload, Publication, Publisher, TopicRef};

use super::*;

/// One message for all of them passes the mark.
const READERS: usize = 100;
const LARGE: usize = 1 << 20;

#[test]
fn messages_that_many_hold_pass_the_mark_by_one_batch_and_take_memory_once() {
    run(MqttConfig::default(), async |house: House| {
        let mark = BusConfig::default().memory_high_bytes;
        let mut readers = Vec::new();
        for number in 0..READERS {
            let mut reader = house.client(Version::V5, &format!("reader-{number}")).await;
            reader.subscribe("large", Qos::AtLeastOnce).await;
            readers.push(reader);
        }
        let (publisher, mut most) = (Publisher::internal(), 0);
        for _ in 0..4 {
            let (now, payload) = (house.ctx.now(), Bytes::from(vec![b'x'; LARGE]));
            let topic = TopicRef::new("large").unwrap();
            let mut publication = Publication::new(topic, Payload::Shared(&payload), &publisher, now, 0);
            publication.qos = fogmux_bus::Qos::AtLeastOnce;
            drop(house.ctx.worker.borrow_mut().publish(&mut [publication]));
            most = most.max(house.ctx.bus().memory().used());
            // The readers' connections take what there is for them.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            let sessions = house.ctx.door.sessions.all();
            let held = sessions.iter().flat_map(|(_, slot)| slot.with(|mailbox| mailbox.payloads()));
            let held: usize = held.collect::<BTreeMap<_, _>>().into_values().sum();
            assert!(held <= mark, "{held} bytes of payloads are held");
        }
        assert!(most > mark, "{most} bytes do not pass the mark");
        // Clients that have acknowledged nothing yet take more until twice the mark is held when a message comes.
        assert!(most <= 2 * mark + READERS * (LARGE + 1024), "{most} bytes pass the mark by more than a batch");
    });
}
