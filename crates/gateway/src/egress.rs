//! Egress of a connection: what its task does next to send what it has, and whether it may sleep.
//!
//! A pure state machine without socket, clock or waker. The task asks for the next [`Step`], takes it, and reports what
//! happened. A state in which the task may sleep is one in which a waker is armed: the source's in [`State::Idle`], for
//! it was found empty, and the stream's in [`State::Full`] and [`State::Flushing`], for it said `Pending`. In every
//! other state there is something to do, and the task comes again.
//!
//! It also measures stalls: since when the peer has taken nothing of what was offered.

use fogmux_bus::Timestamp;

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Move messages from the source to the output, as far as there is room.
    Fill,
    /// Write the output.
    Write,
    /// Flush the stream: TLS, a WebSocket or HTTP/2 may hold what was written.
    Flush,
    /// Nothing; a waker is armed.
    Sleep,
}

/// The state of the source, the output and the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The source may have something.
    Fill,
    /// The output may have something; `more`: so may the source.
    Write { more: bool },
    /// All output was taken by the stream, which may hold some of it; `more`: the source may have something.
    Flush { more: bool },
    /// Nothing is left anywhere; the source wakes the task.
    Idle,
    /// The stream takes no more bytes and wakes the task when it does.
    Full,
    /// The stream has not passed on all that it took and wakes the task when it goes on.
    Flushing,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Egress {
    state: State,
    stalled_since: Timestamp,
}

impl Egress {
    /// A connection whose output may have something already.
    pub(crate) const fn new() -> Self {
        Self { state: State::Fill, stalled_since: Timestamp::NEVER }
    }

    /// The task was woken, or has put something into the output. Nobody knows by whom it was woken, so that what it
    /// waited for is tried again, and the source may have something from now on.
    pub(crate) const fn wake(&mut self) {
        self.state = match self.state {
            State::Idle | State::Fill => State::Fill,
            State::Full | State::Write { .. } => State::Write { more: true },
            State::Flushing | State::Flush { .. } => State::Flush { more: true },
        };
    }

    /// What to do next.
    pub(crate) const fn step(&self) -> Step {
        match self.state {
            State::Fill => Step::Fill,
            State::Write { .. } => Step::Write,
            State::Flush { .. } => Step::Flush,
            State::Idle | State::Full | State::Flushing => Step::Sleep,
        }
    }

    /// The source was asked. Its waker is armed, unless it has `more` or there was no room to ask it.
    pub(crate) const fn filled(&mut self, more: bool) {
        self.state = State::Write { more };
    }

    /// The stream took bytes; `all`: all that there were.
    pub(crate) const fn wrote(&mut self, all: bool) {
        self.stalled_since = Timestamp::NEVER;
        let more = self.may_have_more();
        self.state = if all { State::Flush { more } } else { State::Write { more } };
    }

    /// The output was empty.
    pub(crate) const fn nothing_to_write(&mut self) {
        self.state = if self.may_have_more() { State::Fill } else { State::Idle };
    }

    /// The stream takes nothing and will wake the task when it does.
    pub(crate) fn write_blocked(&mut self, now: Timestamp) {
        self.state = State::Full;
        self.stalled_since = self.stalled_since.min(now);
    }

    /// Everything that was written is on its way.
    pub(crate) const fn flushed(&mut self) {
        self.stalled_since = Timestamp::NEVER;
        self.state = if self.may_have_more() { State::Fill } else { State::Idle };
    }

    /// The stream still holds bytes and will wake the task when it goes on.
    pub(crate) fn flush_blocked(&mut self, now: Timestamp) {
        self.state = State::Flushing;
        self.stalled_since = self.stalled_since.min(now);
    }

    /// Whether the task has something to do without being woken.
    pub(crate) const fn is_runnable(&self) -> bool {
        !matches!(self.step(), Step::Sleep)
    }

    /// Whether everything was sent, and the source had nothing, when they were looked at last.
    pub(crate) const fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Since when the peer has taken nothing of what it was offered; [`Timestamp::NEVER`] when it takes.
    pub(crate) const fn stalled_since(&self) -> Timestamp {
        self.stalled_since
    }

    const fn may_have_more(&self) -> bool {
        match self.state {
            State::Write { more } | State::Flush { more } => more,
            State::Idle => false,
            State::Fill | State::Full | State::Flushing => true,
        }
    }
}

#[cfg(test)]
mod tests;
