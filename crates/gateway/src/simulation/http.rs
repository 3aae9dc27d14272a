//! HTTP clients of the simulation: PUT and POST with their answers, and event streams that are read at any pace.

use std::{rc::Rc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::sleep,
};

use super::{
    ledger::{Fate, Ledger, Promise, Reader},
    pipe::End,
    random::Random,
    world::{Door, World},
};

/// A connection with what was read ahead.
struct Wire {
    end: End,
    input: Vec<u8>,
}

impl Wire {
    fn open(world: &World) -> Self {
        Self { end: world.connect(Door::Http), input: Vec::new() }
    }

    async fn send(&mut self, head: &str, body: &[u8]) -> bool {
        let head = format!("{head} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
        self.end.write_all(&[head.as_bytes(), body].concat()).await.is_ok()
    }

    async fn more(&mut self) -> bool {
        let mut bytes = [0; 8192];
        match self.end.read(&mut bytes).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.input.extend_from_slice(&bytes[..count]);
                true
            }
        }
    }

    /// Everything up to and with `end`; `None` when the connection ends before.
    async fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.input.windows(end.len()).position(|window| window == end) {
                return Some(self.input.drain(..at + end.len()).collect());
            }
            if !self.more().await {
                return None;
            }
        }
    }

    async fn exactly(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.input.len() < count {
            if !self.more().await {
                return None;
            }
        }
        Some(self.input.drain(..count).collect())
    }

    /// The status of the next response, whose body is read away.
    async fn status(&mut self) -> Option<u16> {
        let head = String::from_utf8(self.until(b"\r\n\r\n").await?).unwrap().to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        self.exactly(length.map_or(0, |length| length.parse().unwrap())).await?;
        head.split(' ').nth(1)?.parse().ok()
    }

    /// The next chunk of a chunked body.
    async fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = String::from_utf8(self.until(b"\r\n").await?).unwrap();
        let length = usize::from_str_radix(line.trim(), 16).unwrap();
        let mut chunk = self.exactly(length + 2).await?;
        chunk.truncate(length);
        Some(chunk)
    }
}

/// Publishes `count` messages, one after the other.
pub(super) async fn publish(world: Rc<World>, ledger: Rc<Ledger>, random: Random, number: usize, count: usize) {
    let mut wire = Wire::open(&world);
    for _ in 0..count {
        if random.percent(20) {
            sleep(Duration::from_millis(random.below(100) as u64)).await;
        }
        let id = ledger.publish(number, 1, usize::MAX, &random);
        let message = ledger.message(id);
        let method = match message.retain {
            true if message.payload.is_empty() => "DELETE",
            true => "PUT",
            false => "POST",
        };
        let head = format!("{method} /topics/{}?qos=1", message.topic);
        let status = if wire.send(&head, &message.payload).await { wire.status().await } else { None };
        match status {
            // 404: there is nothing to delete.
            Some(200..=299 | 404) => ledger.settle(id, Fate::Accepted),
            Some(503 | 507 | 429) => ledger.settle(id, Fate::Refused),
            Some(status) => ledger.fault(format!("{method} was answered with {status}")),
            None => wire = Wire::open(&world),
        }
        if random.percent(5) {
            std::mem::replace(&mut wire, Wire::open(&world)).end.reset();
        }
    }
}

/// Follows an event stream to the end of the simulation.
pub(super) async fn follow(world: Rc<World>, ledger: Rc<Ledger>, random: Random, number: usize) {
    let lives = 1 + random.below(2);
    for life in 0..lives {
        let name = format!("follower-{number}.{life}");
        let filter = super::ledger::filter(&random);
        let mut wire = Wire::open(&world);
        let escaped = filter.replace('#', "%23").replace('+', "%2B");
        wire.send(&format!("GET /subscribe?filter={escaped}"), b"").await;
        let Some(head) = wire.until(b"\r\n\r\n").await else { continue };
        assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
        let reader = ledger.subscribe(name, filter, 2, Promise::All);
        let last = life + 1 == lives;
        read(&mut wire, &ledger, &random, &reader, if last { usize::MAX } else { random.below(40) }).await;
        if last {
            return ledger.end(&reader);
        }
        reader.live.set(false);
    }
}

async fn read(wire: &mut Wire, ledger: &Ledger, random: &Random, reader: &Reader, count: usize) {
    let pauses = *random.pick(&[0, 2, 30]);
    let mut text = Vec::new();
    while reader.count() < count {
        if random.percent(pauses) && !ledger.is_closing() {
            sleep(Duration::from_millis(1 + random.below(400) as u64)).await;
        }
        let Some(chunk) = wire.chunk().await else { return };
        text.extend(chunk);
        while let Some(at) = text.windows(2).position(|window| window == b"\n\n") {
            let event: Vec<u8> = text.drain(..at + 2).collect();
            let event = String::from_utf8(event).unwrap();
            if let Some(data) = event.lines().find_map(|line| line.strip_prefix("data:")) {
                receive(ledger, reader, data);
            }
        }
    }
}

fn receive(ledger: &Ledger, reader: &Reader, data: &str) {
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    if data.get("gap").is_some() {
        // Lost messages do not come any more, but the retained ones do.
        return reader.told_of_gap.set(true);
    }
    let text = |name: &str| data.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
    let payload = match text("encoding") {
        "base64" => STANDARD.decode(text("payload")).unwrap(),
        _ => text("payload").as_bytes().to_vec(),
    };
    ledger.receive(reader, text("topic"), &payload);
}
