//! The whole grid of states and events, and a model of a source and a stream.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

const NOW: Running = Running::from_millis(7);

const STATES: [State; 8] = [
    State::Fill,
    State::Write { more: false },
    State::Write { more: true },
    State::Flush { more: false },
    State::Flush { more: true },
    State::Idle,
    State::Full,
    State::Flushing,
];

type Event = (&'static str, fn(&mut Egress));

const EVENTS: [Event; 9] = [
    ("wake", |egress| egress.wake()),
    ("filled", |egress| egress.filled(false)),
    ("filled+", |egress| egress.filled(true)),
    ("wrote", |egress| egress.wrote(false)),
    ("wrote all", |egress| egress.wrote(true)),
    ("nothing", |egress| egress.nothing_to_write()),
    ("full", |egress| egress.write_blocked(NOW)),
    ("flushed", |egress| egress.flushed()),
    ("flushing", |egress| egress.flush_blocked(NOW)),
];

const fn name(state: State) -> &'static str {
    match state {
        State::Fill => "Fill",
        State::Write { more: false } => "Write",
        State::Write { more: true } => "Write+",
        State::Flush { more: false } => "Flush",
        State::Flush { more: true } => "Flush+",
        State::Idle => "Idle",
        State::Full => "Full",
        State::Flushing => "Flushing",
    }
}

/// `+`: the source may have more.
const GRID: &str = "\
state     wake     filled   filled+  wrote    wrote al nothing  full     flushed  flushing
Fill      Fill     Write    Write+   Write+   Flush+   Fill     Full     Fill     Flushing
Write     Write+   Write    Write+   Write    Flush    Idle     Full     Idle     Flushing
Write+    Write+   Write    Write+   Write+   Flush+   Fill     Full     Fill     Flushing
Flush     Flush+   Write    Write+   Write    Flush    Idle     Full     Idle     Flushing
Flush+    Flush+   Write    Write+   Write+   Flush+   Fill     Full     Fill     Flushing
Idle      Fill     Write    Write+   Write    Flush    Idle     Full     Idle     Flushing
Full      Write+   Write    Write+   Write+   Flush+   Fill     Full     Fill     Flushing
Flushing  Flush+   Write    Write+   Write+   Flush+   Fill     Full     Fill     Flushing
";

#[test]
fn every_event_in_every_state() {
    let mut grid = format!("{:10}", "state");
    for (event, _) in EVENTS {
        let _ = write!(grid, "{event:9.8}");
    }
    grid = format!("{}\n", grid.trim_end());
    for state in STATES {
        let mut row = format!("{:10}", name(state));
        for (_, event) in EVENTS {
            let mut egress = Egress { state, stalled_since: Running::NEVER };
            event(&mut egress);
            let _ = write!(row, "{:9}", name(egress.state));
        }
        grid.push_str(row.trim_end());
        grid.push('\n');
    }
    assert_eq!(grid, GRID);
}

#[test]
fn a_stall_lasts_from_the_first_byte_that_is_not_taken_to_the_next_that_is() {
    let mut egress = Egress::new();
    egress.write_blocked(Running::from_millis(5));
    egress.wake();
    egress.write_blocked(Running::from_millis(9));
    assert_eq!(egress.stalled_since(), Running::from_millis(5));
    egress.wake();
    egress.wrote(false);
    assert_eq!(egress.stalled_since(), Running::NEVER);
    egress.wrote(true);
    egress.flush_blocked(Running::from_millis(11));
    egress.wake();
    assert_eq!((egress.step(), egress.stalled_since()), (Step::Flush, Running::from_millis(11)));
    egress.flushed();
    assert_eq!(egress.stalled_since(), Running::NEVER);
}

/// An event that may happen to a connection while its task sleeps or works.
#[derive(Clone, Copy, Debug)]
enum Happens {
    /// So many messages arrive.
    Arrive(u8),
    /// The peer takes so many bytes.
    Taken(u8),
}

/// A source that hands out `CHUNK` messages at a time, and a stream with a buffer of its own above a socket.
#[derive(Debug, Default)]
struct Model {
    waiting: usize,
    /// The source wakes the task at the next arrival.
    armed: bool,
    output: usize,
    /// In the stream, until flushed.
    held: usize,
    socket: usize,
    blocked: bool,
    arrived: usize,
    delivered: usize,
}

const CHUNK: usize = 3;
const HELD_MAX: usize = 5;
const SOCKET_MAX: usize = 4;

impl Model {
    /// One poll of the task with a budget of steps, of which it needs four to come to rest; says whether it comes again
    /// by itself.
    fn poll(&mut self, egress: &mut Egress, budget: usize) -> bool {
        egress.wake();
        for _ in 0..budget {
            match egress.step() {
                Step::Fill => {
                    let taken = if self.output < CHUNK { self.waiting.min(CHUNK) } else { 0 };
                    self.waiting -= taken;
                    self.output += taken;
                    self.armed = self.waiting == 0;
                    egress.filled(self.waiting > 0);
                }
                Step::Write => self.write(egress),
                Step::Flush => {
                    self.pass_on();
                    if self.held == 0 { egress.flushed() } else { self.block(|| egress.flush_blocked(NOW)) }
                }
                Step::Sleep => return false,
            }
        }
        egress.is_runnable()
    }

    fn block(&mut self, report: impl FnOnce()) {
        self.blocked = true;
        report();
    }

    fn write(&mut self, egress: &mut Egress) {
        if self.output == 0 {
            return egress.nothing_to_write();
        }
        self.pass_on();
        let taken = self.output.min(HELD_MAX - self.held);
        if taken == 0 {
            return self.block(|| egress.write_blocked(NOW));
        }
        self.output -= taken;
        self.held += taken;
        egress.wrote(self.output == 0);
    }

    fn pass_on(&mut self) {
        let passed = self.held.min(SOCKET_MAX - self.socket);
        self.held -= passed;
        self.socket += passed;
    }

    /// Says whether the task is woken.
    fn happens(&mut self, what: Happens) -> bool {
        match what {
            Happens::Arrive(count) => {
                self.waiting += usize::from(count);
                self.arrived += usize::from(count);
                std::mem::take(&mut self.armed)
            }
            Happens::Taken(count) => {
                let taken = self.socket.min(usize::from(count));
                self.socket -= taken;
                self.delivered += taken;
                taken > 0 && std::mem::take(&mut self.blocked)
            }
        }
    }
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![(1_u8..20).prop_map(Happens::Arrive), (1_u8..20).prop_map(Happens::Taken)]
}

proptest! {
    /// Wakes come only from the source and from the stream; a peer that takes everything in the end gets everything.
    #[test]
    fn a_peer_that_reads_gets_everything(script in prop::collection::vec(happens(), 0..200), budget in 4_usize..12) {
        let (mut model, mut egress) = (Model::default(), Egress::new());
        let mut awake = true;
        for what in script {
            awake |= model.happens(what);
            if awake {
                awake = model.poll(&mut egress, budget);
            }
        }
        for _ in 0..10_000 {
            if awake {
                awake = model.poll(&mut egress, budget);
            }
            awake |= model.happens(Happens::Taken(u8::MAX));
        }
        prop_assert_eq!(model.delivered, model.arrived, "{:?} {:?}", model, egress);
        prop_assert!(egress.is_idle());
    }
}
