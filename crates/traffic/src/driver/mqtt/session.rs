//! The requests of a pattern on a client session (`fogmux_mqtt::Client`): packets go to one output buffer, events
//! become answers.
//!
//! Nothing is allocated per message: the session keeps the tags, and payloads are borrowed from what was read.

use std::collections::VecDeque;
use std::time::Duration;

use fogmux_mqtt::{
    Client, ClientLimits, Connect, Event, Incoming, Outgoing, PacketId, Properties, Qos, ReasonCode, ReasonCodes,
    RequestError, RetainHandling, SubscriptionOptions,
};

use crate::driver::{Answer, Arrival, DriverError, Request, Sink};

/// Topic aliases are off, since they would make packets smaller than those of other clients. CONNECT has no optional
/// properties.
const LIMITS: ClientLimits = ClientLimits { window: 64_000, ..ClientLimits::PROTOCOL };
/// The most publications that wait for room in the server's window.
const BACKLOG_MAX: usize = 65_536;
/// The number of sent bytes at which the output is compacted.
const SENT_BYTES_MAX: usize = 256 << 10;

/// The text of an error for what answers no message.
const UNKNOWN: &str = "an acknowledgement of a packet identifier that no message has";

/// How messages are published and asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) qos: Qos,
    pub(super) retain: bool,
    /// Bytes of the largest packet. It is not announced: CONNECT is as short as that of other clients.
    pub(super) packet_bytes_max: usize,
}

/// One connection.
pub(super) struct Session {
    wanted: Wanted,
    /// Gives tags back.
    client: Client<u64>,
    requests: Requests,
    /// Messages of QoS 0 and where they end in the stream.
    leaving: VecDeque<(u64, u64)>,
    /// Messages that wait for room in the server's window.
    backlog: VecDeque<Waiting>,
    output: Vec<u8>,
    /// Bytes of the output that are sent.
    sent: usize,
    /// Bytes of the stream that are not in the output any more.
    before: u64,
    count: Count,
}

/// Requests that await something else than an acknowledgement of their message.
#[derive(Default)]
struct Requests {
    /// Subscriptions that await SUBACK.
    subscribing: Vec<(PacketId, u64)>,
    /// Subscriptions that are made for the retained message only, until it comes.
    asking: VecDeque<(PacketId, u64)>,
}

struct Waiting {
    topic: Box<str>,
    payload: Box<[u8]>,
    tag: u64,
}

/// Bytes so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub(super) payload_up: u64,
    pub(super) payload_down: u64,
    pub(super) down: u64,
}

impl Session {
    /// Puts CONNECT in line.
    pub(super) fn open(connect: &Connect<'_>, wanted: Wanted) -> Result<Self, DriverError> {
        let mut output = Vec::new();
        let client = Client::open(connect, LIMITS, &mut output);
        let client = client.map_err(|error| DriverError::Refused(error.to_string()))?;
        Ok(Self {
            wanted,
            client,
            requests: Requests::default(),
            leaving: VecDeque::new(),
            backlog: VecDeque::new(),
            output,
            sent: 0,
            before: 0,
            count: Count::default(),
        })
    }

    pub(super) fn is_connected(&self) -> bool {
        self.client.is_connected()
    }

    /// How often the server wants a PINGREQ, if it does.
    pub(super) fn ping_interval(&self) -> Option<Duration> {
        self.client.ping_interval().filter(|_| self.is_connected())
    }

    pub(super) const fn count(&self) -> Count {
        self.count
    }

    /// Bytes of packets that have been sent.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.before + wide(self.sent)
    }

    /// Puts a request in line.
    #[inline]
    pub(super) fn submit(&mut self, request: Request<'_>, tag: u64) -> Result<(), DriverError> {
        match request {
            Request::Publish { topic, payload } => self.publish(topic, payload, tag),
            Request::Subscribe { topic } => {
                let id = self.subscribe(topic)?;
                self.requests.subscribing.push((id, tag));
                Ok(())
            }
            Request::Get { topic } => {
                // [MQTT-3.8.4-3], [MQTT-3.8.4-4]: subscribing again brings the retained message again.
                let id = self.subscribe(topic)?;
                self.requests.asking.push_back((id, tag));
                Ok(())
            }
        }
    }

    #[inline]
    fn publish(&mut self, topic: &str, payload: &[u8], tag: u64) -> Result<(), DriverError> {
        if !self.backlog.is_empty() {
            return self.wait(topic, payload, tag);
        }
        let Wanted { qos, retain, .. } = self.wanted;
        let message = Outgoing { topic, qos, retain, payload, ..Outgoing::default() };
        match self.client.publish_with(&message, || tag, &mut self.output) {
            Ok(id) => {
                if id.is_none() {
                    self.leaving.push_back((self.before + wide(self.output.len()), tag));
                }
                self.count.payload_up += wide(payload.len());
                Ok(())
            }
            Err(RequestError::NoRoom) => self.wait(topic, payload, tag),
            Err(error) => Err(DriverError::Refused(error.to_string())),
        }
    }

    #[cold]
    fn wait(&mut self, topic: &str, payload: &[u8], tag: u64) -> Result<(), DriverError> {
        if self.backlog.len() >= BACKLOG_MAX {
            return Err(DriverError::Refused(format!("{BACKLOG_MAX} messages wait for acknowledgements")));
        }
        self.backlog.push_back(Waiting { topic: topic.into(), payload: payload.into(), tag });
        Ok(())
    }

    /// Sends waiting publications while the window has room.
    fn catch_up(&mut self) -> Result<(), DriverError> {
        while self.client.has_room()
            && let Some(Waiting { topic, payload, tag }) = self.backlog.pop_front()
        {
            let rest = std::mem::take(&mut self.backlog);
            let published = self.publish(&topic, &payload, tag);
            self.backlog = rest;
            published?;
        }
        Ok(())
    }

    fn subscribe(&mut self, topic: &str) -> Result<PacketId, DriverError> {
        let options = SubscriptionOptions {
            qos: self.wanted.qos,
            no_local: false,
            // So that a retained message can be told from one that comes now.
            retain_as_published: false,
            retain_handling: RetainHandling::Always,
        };
        let entries = [(topic, options)];
        let sent = self.client.subscribe(&entries, Properties::NONE, &mut self.output);
        sent.map_err(|error| DriverError::Refused(error.to_string()))
    }

    /// The bytes to send.
    pub(super) fn output(&self) -> &[u8] {
        self.output.get(self.sent..).unwrap_or_default()
    }

    /// So much of it is on its way.
    pub(super) fn sent(&mut self, bytes: usize, sink: &mut dyn Sink) {
        self.sent += bytes;
        let reached = self.sent_bytes();
        while let Some((_, tag)) = self.leaving.pop_front_if(|(end, _)| *end <= reached) {
            sink.done(tag, Answer::Success(&[]));
        }
        if self.sent >= self.output.len() {
            self.output.clear();
        } else if self.sent >= SENT_BYTES_MAX {
            self.output.drain(..self.sent);
        } else {
            return;
        }
        self.before = reached;
        self.sent = 0;
    }

    /// Takes whole packets from the front of `bytes` and returns how many bytes that were.
    pub(super) fn handle(&mut self, bytes: &[u8], sink: &mut dyn Sink) -> Result<usize, DriverError> {
        let Self { client, requests, output, count, .. } = self;
        let mut failure = None;
        let unknown = client.unknown_acknowledgements();
        let used = client.handle_all(bytes, output, |event, tag| match event {
            Event::Message(incoming) => {
                count.payload_down += wide(incoming.payload.len());
                requests.message(&incoming, sink);
            }
            Event::Published { reason, .. } => {
                if let Some(tag) = tag {
                    sink.done(tag, answer(reason));
                }
            }
            Event::Subscribed { packet_id, codes } => requests.subscribed(packet_id, codes, sink),
            Event::Refused { reason, text } => {
                let said = format!("{} (0x{:02x}) {}", reason.name(), reason.0, text.unwrap_or_default());
                failure = Some(DriverError::Refused(said.trim_end().to_owned()));
            }
            Event::Disconnected { reason, text } => {
                let said = format!("disconnected: {} {}", reason.name(), text.unwrap_or_default());
                failure = Some(DriverError::Connection(said));
            }
            Event::Connected { .. }
            | Event::Unsubscribed { .. }
            | Event::Authentication { .. }
            | Event::Pong
            | Event::Nothing => {}
        });
        let used = used.map_err(|error| DriverError::Protocol(error.to_string()))?;
        (unknown..client.unknown_acknowledgements()).for_each(|_| sink.stray(UNKNOWN));
        if let Some(failure) = failure {
            return Err(failure);
        }
        self.count.down += wide(used);
        if !self.backlog.is_empty() {
            self.catch_up()?;
        }
        let most = self.wanted.packet_bytes_max;
        if bytes.len() - used > most {
            return Err(DriverError::Protocol(format!("a packet of more than {most} bytes")));
        }
        Ok(used)
    }

    /// Puts PINGREQ in line.
    pub(super) fn ping(&mut self) {
        self.client.ping(&mut self.output);
    }

    /// Puts DISCONNECT in line.
    pub(super) fn disconnect(&mut self) {
        self.client.disconnect(ReasonCode::SUCCESS, &mut self.output);
    }
}

impl Requests {
    /// A retained message answers the request for it that waits longest.
    #[inline]
    fn message(&mut self, incoming: &Incoming<'_>, sink: &mut dyn Sink) {
        match self.asking.pop_front_if(|_| incoming.retain) {
            Some((_, tag)) => sink.done(tag, Answer::Success(incoming.payload)),
            None => {
                let topic = Some(incoming.topic.as_str());
                sink.message(Arrival { topic, is_kept: incoming.retain, payload: incoming.payload });
            }
        }
    }

    fn subscribed(&mut self, id: PacketId, codes: ReasonCodes<'_>, sink: &mut dyn Sink) {
        let refused = codes.iter().find(|code| code.is_error());
        let same = |(waiting, _): &(PacketId, u64)| *waiting == id;
        if let Some(at) = self.subscribing.iter().position(same) {
            let (_, tag) = self.subscribing.swap_remove(at);
            sink.done(tag, refused.map_or(Answer::Success(&[]), |code| Answer::Refused(code.name())));
        } else if let Some(code) = refused
            && let Some((_, tag)) = self.asking.iter().position(same).and_then(|at| self.asking.remove(at))
        {
            sink.done(tag, Answer::Refused(code.name()));
        }
    }
}

fn answer(reason: ReasonCode) -> Answer<'static> {
    if reason.is_error() { Answer::Refused(reason.name()) } else { Answer::Success(&[]) }
}

fn wide(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
