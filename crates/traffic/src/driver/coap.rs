//! CoAP over UDP, DTLS 1.2, TCP and TLS, with or without OSCORE: PUT or POST, GET, Observe.
//!
//! A request is a few bytes behind a header, so what a client costs is what it does besides: here one system call for
//! each datagram each way and no allocation. `machine` knows the protocol, `datagrams` and `line` the sockets.

mod account;
mod contexts;
mod datagrams;
mod line;
mod resource;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fogmux_client::connector::{Connector, Dialer};
use fogmux_client::{ClientError, Options, Own, Psk, Trust};
use fogmux_coap::client::{ClientConfig, Machine, MessageBytes, RequestError, TokenForm};
use fogmux_coap::transmission::Transmission;
use fogmux_coap::{BlockSize, Timestamp};
use fogmux_dtls::client::ClientConfig as DtlsConfig;
use fogmux_oscore::RequestProtection;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, Sleep, timeout};

use self::account::Account;
use self::contexts::Contexts;
use self::datagrams::{Buffers, Datagrams};
use self::line::Line;
use self::resource::{Resource, Shape};
use crate::driver::{Client, Connected, Driver, DriverError, Nobody, Pending, Request, Role, Sink};
use crate::experiment::{CoapToken, Credential, Door, Experiment};
use crate::outcome::Bytes;
use crate::target::Access;

/// As ALPN names CoAP over TLS (RFC 8323 §8.2).
const ALPN: &[u8] = b"coap";
/// Datagrams that a client takes in before others have their turn.
const TURN: usize = 64;
/// Within which an alarm is looked at in each turn: more than what the coarse clock is behind (a tick of the kernel).
const SOON: Duration = Duration::from_millis(50);
/// How long an answer may take that was promised by an acknowledgement: RFC 7252 §4.8.2, MAX_TRANSMIT_WAIT, in which
/// the server has sent it as often as it may.
const PROMISED_WAIT: Duration = Duration::from_secs(93);
/// How long the end of observations is waited for.
const CLOSING_PATIENCE: Duration = Duration::from_millis(500);

/// CoAP.
///
/// # Errors
/// The door and the protection do not go together, or credentials cannot be read.
pub fn driver(door: Door, experiment: &Experiment, access: &Access) -> Result<Box<dyn Driver>, DriverError> {
    CoapDriver::new(door, experiment, access).map(|driver| Box::new(driver) as Box<dyn Driver>)
}

/// The transport of messages.
enum Carrier {
    Udp(Option<DtlsConfig>),
    Tcp(Dialer),
}

struct CoapDriver {
    carrier: Carrier,
    shape: Rc<Shape>,
    contexts: Option<Contexts>,
    buffers: Rc<RefCell<Buffers>>,
    host: String,
    port: u16,
    unconfirmed_wait: Duration,
    transmission: Transmission,
    tokens: TokenForm,
    seed: u64,
}

impl CoapDriver {
    fn new(door: Door, experiment: &Experiment, access: &Access) -> Result<Self, DriverError> {
        let contexts = match (experiment.security.oscore, &access.oscore) {
            (false, _) => None,
            (true, Some(directory)) => Some(Contexts::new(directory)),
            (true, None) => return Err(DriverError::Refused("there are no OSCORE contexts".to_owned())),
        };
        Ok(Self {
            carrier: carrier(door, experiment, access)?,
            shape: Rc::new(Shape::new(experiment, access.prefix.as_deref())),
            contexts,
            buffers: Rc::default(),
            host: access.host.clone(),
            port: access.port,
            unconfirmed_wait: Duration::from_secs_f64(experiment.drain_seconds.max(0.1)),
            transmission: Transmission::default(),
            // RFC 7252 §5.3.1 wants tokens that nobody can guess where nothing else protects; forged answers to a load
            // generator gain nothing, and two bytes are what other generators send.
            tokens: match experiment.coap_token {
                CoapToken::MessageId => TokenForm::MessageId,
                CoapToken::Empty => TokenForm::Empty,
            },
            seed: experiment.seed,
        })
    }

    async fn open(&self, role: Role, number: u32) -> Result<Connected, DriverError> {
        let context = self.contexts.as_ref().map(|contexts| contexts.of(role, number)).transpose()?;
        let (began, began_ms) = (Instant::now(), coarse_ms());
        let (link, cipher) = match &self.carrier {
            Carrier::Udp(dtls) => {
                let (datagrams, cipher) = Datagrams::connect(self.remote().await?, dtls.clone()).await?;
                (Link::Datagrams(datagrams), cipher)
            }
            Carrier::Tcp(dialer) => {
                let (socket, counter) = dialer.dial().await.map_err(refused)?;
                let cipher = socket.cipher();
                (Link::Line(Box::new(Line::open(socket, counter).await?)), cipher)
            }
        };
        let took = began.elapsed();
        let (block_size, chunk) = link.blocks();
        let config = ClientConfig {
            transmission: self.transmission,
            reliable: matches!(link, Link::Line(_)),
            tokens: self.tokens,
            block_size,
            chunk,
            body_bytes_max: usize::MAX,
            bodies_bytes_max: usize::MAX,
            answer_timeout: PROMISED_WAIT,
            unconfirmed_timeout: self.unconfirmed_wait,
        };
        let seed = self.seed ^ (u64::from(number) << 1) ^ u64::from(role == Role::Subscriber);
        let client = CoapClient {
            link,
            machine: Machine::new(config, seed, context.map(RequestProtection)),
            shape: Rc::clone(&self.shape),
            resources: Vec::new(),
            account: Account::default(),
            buffers: Rc::clone(&self.buffers),
            began,
            began_ms,
            turn_at: Timestamp::ZERO,
            watched: false,
            alarm: None,
        };
        Ok(Connected { client: Box::new(client), took, cipher })
    }

    async fn remote(&self) -> Result<SocketAddr, DriverError> {
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return Ok((address, self.port).into());
        }
        let failed = |why: String| DriverError::Connection(format!("{}: {why}", self.host));
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let mut found = found.map_err(|error| failed(error.to_string()))?;
        found.next().ok_or_else(|| failed("the host has no address".to_owned()))
    }
}

impl Driver for CoapDriver {
    fn connect(&self, role: Role, number: u32) -> Pending<'_, Result<Connected, DriverError>> {
        Box::pin(self.open(role, number))
    }
}

fn carrier(door: Door, experiment: &Experiment, access: &Access) -> Result<Carrier, DriverError> {
    let options = options(door, experiment, access)?;
    let secure = experiment.security.is_secure();
    if door == Door::CoapTcp {
        let connector = secure.then(|| Connector::new(&options, &[ALPN])).transpose().map_err(refused)?;
        return Ok(Carrier::Tcp(Dialer::new(&access.host, access.port, &access.name, connector)));
    }
    let dtls = secure.then(|| fogmux_client::dtls::config(&access.name, &options)).transpose().map_err(refused)?;
    Ok(Carrier::Udp(dtls))
}

/// Returns the credentials of the client and the authorities that it trusts.
fn options(door: Door, experiment: &Experiment, access: &Access) -> Result<Options, DriverError> {
    let profile = experiment.security.profile;
    let with_certificate = match experiment.credential {
        Credential::OfProfile => !profile.psk,
        Credential::Certificate => true,
        Credential::Anonymous => false,
        // RFC 7252 §9 knows none of these; OSCORE and DTLS say who somebody is.
        Credential::Password => return Err(DriverError::Unsupported { door, what: "passwords" }),
        Credential::Token => return Err(DriverError::Unsupported { door, what: "tokens" }),
    };
    let own = access.certificate.as_ref().filter(|_| with_certificate);
    let key_log = access.key_log.as_deref().map(fogmux_net::KeyLogFile::open).transpose();
    Ok(Options {
        profile: Some(profile),
        trust: access.authority.clone().map_or(Trust::Insecure, Trust::File),
        own: own.map(|(certificate, key)| Own { certificate: certificate.clone(), key: key.clone() }),
        psk: access.psk.clone().filter(|_| profile.psk).map(|(identity, key)| Psk { identity, key }),
        key_log: key_log.map_err(|error| DriverError::Connection(error.to_string()))?.map(Arc::new),
        ..Options::default()
    })
}

fn refused(error: ClientError) -> DriverError {
    DriverError::Refused(error.to_string())
}

/// Milliseconds of the clock that ticks with the kernel (`CLOCK_MONOTONIC_COARSE`), which costs no more than a look.
fn coarse_ms() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000 + u64::try_from(time.tv_nsec).unwrap_or_default() / 1_000_000
}

/// Where messages go and come from.
enum Link {
    Datagrams(Datagrams),
    Line(Box<Line>),
}

impl Link {
    /// The block size, and the bytes of a body in one message; of datagrams 1024 (RFC 7252 §4.6).
    fn blocks(&self) -> (BlockSize, usize) {
        match self {
            Self::Datagrams(_) => (BlockSize::MAX, BlockSize::MAX.bytes()),
            Self::Line(line) => line.blocks(),
        }
    }
}

struct CoapClient {
    link: Link,
    machine: Machine<RequestProtection>,
    shape: Rc<Shape>,
    /// The topics so far.
    resources: Vec<Resource>,
    account: Account,
    buffers: Rc<RefCell<Buffers>>,
    began: Instant,
    /// The same by the coarse clock.
    began_ms: u64,
    /// When the last turn began.
    turn_at: Timestamp,
    /// The last turn ended with an empty socket, which wakes us.
    watched: bool,
    alarm: Option<Alarm>,
}

/// When the earliest deadline was, the last time one was set, and what wakes us then.
struct Alarm {
    set: Timestamp,
    sleep: Pin<Box<Sleep>>,
    /// The waker of the task that waits.
    waker: Option<Waker>,
}

impl CoapClient {
    /// Some milliseconds late: deadlines of this protocol are seconds away, and reading the precise clock for each
    /// datagram costs as much as the datagram where the processor's own is of no use.
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(coarse_ms().saturating_sub(self.began_ms))
    }

    /// Sends what waits. Returns whether something is done by that; what was merely sent is nobody's news.
    fn send(&mut self, cx: &mut Context<'_>, now: Timestamp, sink: &mut dyn Sink) -> Result<bool, DriverError> {
        let mut done = false;
        let mut events = self.account.relay(sink);
        match &mut self.link {
            Link::Datagrams(datagrams) => {
                let mut buffers = self.buffers.borrow_mut();
                while let Some(message) = self.machine.front() {
                    match datagrams.poll_send(cx, message, &mut buffers.record) {
                        Poll::Ready(result) => result?,
                        Poll::Pending => break,
                    }
                    done |= self.machine.sent(now, &mut events);
                }
            }
            Link::Line(line) => {
                while line.has_room() {
                    let Some(message) = self.machine.front() else { break };
                    line.push(message);
                    done |= self.machine.sent(now, &mut events);
                }
                if let Poll::Ready(result) = line.poll_flush(cx) {
                    result?;
                }
            }
        }
        Ok(done)
    }

    /// Takes in what came, up to a turn's worth. Returns whether anything did.
    fn receive(&mut self, cx: &mut Context<'_>, now: Timestamp, sink: &mut dyn Sink) -> Result<bool, DriverError> {
        let mut buffers = self.buffers.borrow_mut();
        let Buffers { datagram, plain, .. } = &mut *buffers;
        let (machine, mut events) = (&mut self.machine, self.account.relay(sink));
        for turn in 0..TURN {
            match &mut self.link {
                Link::Datagrams(datagrams) => {
                    let Poll::Ready(bytes) = datagrams.poll_receive(cx, datagram) else {
                        self.watched = true;
                        return Ok(turn > 0);
                    };
                    let datagram = datagram.get(..bytes?).unwrap_or_default();
                    datagrams.each_message(datagram, plain, |message| machine.handle(now, message, &mut events))?;
                    if machine.is_idle() {
                        datagrams.rest();
                    }
                }
                Link::Line(line) => {
                    let Poll::Ready(result) = line.poll_receive(cx, datagram) else { return Ok(turn > 0) };
                    result?;
                    line.each_message(now, |message, bytes| {
                        machine.handle_stream(now, message, bytes, &mut events);
                    })?;
                }
            }
        }
        Ok(true)
    }

    /// Does what is due, and sees to it that we are woken for what will be. The alarm may be too early, for it is set
    /// only when a deadline comes before all others; answers cost no timer.
    fn watch_clock(&mut self, cx: &mut Context<'_>, now: Timestamp, sink: &mut dyn Sink) -> Result<bool, DriverError> {
        let of_line = match &self.link {
            Link::Datagrams(_) => None,
            Link::Line(line) => Some(line.next_timeout()),
        };
        let Some(due) = [self.machine.next_timeout(), of_line].into_iter().flatten().min() else {
            self.alarm = None;
            return Ok(false);
        };
        // It knows whom to wake, and is far away: nothing to be done for each datagram.
        if let Some(Alarm { set, waker: Some(known), .. }) = &self.alarm
            && *set <= due
            && now + SOON < *set
            && known.will_wake(cx.waker())
        {
            return Ok(false);
        }
        let at = self.began + Duration::from_millis(due.as_millis());
        let alarm = self.alarm.get_or_insert_with(|| Alarm {
            set: due,
            sleep: Box::pin(tokio::time::sleep_until(at)),
            waker: None,
        });
        if due < alarm.set {
            alarm.set = due;
            alarm.sleep.as_mut().reset(at);
        }
        let set = alarm.set;
        alarm.waker = Some(cx.waker().clone());
        if alarm.sleep.as_mut().poll(cx).is_pending() {
            return Ok(false);
        }
        self.alarm = None;
        // The clock of the turn is a little behind the timer's.
        let now = now.max(set);
        self.machine.handle_timeout(now, &mut self.account.relay(sink));
        if let Link::Line(line) = &mut self.link
            && line.next_timeout() <= now
        {
            line.handle_timeout(now)?;
        }
        self.send(cx, now, sink)?;
        Ok(true)
    }

    async fn end(mut self) {
        if self.machine.has_observations() {
            let mut nobody = Nobody;
            self.machine.deregister(&mut self.account.relay(&mut nobody));
            let ended = std::future::poll_fn(|cx| {
                loop {
                    match self.poll_turn(cx, &mut nobody) {
                        Poll::Ready(Ok(())) if self.machine.has_observations() => {}
                        Poll::Ready(_) => return Poll::Ready(()),
                        Poll::Pending => return Poll::Pending,
                    }
                }
            });
            let _ = timeout(CLOSING_PATIENCE, ended).await;
        }
        match self.link {
            Link::Datagrams(datagrams) => datagrams.close().await,
            Link::Line(line) => line.close().await,
        }
    }
}

impl Client for CoapClient {
    fn submit(&mut self, request: Request<'_>, tag: u64) -> Result<(), DriverError> {
        let (topic, payload): (_, &[u8]) = match request {
            Request::Publish { topic, payload } => (topic, payload),
            Request::Get { topic } | Request::Subscribe { topic } => (topic, &[]),
        };
        let at = match self.resources.iter().position(|resource| resource.is_of(topic)) {
            Some(at) => at,
            None => {
                self.resources.push(Resource::new(topic, &self.shape)?);
                self.resources.len() - 1
            }
        };
        let Some(resource) = self.resources.get(at) else { return Ok(()) };
        self.machine.request(resource.template(&request), payload, tag).map_err(|error| match error {
            RequestError::TooMany => {
                DriverError::Unsupported { door: Door::Coap, what: "message IDs for more requests under way" }
            }
            RequestError::Unsealed(error) => DriverError::Protocol(error.to_string()),
        })?;
        self.account.payload_up += u64::try_from(payload.len()).unwrap_or_default();
        Ok(())
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Poll<Result<(), DriverError>> {
        let now = self.now();
        (self.turn_at, self.watched) = (now, false);
        let mut happened = self.send(cx, now, sink)?;
        if self.receive(cx, now, sink)? {
            happened = true;
            // Acknowledgements, and the next blocks.
            self.send(cx, now, sink)?;
        }
        if let Some(failure) = self.account.failure.take() {
            return Poll::Ready(Err(failure));
        }
        if self.watch_clock(cx, now, sink)? || happened { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Poll<Result<(), DriverError>> {
        if !self.watched {
            return self.poll_turn(cx, sink);
        }
        let now = self.turn_at;
        let happened = self.send(cx, now, sink)?;
        if self.watch_clock(cx, now, sink)? || happened { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn bytes(&self) -> Bytes {
        let (socket_up, socket_down) = match &self.link {
            Link::Datagrams(datagrams) => (datagrams.up, datagrams.down),
            Link::Line(line) => line.bytes(),
        };
        let MessageBytes { up: protocol_up, down: protocol_down } = self.machine.bytes();
        let Account { payload_up, payload_down, .. } = self.account;
        Bytes { payload_up, payload_down, protocol_up, protocol_down, socket_up, socket_down, wire: None }
    }

    fn close(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(self.end())
    }
}
