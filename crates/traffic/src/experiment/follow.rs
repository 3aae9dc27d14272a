//! The filters of subscribers.

use serde::{Deserialize, Serialize};

use super::{Door, Experiment};

/// The topics that a subscriber follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Follow {
    /// One topic, by its number.
    #[default]
    Topic,
    /// All topics, by a filter of MQTT with a wildcard (MQTT §4.7.1).
    All,
}

impl Experiment {
    /// The filter of all of its topics: `+` stands for the level with the number.
    #[must_use]
    pub fn filter(&self) -> String {
        let level = |level| if str::contains(level, "{}") { "+" } else { level };
        self.topic.split('/').map(level).collect::<Vec<_>>().join("/")
    }

    /// Whether a topic of this experiment could be one of the other, too.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        let (one, other) = (self.filter(), other.filter());
        let levels = || one.split('/').zip(other.split('/'));
        one.split('/').count() == other.split('/').count()
            && levels().all(|(one, other)| one == other || one == "+" || other == "+")
    }
}

impl Door {
    /// Whether subscribers can follow many topics by one filter, as the generator asks for it.
    #[must_use]
    pub fn has_wildcards(self) -> bool {
        matches!(self, Self::Mqtt | Self::Mqtt5 | Self::MqttWs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(topic: &str) -> Experiment {
        Experiment { topic: topic.to_owned(), ..Experiment::default() }
    }

    #[test]
    fn a_filter_has_a_wildcard_where_the_number_is() {
        assert_eq!(on("a/{}/b").filter(), "a/+/b");
        assert_eq!(on("a/meter-{}").filter(), "a/+");
        assert_eq!(on("a/b").filter(), "a/b");
    }

    #[test]
    fn topics_meet_where_one_filter_matches_those_of_the_other() {
        for (one, other, meet) in [
            ("a/{}", "a/{}", true),
            ("a/x-{}", "a/y-{}", true),
            ("a/{}", "a/b", true),
            ("a/{}", "b/{}", false),
            ("a/{}", "a/{}/c", false),
            ("a", "a", true),
            ("a/{}/x", "{}/b/x", true),
        ] {
            assert_eq!(on(one).meets(&on(other)), meet, "{one} {other}");
            assert_eq!(on(other).meets(&on(one)), meet, "{other} {one}");
        }
    }
}
