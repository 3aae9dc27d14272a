//! A client that publishes, or asks, as fast as its windows let it, or at a rate.

use std::cell::Cell;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::yield_now;

use super::connections::Shared;
use super::content::ALTERED;
use super::offer::share;
use super::pacer::Pacer;
use super::pause::Pause;
use super::stage::{Stage, is_stamped};
use super::stamp;
use crate::driver::{Answer, Arrival, Client, DriverError, Request, Sink};
use crate::experiment::{Door, Experiment, Operation, Qos};

/// Bytes that go into a client before it writes and others have their turn. More at once would come in bursts that no
/// device sends, and would let the other end do more with each of its system calls than it can in service.
const TURN_BYTES: usize = 16 << 10;
/// Bytes of payloads that may be unwritten, where an operation is over when it is sent.
const UNWRITTEN_BYTES: usize = 256 << 10;
/// Unanswered operations that have a packet identifier each (MQTT §2.2.1).
const IDENTIFIERS: u64 = 65_535;
/// Unanswered requests that a CoAP client tells apart: message IDs are used in turn, and half of them stay free.
const MESSAGE_IDS: u64 = 32_768;

/// One publisher, or asker.
pub(crate) struct Publisher {
    stage: Rc<Stage>,
    client: Shared,
    lane: u32,
    number: u32,
    topic: String,
    payload: Vec<u8>,
    /// Operations that have not been answered.
    unanswered: u64,
    /// Unanswered operations at most.
    window: u64,
    /// Operations that begin in one turn at most.
    turn: u64,
    /// An operation is over when it is answered, and not when it is sent.
    awaits: bool,
    /// Its operations are answered, and nobody else hears of them.
    asks: bool,
    /// Deliveries on their way at most, of those that it caused.
    share: u64,
    /// Operations it may still begin.
    left: u64,
    pacer: Option<Pacer>,
    pause: Option<Pause>,
    /// A window is full, and what is late is late because of the other end.
    held: bool,
    /// When the last answers of this turn came.
    heard_ns: Option<u64>,
    /// Unanswered operations of all publishers together.
    under_way: Rc<Cell<u64>>,
}

impl Publisher {
    /// `under_way` counts the unanswered operations of all publishers together.
    pub(crate) fn new(
        stage: &Rc<Stage>,
        client: Shared,
        number: u32,
        under_way: &Rc<Cell<u64>>,
    ) -> std::io::Result<Self> {
        let experiment = &stage.experiment;
        let publishers = u64::from(experiment.publishers);
        // Beyond its last number a message would be taken for one of another publisher.
        let numbers = if experiment.operation == Operation::Deliver { stage.stamp.numbers() } else { u32::MAX };
        let left = share(experiment, number).min(u64::from(numbers));
        if left == 0 {
            stage.finished.set(stage.finished.get() + 1);
        }
        let in_flight = match experiment.in_flight {
            0 => u64::MAX,
            in_flight => (u64::from(in_flight) / publishers).max(1),
        };
        let pacer = Pacer::of(experiment, stage.draw, number)?;
        let pause = Pause::of(experiment)?;
        let topic = stage.topic(number);
        let message = experiment.payload_bytes.saturating_add(topic.len() + header_bytes(experiment.door));
        Ok(Self {
            stage: Rc::clone(stage),
            client,
            lane: stage.lane(number),
            number,
            topic,
            payload: stamp::filler(experiment.payload_bytes, experiment.seed),
            unanswered: 0,
            window: window(experiment),
            turn: u64::try_from(TURN_BYTES / message).unwrap_or(1).max(1),
            awaits: is_awaited(experiment),
            asks: experiment.operation != Operation::Deliver && is_awaited(experiment),
            share: in_flight,
            left,
            pacer,
            pause,
            held: false,
            heard_ns: None,
            under_way: Rc::clone(under_way),
        })
    }

    /// Works until it is aborted, or the connection ends.
    pub(crate) async fn work(mut self) {
        let ended = poll_fn(|cx| self.poll(cx)).await;
        self.stage.publishers.set(self.stage.publishers.get().saturating_sub(1));
        self.under_way.set(self.under_way.get().saturating_sub(self.unanswered));
        self.stage.disconnected(format!("publisher {}", self.number), &ended.to_string());
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<DriverError> {
        let mut turned = match self.begin_allowed() {
            Ok(_) => self.turn(cx, |client, cx, answers| client.poll_turn(cx, answers)),
            Err(error) => Poll::Ready(Err(error)),
        };
        if self.asks && matches!(turned, Poll::Ready(Ok(()))) {
            // The next question goes out at once, as from a device that waited for its answer, and not when all others
            // have read theirs.
            match self.begin_allowed() {
                Ok(0) => {}
                Ok(_) => turned = self.turn(cx, |client, cx, answers| client.poll_flush(cx, answers)),
                Err(error) => turned = Poll::Ready(Err(error)),
            }
        }
        self.heard_ns = None;
        match turned {
            Poll::Ready(Err(error)) => return Poll::Ready(error),
            // A request that an answer makes room for is sent once all input has been read, as by a single thread
            // that reads its sockets before it writes. Sent earlier, it would be processed in parallel: small windows
            // were up to 1.4 times as fast as with other generators.
            Poll::Ready(Ok(())) if self.awaits => cx.waker().wake_by_ref(),
            Poll::Ready(Ok(())) => again(cx),
            Poll::Pending if self.allowance() > 0 => again(cx),
            Poll::Pending => self.wait(cx),
        }
        if self.unanswered == 0 && (self.left == 0 || !self.stage.open.get()) {
            self.stage.changed.notify_one();
        }
        Poll::Pending
    }

    /// Begins what may begin now. Returns how many.
    fn begin_allowed(&mut self) -> Result<u64, DriverError> {
        let allowed = self.allowance();
        if allowed > 0 {
            let now_ns = self.now_ns();
            for _ in 0..allowed {
                self.begin(now_ns)?;
            }
        }
        Ok(allowed)
    }

    /// The time, or that of the answers that have just come: reading some machines' clocks takes as long as a request.
    fn now_ns(&self) -> u64 {
        self.heard_ns.unwrap_or_else(|| self.stage.now_ns())
    }

    /// How many operations may begin now.
    fn allowance(&self) -> u64 {
        if !self.stage.open.get() {
            return 0;
        }
        let mut allowed = self.left.min(self.window.saturating_sub(self.unanswered)).min(self.turn);
        if self.share != u64::MAX {
            let ledger = self.stage.ledger.borrow();
            let fan_out = u64::from(ledger.fan_out(self.lane)).max(1);
            let room = self.share.saturating_sub(ledger.outstanding(self.lane));
            // One that causes more deliveries than are allowed at once still has to be possible.
            let first = u64::from(room == self.share);
            allowed = allowed.min((room / fan_out).max(first));
        }
        if let Some(pause) = &self.pause {
            allowed = allowed.min(pause.allowance(self.unanswered, self.now_ns()));
        }
        match &self.pacer {
            Some(pacer) if allowed > 0 => allowed.min(pacer.due_before(self.stage.offer.horizon_ns(self.now_ns()))),
            Some(_) | None => allowed,
        }
    }

    fn begin(&mut self, now_ns: u64) -> Result<(), DriverError> {
        let due_ns = match &mut self.pacer {
            Some(pacer) => {
                let due_ns = self.stage.offer.first_due_ns() + pacer.next_ns();
                pacer.advance();
                self.stage.offer.begin(self.number, now_ns);
                self.stage.ledger.borrow_mut().begun(due_ns, now_ns);
                if !self.held && due_ns >= self.stage.opened_ns.get() {
                    self.stage.lateness.borrow_mut().record_ns(now_ns.saturating_sub(due_ns).max(1));
                }
                due_ns
            }
            None => now_ns,
        };
        let experiment = &self.stage.experiment;
        let number = self.stage.ledger.borrow_mut().send(self.lane, due_ns);
        let topic = self.topic.as_str();
        let request = match experiment.operation {
            Operation::Get => Request::Get { topic },
            Operation::Deliver | Operation::Put | Operation::Post | Operation::Connect | Operation::Hold => {
                if is_stamped(experiment) {
                    self.stage.stamp.write(&mut self.payload, self.number, number);
                }
                Request::Publish { topic, payload: &self.payload }
            }
        };
        self.left -= 1;
        if self.left == 0 {
            self.stage.finished.set(self.stage.finished.get() + 1);
        }
        self.unanswered += 1;
        self.under_way.set(self.under_way.get() + 1);
        self.client.borrow_mut().submit(request, u64::from(number))
    }

    /// Has the client do this, and hears what came of it.
    fn turn(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut dyn Client, &mut Context<'_>, &mut Answers<'_>) -> Poll<Result<(), DriverError>>,
    ) -> Poll<Result<(), DriverError>> {
        let client = Rc::clone(&self.client);
        let mut client = client.borrow_mut();
        let mut answers = Answers { publisher: self, now_ns: None };
        let turned = poll(&mut **client, cx, &mut answers);
        self.heard_ns = answers.now_ns.or(self.heard_ns);
        turned
    }

    /// Sees to it that the task is woken when it may go on.
    fn wait(&mut self, cx: &mut Context<'_>) {
        self.held = self.unanswered >= self.window;
        if !self.stage.open.get() {
            return self.stage.wait(cx.waker());
        }
        if self.left == 0 || self.unanswered >= self.window {
            return;
        }
        if self.share != u64::MAX && self.stage.ledger.borrow().outstanding(self.lane) > 0 {
            self.held = true;
            self.stage.wait(cx.waker());
        }
        if let Some(pause) = self.pause.as_mut().filter(|_| self.unanswered == 0)
            && pause.poll(self.stage.now_ns(), cx).is_ready()
        {
            cx.waker().wake_by_ref();
        }
        if let Some(pacer) = &mut self.pacer {
            let offer = &self.stage.offer;
            if offer.is_over_at(pacer.next_ns()) {
                return;
            }
            let due_ns = offer.first_due_ns() + pacer.next_ns();
            let wait = Duration::from_nanos(due_ns.saturating_sub(self.stage.now_ns()));
            if pacer.poll_in(wait, cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
    }
}

/// Others, and whatever has come for them, have their turn before the next write. A task that merely wakes itself is
/// run several times before the sockets are looked at, and whole windows would go out at once.
fn again(cx: &mut Context<'_>) {
    // Its first poll leaves the waker with the runtime, which calls it after the sockets.
    if pin!(yield_now()).poll(cx).is_ready() {
        cx.waker().wake_by_ref();
    }
}

/// Of a message, about what is neither topic nor payload.
const fn header_bytes(door: Door) -> usize {
    match door {
        Door::Mqtt | Door::Mqtt5 | Door::MqttWs => 4,
        Door::Coap | Door::CoapTcp => 16,
        Door::Http1 | Door::Http2 | Door::Http3 => 160,
        Door::Xmpp | Door::Xmpps => 260,
    }
}

/// Whether an operation is over when it is answered: everywhere but with QoS 0 and Non-confirmable publications.
fn is_awaited(experiment: &Experiment) -> bool {
    let unanswered = match experiment.door {
        Door::Mqtt | Door::Mqtt5 | Door::MqttWs | Door::Coap | Door::CoapTcp => experiment.qos == Qos::AtMostOnce,
        Door::Http1 | Door::Http2 | Door::Http3 | Door::Xmpp | Door::Xmpps => false,
    };
    !unanswered || experiment.operation != Operation::Deliver
}

/// Unanswered operations at most. Where an operation is over when it is sent, bytes are bounded and not messages.
fn window(experiment: &Experiment) -> u64 {
    if !is_awaited(experiment) {
        let bytes = experiment.payload_bytes.max(1);
        return u64::try_from(UNWRITTEN_BYTES / bytes).unwrap_or(1).max(1);
    }
    let numbers = match experiment.door {
        Door::Coap | Door::CoapTcp => MESSAGE_IDS,
        // HTTP and XMPP have no such bound; memory has.
        Door::Mqtt | Door::Mqtt5 | Door::MqttWs => IDENTIFIERS,
        Door::Http1 | Door::Http2 | Door::Http3 | Door::Xmpp | Door::Xmpps => IDENTIFIERS,
    };
    match experiment.window {
        0 => numbers,
        window => u64::from(window).min(numbers),
    }
}

/// One turn's answers.
struct Answers<'a> {
    publisher: &'a mut Publisher,
    now_ns: Option<u64>,
}

impl Sink for Answers<'_> {
    fn done(&mut self, tag: u64, answer: Answer<'_>) {
        let publisher = &mut *self.publisher;
        let stage = &publisher.stage;
        let now_ns = *self.now_ns.get_or_insert_with(|| stage.now_ns());
        publisher.unanswered = publisher.unanswered.saturating_sub(1);
        publisher.under_way.set(publisher.under_way.get().saturating_sub(1));
        if let Some(pause) = &mut publisher.pause {
            pause.begin(now_ns);
        }
        let Ok(number) = u32::try_from(tag) else { return };
        let is_other = matches!(answer, Answer::Success(payload)
            if stage.experiment.operation == Operation::Get && payload != publisher.payload);
        let answer = if is_other { Answer::Refused(ALTERED) } else { answer };
        let is_end = !stage.experiment.delivers();
        let mut ledger = stage.ledger.borrow_mut();
        ledger.answered(publisher.lane, number, answer, now_ns, is_end);
    }

    fn message(&mut self, _: Arrival<'_>) {}

    fn stray(&mut self, what: &str) {
        self.publisher.stage.ledger.borrow_mut().failed(what);
    }
}
