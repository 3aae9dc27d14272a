//! The search for a message because of which the other broker ends the connection: it would be sent again at each
//! connection, and nothing behind it would arrive.
//!
//! A line that is cut looks the same as a broker that closes the connection, so no message is dropped for that alone.
//! When nothing was acknowledged on several connections, the link passes messages of QoS 1 and 2 on one at a time, and
//! the first of a connection only after the connection was quiet for some seconds and a ping was answered. If the
//! broker closes it within a second behind that message, and does so three times in a row, the message is the cause.
//! On a line that is cut at random, most connections that outlive the pause bring the acknowledgement as well, and one
//! that ends in the pause acquits the message.

use std::time::Duration;

use fogmux_mqtt::PacketId;
use tokio::time::Instant;

use super::failure::Kind;

/// Connections in a row on which nothing was acknowledged and that the other broker has closed, before the search.
const CLOSED_MIN: u32 = 2;
/// Connections in a row that have ended behind a message that was sent alone, before it is dropped.
const ENDED_MIN: u32 = 3;
/// The shortest pause before the first message of a connection; the longest is twice that, so that it is not in step
/// with a line whose connections all last for the same time.
pub(super) const QUIET: Duration = Duration::from_secs(4);
/// The time in which the broker has closed the connection if the message is the reason.
const SOON: Duration = Duration::from_secs(1);
/// The search is over when nothing has come for so long behind the pause, or when a message waits for its
/// acknowledgement for longer.
const IDLE: Duration = Duration::from_secs(5);
const UNANSWERED: Duration = Duration::from_secs(30);
/// Messages acknowledged before the search is over, at most.
const PASSED_MAX: u16 = 1000;
/// Messages dropped in a row at most: a broker that takes none at all has another reason.
const DROPPED_MAX: u32 = 10;

/// A message of QoS 1 or 2 for the other broker, under its name at the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) id: PacketId,
    pub(super) topic: String,
}

/// The lessons of the last connections.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    /// Connections in a row that ended while nothing was acknowledged.
    closed: u32,
    /// The message that was sent alone, and the connections in a row that it has ended.
    suspect: Option<(Message, u32)>,
    /// Messages dropped since one was acknowledged.
    dropped: u32,
}

/// A connection that has ended.
#[derive(Debug)]
pub(super) struct Ended<'a> {
    pub(super) kind: Kind,
    /// Whether messages waited for their acknowledgements, and whether any was acknowledged.
    pub(super) is_waiting: bool,
    pub(super) is_acknowledged: bool,
    pub(super) search: Option<&'a Search>,
    pub(super) at: Instant,
}

impl Suspicion {
    /// Whether the next connection searches.
    pub(super) const fn is_there(&self) -> bool {
        self.closed >= CLOSED_MIN
    }

    /// The search of a connection that begins now, in place of `window` messages at a time.
    pub(super) fn search(&self, window: u16, quiet: Duration) -> Option<Search> {
        let guilty = self.suspect.as_ref().filter(|(_, ended)| *ended >= ENDED_MIN && self.dropped < DROPPED_MAX);
        let guilty = guilty.map(|(message, _)| message.clone());
        self.is_there().then(|| Search::new(guilty, window, Instant::now() + quiet))
    }

    /// Learns from the end of a connection. Returns whether it was the last message that may be dropped in a row.
    pub(super) fn learn(&mut self, ended: &Ended<'_>) -> bool {
        let is_closed = ended.kind == Kind::Closed && ended.is_waiting;
        let dropped = ended.search.is_some_and(|search| search.has_dropped);
        self.dropped = if ended.is_acknowledged { 0 } else { self.dropped + u32::from(dropped) };
        let Some(search) = ended.search else {
            self.suspect = None;
            self.closed = if is_closed && !ended.is_acknowledged { self.closed + 1 } else { 0 };
            return false;
        };
        let before = self.suspect.take();
        let suspect = search.released.as_ref().filter(|_| is_closed && !ended.is_acknowledged);
        let suspect = suspect.filter(|released| ended.at <= released.taken.unwrap_or(released.at) + SOON);
        if let Some(Released { message, .. }) = suspect {
            let times = before.filter(|(before, _)| before == message).map_or(0, |(_, times)| times);
            self.suspect = Some((message.clone(), times + 1));
        } else if !(is_closed && ended.is_acknowledged) {
            // The line is bad, or nothing was found.
            self.closed = 0;
        }
        dropped && self.dropped == DROPPED_MAX
    }
}

/// The search on one connection.
#[derive(Debug)]
pub(super) struct Search {
    /// To be dropped when it comes.
    guilty: Option<Message>,
    has_dropped: bool,
    /// When the pause is over.
    quiet_until: Instant,
    /// The message that waits for that, as a packet.
    held: Option<(Message, Vec<u8>)>,
    is_asked: bool,
    released: Option<Released>,
    /// Messages to be acknowledged before the search is over.
    left: u16,
}

/// A message that was sent alone.
#[derive(Debug)]
struct Released {
    message: Message,
    at: Instant,
    /// When the system had taken all of it.
    taken: Option<Instant>,
}

/// The fates of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Drop,
    Hold,
    Pass,
}

/// The next steps.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// A ping is to be sent.
    Ask,
    /// The search is over.
    Over,
}

impl Search {
    fn new(guilty: Option<Message>, window: u16, quiet_until: Instant) -> Self {
        let left = window.clamp(1, PASSED_MAX);
        Self { guilty, has_dropped: false, quiet_until, held: None, is_asked: false, released: None, left }
    }

    /// Judges the next message.
    pub(super) fn judge(&mut self, message: &Message) -> Verdict {
        if self.guilty.take_if(|guilty| guilty == message).is_some() {
            self.has_dropped = true;
            return Verdict::Drop;
        }
        // Another came in its place: it has expired.
        self.guilty = None;
        if self.released.is_some() { Verdict::Pass } else { Verdict::Hold }
    }

    /// Holds a packet back.
    pub(super) fn hold(&mut self, message: Message, packet: Vec<u8>) {
        self.held = Some((message, packet));
    }

    /// A ping was answered: the connection stands. Returns the packet to send.
    pub(super) fn answered(&mut self, now: Instant) -> Option<Vec<u8>> {
        let (message, packet) = self.held.take_if(|_| self.is_asked)?;
        self.released = Some(Released { message, at: now, taken: None });
        Some(packet)
    }

    /// The system has taken everything.
    pub(super) fn taken(&mut self, now: Instant) {
        if let Some(released) = &mut self.released {
            released.taken.get_or_insert(now);
        }
    }

    /// A message was acknowledged.
    pub(super) const fn acknowledged(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// The next step; `waits` says whether messages wait for their acknowledgements.
    pub(super) fn step(&mut self, now: Instant, waits: bool) -> Step {
        if self.held.is_some() {
            let asks = !self.is_asked && now >= self.quiet_until;
            self.is_asked |= asks;
            return if asks { Step::Ask } else { Step::Nothing };
        }
        let is_idle = !waits && now >= self.quiet_until + IDLE;
        let is_over = is_idle || self.left == 0 || (waits && self.unanswered().is_some_and(|at| at <= now));
        if is_over { Step::Over } else { Step::Nothing }
    }

    /// When something is to be done at the latest.
    pub(super) fn next(&self, waits: bool) -> Option<Instant> {
        if self.held.is_some() {
            return Some(self.quiet_until).filter(|_| !self.is_asked);
        }
        if waits { self.unanswered() } else { Some(self.quiet_until + IDLE) }
    }

    fn unanswered(&self) -> Option<Instant> {
        self.released.as_ref().map(|released| released.at + UNANSWERED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: u16) -> Message {
        Message { id: PacketId::new(id).unwrap(), topic: "a".into() }
    }

    /// A connection of the search on which `first` comes, which is closed so long behind it, or in the pause.
    fn connection(suspicion: &mut Suspicion, first: &Message, kind: Kind, behind: Option<Duration>) -> Verdict {
        let mut search = suspicion.search(10, QUIET).unwrap();
        let verdict = search.judge(first);
        search.hold(first.clone(), vec![1]);
        let mut at = search.quiet_until - Duration::from_millis(1);
        assert_eq!(search.step(at, false), Step::Nothing);
        if let Some(behind) = behind {
            at = search.quiet_until;
            assert_eq!(search.step(at, false), Step::Ask);
            assert_eq!(search.answered(at), Some(vec![1]));
            search.taken(at);
            at += behind;
        }
        let (is_waiting, search) = (behind.is_some(), Some(&search));
        suspicion.learn(&Ended { kind, is_waiting, is_acknowledged: false, search, at });
        verdict
    }

    fn suspicious() -> Suspicion {
        let mut suspicion = Suspicion::default();
        for _ in 0..CLOSED_MIN {
            assert!(!suspicion.is_there());
            usual(&mut suspicion, Kind::Closed, false);
        }
        assert!(suspicion.is_there());
        suspicion
    }

    fn usual(suspicion: &mut Suspicion, kind: Kind, is_acknowledged: bool) {
        let at = Instant::now();
        suspicion.learn(&Ended { kind, is_waiting: true, is_acknowledged, search: None, at });
    }

    const AT_ONCE: Duration = Duration::from_millis(100);

    #[tokio::test]
    async fn a_message_is_dropped_that_ends_three_connections_when_it_is_sent_alone() {
        let mut suspicion = suspicious();
        for _ in 0..ENDED_MIN {
            assert_eq!(connection(&mut suspicion, &message(1), Kind::Closed, Some(AT_ONCE)), Verdict::Hold);
        }
        let mut search = suspicion.search(10, QUIET).unwrap();
        assert_eq!(search.judge(&message(1)), Verdict::Drop);
        assert_eq!(search.judge(&message(2)), Verdict::Hold);
    }

    /// Whatever comes between, the count begins again.
    #[tokio::test]
    async fn a_bad_line_costs_no_message() {
        let late = SOON + Duration::from_millis(1);
        for (kind, behind) in [(Kind::Closed, None), (Kind::Other, Some(AT_ONCE)), (Kind::Closed, Some(late))] {
            let mut suspicion = suspicious();
            for _ in 1..ENDED_MIN {
                connection(&mut suspicion, &message(1), Kind::Closed, Some(AT_ONCE));
            }
            connection(&mut suspicion, &message(1), kind, behind);
            assert!(!suspicion.is_there() && suspicion.suspect.is_none(), "{kind:?} {behind:?}");
        }
        let mut suspicion = suspicious();
        for id in 1..20 {
            assert_eq!(connection(&mut suspicion, &message(id), Kind::Closed, Some(AT_ONCE)), Verdict::Hold, "{id}");
        }
        let mut suspicion = Suspicion::default();
        for _ in 0..20 {
            usual(&mut suspicion, Kind::Closed, false);
            usual(&mut suspicion, Kind::Closed, true);
            assert!(!suspicion.is_there(), "an acknowledgement came");
        }
    }

    #[tokio::test]
    async fn a_broker_that_takes_nothing_costs_few_messages() {
        let (mut suspicion, mut dropped) = (suspicious(), 0);
        for id in 1..=30 {
            let ended = |suspicion: &Suspicion| suspicion.suspect.as_ref().map(|(suspect, ended)| (suspect.id, *ended));
            while ended(&suspicion) != Some((message(id).id, ENDED_MIN)) {
                let verdict = connection(&mut suspicion, &message(id), Kind::Closed, Some(AT_ONCE));
                assert_eq!(verdict, Verdict::Hold);
            }
            let mut search = suspicion.search(10, QUIET).unwrap();
            let is_dropped = search.judge(&message(id)) == Verdict::Drop;
            dropped += u32::from(is_dropped);
            if is_dropped {
                search.judge(&message(id + 1));
                search.hold(message(id + 1), vec![1]);
                search.step(search.quiet_until, false);
                let at = search.quiet_until;
                search.answered(at);
                let search = Some(&search);
                suspicion.learn(&Ended { kind: Kind::Closed, is_waiting: true, is_acknowledged: false, search, at });
            }
        }
        assert_eq!(dropped, DROPPED_MAX);
    }

    #[tokio::test]
    async fn the_search_is_over_when_all_is_acknowledged_or_nothing_comes() {
        let suspicion = suspicious();
        let mut search = suspicion.search(1, QUIET).unwrap();
        let end = search.quiet_until;
        assert_eq!(search.step(end, false), Step::Nothing);
        assert_eq!(search.next(false), Some(end + IDLE));
        assert_eq!(search.step(end + IDLE, false), Step::Over);
        search.judge(&message(1));
        search.hold(message(1), vec![1]);
        assert_eq!(search.answered(end), None, "nothing was asked");
        search.step(end, false);
        search.answered(end).unwrap();
        assert_eq!(search.step(end + IDLE * 2, true), Step::Nothing, "it waits");
        search.acknowledged();
        assert_eq!(search.step(end, true), Step::Over);
    }
}
