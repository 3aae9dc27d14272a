//! Which lanes a subscriber follows, and on which topics their messages come.

use crate::experiment::Experiment;

/// The lanes of a subscriber: one, or every so many from it on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Followed {
    first: u32,
    /// 0: there is only the first.
    each: u32,
}

impl Followed {
    /// Only this lane.
    pub(crate) fn one(first: u32) -> Self {
        Self { first, each: 0 }
    }

    /// This lane, and every so many behind it.
    pub(crate) fn every(first: u32, each: u32) -> Self {
        Self { first, each }
    }

    pub(super) fn first(self) -> u32 {
        self.first
    }

    #[inline]
    pub(super) fn has(self, lane: u32) -> bool {
        lane == self.first || lane.checked_sub(self.first).and_then(|on| on.checked_rem(self.each)) == Some(0)
    }

    /// Those that there are, of so many.
    pub(super) fn of(self, lanes: usize) -> impl Iterator<Item = usize> {
        let place = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let (first, each) = (place(self.first), if self.each == 0 { usize::MAX } else { place(self.each) });
        (first..lanes).step_by(each)
    }
}

/// The names of topics, and how many there are: a lane's topic has its number, modulo that.
#[derive(Clone, Debug)]
pub(crate) struct Topics {
    pattern: Box<str>,
    count: u32,
}

impl Topics {
    pub(crate) fn of(experiment: &Experiment) -> Self {
        Self { pattern: experiment.topic.as_str().into(), count: experiment.topics.max(1) }
    }

    /// Whether this is the topic of a lane. Nothing is written for that, as with every message it is asked.
    #[inline]
    pub(super) fn has(&self, lane: u32, topic: &str) -> bool {
        self.rest(lane % self.count, topic) == Some("")
    }

    /// The rest of `topic` behind all that the pattern has.
    fn rest<'t>(&self, number: u32, topic: &'t str) -> Option<&'t str> {
        let mut parts = self.pattern.split("{}");
        let mut rest = topic.strip_prefix(parts.next()?)?;
        for part in parts {
            let digits = number.checked_ilog10().map_or(1, |tens| tens + 1);
            let (digits, after) = rest.split_at_checked(usize::try_from(digits).ok()?)?;
            digits.parse::<u32>().ok().filter(|named| *named == number)?;
            rest = after.strip_prefix(part)?;
        }
        Some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscriber_follows_one_lane_or_every_so_many() {
        let lanes = |followed: Followed| (0..10).filter(|lane| followed.has(*lane)).collect::<Vec<_>>();
        for (followed, expected) in [
            (Followed::one(3), vec![3]),
            (Followed::every(1, 4), vec![1, 5, 9]),
            (Followed::every(0, 1), (0..10).collect()),
        ] {
            assert_eq!(lanes(followed), expected, "{followed:?}");
            let places: Vec<usize> = expected.iter().map(|lane| usize::try_from(*lane).unwrap()).collect();
            assert_eq!(followed.of(10).collect::<Vec<_>>(), places, "{followed:?}");
        }
        assert_eq!(Followed::one(3).of(2).count(), 0);
    }

    #[test]
    fn a_topic_is_that_of_a_lane_by_its_number() {
        for pattern in ["bench/{}", "a/{}/x", "{}", "a{}0/{}", "a/b"] {
            let topics = Topics::of(&Experiment { topic: pattern.to_owned(), topics: 120, ..Experiment::default() });
            for lane in [0, 1, 9, 10, 11, 99, 100, 119, 120, 130, 1_000] {
                let own = pattern.replace("{}", &(lane % 120).to_string());
                assert!(topics.has(lane, &own), "{pattern} {lane}");
                for other in [format!("{own}0"), format!("0{own}"), String::new(), "bench/+1".to_owned()] {
                    assert!(!topics.has(lane, &other), "{pattern} {lane} {other}");
                }
                let next = pattern.replace("{}", &((lane + 1) % 120).to_string());
                assert_eq!(topics.has(lane, &next), pattern == "a/b", "{pattern} {lane}");
            }
        }
    }
}
