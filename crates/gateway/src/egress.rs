//! Egress of a connection: the next step of its task to send what it has, and whether it may sleep.
//!
//! A pure state machine without socket, clock or waker. The task asks for the next [`Step`], takes it, and reports the
//! outcome. It may sleep only in states in which a waker is armed: the source's in [`State::Idle`], because the source
//! was found empty, and the stream's in [`State::Full`] and [`State::Flushing`], because it returned `Pending`. In
//! every other state there is work, and the task runs again.
//!
//! It also measures stalls: since when the peer has taken nothing.

use crate::stops::Running;

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
    /// The output may not be empty; `more`: the source may have something.
    Write { more: bool },
    /// The stream took all output, but may hold some of it back; `more`: the source may have something.
    Flush { more: bool },
    /// Source, output and stream are empty; the source wakes the task.
    Idle,
    /// The stream takes no more bytes; it wakes the task when it does.
    Full,
    /// The stream has not flushed everything; it wakes the task when it can go on.
    Flushing,
}

/// The state machine; see the module's documentation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Egress {
    state: State,
    stalled_since: Running,
}

impl Egress {
    /// Creates it for a connection that may have output already.
    pub(crate) const fn new() -> Self {
        Self { state: State::Fill, stalled_since: Running::NEVER }
    }

    /// The task was woken, or has added output. The waker is not known, so what the task waited for is tried again, and
    /// the source may have something.
    pub(crate) const fn wake(&mut self) {
        self.state = match self.state {
            State::Idle | State::Fill => State::Fill,
            State::Full | State::Write { .. } => State::Write { more: true },
            State::Flushing | State::Flush { .. } => State::Flush { more: true },
        };
    }

    /// The next step.
    pub(crate) const fn step(&self) -> Step {
        match self.state {
            State::Fill => Step::Fill,
            State::Write { .. } => Step::Write,
            State::Flush { .. } => Step::Flush,
            State::Idle | State::Full | State::Flushing => Step::Sleep,
        }
    }

    /// The source was drained. Its waker is armed, unless it has `more` or the output had no room.
    pub(crate) const fn filled(&mut self, more: bool) {
        self.state = State::Write { more };
    }

    /// The stream took bytes; `all`: the output is empty.
    pub(crate) const fn wrote(&mut self, all: bool) {
        self.stalled_since = Running::NEVER;
        let more = self.may_have_more();
        self.state = if all { State::Flush { more } } else { State::Write { more } };
    }

    /// The output was empty.
    pub(crate) const fn nothing_to_write(&mut self) {
        self.state = if self.may_have_more() { State::Fill } else { State::Idle };
    }

    /// The stream took nothing and will wake the task.
    pub(crate) fn write_blocked(&mut self, now: Running) {
        self.state = State::Full;
        self.stalled_since = self.stalled_since.min(now);
    }

    /// The stream holds nothing back.
    pub(crate) const fn flushed(&mut self) {
        self.stalled_since = Running::NEVER;
        self.state = if self.may_have_more() { State::Fill } else { State::Idle };
    }

    /// The stream holds bytes back and will wake the task.
    pub(crate) fn flush_blocked(&mut self, now: Running) {
        self.state = State::Flushing;
        self.stalled_since = self.stalled_since.min(now);
    }

    /// Whether there is a step to take without being woken.
    pub(crate) const fn is_runnable(&self) -> bool {
        !matches!(self.step(), Step::Sleep)
    }

    /// Whether everything was sent and the source was empty, as of the last step.
    pub(crate) const fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Since when the peer has taken nothing; [`Running::NEVER`] when it takes.
    pub(crate) const fn stalled_since(&self) -> Running {
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
