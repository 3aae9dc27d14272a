//! Any order of notifications, requests and answers: what is told of a resource never goes back, and ends on the
//! newest.

use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// The tag of a state, and the bytes of its payload: none if there is no value, one block, or two.
#[derive(Clone, Copy, Debug)]
struct State {
    etag: u8,
    bytes: usize,
}

/// A step of the server, or of the network.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The resource changes; its payload has so many bytes.
    Change(usize),
    /// The oldest notification arrives.
    Notify,
    /// The oldest request is answered from the newest state.
    Answer,
}

/// A server with one resource below the filter that is observed.
struct Server {
    bench: Bench,
    newest: State,
    notifications: VecDeque<State>,
    answered: usize,
    told: Vec<usize>,
}

const RESOURCE: &str = "ps/a";

impl Server {
    fn new() -> Self {
        let mut bench = Bench::observing("ps");
        let first = bench.first();
        bench.answer(&first, Code::CONTENT, small(1, b""));
        assert_eq!(bench.told().len(), 1);
        let newest = State { etag: 0, bytes: 0 };
        Self { bench, newest, notifications: VecDeque::new(), answered: 1, told: Vec::new() }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Change(bytes) => {
                self.newest = State { etag: self.newest.etag + 1, bytes };
                self.notifications.push_back(self.newest);
            }
            Step::Notify => {
                let Some(State { etag, bytes }) = self.notifications.pop_front() else { return };
                let payload = vec![etag; bytes.min(16)];
                let block = (bytes > 16).then_some((0, true));
                // The sequence of a notification is that of its state.
                let notification =
                    Reply { sequence: Some(1 + etag), etag, location: RESOURCE, block, payload: &payload };
                self.bench.notify(Type::NonConfirmable, notification);
            }
            Step::Answer => self.answer(),
        }
        for (code, location, payload) in self.bench.told() {
            assert_eq!((code, location.as_str()), (Code::CONTENT, RESOURCE));
            assert!(payload.iter().all(|byte| *byte == payload[0]), "one state: {payload:?}");
            self.told.push(payload.first().copied().unwrap_or_default().into());
        }
    }

    fn answer(&mut self) {
        let Some(request) = self.bench.sent.get(self.answered).cloned() else { return };
        self.answered += 1;
        let (State { etag, bytes }, number) = (self.newest, request.block.unwrap_or_default());
        let start = 16 * number as usize;
        if bytes == 0 {
            return self.bench.answer(&request, Code::NOT_FOUND, Reply::default());
        }
        if start >= bytes {
            return self.bench.answer(&request, Code::BAD_REQUEST, Reply::default());
        }
        let payload = vec![etag; (bytes - start).min(16)];
        let block = Some((u8::try_from(number).unwrap(), start + 16 < bytes));
        self.bench.answer(&request, Code::CONTENT, Reply { etag, block, payload: &payload, ..Reply::default() });
    }

    /// All that is on its way arrives.
    fn settle(&mut self) {
        while !self.notifications.is_empty() || self.answered < self.bench.sent.len() {
            self.step(Step::Answer);
            self.step(Step::Notify);
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![1 => Just(0), 4 => 1..=16_usize, 4 => 17..=32_usize, 1 => 33..=64_usize];
    prop_oneof![3 => bytes.prop_map(Step::Change), 2 => Just(Step::Notify), 4 => Just(Step::Answer)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_told_of_a_resource_never_goes_back_and_ends_on_the_newest(steps in vec(step(), 1..60)) {
        let mut server = Server::new();
        steps.into_iter().for_each(|step| server.step(step));
        server.settle();
        // No value is told as 0, whenever that was.
        let values: Vec<_> = server.told.iter().copied().filter(|etag| *etag > 0).collect();
        prop_assert!(values.is_sorted(), "{:?}", server.told);
        let State { etag, bytes } = server.newest;
        let newest = if bytes > 0 { usize::from(etag) } else { 0 };
        prop_assert_eq!(server.told.last().copied().unwrap_or_default(), newest, "{:?}", server.told);
    }
}
