//! The labels of runs, made of the keys in which they differ, and the order of panels, lines and groups in plots, which
//! are made of the same keys.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::number::{Unit, size, with_unit};
use crate::fleet::WHOLE;
use crate::outcome::Run;

/// Keys that [`crate::Experiment::title`] names already.
const IN_TITLE: [&str; 5] = ["door", "reader_door", "security", "qos", "payload_bytes"];
/// Beside the experiment's keys: what it ran against.
pub(crate) const TARGET: &str = "target";
/// Of a fleet.
pub(crate) const GROUP: &str = "group";
/// The doors of publisher and subscriber in one key.
pub(crate) const DOOR: &str = "door";
pub(crate) const SECURITY: &str = "security";
pub(crate) const PAYLOAD: &str = "payload_bytes";

/// The keys that come first in a label.
const FIRST: [&str; 5] = [DOOR, "operation", SECURITY, PAYLOAD, "qos"];

/// All keys of a run as text.
pub(crate) type Keys = BTreeMap<String, String>;

/// Keys and values of an experiment, and its target.
pub(crate) fn keys(run: &Run) -> Keys {
    let mut keys = pairs(&run.experiment);
    keys.insert(TARGET.to_owned(), run.target.clone());
    if let Some(name) = &run.name {
        keys.insert(GROUP.to_owned(), name.clone());
    }
    if let Some(reader) = run.experiment.reader_door.filter(|reader| *reader != run.experiment.door) {
        keys.insert(DOOR.to_owned(), format!("{}→{reader}", run.experiment.door));
    }
    keys.remove("reader_door");
    keys
}

/// The keys and values of any record, nested ones with dots; what is not there is left out.
pub(crate) fn pairs(record: &impl serde::Serialize) -> Keys {
    let mut keys = Keys::new();
    if let Ok(value) = serde_json::to_value(record) {
        flatten("", &value, &mut keys);
    }
    keys
}

fn flatten(path: &str, value: &Value, keys: &mut Keys) {
    let text = match value {
        Value::Null => return,
        Value::Object(members) => {
            for (name, member) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, member, keys);
            }
            return;
        }
        Value::Array(members) => members.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => plain(value),
    };
    if !text.is_empty() {
        keys.insert(path.to_owned(), text);
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The keys in which runs differ.
pub(crate) struct Varying(BTreeSet<String>);

impl Varying {
    /// Among these.
    pub(crate) fn among(runs: &[Run]) -> Self {
        let all: Vec<Keys> = runs.iter().map(keys).collect();
        let names: BTreeSet<&String> = all.iter().flat_map(BTreeMap::keys).collect();
        let differs = |name: &&&String| {
            let mut values = all.iter().map(|keys| keys.get(**name));
            let first = values.next();
            values.any(|value| Some(value) != first)
        };
        Self(names.iter().filter(differs).map(|name| (*name).clone()).collect())
    }

    /// Whether runs differ in it.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.contains(key)
    }

    /// The keys themselves.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Returns the label of a run in tables.
    pub(crate) fn label(&self, run: &Run) -> String {
        if let Some(name) = &run.name {
            return if name == WHOLE { name.clone() } else { format!("{name}: {}", run.experiment.title()) };
        }
        let keys = keys(run);
        let rest = self.0.iter().filter(|key| !IN_TITLE.contains(&key.as_str()));
        let words = rest.filter_map(|key| Some(in_words(key, keys.get(key)?)));
        std::iter::once(run.experiment.title()).chain(words).collect::<Vec<_>>().join(", ")
    }

    /// Returns the label of a run by these keys, among those in which runs differ: the name of a panel, group or line.
    pub(crate) fn part(&self, run: &Run, is_wanted: impl Fn(&str) -> bool) -> String {
        if let Some(name) = run.name.as_ref().filter(|_| is_wanted(GROUP)) {
            return name.clone();
        }
        let keys = keys(run);
        let rest = self.0.iter().map(String::as_str).filter(|key| !FIRST.contains(key));
        let wanted = FIRST.into_iter().chain(rest).filter(|key| self.has(key) && is_wanted(key));
        wanted.filter_map(|key| Some(in_words(key, keys.get(key)?))).collect::<Vec<_>>().join(", ")
    }
}

/// A key and its value as one would say it.
pub(crate) fn in_words(key: &str, value: &str) -> String {
    let number = value.parse::<f64>().ok();
    match (key, number) {
        (DOOR | SECURITY | TARGET | "operation", _) => value.to_owned(),
        (PAYLOAD, Some(bytes)) => size(bytes),
        ("qos", _) => format!("QoS {value}"),
        ("rate_to", Some(rate)) => format!("to {}", with_unit(Unit::PerSecond, rate)),
        ("rate", Some(rate)) => with_unit(Unit::PerSecond, rate),
        ("publishers" | "subscribers" | "topics", Some(1.0)) => {
            format!("1 {}", key.trim_end_matches('s'))
        }
        ("publishers" | "subscribers" | "topics", _) => format!("{value} {key}"),
        ("count", _) => format!("{value} operations"),
        ("seconds", _) => format!("{value} s"),
        ("coap_answer", _) => format!("{value} answers"),
        ("credential", _) => format!("by {value}"),
        (_, _) => format!("{} {value}", key.replace('_', " ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Door, Experiment};

    fn run(experiment: Experiment) -> Run {
        Run::of(experiment, "fogmux".to_owned())
    }

    #[test]
    fn only_what_differs_is_named_beside_the_title() {
        let runs = [1, 8].map(|publishers| run(Experiment { publishers, ..Experiment::default() }));
        let varying = Varying::among(&runs);
        let [one, eight] = runs.each_ref().map(|run| varying.label(run));
        assert_eq!(one, "mqtt none q0 64 B, 1 publisher");
        assert_eq!(eight, "mqtt none q0 64 B, 8 publishers");
    }

    #[test]
    fn a_group_of_a_fleet_is_named_by_its_name() {
        let named = |name: &str, publishers| Run {
            name: Some(name.to_owned()),
            ..run(Experiment { publishers, ..Experiment::default() })
        };
        let runs = [named(WHOLE, 9), named("meters", 8)];
        let varying = Varying::among(&runs);
        assert_eq!(runs.each_ref().map(|run| varying.label(run)), ["fleet", "meters: mqtt none q0 64 B"]);
        assert_eq!(varying.part(&runs[1], |_| true), "meters");
    }

    #[test]
    fn a_panel_is_named_by_what_its_lines_share() {
        let doors = [Door::Mqtt, Door::Coap];
        let runs: Vec<Run> = doors
            .into_iter()
            .flat_map(|door| {
                [64, 2_048].map(|payload_bytes| run(Experiment { door, payload_bytes, ..Experiment::default() }))
            })
            .collect();
        let varying = Varying::among(&runs);
        assert!(varying.has(DOOR) && varying.has(PAYLOAD) && !varying.has("qos"));
        assert_eq!(varying.part(&runs[1], |key| key != DOOR), "2\u{202f}KiB");
        assert_eq!(varying.part(&runs[1], |key| key == DOOR), "mqtt");
    }

    #[test]
    fn records_within_records_have_dots() {
        let keys = pairs(&serde_json::json!({"a": {"b": 1, "c": null}, "d": ["x", 2]}));
        assert_eq!(keys, Keys::from([("a.b".to_owned(), "1".to_owned()), ("d".to_owned(), "x, 2".to_owned())]));
    }
}
