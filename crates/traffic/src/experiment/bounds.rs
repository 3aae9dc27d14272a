//! The bounds of an experiment's numbers. They are checked here and nowhere else: before anything is started, whether a
//! command line, a document or another host has asked for it.

use std::ops::RangeInclusive;

use super::{Arrivals, Clock, CoapToken, Credential, Experiment, ExperimentError, Follow, Operation, Rules};
use crate::link::Conditions;
use crate::pattern::{PUBLISHERS_MAX, STAMP_BYTES, Stamp, is_stamped};

/// A week. Longer measurements are several.
const SECONDS_MAX: f64 = 604_800.0;
/// Below is less than a timer of Linux keeps, above it is no reliability any more: five waits double it each.
const ACK_TIMEOUT_SECONDS: RangeInclusive<f64> = 0.01..=60.0;
/// Operations a second. One thread sends fewer, whatever they are.
const RATE_MAX: f64 = 10_000_000.0;
/// One in eleven days, which is longer than [`SECONDS_MAX`].
const RATE_MIN: f64 = 0.000_001;
/// Each client leaves so many times a second.
const CHURN_MAX: f64 = 100.0;
/// The most bytes of an MQTT packet (MQTT §2.1.4), the largest of all doors.
const PAYLOAD_BYTES_MAX: usize = 268_435_455;
/// Threads: more than most machines have cores.
const THREADS_MAX: u32 = 256;
/// Clients and topics: more than one host has ports for.
const CLIENTS_MAX: u32 = 1_000_000;

impl Experiment {
    /// Whether it can be done at all.
    ///
    /// # Errors
    /// A number is out of its bounds, with its key and what would be accepted; or two keys contradict each other.
    pub fn check(&self) -> Result<(), ExperimentError> {
        self.check_times()?;
        self.check_counts()?;
        self.check_topics()?;
        self.check_follow()?;
        self.check_schedule()?;
        self.check_server()?;
        self.check_suite()?;
        self.check_comings()?;
        self.check_threads()?;
        self.link.parse::<Conditions>().map(drop).map_err(|error| ExperimentError::Contradiction(error.to_string()))
    }

    fn check_times(&self) -> Result<(), ExperimentError> {
        let times = [
            ("warm_up_seconds", self.warm_up_seconds),
            ("drain_seconds", self.drain_seconds),
            ("start_spread_seconds", self.start_spread_seconds),
            ("coap_delay_seconds", self.coap_delay_seconds),
        ];
        for (key, value) in times {
            if !(0.0..=SECONDS_MAX).contains(&value) {
                return Err(bounds(key, value, format!("seconds from 0 to {SECONDS_MAX}, a week")));
            }
        }
        if !(self.seconds > 0.0 && self.seconds <= SECONDS_MAX) {
            return Err(bounds("seconds", self.seconds, format!("seconds above 0, up to {SECONDS_MAX}, a week")));
        }
        if !ACK_TIMEOUT_SECONDS.contains(&self.coap_ack_timeout_seconds) {
            let (least, most) = (ACK_TIMEOUT_SECONDS.start(), ACK_TIMEOUT_SECONDS.end());
            let accepted = format!("seconds from {least} to {most}");
            return Err(bounds("coap_ack_timeout_seconds", self.coap_ack_timeout_seconds, accepted));
        }
        if let Some(gap) = self.gap_seconds.filter(|gap| !(*gap > 0.0 && *gap <= SECONDS_MAX)) {
            return Err(bounds("gap_seconds", gap, format!("seconds above 0, up to {SECONDS_MAX}, a week")));
        }
        for (key, rate) in [("rate", self.rate), ("rate_to", self.rate_to)] {
            if let Some(rate) = rate.filter(|rate| !(RATE_MIN..=RATE_MAX).contains(rate)) {
                return Err(bounds(key, rate, format!("operations a second from {RATE_MIN} to {RATE_MAX}")));
            }
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<(), ExperimentError> {
        let most = if self.operation == Operation::Deliver { PUBLISHERS_MAX } else { CLIENTS_MAX };
        let counts = [
            ("publishers", self.publishers, 1, most),
            ("subscribers", self.subscribers, 0, CLIENTS_MAX),
            ("followers", self.followers, 0, CLIENTS_MAX),
            ("topics", self.topics, 1, CLIENTS_MAX),
            ("threads", self.threads, 1, THREADS_MAX),
        ];
        for (key, value, least, most) in counts {
            if !(least..=most).contains(&value) {
                return Err(bounds(key, value, format!("{least} to {most}")));
            }
        }
        if self.payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(bounds("payload_bytes", self.payload_bytes, format!("up to {PAYLOAD_BYTES_MAX}")));
        }
        let most = u64::from(Stamp::of(self.publishers).numbers()).saturating_mul(u64::from(self.publishers));
        match self.count {
            Some(count) if !(1..=most).contains(&count) => Err(bounds("count", count, format!("1 to {most}"))),
            Some(_) | None => Ok(()),
        }
    }

    fn check_schedule(&self) -> Result<(), ExperimentError> {
        let contradiction = |why: &str| Err(ExperimentError::Contradiction(why.to_owned()));
        if self.gap_seconds.is_some() && self.rate.is_some() {
            return contradiction("a rate is a schedule, and a gap a pause after each answer: only one of them");
        }
        if self.arrivals != Arrivals::Even && self.rate.is_none() {
            return contradiction("arrivals are those of a rate: without one operations follow the answers");
        }
        if self.rate_to.is_some() && (self.rate.is_none() || self.count.is_some()) {
            return contradiction("a ramp goes from one rate to another through the measured time: no count ends it");
        }
        let from_connecting = self.clock == Clock::Connecting;
        if from_connecting && self.count.is_none() && self.warm_up_seconds > 0.0 {
            return contradiction("a clock that counts from connecting leaves no time for a warm-up");
        }
        if from_connecting && matches!(self.operation, Operation::Connect | Operation::Hold) {
            return contradiction("connecting is all that connect and hold do: their clock counts from there");
        }
        Ok(())
    }

    fn check_server(&self) -> Result<(), ExperimentError> {
        let contradiction = |why: &str| Err(ExperimentError::Contradiction(why.to_owned()));
        if self.coap_token == CoapToken::Empty && (self.window != 1 || self.operation == Operation::Deliver) {
            return contradiction("without tokens there is one request at a time, and no observer: --window 1");
        }
        let own = self.security.profile.server_key;
        if self.server_key.kind().is_some_and(|kind| own.is_some_and(|own| !own.admits(kind))) {
            return contradiction("the profile has a key of its own: another one goes with --security modern");
        }
        if self.rules == Rules::ByIdentity && self.credential == Credential::Anonymous {
            return contradiction("rules for an identity are for clients that have one");
        }
        Ok(())
    }

    fn check_threads(&self) -> Result<(), ExperimentError> {
        let contradiction = |why: String| Err(ExperimentError::Contradiction(why));
        let threads = self.threads;
        if threads == 1 {
            return Ok(());
        }
        if self.operation == Operation::Connect {
            return contradiction("connect has one thread: its visitors take from one count".to_owned());
        }
        if self.operation == Operation::Deliver && self.subscribers > 0 && self.topics < threads {
            return contradiction(format!(
                "{threads} threads need a topic each: a message is counted where it was sent"
            ));
        }
        if self.publishers < threads {
            return contradiction(format!(
                "{threads} threads need a publisher each, and there are {}",
                self.publishers
            ));
        }
        if self.link.parse::<Conditions>().is_ok_and(|conditions| conditions.is_lossy()) {
            return contradiction("a link that loses frames needs one thread only: it is slower than that".to_owned());
        }
        Ok(())
    }

    /// Of clients that leave and come back.
    fn check_comings(&self) -> Result<(), ExperimentError> {
        let contradiction = |why: &str| Err(ExperimentError::Contradiction(why.to_owned()));
        if let Some(churn) = self.churn.filter(|churn| !(*churn > 0.0 && *churn <= CHURN_MAX)) {
            return Err(bounds("churn", churn, format!("a share a second above 0, up to {CHURN_MAX}")));
        }
        if let Some(storm) = self.storm_seconds.filter(|storm| !(0.0..self.seconds).contains(storm)) {
            return Err(bounds("storm_seconds", storm, format!("seconds from 0, less than {}", self.seconds)));
        }
        if self.churn.is_none() && self.storm_seconds.is_none() {
            return Ok(());
        }
        let clients = match self.operation {
            Operation::Deliver => self.subscribers,
            Operation::Hold => self.publishers,
            Operation::Get | Operation::Put | Operation::Post | Operation::Connect => 0,
        };
        if clients == 0 {
            return contradiction("those who leave and come back are the subscribers of deliver, or what hold holds");
        }
        if self.in_flight > 0 {
            return contradiction("deliveries that clients miss while they are away never leave what is in flight");
        }
        if !is_stamped(self) {
            return contradiction("clients that miss messages need payloads with a stamp, of 7 bytes or more");
        }
        Ok(())
    }

    fn check_follow(&self) -> Result<(), ExperimentError> {
        let contradiction = |why: &str| Err(ExperimentError::Contradiction(why.to_owned()));
        let connects = matches!(self.operation, Operation::Connect | Operation::Hold);
        if self.start_spread_seconds > 0.0 && connects {
            return contradiction("connect and hold begin connections at their own pace: no start_spread_seconds");
        }
        if self.follow == Follow::Topic {
            return Ok(());
        }
        if self.operation != Operation::Deliver || !self.reader_door().has_wildcards() {
            return contradiction("all topics are followed by the subscribers of deliver, over MQTT: --to mqtt");
        }
        if !is_stamped(self) || self.threads > 1 {
            return contradiction(
                "to follow all topics takes payloads with a stamp, of 7 bytes or more, and one thread",
            );
        }
        if self.rules == Rules::ByIdentity {
            return contradiction("rules for each topic do not allow a filter of all");
        }
        Ok(())
    }

    fn check_topics(&self) -> Result<(), ExperimentError> {
        let contradiction = |why: String| Err(ExperimentError::Contradiction(why));
        if self.topics > 1 && !self.topic.contains("{}") {
            let (topics, topic) = (self.topics, &self.topic);
            return contradiction(format!("{topics} topics are one: {topic:?} has no {{}} for their number"));
        }
        let is_short = self.operation == Operation::Deliver && self.payload_bytes < STAMP_BYTES;
        if is_short && self.publishers > self.topics {
            return contradiction(format!("payloads of less than {STAMP_BYTES} bytes need a topic for each publisher"));
        }
        Ok(())
    }
}

fn bounds(key: &'static str, value: impl std::fmt::Debug, accepted: String) -> ExperimentError {
    ExperimentError::Bounds { key, value: format!("{value:?}"), accepted }
}

#[cfg(test)]
mod tests {
    use super::super::ServerKey;
    use super::*;
    use crate::paper;

    fn refused(change: impl FnOnce(&mut Experiment)) -> String {
        let mut experiment = Experiment::default();
        change(&mut experiment);
        experiment.check().unwrap_err().to_string()
    }

    #[test]
    fn times_that_are_none_are_refused_with_their_key() {
        for time in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e300] {
            assert!(refused(|experiment| experiment.seconds = time).starts_with("seconds is "), "{time}");
            assert!(refused(|experiment| experiment.warm_up_seconds = time).starts_with("warm_up_seconds is "));
            assert!(refused(|experiment| experiment.drain_seconds = time).starts_with("drain_seconds is "));
        }
        assert!(refused(|experiment| experiment.seconds = 0.0).contains("above 0"));
        let none = Experiment { warm_up_seconds: 0.0, drain_seconds: 0.0, ..Experiment::default() };
        assert_eq!(none.check(), Ok(()));
    }

    #[test]
    fn rates_that_nobody_sends_are_refused_with_what_is_accepted() {
        for rate in [f64::NAN, f64::INFINITY, 0.0, -5.0, 1e18, 1e-300] {
            let why = refused(|experiment| experiment.rate = Some(rate));
            assert!(why.contains("from 0.000001 to 10000000"), "{why}");
        }
        let quick = Experiment { rate: Some(1_000_000.0), ..Experiment::default() };
        assert_eq!(quick.check(), Ok(()));
    }

    #[test]
    fn a_server_is_as_the_profile_and_the_clients_let_it_be() {
        let why = refused(|experiment| experiment.coap_token = CoapToken::Empty);
        assert!(why.contains("--window 1"), "{why}");
        let why = refused(|experiment| {
            experiment.server_key = ServerKey::Rsa2048;
            experiment.security = "high".parse().unwrap();
        });
        assert!(why.contains("--security modern"), "{why}");
        let why = refused(|experiment| {
            experiment.rules = Rules::ByIdentity;
            experiment.credential = Credential::Anonymous;
        });
        assert!(why.contains("identity"), "{why}");
        let modern = "modern".parse().unwrap();
        let smaller = Experiment { server_key: ServerKey::Rsa2048, security: modern, ..Experiment::default() };
        assert_eq!(smaller.check(), Ok(()));
    }

    #[test]
    fn counts_have_both_ends() {
        assert!(refused(|experiment| experiment.publishers = 0).contains("1 to 1048576"));
        assert!(refused(|experiment| experiment.publishers = 2_000_000).contains("1 to 1048576"));
        let many = Experiment { publishers: 5_000, ..Experiment::default() };
        assert_eq!(many.check(), Ok(()));
        assert!(refused(|experiment| experiment.topics = 0).starts_with("topics is 0"));
        assert!(refused(|experiment| experiment.count = Some(0)).starts_with("count is 0"));
        assert!(refused(|experiment| experiment.count = Some(u64::MAX)).starts_with("count is "));
        assert!(refused(|experiment| experiment.payload_bytes = usize::MAX).starts_with("payload_bytes is "));
        let held = Experiment { operation: Operation::Hold, publishers: 5_000, ..Experiment::default() };
        assert_eq!(held.check(), Ok(()));
    }

    #[test]
    fn the_experiments_of_all_documents_are_within_their_bounds() {
        for name in paper::NAMES {
            let paper = paper::load(name).unwrap();
            for quick in [false, true] {
                let plan = paper::plan(&paper, &[], quick).unwrap();
                plan.experiments.iter().for_each(|experiment| assert_eq!(experiment.check(), Ok(()), "{experiment:?}"));
            }
        }
    }

    #[test]
    fn keys_that_contradict_each_other_are_refused() {
        let same = |experiment: &mut Experiment| (experiment.topics, experiment.topic) = (4, "same".to_owned());
        assert_eq!(refused(same), "4 topics are one: \"same\" has no {} for their number");
        let short = |experiment: &mut Experiment| (experiment.publishers, experiment.payload_bytes) = (2, 3);
        assert!(refused(short).contains("a topic for each publisher"));
        let both = |experiment: &mut Experiment| (experiment.rate, experiment.gap_seconds) = (Some(1.0), Some(1.0));
        assert!(refused(both).contains("only one of them"));
        assert!(refused(|experiment| experiment.gap_seconds = Some(f64::NAN)).starts_with("gap_seconds is "));
        assert!(refused(|experiment| experiment.arrivals = Arrivals::Poisson).contains("those of a rate"));
        assert!(refused(|experiment| experiment.rate_to = Some(5.0)).contains("from one rate to another"));
        let counted = |experiment: &mut Experiment| {
            (experiment.rate, experiment.rate_to, experiment.count) = (Some(1.0), Some(5.0), Some(10));
        };
        assert!(refused(counted).contains("no count ends it"));
        assert!(refused(|experiment| experiment.churn = Some(0.0)).starts_with("churn is "));
        assert!(refused(|experiment| experiment.churn = Some(f64::NAN)).starts_with("churn is "));
        assert!(refused(|experiment| experiment.storm_seconds = Some(5.0)).contains("less than 5"));
        let alone = |experiment: &mut Experiment| (experiment.churn, experiment.subscribers) = (Some(0.1), 0);
        assert!(refused(alone).contains("subscribers of deliver"));
        let bounded = |experiment: &mut Experiment| (experiment.churn, experiment.in_flight) = (Some(0.1), 5);
        assert!(refused(bounded).contains("in flight"));
        let threads = |experiment: &mut Experiment| (experiment.threads, experiment.publishers) = (2, 2);
        assert!(refused(threads).contains("2 threads need a topic each"));
        assert!(refused(|experiment| (experiment.threads, experiment.topics) = (2, 2)).contains("a publisher each"));
        assert!(refused(|experiment| experiment.threads = 0).starts_with("threads is 0"));
        let endless = |experiment: &mut Experiment| {
            (experiment.rate, experiment.rate_to) = (Some(1.0), Some(f64::INFINITY));
        };
        assert!(refused(endless).starts_with("rate_to is "));
        assert!(refused(|experiment| experiment.clock = Clock::Connecting).contains("warm-up"));
        assert!(refused(|experiment| experiment.link = "loss=nan%".to_owned()).contains("loss=nan%"));
    }
}
