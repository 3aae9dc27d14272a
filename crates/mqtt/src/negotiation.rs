//! The negotiation of CONNECT: the client's request, the server's limits, and the CONNACK (§3.1, §3.2).
//!
//! Pure arithmetic over limits: whether the client is who it says it is, and whether a session exists, is decided
//! between [`Negotiation::of`] and [`Negotiation::accept`] by the caller.

use crate::authentication::Authentication;
use crate::packet::{Connack, Connect, Packet, Publish, PublishProperties, Will};
use crate::property::{Properties, Property, PropertyBuffer};
use crate::{DecodeError, EncodeError, PacketType, ReasonCode, Version};

/// Session Expiry Interval of a session that never ends (§3.1.2.11.2).
pub const SESSION_NEVER_EXPIRES: u32 = u32::MAX;
/// Mosquitto's default.
const BRIDGE_WINDOW: u16 = 20;

/// The largest values that the server grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Seconds a session outlives its connection; [`SESSION_NEVER_EXPIRES`] for ever.
    pub session_expiry_max: u32,
    /// Unacknowledged QoS 1 and 2 messages from a client.
    pub receive_maximum: u16,
    /// Largest packet from a client in bytes.
    pub packet_bytes_max: u32,
    /// Highest alias from a client.
    pub topic_alias_maximum: u16,
    /// Longest Keep Alive in seconds; a client that wants longer or none is told this. Zero: any.
    pub keep_alive_max: u16,
    /// Unacknowledged QoS 1 and 2 messages to a client, whatever it allows.
    pub window_max: u16,
    /// Highest alias to a client, whatever it allows.
    pub outgoing_alias_maximum: u16,
}

/// The result of a CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiation {
    /// The protocol of the connection.
    pub version: Version,
    /// The client is a bridge of 3.1 or 3.1.1: see
    /// [`SubscriptionOptions::of_bridge`](crate::SubscriptionOptions::of_bridge).
    pub bridge: bool,
    /// Whether an existing session is discarded.
    pub clean_start: bool,
    /// Seconds the session outlives the connection; zero: not at all.
    pub session_expiry: u32,
    /// Keep Alive in seconds, zero for none ([MQTT-3.1.2-22]: cut after one and a half).
    pub keep_alive: u16,
    /// Messages that may be on their way to the client.
    pub window: u16,
    /// Largest packet the client takes, in bytes.
    pub packet_bytes_max: u32,
    /// Highest alias we may use towards the client.
    pub topic_alias_maximum: u16,
    /// Reason strings may be sent in every packet ([MQTT-3.1.2-29]).
    pub problem_information: bool,
    /// The client asks for Response Information.
    pub response_information: bool,
    /// Whether the client identifier is empty, so that the server assigns one.
    pub assign_client_id: bool,
    keep_alive_changed: bool,
    session_expiry_changed: bool,
    limits: ServerLimits,
}

impl Negotiation {
    /// Weighs a CONNECT against the limits.
    ///
    /// # Errors
    /// The reason to refuse it with.
    pub fn of(connect: &Connect<'_>, limits: &ServerLimits) -> Result<Self, ReasonCode> {
        let mut asked = Asked::default();
        for property in &connect.properties {
            asked.take(property);
        }
        let assign_client_id = connect.client_id.is_empty();
        if assign_client_id && !may_be_anonymous(connect) {
            return Err(ReasonCode::CLIENT_IDENTIFIER_NOT_VALID);
        }
        let session_asked = match connect.version {
            Version::V5 => asked.session_expiry,
            Version::V31 | Version::V311 if connect.clean_start => 0,
            Version::V31 | Version::V311 => SESSION_NEVER_EXPIRES,
        };
        let session_expiry = session_asked.min(limits.session_expiry_max);
        let keep_alive = keep_alive(connect, limits);
        Ok(Self {
            version: connect.version,
            bridge: connect.bridge,
            clean_start: connect.clean_start,
            session_expiry,
            keep_alive,
            window: asked.receive_maximum.min(limits.window_max).min(window_of_bridge(connect)).max(1),
            packet_bytes_max: asked.packet_bytes_max,
            topic_alias_maximum: asked.topic_alias_maximum.min(limits.outgoing_alias_maximum),
            problem_information: asked.problem_information,
            response_information: asked.response_information,
            assign_client_id,
            keep_alive_changed: keep_alive != connect.keep_alive,
            session_expiry_changed: session_expiry != session_asked,
            limits: *limits,
        })
    }

    /// Unacknowledged QoS 1 and 2 messages that the client may have (Receive Maximum).
    #[must_use]
    pub const fn receive_maximum(&self) -> u16 {
        self.limits.receive_maximum
    }

    /// Appends the CONNACK of success, with every limit that differs from the default of the standard (§3.2.2.3), and
    /// with the method of extended authentication if CONNECT had one ([MQTT-4.12.0-5], [MQTT-4.12.0-6]).
    ///
    /// If the client's Maximum Packet Size leaves no room for the Topic Alias Maximum, no aliases are offered; the
    /// client has to know everything else.
    ///
    /// # Errors
    /// When `assigned` or the authentication data is too long, or the packet for this client ([MQTT-3.1.2-24]). This
    /// does not depend on `session_present`.
    pub fn accept(
        &self,
        session_present: bool,
        assigned: Option<&str>,
        authentication: Option<&Authentication<'_>>,
        scratch: &mut PropertyBuffer,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let mut encode = |aliases: bool| {
            scratch.clear();
            if self.version.is_v5() {
                self.put_properties(assigned, scratch)?;
                authentication.map_or(Ok(()), |said| said.push(scratch))?;
                if aliases {
                    scratch.push(Property::TopicAliasMaximum(self.limits.topic_alias_maximum))?;
                }
            }
            let properties = scratch.properties();
            let connack = Connack { session_present, reason: ReasonCode::SUCCESS, properties };
            Packet::Connack(connack).encode_within(self.version, self.packet_bytes_max, out)
        };
        if self.limits.topic_alias_maximum != 0 && encode(true).is_ok() { Ok(()) } else { encode(false) }
    }

    fn put_properties(&self, assigned: Option<&str>, list: &mut PropertyBuffer) -> Result<(), EncodeError> {
        if self.session_expiry_changed {
            list.push(Property::SessionExpiryInterval(self.session_expiry))?;
        }
        if self.limits.receive_maximum != u16::MAX {
            list.push(Property::ReceiveMaximum(self.limits.receive_maximum))?;
        }
        list.push(Property::MaximumPacketSize(self.limits.packet_bytes_max))?;
        if let Some(id) = assigned {
            list.push(Property::AssignedClientIdentifier(id))?;
        }
        if self.keep_alive_changed {
            list.push(Property::ServerKeepAlive(self.keep_alive))?;
        }
        Ok(())
    }
}

/// [MQTT-3.1.3-7] and §3.1.3.1 of the older versions: an empty identifier asks the server to make one, which 3.1.1
/// allows with Clean Session only and 3.1 not at all.
const fn may_be_anonymous(connect: &Connect<'_>) -> bool {
    match connect.version {
        Version::V31 => false,
        Version::V311 => connect.clean_start,
        Version::V5 => true,
    }
}

/// The window of a bridge, which cannot ask for one before version 5. Mosquitto takes 20 messages of QoS 2 at a time
/// (`max_inflight_messages`), answers the others with PUBREC and drops them.
fn window_of_bridge(connect: &Connect<'_>) -> u16 {
    if connect.bridge && !connect.version.is_v5() { BRIDGE_WINDOW } else { u16::MAX }
}

/// The server may choose the Keep Alive ([MQTT-3.2.2-21]) but can tell so in version 5 only.
fn keep_alive(connect: &Connect<'_>, limits: &ServerLimits) -> u16 {
    let too_long = connect.keep_alive == 0 || connect.keep_alive > limits.keep_alive_max;
    if connect.version.is_v5() && limits.keep_alive_max != 0 && too_long {
        limits.keep_alive_max
    } else {
        connect.keep_alive
    }
}

/// The properties of CONNECT, with the defaults of the standard (§3.1.2.11).
struct Asked {
    session_expiry: u32,
    receive_maximum: u16,
    packet_bytes_max: u32,
    topic_alias_maximum: u16,
    problem_information: bool,
    response_information: bool,
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            session_expiry: 0,
            receive_maximum: u16::MAX,
            packet_bytes_max: u32::MAX,
            topic_alias_maximum: 0,
            problem_information: true,
            response_information: false,
        }
    }
}

impl Asked {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the decoder let no other property into CONNECT")]
    const fn take(&mut self, property: Property<'_>) {
        match property {
            Property::SessionExpiryInterval(seconds) => self.session_expiry = seconds,
            Property::ReceiveMaximum(max) => self.receive_maximum = max,
            Property::MaximumPacketSize(max) => self.packet_bytes_max = max,
            Property::TopicAliasMaximum(max) => self.topic_alias_maximum = max,
            Property::RequestProblemInformation(wanted) => self.problem_information = wanted,
            Property::RequestResponseInformation(wanted) => self.response_information = wanted,
            _ => {}
        }
    }
}

/// The properties of a Will: those of its message, and how long it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WillProperties<'a> {
    /// Seconds between the end of the connection and the message (§3.1.3.2.2).
    pub delay: u32,
    /// The properties of the will message.
    pub message: PublishProperties<'a>,
}

impl<'a> Will<'a> {
    /// Reads the properties.
    #[must_use]
    pub fn read_properties(&self) -> WillProperties<'a> {
        let delay = self
            .properties
            .iter()
            .find_map(|property| if let Property::WillDelayInterval(delay) = property { Some(delay) } else { None });
        WillProperties { delay: delay.unwrap_or(0), message: PublishProperties::from(self.properties) }
    }

    /// The message as if it had been published.
    #[must_use]
    pub const fn as_publish(&self) -> Publish<'a> {
        Publish {
            dup: false,
            qos: self.qos,
            retain: self.retain,
            topic: self.topic,
            packet_id: None,
            properties: self.properties,
            payload: self.payload,
        }
    }
}

/// Appends the CONNACK that refuses, in the form of `version`; nothing if that version has no such code and the
/// connection is just closed ([MQTT-3.1.0-1], §3.2.2.3 of 3.1.1). A text that would make the packet larger than
/// `packet_bytes_max`, the client's Maximum Packet Size, is left out ([MQTT-3.2.2-19]).
pub fn refuse(version: Version, reason: ReasonCode, text: Option<&str>, packet_bytes_max: u32, out: &mut Vec<u8>) {
    if !version.is_v5() && reason.connack_v3().is_none() {
        return;
    }
    // Other reasons are malformed in CONNACK.
    let reason = if reason.allowed_in(PacketType::Connack) { reason } else { ReasonCode::UNSPECIFIED_ERROR };
    let mut list = PropertyBuffer::new();
    if let Some(text) = text.filter(|_| version.is_v5()) {
        // The text is optional.
        let _ = list.push(Property::ReasonString(text));
    }
    let mut encode = |properties| {
        let connack = Connack { session_present: false, reason, properties };
        Packet::Connack(connack).encode_within(version, packet_bytes_max, out)
    };
    // A client that accepts not even this is told by the end of the connection ([MQTT-3.1.2-24]).
    let _ = encode(list.properties()).or_else(|_| encode(Properties::NONE));
}

/// Appends the answer to a CONNECT that cannot be decoded, in version 5 if `buf` has that protocol level.
///
/// An unknown level is answered by the CONNACK of 3.1.1 with return code 0x01, which 3.1.1 demands ([MQTT-3.1.2-2] of
/// 3.1.1) and version 5 permits ("MAY send a CONNACK … 0x84", [MQTT-3.1.2-2]): every client, and Mosquitto's bridges,
/// understand these four bytes without properties.
pub fn refuse_unreadable(buf: &[u8], error: &DecodeError, out: &mut Vec<u8>) {
    let version = match (error, level(buf)) {
        (DecodeError::ProtocolLevel(_), _) => Version::V311,
        (_, Some(5)) => Version::V5,
        (_, Some(_)) => Version::V311,
        (_, None) => return,
    };
    // The client's limit is not known; without a text the packet is as small as possible.
    refuse(version, error.reason(), None, u32::MAX, out);
}

/// The protocol level of a CONNECT, if it is there.
fn level(buf: &[u8]) -> Option<u8> {
    let (first, rest) = buf.split_first()?;
    if first >> 4 != PacketType::Connect as u8 {
        return None;
    }
    let length_bytes = rest.iter().take(4).position(|byte| byte & 0x80 == 0)? + 1;
    let body = rest.get(length_bytes..)?;
    body.strip_prefix(b"\0\x04MQTT").or_else(|| body.strip_prefix(b"\0\x06MQIsdp"))?.first().copied()
}

/// The properties of a CONNACK for a client, with the defaults of the standard (§3.2.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnackProperties<'a> {
    /// Unacknowledged QoS 1 and 2 messages the server takes.
    pub receive_maximum: u16,
    /// Largest packet the server takes.
    pub packet_bytes_max: u32,
    /// Highest alias the server takes.
    pub topic_alias_maximum: u16,
    /// Replaces the client's.
    pub server_keep_alive: Option<u16>,
    /// Replaces the client's.
    pub session_expiry: Option<u32>,
    /// The identifier the server made.
    pub assigned_client_id: Option<&'a str>,
    /// The server takes QoS 2; if not, `qos_1` says whether 1.
    pub qos_2: bool,
    /// The server takes QoS 1.
    pub qos_1: bool,
    /// Whether the server retains messages.
    pub retain: bool,
    /// For people.
    pub reason_string: Option<&'a str>,
    /// The method of extended authentication and the server's last word of it.
    pub authentication: Option<Authentication<'a>>,
}

impl<'a> From<Properties<'a>> for ConnackProperties<'a> {
    fn from(list: Properties<'a>) -> Self {
        let mut this = Self {
            receive_maximum: u16::MAX,
            packet_bytes_max: u32::MAX,
            topic_alias_maximum: 0,
            server_keep_alive: None,
            session_expiry: None,
            assigned_client_id: None,
            qos_2: true,
            qos_1: true,
            retain: true,
            reason_string: None,
            authentication: Authentication::of(list),
        };
        for property in &list {
            this.take(property);
        }
        this
    }
}

impl<'a> ConnackProperties<'a> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others say nothing that the client role uses")]
    const fn take(&mut self, property: Property<'a>) {
        match property {
            Property::ReceiveMaximum(max) => self.receive_maximum = max,
            Property::MaximumPacketSize(max) => self.packet_bytes_max = max,
            Property::TopicAliasMaximum(max) => self.topic_alias_maximum = max,
            Property::ServerKeepAlive(seconds) => self.server_keep_alive = Some(seconds),
            Property::SessionExpiryInterval(seconds) => self.session_expiry = Some(seconds),
            Property::AssignedClientIdentifier(id) => self.assigned_client_id = Some(id),
            Property::MaximumQos(one) => (self.qos_1, self.qos_2) = (one, false),
            Property::RetainAvailable(available) => self.retain = available,
            Property::ReasonString(text) => self.reason_string = Some(text),
            _ => {}
        }
    }
}
