//! The bytes that the bus accounts for retained messages, compared with the resident set of the process. This is the
//! only test of its process, so that nothing else allocates. Route caches and unused parts of the heap may add a fifth.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;

use fogmux_bus::{
    Bus, BusConfig, Forgetful, Meaning, Payload, Publication, Publisher, Timestamp, TopicRef, Worker, WorkerId,
};

fn resident_bytes() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn publish(worker: &mut Worker, count: usize, bytes: usize, retain: bool, content_type: Option<&str>) {
    let payload = vec![b'x'; bytes];
    let me = Publisher::internal();
    for number in 0..count {
        let topic = format!("plant/of-{bytes}-bytes/machine-{number}/state");
        let topic = TopicRef::new(&topic).unwrap();
        let mut publication = Publication::new(topic, Payload::Slice(&payload), &me, Timestamp::ZERO, 0);
        (publication.meaning, publication.content_type) = (Meaning::value_if(retain), content_type);
        drop(worker.publish(&mut [publication]));
    }
}

/// Reads each as a door does that shares the payload.
fn read(bus: &Bus, count: usize, bytes: usize) {
    for number in 0..count {
        let topic = format!("plant/of-{bytes}-bytes/machine-{number}/state");
        let message = bus.latest(&topic, Timestamp::ZERO).unwrap();
        assert_eq!(message.payload.clone().len(), bytes);
    }
}

#[test]
fn what_retained_messages_take_is_what_is_said_of_them() {
    let config = BusConfig { retained_messages_max: 1 << 20, retained_bytes_max: 1 << 30, ..BusConfig::default() };
    let bus = Bus::new(&config, Box::new(Forgetful), Timestamp::ZERO, 0);
    let mut worker = bus.worker(WorkerId(0));
    // Route caches and scratch buffers have their size before it begins.
    publish(&mut worker, 60_000, 8, false, None);
    for (count, bytes, content_type) in [
        (60_000, 1, None),
        (60_000, 20, Some("application/json")),
        (40_000, 100, None),
        (20_000, 1000, Some("text/plain")),
    ] {
        let (before, (_, said_before)) = (resident_bytes(), bus.retained_size());
        publish(&mut worker, count, bytes, true, content_type);
        read(&bus, count, bytes);
        let (grown, said) = (resident_bytes() - before, bus.retained_size().1 - said_before);
        let percent = grown * 100 / said;
        assert!((80..=120).contains(&percent), "{count} of {bytes} bytes: {grown} taken, {said} said, {percent} %");
    }
}
