//! `$SYS`: the gateway's status as retained messages. `$SYS/broker/…` has the topics and texts of Mosquitto
//! (mosquitto(8), "BROKER STATUS"), so that dashboards and exporters made for it work; `$SYS/fogmux/…` has the counters
//! of each door.
//!
//! The counters exist anyway; they are read once an interval, and a topic is published when its text has changed. The
//! messages are retained in memory only ([`Unstored`]). Only the gateway writes here, and bridges their state; access
//! rules decide who may read (`docs/access.md`).

mod load;
mod reading;
mod unstored;

use std::{collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

use fogmux_bus::{Meaning, Payload, Publication, Publisher, Timestamp, TopicRef};
use load::Loads;
use reading::Reading;
pub(crate) use unstored::Unstored;

use crate::{WorkerContext, links::Links};

/// Publishes the status at once and then every `interval`, until the shutdown; never if that is zero.
pub(crate) async fn publish(ctx: Rc<WorkerContext>, interval: Duration) {
    if interval.is_zero() {
        return;
    }
    let mut status = Status::new(ctx.now());
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut drain = std::pin::pin!(ctx.drain());
    loop {
        tokio::select! {
            biased;
            () = &mut drain => return,
            () = ctx.shared.links.changed() => {
                let news = status.news(links(&ctx.shared.links));
                say(&ctx, &status.publisher, &news);
                continue;
            }
            _ = ticks.tick() => {}
        }
        let now = ctx.now();
        let news = status.update(&Reading::of(&ctx.shared, now), now);
        say(&ctx, &status.publisher, &news);
    }
}

/// The states of links, where Mosquitto has those of its bridges.
fn links(links: &Links) -> Vec<(String, String)> {
    let texts = links.each().into_iter().map(|link| {
        let state = if link.connected_since_unix_ms().is_some() { "1" } else { "0" };
        (format!("broker/connection/{}/state", link.name), state.to_owned())
    });
    texts.collect()
}

/// Publishes texts as retained messages of QoS 0: a newer value comes soon, and they must not queue for sessions
/// without a connection.
fn say(ctx: &WorkerContext, publisher: &Arc<Publisher>, news: &[(String, String)]) {
    let now = ctx.now();
    let unix_ms = ctx.unix_ms(now);
    let mut batch: Vec<Publication<'_>> = Vec::with_capacity(news.len());
    for (topic, text) in news {
        let Ok(topic) = TopicRef::new(topic) else { continue };
        let mut publication = Publication::new(topic, Payload::Slice(text.as_bytes()), publisher, now, unix_ms);
        publication.meaning = Meaning::Value;
        batch.push(publication);
    }
    // The store does not take these: the completion is ready.
    drop(ctx.worker.borrow_mut().publish(&mut batch));
}

/// The texts published last, and the state for the next ones.
struct Status {
    publisher: Arc<Publisher>,
    said: BTreeMap<String, String>,
    loads: Loads,
    looked: Timestamp,
    clients_max: u64,
}

impl Status {
    fn new(now: Timestamp) -> Self {
        let publisher = Publisher::internal();
        Self { publisher, said: BTreeMap::new(), loads: Loads::default(), looked: now, clients_max: 0 }
    }

    /// The topics whose text has changed.
    fn update(&mut self, reading: &Reading, now: Timestamp) -> Vec<(String, String)> {
        self.clients_max = self.clients_max.max(reading.clients());
        let before = std::mem::replace(&mut self.looked, now);
        self.loads.update(reading.rates(), now.since(before));
        let mut all = reading.texts();
        all.push(("broker/clients/maximum".into(), self.clients_max.to_string()));
        all.extend(self.loads.texts());
        self.news(all)
    }

    /// Those of the texts that were not published last.
    fn news(&mut self, texts: Vec<(String, String)>) -> Vec<(String, String)> {
        let mut news = Vec::new();
        for (name, text) in texts {
            if self.said.get(&name) != Some(&text) {
                news.push((format!("$SYS/{name}"), text.clone()));
                self.said.insert(name, text);
            }
        }
        news
    }
}

/// An uptime in Mosquitto's words.
fn seconds(duration: Duration) -> String {
    format!("{} seconds", duration.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_changed_is_said_again() {
        let at = Timestamp::from_millis;
        let mut status = Status::new(at(0));
        let mut reading = Reading::default();
        let first = status.update(&reading, at(0));
        assert!(first.iter().all(|(topic, _)| topic.starts_with("$SYS/broker/") || topic.starts_with("$SYS/fogmux/")));
        assert!(first.contains(&("$SYS/broker/load/messages/received/1min".into(), "0.00".into())));
        assert!(status.update(&reading, at(10_000)).is_empty());
        reading.published = 60;
        reading.doors.first_mut().unwrap().connections = 3;
        let news: BTreeMap<String, String> = status.update(&reading, at(20_000)).into_iter().collect();
        assert_eq!(news.get("$SYS/broker/publish/messages/received").map(String::as_str), Some("60"));
        assert_eq!(news.get("$SYS/broker/clients/maximum").map(String::as_str), Some("3"));
        assert_eq!(news.get("$SYS/fogmux/mqtt/connections").map(String::as_str), Some("3"));
        assert!(news.contains_key("$SYS/broker/load/publish/received/15min"));
        assert!(!news.contains_key("$SYS/broker/bytes/sent"));
        reading.doors.first_mut().unwrap().connections = 1;
        let news: BTreeMap<String, String> = status.update(&reading, at(30_000)).into_iter().collect();
        assert!(!news.contains_key("$SYS/broker/clients/maximum"), "{news:?}");
    }
}
