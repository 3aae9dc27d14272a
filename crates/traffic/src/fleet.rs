//! Fleets: groups of devices, each with its door and its pace, from one file.
//!
//! A group is an experiment. All groups of a fleet have one clock, one gateway and one link.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::experiment::{Arrivals, Credential, Door, Experiment, ExperimentError, Follow, Operation, Qos, Security};
use crate::target;

/// The name of all groups together in reports; no group has it.
pub const WHOLE: &str = "fleet";
/// The most characters of a group's name, which is in the identifiers of its clients.
const NAME_MAX: usize = 32;
/// A period of a device: up to a week, which is as long as a measurement may be.
const PERIOD_SECONDS_MAX: f64 = 604_800.0;

/// A fleet, whose groups are in the order of its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    groups: Vec<Group>,
}

/// Devices that do the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Devices are its publishers, and consumers its subscribers.
    pub experiment: Experiment,
}

/// Why a file is no fleet.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// It cannot be read.
    #[error("{0}: {1}")]
    File(String, std::io::Error),
    /// It is no TOML, or has other keys.
    #[error("{0}: {1}")]
    Content(String, String),
    /// A group that cannot be done.
    #[error("{file}: group {group:?}: {why}")]
    Group {
        /// The file.
        file: String,
        /// Its name.
        group: String,
        /// The fault, and what would be accepted.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    seconds: f64,
    #[serde(default)]
    warm_up_seconds: f64,
    #[serde(default = "drain_seconds")]
    drain_seconds: f64,
    #[serde(default = "link")]
    link: String,
    #[serde(default = "one_seed")]
    seed: u64,
    #[serde(default)]
    group: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    count: u32,
    door: Door,
    security: Option<Security>,
    #[serde(default)]
    credential: Credential,
    topic: String,
    #[serde(default = "one")]
    consumers: u32,
    consumer_door: Option<Door>,
    payload_bytes: Option<usize>,
    qos: Option<Qos>,
    period_seconds: f64,
    arrivals: Option<Arrivals>,
    #[serde(default)]
    start_spread_seconds: f64,
    #[serde(default = "one")]
    threads: u32,
}

fn drain_seconds() -> f64 {
    Experiment::default().drain_seconds
}

fn link() -> String {
    Experiment::default().link
}

fn one_seed() -> u64 {
    Experiment::default().seed
}

const fn one() -> u32 {
    1
}

impl Fleet {
    /// Reads the fleet of a file.
    ///
    /// # Errors
    /// It cannot be read, has other keys, or has a group that cannot be done: with its name and the reason.
    pub fn read(path: &Path) -> Result<Self, FleetError> {
        let file = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| FleetError::File(file.clone(), error))?;
        Self::parse(&file, &text)
    }

    fn parse(file: &str, text: &str) -> Result<Self, FleetError> {
        let content = |error: toml::de::Error| FleetError::Content(file.to_owned(), error.to_string());
        let script: Script = toml::from_str(text).map_err(content)?;
        if script.group.is_empty() {
            return Err(FleetError::Content(file.to_owned(), "a fleet has at least one [[group]]".to_owned()));
        }
        let mut groups: Vec<Group> = Vec::new();
        for entry in &script.group {
            let made = group(&script, entry).and_then(|group| fits(&group, &groups).map(|()| group));
            let of = |why| FleetError::Group { file: file.to_owned(), group: entry.name.clone(), why };
            groups.push(made.map_err(of)?);
        }
        Ok(Self { groups })
    }

    /// Its groups.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// All clients.
    #[must_use]
    pub fn clients(&self) -> u64 {
        let of = |group: &Group| u64::from(group.experiment.publishers) + u64::from(group.experiment.subscribers);
        self.groups.iter().map(of).sum()
    }

    /// All groups in one row of a report: counts and rates are sums, the size of payloads is none of one group and
    /// therefore 0, it delivers as far as any group does, and other keys are those of the first group.
    #[must_use]
    pub fn whole(&self) -> Experiment {
        let all = || self.groups.iter().map(|group| &group.experiment);
        let sum = |of: fn(&Experiment) -> u32| all().map(of).fold(0, u32::saturating_add);
        Experiment {
            publishers: sum(|of| of.publishers),
            subscribers: sum(|of| of.subscribers),
            topics: sum(|of| of.topics),
            threads: sum(|of| of.threads),
            rate: all().map(|of| of.rate).sum(),
            payload_bytes: 0,
            operation: if all().any(Experiment::delivers) { Operation::Deliver } else { Operation::Post },
            ..all().next().cloned().unwrap_or_default()
        }
    }
}

/// A group of a script as an experiment.
fn group(script: &Script, entry: &Entry) -> Result<Group, String> {
    let default = Experiment::default();
    if entry.count == 0 {
        return Err("count is 0; accepted: 1 or more".to_owned());
    }
    if !(entry.period_seconds > 0.0 && entry.period_seconds <= PERIOD_SECONDS_MAX) {
        let accepted = format!("seconds above 0, up to {PERIOD_SECONDS_MAX}, a week");
        return Err(format!("period_seconds is {}; accepted: {accepted}", entry.period_seconds));
    }
    let listens = entry.consumers > 0;
    let each_has_a_topic = entry.topic.contains("{}");
    // A consumer of many topics is one of MQTT, unless another door is asked for.
    let consumer_door = entry.consumer_door.or((listens && each_has_a_topic).then_some(Door::Mqtt));
    let follows_all = each_has_a_topic && consumer_door.unwrap_or(entry.door).has_wildcards();
    let is_oscore = entry.security.is_some_and(|security| security.oscore);
    if is_oscore && consumer_door.is_some_and(|door| !matches!(door, Door::Coap | Door::CoapTcp)) {
        return Err(
            "consumers of a group with OSCORE use CoAP, as it does: consumer_door = \"coap\", where each follows \
                    one topic, or consumers = 0"
                .to_owned(),
        );
    }
    let experiment = Experiment {
        door: entry.door,
        reader_door: consumer_door.filter(|door| *door != entry.door),
        security: entry.security.unwrap_or(default.security),
        credential: entry.credential,
        operation: if listens { Operation::Deliver } else { Operation::Post },
        qos: entry.qos.unwrap_or(default.qos),
        payload_bytes: entry.payload_bytes.unwrap_or(default.payload_bytes),
        publishers: entry.count,
        subscribers: entry.consumers,
        threads: entry.threads,
        topics: if each_has_a_topic { entry.count } else { 1 },
        topic: entry.topic.clone(),
        follow: if listens && follows_all { Follow::All } else { Follow::Topic },
        start_spread_seconds: entry.start_spread_seconds,
        rate: Some(f64::from(entry.count) / entry.period_seconds),
        arrivals: entry.arrivals.unwrap_or(default.arrivals),
        seconds: script.seconds,
        warm_up_seconds: script.warm_up_seconds,
        drain_seconds: script.drain_seconds,
        link: script.link.clone(),
        seed: script.seed,
        ..default
    };
    experiment.check().map_err(|error: ExperimentError| error.to_string())?;
    Ok(Group { name: entry.name.clone(), experiment: experiment.normalized() })
}

/// Whether a group can be done beside those before.
fn fits(group: &Group, before: &[Group]) -> Result<(), String> {
    let Group { name, experiment } = group;
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_plain) || name == WHOLE {
        return Err(format!(
            "a name is 1 to {NAME_MAX} lower-case letters, digits, - and _, and not {WHOLE:?}, as all together are named"
        ));
    }
    let names: BTreeSet<&str> = before.iter().map(|group| group.name.as_str()).collect();
    if names.contains(name.as_str()) {
        return Err("there are two groups of that name".to_owned());
    }
    if let Some(other) = before.iter().find(|other| other.experiment.meets(experiment)) {
        let (one, other_topic) = (&experiment.topic, &other.experiment.topic);
        return Err(format!("its topics {one:?} may be those of group {:?}, {other_topic:?}", other.name));
    }
    if let Some(other) = before.iter().find(|other| other.experiment.security.oscore && experiment.security.oscore) {
        return Err(format!(
            "a fleet has one group with OSCORE, whose contexts are by number, and it is {:?}",
            other.name
        ));
    }
    let all: Vec<&Experiment> = before.iter().chain([group]).map(|group| &group.experiment).collect();
    target::settings(&all, "127.0.0.1").map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
