//! A link that is connected at both ends: reads from each, has the relay pass packets on, and writes.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use fogmux_mqtt::{Packet, Version};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};

use super::failure::Failure;
use super::local::goodbye;
use super::mapping::Direction;
use super::owed::Owed;
use super::relay::{Outputs, Relay};
use super::search::Step;
use super::side::Side;

/// Bytes for the gateway above which the other broker is not read.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// Bytes of answers to the other broker above which it is not read: one that takes none could cause any number.
/// Messages do not count, or two gateways with links could each wait for the other to be read.
const ANSWERS_BYTES_MAX: u64 = 1 << 20;
/// The time between two looks at what has changed beside the connection.
const LOOK: Duration = Duration::from_secs(1);
/// The longest that a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// A link that is connected at both ends. The gateway is always read, so that neither end waits for the other to be
/// read first.
pub(super) struct Connection<L, R> {
    pub(super) here: Side<L>,
    pub(super) there: Side<R>,
    pub(super) relay: Relay,
    pub(super) timing: Timing,
    /// Of what waits for the other broker.
    pub(super) owed: Owed,
}

/// Events of a connection, besides messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Everything is subscribed to.
    Subscribed,
    /// The other broker has answered UNSUBSCRIBE.
    Unsubscribed,
    /// A second has passed. Bytes that the other broker has taken, and those that were made for it.
    Second { taken: u64, made: u64 },
}

/// The times of a connection to another broker.
pub(super) struct Timing {
    /// Between pings; `None` without a keep alive.
    ping: Option<Duration>,
    next_ping: Instant,
    heard: Instant,
    /// Since when the other broker has taken nothing of what waits for it.
    stalled: Option<Instant>,
    /// When everything has to be subscribed to.
    deadline: Instant,
    next_look: Instant,
}

impl Timing {
    /// With the keep alive in seconds that both agreed on.
    pub(super) fn new(keep_alive: u16, deadline: Instant) -> Self {
        let ping = (keep_alive > 0).then(|| Duration::from_secs(u64::from(keep_alive)) / 2);
        let now = Instant::now();
        Self {
            ping,
            next_ping: now + ping.unwrap_or_default(),
            heard: now,
            stalled: None,
            deadline,
            next_look: now + LOOK,
        }
    }

    /// When something is to be done at the latest.
    fn next(&self, is_subscribed: bool) -> Instant {
        let ping = self.ping.map(|_| self.next_ping);
        let deadline = (!is_subscribed).then_some(self.deadline);
        [self.silent(), self.stuck(), ping, deadline].into_iter().flatten().fold(self.next_look, Instant::min)
    }

    /// By when the other broker has to have said something: two pings were not answered, and the third is due.
    fn silent(&self) -> Option<Instant> {
        self.ping.map(|ping| self.heard + ping * 3)
    }

    /// By when the other broker has to have taken something: a keep alive.
    fn stuck(&self) -> Option<Instant> {
        self.ping.zip(self.stalled).map(|(ping, stalled)| stalled + ping * 2)
    }

    /// Why the connection is over, if it is.
    fn over(&self, is_subscribed: bool, now: Instant) -> Option<Failure> {
        let past = |time: Option<Instant>| time.is_some_and(|time| time <= now);
        if past(self.stuck()) {
            return Some(Failure::new("the other broker takes nothing"));
        }
        if past(self.silent()) {
            return Some(Failure::new("the other broker is silent"));
        }
        let is_late = !is_subscribed && self.deadline <= now;
        is_late.then(|| Failure::new("the other broker does not answer SUBSCRIBE"))
    }
}

impl<L, R> Connection<L, R>
where
    L: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + AsyncWrite + Unpin,
{
    /// Passes packets on until a side ends the connection, or `note` does because of an event.
    pub(super) async fn run(&mut self, mut note: impl FnMut(Event) -> Result<(), Failure>) -> Failure {
        let mut is_subscribed = false;
        loop {
            if let Err(failure) = self.events(&mut is_subscribed, &mut note) {
                return failure;
            }
            let next = self.timing.next(is_subscribed);
            let search = self.relay.search.as_ref().filter(|_| is_subscribed);
            let searches = search.and_then(|search| search.next(self.relay.is_waiting()));
            let next = searches.map_or(next, |searches| next.min(searches));
            let read = tokio::select! {
                read = poll_fn(|cx| self.poll(cx)) => Some(read),
                () = sleep_until(next) => None,
            };
            match read {
                Some(Ok(())) => continue,
                Some(Err(failure)) => return failure,
                None => {}
            }
            let now = Instant::now();
            if self.timing.next_look <= now {
                self.timing.next_look = now + LOOK;
                let (taken, (_, made)) = (self.there.taken(), self.there.span());
                if let Err(failure) = note(Event::Second { taken, made }) {
                    return failure;
                }
            }
            if let Some(failure) = self.timing.over(is_subscribed, now) {
                return failure;
            }
            if let Some(ping) = self.timing.ping.filter(|_| self.timing.next_ping <= now) {
                self.timing.next_ping = now + ping;
                self.ping();
            }
        }
    }

    fn ping(&mut self) {
        // A packet of two bytes always fits.
        let _ = Packet::Pingreq.encode(Version::V5, &mut self.there.output);
    }

    /// Handles all packets that came, and says what happened.
    fn events(
        &mut self,
        is_subscribed: &mut bool,
        note: &mut impl FnMut(Event) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.pass_on()?;
        if self.relay.take_unsubscribed() {
            note(Event::Unsubscribed)?;
        }
        if !*is_subscribed && self.relay.is_subscribed() {
            *is_subscribed = true;
            note(Event::Subscribed)?;
        }
        if *is_subscribed { self.search() } else { Ok(()) }
    }

    /// Goes on with the search for a message that the other broker does not take, if there is one.
    fn search(&mut self) -> Result<(), Failure> {
        let (now, waits) = (Instant::now(), self.relay.is_waiting());
        let is_answered = self.relay.take_answered();
        let Some(search) = &mut self.relay.search else { return Ok(()) };
        if self.there.output.is_empty() {
            search.taken(now);
        }
        if is_answered && let Some(packet) = search.answered(now) {
            let (_, begin) = self.there.span();
            self.there.output.extend_from_slice(&packet);
            let (_, end) = self.there.span();
            self.owed.message(begin, end);
        }
        match search.step(now, waits) {
            Step::Nothing => Ok(()),
            Step::Ask => {
                self.ping();
                Ok(())
            }
            Step::Over => Err(Failure::searched()),
        }
    }

    /// Handles all packets that came.
    fn pass_on(&mut self) -> Result<(), Failure> {
        let Self { here, there, relay, owed, .. } = self;
        let (_, mut begin) = there.span();
        here.take(|packet, back| {
            let before = there.output.len();
            relay.handle(Direction::Out, packet, Outputs { on: &mut there.output, back })?;
            let end = begin + u64::try_from(there.output.len() - before).unwrap_or_default();
            if matches!(packet, Packet::Publish(_)) && end > begin {
                owed.message(begin, end);
            }
            begin = end;
            Ok(())
        })?;
        there.take(|packet, back| relay.handle(Direction::In, packet, Outputs { on: &mut here.output, back }))?;
        Ok(())
    }

    /// Writes what can be written; ready when something was read.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.here.poll_write(cx)?;
        let taken = self.there.taken();
        if let Err(broken) = self.there.poll_write(cx) {
            // The packets that it has sent before may tell a better reason, and acknowledge messages.
            while let Poll::Ready(Ok(())) = self.there.poll_read(cx) {}
            return Poll::Ready(self.pass_on().and(Err(broken)));
        }
        let now = Instant::now();
        self.timing.stalled = match self.timing.stalled {
            _ if self.there.output.is_empty() => None,
            Some(since) if taken == self.there.taken() => Some(since),
            Some(_) | None => Some(now),
        };
        let from_here = self.here.poll_read(cx)?;
        let is_held = self.here.output.len() >= OUTPUT_BYTES_MAX || self.answers() >= ANSWERS_BYTES_MAX;
        let from_there = if is_held { Poll::Pending } else { self.there.poll_read(cx)? };
        // One that is not read cannot be heard.
        if is_held || from_there.is_ready() {
            self.timing.heard = now;
        }
        if from_here.is_ready() || from_there.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Bytes of answers that the other broker has not taken.
    fn answers(&mut self) -> u64 {
        let (_, end) = self.there.span();
        self.owed.answers(self.there.taken(), end)
    }

    /// Says goodbye to both sides, whose sessions stay, and writes what is owed to them.
    pub(super) async fn close(&mut self) {
        let _ = tokio::time::timeout(GOODBYE, async {
            // Either may be gone.
            let (here, there) =
                tokio::join!(self.here.send(&const { goodbye() }), self.there.send(&const { goodbye() }));
            drop((here, there));
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::Waker;

    use fogmux_gateway::links::Link;
    use tokio::io::ReadBuf;

    use super::super::mapping::Mapping;
    use super::super::relay::Receiver;
    use super::*;

    /// PUBREL and PUBCOMP of identifier 1.
    const PUBREL: [u8; 4] = [0x62, 2, 0, 1];
    const PUBCOMP: [u8; 4] = [0x70, 2, 0, 1];

    /// A broker that sends PUBREL for ever and takes nothing, or a gateway that answers each.
    #[derive(Default)]
    struct Stub {
        floods: bool,
        owed: usize,
    }

    impl AsyncRead for Stub {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, read: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let packets = if self.floods { 4096 } else { std::mem::take(&mut self.owed) };
            (0..packets).for_each(|_| read.put_slice(if self.floods { &PUBREL } else { &PUBCOMP }));
            if packets > 0 { Poll::Ready(Ok(())) } else { Poll::Pending }
        }
    }

    impl AsyncWrite for Stub {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            if self.floods {
                return Poll::Pending;
            }
            let packets = (bytes.len() / PUBREL.len()).min(4096 - self.owed);
            self.owed += packets;
            if packets > 0 { Poll::Ready(Ok(packets * PUBREL.len())) } else { Poll::Pending }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_broker_that_takes_no_answer_is_not_read_on_and_given_up() {
        let link = Link::new("north", String::new(), "link:north".into());
        let mappings = (Arc::new(Mapping::new(&[], Direction::Out)), Arc::new(Mapping::new(&[], Direction::In)));
        let receiver = Receiver { packet_bytes_max: 1000, qos_max: 2, retains: true };
        let relay = Relay::new(Arc::new(link), mappings, (receiver, receiver), None);
        let here = Side::new(Stub::default(), Direction::Out, 1000);
        let there = Side::new(Stub { floods: true, owed: 0 }, Direction::In, 1000);
        let timing = Timing::new(60, Instant::now());
        let mut connection = Connection { here, there, relay, timing, owed: Owed::default() };
        let mut cx = Context::from_waker(Waker::noop());
        let mut reads = 0;
        while let Poll::Ready(read) = connection.poll(&mut cx) {
            read.unwrap();
            connection.pass_on().unwrap();
            reads += 1;
            assert!(reads < 10_000, "it is read for ever: {} bytes", connection.there.output.len());
        }
        let bytes = connection.there.output.len();
        assert!((1 << 20..2 << 20).contains(&bytes), "{bytes}");
        let now = Instant::now();
        assert_eq!(connection.timing.over(true, now), None);
        let failure = connection.timing.over(true, now + Duration::from_secs(60)).unwrap();
        assert_eq!(failure.to_string(), "the other broker takes nothing");
    }
}
