//! A client's side of MQTT without a socket: requests become packets in one output buffer, bytes become answers.
//!
//! Nothing is allocated per message: an acknowledgement finds its tag by subtraction (`fogmux_mqtt::Outbound`), and
//! payloads are borrowed from what was read.

use std::collections::VecDeque;
use std::time::Duration;

use fogmux_mqtt::{
    Ack, Acknowledged, Connack, ConnackProperties, Connect, Disconnect, Limits, Outbound, OutboundConfig, Outgoing,
    Packet, PacketId, PacketType, Properties, Publish, Qos, ReasonCode, Received, ReceivedIds, RetainHandling, Sent,
    Suback, Subscribe, SubscribeEntries, SubscriptionOptions, Version, decode,
};

use crate::driver::{Answer, DriverError, Request, Sink};

/// What may be unacknowledged where the server does not say: all identifiers but those that finished exchanges hold.
const WINDOW: u16 = 64_000;
/// What may wait for room in the server's window.
const BACKLOG_MAX: usize = 65_536;
/// By its length field no packet is larger (§2.1.4).
const PACKET_BYTES_MAX: usize = 268_435_460;
/// What is sent already may stay in the output until it is this much.
const SENT_BYTES_MAX: usize = 256 << 10;

/// How messages are published and asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) qos: Qos,
    pub(super) retain: bool,
}

/// What is known of a connection.
pub(super) struct Session {
    version: Version,
    wanted: Wanted,
    state: State,
    keep_alive: Option<Duration>,
    /// Gives tags back.
    outbound: Outbound<u64>,
    /// Exchanges of QoS 2 that await PUBCOMP, in the order of their PUBRELs.
    releasing: VecDeque<(PacketId, u64)>,
    /// Subscriptions that await SUBACK.
    subscribing: Vec<(PacketId, u64)>,
    /// Subscriptions that are made for the kept message only, until it comes.
    asking: VecDeque<(PacketId, u64)>,
    /// Messages of QoS 0 and where they end in the stream.
    leaving: VecDeque<(u64, u64)>,
    /// What waits for room.
    backlog: VecDeque<Waiting>,
    received: ReceivedIds,
    output: Vec<u8>,
    /// Of the output, what is sent.
    sent: usize,
    /// Of the stream, what is not in the output any more.
    before: u64,
    count: Count,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    AwaitingConnack,
    Connected,
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
        let version = connect.version;
        let mut output = Vec::new();
        Packet::Connect(*connect)
            .encode(version, &mut output)
            .map_err(|error| DriverError::Refused(error.to_string()))?;
        Ok(Self {
            version,
            wanted,
            state: State::AwaitingConnack,
            keep_alive: None,
            outbound: Outbound::new(outbound(version, &ConnackProperties::from(Properties::NONE))),
            releasing: VecDeque::new(),
            subscribing: Vec::new(),
            asking: VecDeque::new(),
            leaving: VecDeque::new(),
            backlog: VecDeque::new(),
            received: ReceivedIds::new(),
            output,
            sent: 0,
            before: 0,
            count: Count::default(),
        })
    }

    pub(super) fn is_connected(&self) -> bool {
        self.state == State::Connected
    }

    /// How often the server wants a PINGREQ, if it does.
    pub(super) const fn keep_alive(&self) -> Option<Duration> {
        self.keep_alive
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
                self.subscribing.push((id, tag));
                Ok(())
            }
            Request::Get { topic } => {
                // [MQTT-3.8.4-3], [MQTT-3.8.4-4]: subscribing again brings the kept message again.
                let id = self.subscribe(topic)?;
                self.asking.push_back((id, tag));
                Ok(())
            }
        }
    }

    #[inline]
    fn publish(&mut self, topic: &str, payload: &[u8], tag: u64) -> Result<(), DriverError> {
        if !self.backlog.is_empty() {
            return self.wait(topic, payload, tag);
        }
        let Wanted { qos, retain } = self.wanted;
        let message = Outgoing { topic, qos, retain, payload, ..Outgoing::default() };
        match self.outbound.publish(&message, || tag, &mut self.output) {
            Sent::Sent(id) => {
                if id.is_none() {
                    self.leaving.push_back((self.before + wide(self.output.len()), tag));
                }
                self.count.payload_up += wide(payload.len());
                Ok(())
            }
            Sent::NoRoom => self.wait(topic, payload, tag),
            Sent::TooLarge => Err(DriverError::Refused("the server takes no packet that large".to_owned())),
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

    /// What waits goes as far as there is room.
    fn catch_up(&mut self) -> Result<(), DriverError> {
        while self.outbound.has_room()
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
        let packet_id =
            self.outbound.reserve().ok_or_else(|| DriverError::Refused("no packet identifier is free".to_owned()))?;
        let options = SubscriptionOptions {
            qos: self.wanted.qos,
            no_local: false,
            // So that a message that was kept can be told from one that comes now.
            retain_as_published: false,
            retain_handling: RetainHandling::Always,
        };
        let entries = [(topic, options)];
        let packet = Subscribe { packet_id, properties: Properties::NONE, entries: SubscribeEntries::new(&entries) };
        let encoded = Packet::Subscribe(packet).encode(self.version, &mut self.output);
        encoded.map_err(|error| DriverError::Refused(error.to_string()))?;
        Ok(packet_id)
    }

    /// What is to be sent.
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

    /// Takes whole packets from the front of `bytes`; how many bytes that were.
    pub(super) fn handle(&mut self, bytes: &[u8], sink: &mut dyn Sink) -> Result<usize, DriverError> {
        let limits = Limits { packet_bytes_max: PACKET_BYTES_MAX };
        let mut rest = bytes;
        while let Some((packet, used)) = decode(rest, self.version, &limits).map_err(broken)? {
            if let Packet::Publish(publish) = &packet
                && self.state == State::Connected
            {
                self.handle_publish(publish, sink)?;
            } else {
                self.handle_packet(&packet, sink)?;
            }
            rest = rest.get(used..).unwrap_or_default();
        }
        let used = bytes.len() - rest.len();
        self.count.down += wide(used);
        if !self.backlog.is_empty() {
            self.catch_up()?;
        }
        Ok(used)
    }

    #[inline]
    fn handle_publish(&mut self, publish: &Publish<'_>, sink: &mut dyn Sink) -> Result<(), DriverError> {
        let fresh = match (publish.qos, publish.packet_id) {
            (Qos::AtMostOnce, _) | (_, None) => true,
            (Qos::AtLeastOnce, Some(id)) => {
                self.acknowledge(PacketType::Puback, id, ReasonCode::SUCCESS);
                true
            }
            (Qos::ExactlyOnce, Some(id)) => {
                self.acknowledge(PacketType::Pubrec, id, ReasonCode::SUCCESS);
                match self.received.insert(id, usize::from(u16::MAX)) {
                    Received::Fresh => true,
                    Received::Duplicate => false,
                    Received::Full => return Err(DriverError::Protocol("all identifiers are unreleased".to_owned())),
                }
            }
        };
        if fresh {
            self.count.payload_down += wide(publish.payload.len());
            match self.asking.pop_front_if(|_| publish.retain) {
                Some((_, tag)) => sink.done(tag, Answer::Success(publish.payload)),
                None => sink.message(publish.payload),
            }
        }
        Ok(())
    }

    fn acknowledge(&mut self, kind: PacketType, id: PacketId, reason: ReasonCode) {
        // An acknowledgement without properties always fits.
        let _ = Ack::with_reason(id, reason).encode(kind, self.version, &mut self.output);
    }

    fn handle_packet(&mut self, packet: &Packet<'_>, sink: &mut dyn Sink) -> Result<(), DriverError> {
        match (self.state, packet) {
            (State::AwaitingConnack, Packet::Connack(connack)) => self.handle_connack(connack),
            (State::Connected, Packet::Puback(ack)) => self.handle_puback(ack, sink),
            (State::Connected, Packet::Pubrec(ack)) => self.handle_pubrec(ack, sink),
            (State::Connected, Packet::Pubcomp(ack)) => self.handle_pubcomp(ack, sink),
            (State::Connected, Packet::Pubrel(ack)) => {
                let known = self.received.remove(ack.packet_id);
                let reason = if known { ReasonCode::SUCCESS } else { ReasonCode::PACKET_IDENTIFIER_NOT_FOUND };
                self.acknowledge(PacketType::Pubcomp, ack.packet_id, reason);
                Ok(())
            }
            (State::Connected, Packet::Suback(ack)) => {
                self.handle_suback(ack, sink);
                Ok(())
            }
            (State::Connected, Packet::Pingresp) => Ok(()),
            (State::Connected, Packet::Disconnect(packet)) => {
                let text = packet.properties.reason_string().unwrap_or_default();
                Err(DriverError::Connection(format!("disconnected: {} {text}", packet.reason.name())))
            }
            (_, other) => Err(DriverError::Protocol(format!("{:?} came when it should not", other.kind()))),
        }
    }

    fn handle_connack(&mut self, connack: &Connack<'_>) -> Result<(), DriverError> {
        let properties = ConnackProperties::from(connack.properties);
        if connack.reason.is_error() {
            let text = properties.reason_string.unwrap_or_default();
            let said = format!("{} (0x{:02x}) {text}", connack.reason.name(), connack.reason.0);
            return Err(DriverError::Refused(said.trim_end().to_owned()));
        }
        self.state = State::Connected;
        // Three quarters leave the ping time to travel ([MQTT-3.1.2-20]).
        let seconds = properties.server_keep_alive.filter(|seconds| *seconds > 0);
        self.keep_alive = seconds.map(|seconds| Duration::from_secs(u64::from(seconds)) * 3 / 4);
        self.outbound.resume(outbound(self.version, &properties));
        Ok(())
    }

    fn handle_puback(&mut self, ack: &Ack<'_>, sink: &mut dyn Sink) -> Result<(), DriverError> {
        match self.outbound.handle_puback(ack.packet_id).map_err(broken)? {
            Acknowledged::Over(Some(tag)) => sink.done(tag, answer(ack.reason)),
            Acknowledged::Over(None) | Acknowledged::Released(_) | Acknowledged::Unknown => {}
        }
        Ok(())
    }

    fn handle_pubrec(&mut self, ack: &Ack<'_>, sink: &mut dyn Sink) -> Result<(), DriverError> {
        let id = ack.packet_id;
        match self.outbound.handle_pubrec(id, ack.reason, &mut self.output).map_err(broken)? {
            Acknowledged::Over(Some(tag)) => sink.done(tag, answer(ack.reason)),
            Acknowledged::Released(Some(tag)) => self.releasing.push_back((id, tag)),
            Acknowledged::Over(None) | Acknowledged::Released(None) | Acknowledged::Unknown => {}
        }
        Ok(())
    }

    fn handle_pubcomp(&mut self, ack: &Ack<'_>, sink: &mut dyn Sink) -> Result<(), DriverError> {
        let id = ack.packet_id;
        self.outbound.handle_pubcomp(id).map_err(broken)?;
        // Servers answer in order ([MQTT-4.6.0-4]); for one that does not, the list is searched.
        let at = self.releasing.iter().position(|(waiting, _)| *waiting == id);
        if let Some((_, tag)) = at.and_then(|at| self.releasing.remove(at)) {
            sink.done(tag, answer(ack.reason));
        }
        Ok(())
    }

    fn handle_suback(&mut self, ack: &Suback<'_>, sink: &mut dyn Sink) {
        self.outbound.unreserve(ack.packet_id);
        let refused = ack.codes.iter().find(|code| code.is_error());
        let same = |(id, _): &(PacketId, u64)| *id == ack.packet_id;
        if let Some(at) = self.subscribing.iter().position(same) {
            let (_, tag) = self.subscribing.swap_remove(at);
            sink.done(tag, refused.map_or(Answer::Success(&[]), |code| Answer::Refused(code.name())));
        } else if let Some(code) = refused
            && let Some((_, tag)) = self.asking.iter().position(same).and_then(|at| self.asking.remove(at))
        {
            sink.done(tag, Answer::Refused(code.name()));
        }
    }

    /// Puts PINGREQ in line.
    pub(super) fn ping(&mut self) {
        let _ = Packet::Pingreq.encode(self.version, &mut self.output);
    }

    /// Puts DISCONNECT in line.
    pub(super) fn disconnect(&mut self) {
        let _ = Packet::Disconnect(Disconnect::with_reason(ReasonCode::SUCCESS)).encode(self.version, &mut self.output);
    }
}

/// What the server takes; before version 5 it does not say.
fn outbound(version: Version, granted: &ConnackProperties<'_>) -> OutboundConfig {
    OutboundConfig {
        version,
        window: if version.is_v5() { granted.receive_maximum.min(WINDOW) } else { WINDOW },
        packet_bytes_max: usize::try_from(granted.packet_bytes_max).unwrap_or(usize::MAX),
        // Aliases would make packets smaller than the same message of another client.
        topic_alias_maximum: 0,
    }
}

fn answer(reason: ReasonCode) -> Answer<'static> {
    if reason.is_error() { Answer::Refused(reason.name()) } else { Answer::Success(&[]) }
}

fn broken(error: impl std::fmt::Display) -> DriverError {
    DriverError::Protocol(error.to_string())
}

fn wide(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
