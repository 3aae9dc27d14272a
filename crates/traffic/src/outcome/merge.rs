//! The outcome of several threads together.

use super::{Bytes, Comings, Outcome, Slice, Storm};

impl Outcome {
    /// Adds what another thread has counted in the same time. What was read of processes and of the link is that of
    /// this one, for all.
    pub(crate) fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.acknowledged += other.acknowledged;
        let both = |one: Option<u64>, other: Option<u64>| one.zip(other).map(|(one, other)| one + other);
        self.offered = both(self.offered, other.offered);
        self.behind = both(self.behind, other.behind);
        self.unsent = both(self.unsent, other.unsent);
        self.unsent_latency.add(&other.unsent_latency);
        self.sending_seconds = self.sending_seconds.zip(other.sending_seconds).map(|(one, other)| one.max(other));
        self.unanswered += other.unanswered;
        self.errors += other.errors;
        self.foreign += other.foreign;
        self.first_error = self.first_error.take().or(other.first_error);
        self.expected += other.expected;
        self.delivered += other.delivered;
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.conflated += other.conflated;
        self.disconnects += other.disconnects;
        self.seconds = self.seconds.max(other.seconds);
        self.delivery.add(&other.delivery);
        self.answer.add(&other.answer);
        self.connect.add(&other.connect);
        if self.per_tenth.len() < other.per_tenth.len() {
            self.per_tenth.resize(other.per_tenth.len(), 0);
        }
        self.per_tenth.iter_mut().zip(other.per_tenth).for_each(|(one, other)| *one += other);
        self.slices.iter_mut().zip(&other.slices).for_each(|(one, other)| one.add(other));
        self.comings = match (self.comings.take(), other.comings) {
            (Some(one), Some(other)) => Some(one.plus(other)),
            (one, other) => one.or(other),
        };
        self.bytes = self.bytes.plus(other.bytes);
        self.connect_bytes = self.connect_bytes.plus(other.connect_bytes);
        if self.cipher.is_empty() {
            self.cipher = other.cipher;
        }
        self.limited_by_generator = self.limited_by_generator.take().or(other.limited_by_generator);
    }
}

impl Slice {
    fn add(&mut self, other: &Self) {
        self.offered += other.offered;
        self.begun += other.begun;
        self.sent += other.sent;
        self.unsent += other.unsent;
        self.acknowledged += other.acknowledged;
        self.errors += other.errors;
        self.expected += other.expected;
        self.delivered += other.delivered;
        self.latency.add(&other.latency);
    }
}

impl Comings {
    fn plus(mut self, other: Self) -> Self {
        self.left += other.left;
        self.returned += other.returned;
        self.failed += other.failed;
        self.away.add(&other.away);
        self.connect.add(&other.connect);
        self.connect_bytes = Bytes { wire: None, ..self.connect_bytes.plus(other.connect_bytes) };
        self.storm = match (self.storm, other.storm) {
            (Some(one), Some(other)) => Some(one.plus(other)),
            (one, other) => one.or(other),
        };
        self
    }
}

impl Storm {
    fn plus(self, other: Self) -> Self {
        // All are back when the last of all threads is. Processor time was read when the first thread's were.
        let all_back_s = self.all_back_s.zip(other.all_back_s).map(|(one, other)| one.max(other));
        let is_whole = all_back_s.is_some() && all_back_s == self.all_back_s;
        Self {
            at_s: self.at_s,
            all_back_s,
            under_way: self.under_way + other.under_way,
            expected: self.expected + other.expected,
            delivered: self.delivered + other.delivered,
            duplicates: self.duplicates + other.duplicates,
            gateway_cpu_us: self.gateway_cpu_us.filter(|_| is_whole),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_what_one_does_not_know_nobody_knows() {
        let part = |delivered: u64, tenths: &[u64], back: Option<f64>| {
            let storm =
                Storm { all_back_s: back, expected: 5, delivered: 2, gateway_cpu_us: Some(7.0), ..Storm::default() };
            let mut outcome = Outcome {
                offered: Some(10),
                unsent: Some(1),
                seconds: f64::from(u32::try_from(delivered).unwrap()),
                sent: 9,
                unanswered: 2,
                foreign: 3,
                delivered,
                per_tenth: tenths.to_vec(),
                slices: vec![Slice { offered: 3, ..Slice::default() }],
                comings: Some(Comings { left: 2, storm: Some(storm), ..Comings::default() }),
                ..Outcome::default()
            };
            outcome.delivery.record_many_ns(1_000, delivered);
            outcome
        };
        let mut all = part(8, &[5, 3], Some(1.0));
        all.add(part(7, &[1, 2, 4], Some(2.0)));
        assert_eq!((all.sent, all.offered, all.unsent, all.delivered), (18, Some(20), Some(2), 15));
        assert_eq!((all.unanswered, all.foreign), (4, 6));
        assert_eq!((all.delivery.count(), all.seconds), (15, 8.0));
        assert_eq!(all.per_tenth, [6, 5, 4]);
        assert_eq!(all.slices.first().map(|slice| slice.offered), Some(6));
        let comings = all.comings.clone().unwrap();
        let storm = comings.storm.unwrap();
        assert_eq!((comings.left, storm.lost(), storm.all_back_s, storm.gateway_cpu_us), (4, 6, Some(2.0), None));
        all.add(part(1, &[], None));
        assert_eq!(all.comings.and_then(|comings| comings.storm).and_then(|storm| storm.all_back_s), None);
    }
}
