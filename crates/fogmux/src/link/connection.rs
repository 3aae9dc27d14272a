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
use super::relay::{Outputs, Relay};
use super::side::Side;

/// Bytes for the gateway above which the other broker is not read.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// The longest that a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// A link that is connected at both ends. The gateway is always read, so that neither end waits for the other to be
/// read first.
pub(super) struct Connection<L, R> {
    pub(super) here: Side<L>,
    pub(super) there: Side<R>,
    pub(super) relay: Relay,
    pub(super) timing: Timing,
}

/// The times of a connection to another broker.
pub(super) struct Timing {
    /// Between pings; `None` without a keep alive.
    ping: Option<Duration>,
    next_ping: Instant,
    heard: Instant,
    /// When everything has to be subscribed to.
    deadline: Instant,
}

impl Timing {
    /// With the keep alive in seconds that both agreed on.
    pub(super) fn new(keep_alive: u16, deadline: Instant) -> Self {
        let ping = (keep_alive > 0).then(|| Duration::from_secs(u64::from(keep_alive)) / 2);
        let now = Instant::now();
        Self { ping, next_ping: now + ping.unwrap_or_default(), heard: now, deadline }
    }

    /// When something is to be done at the latest, and by when the other broker has to have said something.
    fn next(&self, is_subscribed: bool) -> (Instant, Option<Instant>) {
        // Two pings were not answered, and the third is due: one and a half keep alives.
        let silent = self.ping.map(|ping| self.heard + ping * 3);
        let ping = self.ping.map(|_| self.next_ping);
        let deadline = (!is_subscribed).then_some(self.deadline);
        let far = Instant::now() + Duration::from_secs(3600);
        ([silent, ping, deadline].into_iter().flatten().min().unwrap_or(far), silent)
    }
}

impl<L, R> Connection<L, R>
where
    L: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + AsyncWrite + Unpin,
{
    /// Passes packets on until a side ends the connection; `subscribed` is called when everything is subscribed to.
    pub(super) async fn run(&mut self, mut subscribed: impl FnMut()) -> Failure {
        let mut is_subscribed = false;
        loop {
            if let Err(failure) = self.pass_on() {
                return failure;
            }
            if !is_subscribed && self.relay.is_subscribed() {
                is_subscribed = true;
                subscribed();
            }
            let (next, silent) = self.timing.next(is_subscribed);
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
            if silent.is_some_and(|silent| silent <= now) {
                return Failure::new("the other broker is silent");
            }
            if !is_subscribed && self.timing.deadline <= now {
                return Failure::new("the other broker does not answer SUBSCRIBE");
            }
            if let Some(ping) = self.timing.ping.filter(|_| self.timing.next_ping <= now) {
                self.timing.next_ping = now + ping;
                // A packet of two bytes always fits.
                let _ = Packet::Pingreq.encode(Version::V5, &mut self.there.output);
            }
        }
    }

    /// Handles all packets that came.
    fn pass_on(&mut self) -> Result<(), Failure> {
        let Self { here, there, relay, .. } = self;
        here.take(|packet, back| relay.handle(Direction::Out, packet, Outputs { on: &mut there.output, back }))?;
        there.take(|packet, back| relay.handle(Direction::In, packet, Outputs { on: &mut here.output, back }))?;
        Ok(())
    }

    /// Writes what can be written; ready when something was read.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.here.poll_write(cx)?;
        self.there.poll_write(cx)?;
        let from_here = self.here.poll_read(cx)?;
        let from_there = match self.here.output.len() < OUTPUT_BYTES_MAX {
            true => self.there.poll_read(cx)?,
            false => Poll::Pending,
        };
        if from_there.is_ready() {
            self.timing.heard = Instant::now();
        }
        if from_here.is_ready() || from_there.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
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
