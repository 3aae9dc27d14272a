//! The content of payloads: one that arrives has to have its length, and behind the stamp the bytes that were sent.

use super::stage::is_stamped;
use super::stamp;
use crate::experiment::Experiment;

/// The text of an error for a payload that is another one.
pub(crate) const ALTERED: &str = "a payload that differs from the one that was sent";

/// The payload of all messages of an experiment.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// As it is without a stamp.
    whole: Vec<u8>,
    /// Bytes of the stamp, which is different in each.
    stamp_bytes: usize,
}

impl Content {
    /// Of the messages that publishers send.
    pub(crate) fn of(experiment: &Experiment) -> Self {
        let stamp_bytes = if is_stamped(experiment) { stamp::STAMP_BYTES } else { 0 };
        Self { whole: stamp::filler(experiment.payload_bytes, experiment.seed), stamp_bytes }
    }

    /// The message that is kept for those who ask, which has no stamp.
    pub(crate) fn kept(experiment: &Experiment) -> Self {
        Self { stamp_bytes: 0, ..Self::of(experiment) }
    }

    /// Whether a payload that arrived is what was sent, from the first byte behind its stamp to the last.
    #[inline]
    pub(crate) fn is(&self, payload: &[u8]) -> bool {
        payload.len() == self.whole.len() && payload.get(self.stamp_bytes..) == self.whole.get(self.stamp_bytes..)
    }

    /// Whether it is the message that is kept for those who ask, where others have stamps.
    pub(crate) fn is_kept(&self, payload: &[u8]) -> bool {
        self.stamp_bytes > 0 && payload == self.whole
    }

    /// Whether a payload of no message is what is left of one of them: its stamp cannot be read, and all behind it is
    /// there, or not even all of the stamp.
    pub(crate) fn is_damaged(&self, has_stamp: bool, payload: &[u8]) -> bool {
        self.stamp_bytes > 0 && !has_stamp && (payload.len() < self.stamp_bytes || self.is(payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_behind_the_stamp_counts_and_so_does_the_length() {
        let experiment = Experiment { payload_bytes: 20, ..Experiment::default() };
        let content = Content::of(&experiment);
        let mut sent = stamp::filler(20, experiment.seed);
        stamp::Stamp::of(4).write(&mut sent, 3, 77);
        assert!(content.is(&sent) && !content.is(&sent[..19]) && !content.is(&[&sent[..], b"?"].concat()));
        for at in 0..20 {
            let mut altered = sent.clone();
            altered[at] ^= 1;
            assert_eq!(content.is(&altered), at < stamp::STAMP_BYTES, "byte {at}");
        }
        assert!(!Content::kept(&experiment).is(&sent));
        assert!(Content::kept(&experiment).is(&stamp::filler(20, experiment.seed)));
    }

    #[test]
    fn short_payloads_have_no_stamp_and_are_compared_from_their_first_byte() {
        let experiment = Experiment { payload_bytes: 3, ..Experiment::default() };
        let content = Content::of(&experiment);
        let sent = stamp::filler(3, experiment.seed);
        assert!(content.is(&sent));
        assert!(!content.is(&[sent[0] ^ 1, sent[1], sent[2]]) && !content.is(b""));
    }
}
