//! The bytes that wait for the other broker, told apart: messages of the gateway, whose number the Receive Maximum
//! bounds, and answers, of which a broker that takes nothing can cause any number.

use std::collections::VecDeque;

/// Where messages are in the bytes for a side, counted from the beginning of its connection.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// Where messages begin and end, in order; neighbours are one.
    messages: VecDeque<(u64, u64)>,
    /// Bytes of all of them.
    bytes: u64,
}

impl Owed {
    /// Notes a message that was appended.
    pub(super) fn message(&mut self, begin: u64, end: u64) {
        self.bytes += end.saturating_sub(begin);
        match self.messages.back_mut() {
            Some((_, last)) if *last == begin => *last = end,
            Some(_) | None => self.messages.push_back((begin, end)),
        }
    }

    /// The bytes of answers between what was taken and the end.
    pub(super) fn answers(&mut self, taken: u64, end: u64) -> u64 {
        while let Some((begin, last)) = self.messages.front_mut().filter(|(begin, _)| *begin < taken) {
            let until = taken.min(*last);
            self.bytes = self.bytes.saturating_sub(until.saturating_sub(*begin));
            *begin = until;
            if until < *last {
                break;
            }
            self.messages.pop_front();
        }
        end.saturating_sub(taken).saturating_sub(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_no_answers_whatever_part_of_them_was_taken() {
        let mut owed = Owed::default();
        // 10 of answers, 30 of two messages, 5 of answers, 15 of a message.
        for (begin, end) in [(10, 25), (25, 40), (45, 60)] {
            owed.message(begin, end);
        }
        assert_eq!(owed.messages.len(), 2);
        for (taken, answers) in [(0, 15), (4, 11), (10, 5), (30, 5), (40, 5), (43, 2), (45, 0), (50, 0), (60, 0)] {
            assert_eq!(owed.answers(taken, 60), answers, "{taken}");
        }
        assert_eq!((owed.bytes, owed.messages.len()), (0, 0));
        assert_eq!(owed.answers(60, 70), 10);
    }
}
