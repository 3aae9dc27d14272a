//! Answers that wait for the store: nothing is written before what it promises is on the disk. If it cannot be, the
//! answers that promise it become errors, and the stream goes on.

use std::{
    collections::VecDeque,
    future::Future as _,
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
};

use fogmux_bus::Completion;
use fogmux_xmpp::iq;

use super::publish::full;

/// The answers in the output that wait, in their order there.
#[derive(Debug, Default)]
pub(super) struct Held(VecDeque<Wait>);

/// A completion, and the place of an answer that is true only if it succeeds.
#[derive(Debug)]
struct Wait {
    completion: Completion,
    answer: Range<usize>,
}

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Has the answer that begins here wait for the completion, besides others.
    pub(super) fn wait(&mut self, start: usize, completion: &Completion) {
        let is_new = |last: &Wait| last.answer.start != start || !last.completion.is_same(completion);
        if self.0.back().is_none_or(is_new) {
            self.0.push_back(Wait { completion: completion.clone(), answer: start..start });
        }
    }

    /// The answer that begins at `start` is written.
    pub(super) fn answered(&mut self, start: usize, end: usize) {
        for wait in self.0.iter_mut().rev().take_while(|wait| wait.answer.start == start) {
            wait.answer.end = end;
        }
    }

    /// The answer that would begin here is an error, and waits for nothing.
    pub(super) fn refused(&mut self, start: usize) {
        while self.0.back().is_some_and(|last| last.answer.start == start) {
            self.0.pop_back();
        }
    }

    /// Whether all have resolved. Answers whose completion failed are replaced in the output, after `undo` was called.
    pub(super) fn poll(&mut self, out: &mut Vec<u8>, cx: &mut Context<'_>, mut undo: impl FnMut()) -> Poll<()> {
        while let Some(first) = self.0.front_mut() {
            let kept = ready!(Pin::new(&mut first.completion).poll(cx));
            let completion = std::mem::take(&mut first.completion);
            // One commit writes much of what comes together: its result is asked for once.
            let same = 1 + self.0.iter().skip(1).take_while(|wait| wait.completion.is_same(&completion)).count();
            let resolved = self.0.drain(..same).map(|wait| wait.answer);
            if kept.is_err() {
                undo();
                let failed: Vec<Range<usize>> = resolved.collect();
                self.replace(&failed, out);
            }
        }
        Poll::Ready(())
    }

    /// Replaces these answers by errors. The others that wait are behind them.
    fn replace(&mut self, failed: &[Range<usize>], out: &mut Vec<u8>) {
        let before = std::mem::take(out);
        let mut done = 0;
        for answer in failed {
            out.extend_from_slice(before.get(done..answer.start).unwrap_or_default());
            iq::refuse(before.get(answer.clone()).unwrap_or_default(), &full(), out);
            done = answer.end;
        }
        out.extend_from_slice(before.get(done..).unwrap_or_default());
        // The last of them is an error now, so its other completions do not matter.
        while self.0.front().is_some_and(|next| next.answer.start < done) {
            self.0.pop_front();
        }
        let moved = |place: usize| (place + out.len()).saturating_sub(before.len());
        for wait in &mut self.0 {
            wait.answer = moved(wait.answer.start)..moved(wait.answer.end);
        }
    }

    /// Drops the answers that wait, with all that follows them, from the output.
    pub(super) fn drop_all(&mut self, written: usize, out: &mut Vec<u8>) {
        if let Some(first) = self.0.front() {
            out.truncate(written.max(first.answer.start));
            self.0.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, task::Waker};

    use fogmux_bus::{Completer, StoreFailed};
    use fogmux_xmpp::iq::Answer;
    use proptest::prelude::*;

    use super::*;

    const TO: &str = "a@localhost/x";

    /// Each answer waits for some of three commits; in between stands what waits for nothing.
    fn expected(waits: &[Vec<usize>], results: [bool; 3]) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, commits) in waits.iter().enumerate() {
            let id = number.to_string();
            let answer = Answer { id: &id, from: None, to: TO };
            if commits.iter().all(|commit| results[*commit]) {
                answer.result(&mut out, |w| {
                    w.leaf("node", &"n".repeat(number * 40));
                });
            } else {
                answer.error(&mut out, &full());
            }
            out.extend_from_slice(b"<r/>");
        }
        out
    }

    proptest! {
        #[test]
        fn each_answer_is_that_of_its_commits_in_whatever_order_they_end(
            waits in prop::collection::vec(prop::collection::vec(0_usize..3, 0..4), 0..12),
            results in any::<[bool; 3]>(),
            order in Just([0_usize, 1, 2]).prop_shuffle(),
        ) {
            let commits: [Arc<Completer>; 3] = std::array::from_fn(|_| Arc::default());
            let (mut held, mut out) = (Held::default(), Vec::new());
            for (number, waits) in waits.iter().enumerate() {
                let start = out.len();
                for commit in waits {
                    held.wait(start, &Completion::Waiting(Arc::clone(&commits[*commit])));
                }
                let id = number.to_string();
                let answer = Answer { id: &id, from: None, to: TO };
                answer.result(&mut out, |w| {
                    w.leaf("node", &"n".repeat(number * 40));
                });
                held.answered(start, out.len());
                out.extend_from_slice(b"<r/>");
            }
            let mut cx = Context::from_waker(Waker::noop());
            for commit in order {
                if held.poll(&mut out, &mut cx, || ()).is_pending() {
                    prop_assert!(!held.is_empty());
                }
                commits[commit].complete(if results[commit] { Ok(()) } else { Err(StoreFailed) });
            }
            prop_assert!(held.poll(&mut out, &mut cx, || ()).is_ready());
            prop_assert!(held.is_empty());
            prop_assert_eq!(String::from_utf8(out).unwrap(), String::from_utf8(expected(&waits, results)).unwrap());
        }
    }

    #[test]
    fn an_answer_that_is_an_error_already_waits_for_nothing() {
        let (mut held, commit) = (Held::default(), Completion::Waiting(Arc::default()));
        held.wait(0, &commit);
        held.answered(0, 10);
        held.wait(10, &commit);
        held.refused(10);
        assert_eq!(held.0.len(), 1);
        held.refused(0);
        assert!(held.is_empty());
    }
}
