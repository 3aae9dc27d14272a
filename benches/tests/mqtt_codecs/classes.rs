//! Disagreements by class: what differs, the clause, who is right by it, and which codecs it concerns. `main.rs` fails
//! on a disagreement without a class and on a class without a disagreement. `docs/protocols/mqtt.md` has the table too.

use std::fmt;

use fogmux_mqtt::{DecodeError, Packet, PacketType, Property, Version};

use crate::meaning::{Case, Meaning};
use crate::peers::{Peer, Verdict};

/// The codec that is right by the clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// Our codec.
    Ours,
    /// Nobody: the standard leaves it open, or leaves it to what stands above a codec.
    Open,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours => "ours",
            Self::Open => "open",
        })
    }
}

/// The versions in which a codec differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum In {
    Neither,
    V311,
    V5,
    Both,
}

impl In {
    pub(crate) fn has(self, version: Version) -> bool {
        match self {
            Self::Neither => false,
            Self::V311 => version == Version::V311,
            Self::V5 => version == Version::V5,
            Self::Both => version != Version::V31,
        }
    }
}

use In::{Both, Neither, V5, V311};
use Right::{Open, Ours};

/// Disagreements of one kind.
pub(crate) struct Class {
    /// In a few words.
    pub(crate) what: &'static str,
    /// The clause that decides.
    pub(crate) clause: &'static str,
    pub(crate) right: Right,
    /// In the order of [`Peer::ALL`].
    pub(crate) differ: [In; 4],
    /// Whether the case is one of this kind.
    explains: fn(&Case<'_>) -> bool,
}

impl Class {
    /// The codecs that differ, as in the documentation.
    pub(crate) fn peers(&self) -> String {
        let named = Peer::ALL.iter().zip(self.differ).filter_map(|(peer, versions)| match versions {
            Neither => None,
            V311 => Some(format!("{peer} (3.1.1)")),
            V5 => Some(format!("{peer} (5.0)")),
            Both => Some(peer.to_string()),
        });
        named.collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn concerns(&self, peer: Peer, version: Version) -> bool {
        Peer::ALL.iter().zip(self.differ).any(|(one, versions)| *one == peer && versions.has(version))
    }
}

/// The first class that explains the disagreement, for this peer and version.
pub(crate) fn class_of(case: &Case<'_>) -> Option<usize> {
    CLASSES.iter().position(|class| class.concerns(case.peer, case.version) && (class.explains)(case))
}

macro_rules! refuses {
    ($pattern:pat) => {
        |case| matches!(case.ours, Err($pattern)) && matches!(case.theirs, Verdict::Packet { .. })
    };
}

/// A row: what differs, the clause, who is right, the codecs in the order of [`Peer::ALL`], and the test of a case.
macro_rules! classes {
    ($($what:literal $clause:literal $right:ident [$($differ:ident)+] $explains:expr;)*) => {
        /// The first that explains a case is its class.
        pub(crate) const CLASSES: &[Class] = &[
            $(Class { what: $what, clause: $clause, right: $right, differ: [$($differ),+], explains: $explains },)*
        ];
    };
}

classes! {
    // Not about one statement.
    "Reserved types, flags and lengths are refused when the packet is whole, not with its first bytes"
        "§4.13" Open [Both Both Both Both] |case| early(case) && case.theirs == Verdict::More;
    "CONNACK and UNSUBACK, which only a server sends, are a panic"
        "§3.2, §3.11" Ours [Neither Neither V5 Neither] |case| {
            matches!(case.kind(), 2 | 11) && matches!(case.theirs, Verdict::Panicked(_))
        };
    "AUTH is unknown"
        "§3.15" Ours [Neither Neither V5 V5] |case| {
            matches!(case.packet(), Some(Packet::Auth(_))) && case.they_say("InvalidPacketType(15)")
        };
    "A whole packet that ends inside a Variable Byte Integer or before the Property Length waits for more"
        "§4.13" Ours [Neither Neither V5 V5] |case| {
            case.ours.is_err() && case.theirs == Verdict::More && !early(case)
        };

    // We read it, and they do not.
    "DISCONNECT with a reason code and no Property Length waits for more"
        "§3.14.2.2.1" Ours [Neither Neither V5 V5] |case| {
            matches!(case.packet(), Some(Packet::Disconnect(_))) && case.bytes.get(1) == Some(&1)
                && case.theirs == Verdict::More
        };
    "DISCONNECT without a reason code is refused"
        "§3.14.2.1" Ours [Neither Neither Neither V5] |case| {
            matches!(case.packet(), Some(Packet::Disconnect(_))) && case.they_say("PayloadRequired")
        };
    "A Password that is not UTF-8 is refused"
        "§3.1.3.6, of 3.1.1 §3.1.3.5" Ours [Neither Neither Both Both] |case| {
            let is_binary = |password: &[u8]| str::from_utf8(password).is_err();
            case.they_say("Utf8") && connect(case, |connect| connect.password.is_some_and(is_binary))
        };
    "A Password without a User Name is refused"
        "§3.1.2.9" Ours [Neither V5 Neither Neither] |case| {
            case.they_say("ProtocolError") && connect(case, |it| it.user.is_none() && it.password.is_some())
        };
    "An empty client identifier without Clean Start is refused; the gateway assigns one"
        "[MQTT-3.1.3-6]" Ours [V5 Neither Neither Neither] no_identifier;
    "An empty client identifier without Clean Session is refused and cannot be answered with 0x02"
        "[MQTT-3.1.3-8] of 3.1.1" Ours [V311 Neither Neither Neither] no_identifier;
    "A Message Expiry Interval of 0 is refused"
        "§3.3.2.3.3, §3.1.3.2.4" Ours [V5 Neither Neither Neither] |case| {
            case.they_say("MalformedPacket") && case.has_property(|it| *it == Property::MessageExpiryInterval(0))
        };
    "An empty Topic Filter is refused; the gateway refuses it when it subscribes"
        "[MQTT-4.7.3-1]" Open [V311 Neither Neither Neither] |case| {
            case.they_say("InvalidTopicFilter") && case.has_filter(str::is_empty)
        };
    "A malformed `$share/…` is refused; the gateway refuses it when it subscribes"
        "[MQTT-4.8.2-1], [MQTT-4.8.2-2]" Open [Neither V5 Neither Neither] |case| {
            case.they_say("MalformedPacket") && case.has_filter(is_malformed_share)
        };
    "The protocol level of a Mosquitto bridge, 0x84, is refused"
        "[MQTT-3.1.2-2] of 3.1.1" Open [V311 V311 V311 V311] |case| {
            connect(case, |connect| connect.bridge) && matches!(case.theirs, Verdict::Refused(_))
        };

    // We read it, and they write it otherwise.
    "An empty User Name or Password is lost"
        "§3.1.2.8, §3.1.2.9" Ours [Neither Neither Both Both] lost_login;
    "CONNACK is written without a Property Length when it has no properties"
        "§3.2.2.3.1" Ours [Neither Neither Neither V5] |case| {
            matches!(case.packet(), Some(Packet::Connack(it)) if it.properties.is_empty())
                && case.again() == Some(Err(DecodeError::Truncated))
        };
    "DISCONNECT is written with a Remaining Length that is too short by the Property Length"
        "§2.1.4" Ours [Neither Neither V5 Neither] |case| {
            matches!(case.packet(), Some(Packet::Disconnect(it)) if it.properties.is_empty()) && case.writes_more()
        };
    "The property after several Subscription Identifiers is taken for payload"
        "§2.2.2.1" Ours [Neither Neither V5 V5] |case| {
            matches!(case.packet(), Some(Packet::Publish(it)) if it.properties.subscription_ids().count() > 1)
                && matches!(case.again(), Some(Ok(Some((Packet::Publish(_), _)))))
        };

    // We refuse it, and they read it.
    "Reserved flags of the fixed header"
        "[MQTT-2.1.3-1]" Ours [Neither Both Both Both] refuses!(DecodeError::HeaderFlags(_));
    "A Remaining Length that is not minimal"
        "[MQTT-1.5.5-1]" Ours [V5 V5 V5 V5] refuses!(DecodeError::RemainingLength);
    "A Remaining Length that is not minimal"
        "§2.2.3 of 3.1.1" Open [V311 V311 V311 V311] refuses!(DecodeError::RemainingLength);
    "A Variable Byte Integer that is not minimal"
        "[MQTT-1.5.5-1]" Ours [V5 V5 V5 V5] refuses!(DecodeError::VariableByteInteger);
    "Bytes after the last field"
        "§4.13" Ours [Both V311 Both Both] refuses!(DecodeError::TrailingBytes);
    "A packet that ends inside a field"
        "§4.13" Ours [Neither V5 V5 V5] refuses!(DecodeError::Truncated);
    "U+0000 in a string"
        "[MQTT-1.5.4-2]" Ours [Both Both Both Both] refuses!(DecodeError::Nul);
    "A string that is not UTF-8"
        "[MQTT-1.5.4-1]" Ours [Neither Neither Both Neither] refuses!(DecodeError::Utf8);
    "A Packet Identifier of zero"
        "[MQTT-2.2.1-3], [MQTT-2.2.1-4]" Ours [Neither Both Both Both] refuses!(DecodeError::PacketIdZero);
    "A protocol name that does not belong to the level"
        "[MQTT-3.1.2-1], [MQTT-3.1.2-2]" Ours [V311 Neither Neither Neither] refuses!(DecodeError::ProtocolLevel(_));
    "The reserved Connect Flag"
        "[MQTT-3.1.2-3]" Ours [Neither Both Both Both] refuses!(DecodeError::ConnectFlags);
    "Will QoS or Will Retain without Will Flag"
        "[MQTT-3.1.2-11], [MQTT-3.1.2-13]" Ours [V5 Both Neither Neither] refuses!(DecodeError::WillFlags);
    "A Will QoS of 3, with a will or without"
        "[MQTT-3.1.2-12]" Ours [V5 Both Neither Neither] refuses!(DecodeError::Qos);
    "A Password without a User Name"
        "[MQTT-3.1.2-22] of 3.1.1" Ours [V311 Neither V311 V311] refuses!(DecodeError::PasswordWithoutUser);
    "Reserved Connect Acknowledge Flags"
        "[MQTT-3.2.2-1]" Ours [Neither Both V311 Both] refuses!(DecodeError::ConnackFlags);
    "Session Present in a refusal"
        "[MQTT-3.2.2-6], of 3.1.1 [MQTT-3.2.2-4]" Ours [Both Both V311 Both]
        refuses!(DecodeError::SessionPresentOnFailure);
    "A reason code that CONNACK or DISCONNECT may not have"
        "[MQTT-3.14.2-1], of 3.1.1 [MQTT-3.2.2-6]" Ours [Both Neither Neither Neither]
        refuses!(DecodeError::Reason { packet: PacketType::Connack | PacketType::Disconnect, .. });
    "DUP with QoS 0"
        "[MQTT-3.3.1-2]" Ours [Both Both Both Both] refuses!(DecodeError::DupWithQos0);
    "A wildcard in a Topic Name or Will Topic"
        "[MQTT-3.3.2-2]" Ours [Both Both Both Both] refuses!(DecodeError::TopicWildcard);
    "An empty Topic Name or Will Topic"
        "[MQTT-4.7.3-1]" Ours [Both Both Both Both] refuses!(DecodeError::TopicEmpty);
    "An empty Topic Name without a Topic Alias"
        "§3.3.2.1" Ours [V5 V5 V5 V5] refuses!(DecodeError::TopicMissing);
    "A wildcard in a Response Topic"
        "[MQTT-3.3.2-14]" Ours [V5 V5 V5 V5] refuses!(DecodeError::ResponseTopicWildcard);
    "An empty Response Topic"
        "[MQTT-4.7.3-1]" Ours [V5 V5 V5 V5] refuses!(DecodeError::ResponseTopicEmpty);
    "A Topic Alias of 0"
        "[MQTT-3.3.2-8]" Ours [Neither Neither V5 V5] refuses!(DecodeError::TopicAliasZero);
    "A property that does not belong to the packet, behind Subscription Identifiers"
        "§2.2.2.2" Ours [Neither Neither V5 V5] refuses!(DecodeError::Property(_));
    "A property twice"
        "§2.2.2.2" Ours [Neither V5 V5 V5] refuses!(DecodeError::PropertyTwice(_));
    "A value that the property's section forbids"
        "§2.2.2.2" Ours [V5 Neither V5 V5] refuses!(DecodeError::PropertyValue(_));
    "Authentication Data without a method"
        "§3.1.2.11.10" Ours [V5 V5 V5 V5] refuses!(DecodeError::AuthenticationData);
    "AUTH without a method"
        "§3.15.2.2.2" Ours [V5 Neither Neither Neither] refuses!(DecodeError::AuthenticationMethod);
    "SUBSCRIBE without a Topic Filter"
        "[MQTT-3.8.3-2]" Ours [Neither Neither Neither Both] refuses!(DecodeError::SubscribeEmpty);
    "UNSUBSCRIBE without a Topic Filter"
        "[MQTT-3.10.3-2]" Ours [Neither Neither Both Both] refuses!(DecodeError::UnsubscribeEmpty);
    "Reserved bits of the Subscription Options"
        "[MQTT-3.8.3-5], of 3.1.1 [MQTT-3-8.3-4]" Ours [V311 V311 Both Both] refuses!(DecodeError::SubscriptionOptions);
    "No Local on a Shared Subscription"
        "[MQTT-3.8.3-4]" Ours [V5 V5 V5 V5] refuses!(DecodeError::NoLocalShared);
    "SUBACK or UNSUBACK without a reason code"
        "[MQTT-3.9.3-1], [MQTT-3.11.3-1]" Ours [Both Neither Neither Neither] refuses!(DecodeError::AckEmpty);
}

/// Errors of the fixed header, which we find before the rest of the packet is there.
fn early(case: &Case<'_>) -> bool {
    matches!(case.ours, Err(DecodeError::HeaderFlags(_) | DecodeError::ReservedType(_) | DecodeError::RemainingLength))
}

fn connect(case: &Case<'_>, holds: impl FnOnce(&fogmux_mqtt::Connect<'_>) -> bool) -> bool {
    matches!(case.packet(), Some(Packet::Connect(connect)) if holds(connect))
}

fn no_identifier(case: &Case<'_>) -> bool {
    case.they_say("InvalidClientId") && connect(case, |it| it.client_id.is_empty() && !it.clean_start)
}

/// Not `$share/<name>/<filter>` with a character in each, and no wildcard in the name.
fn is_malformed_share(filter: &str) -> bool {
    let Some(rest) = filter.strip_prefix("$share/") else { return false };
    let Some((name, filter)) = rest.split_once('/') else { return true };
    name.is_empty() || name.contains(['+', '#']) || filter.is_empty()
}

/// The packet is the same but for an empty User Name or Password. In 3.1.1 a lost User Name makes it malformed.
fn lost_login(case: &Case<'_>) -> bool {
    let Some(Packet::Connect(said)) = case.packet() else { return false };
    if said.user != Some("") && said.password != Some(b"") {
        return false;
    }
    match case.again() {
        Some(Err(DecodeError::PasswordWithoutUser)) => said.user == Some(""),
        Some(Ok(Some((Packet::Connect(again), _)))) => {
            let user = said.user.filter(|user| !user.is_empty());
            let password = said.password.filter(|password| !password.is_empty());
            let without = Packet::Connect(fogmux_mqtt::Connect { user, password, ..*said });
            Meaning::of(&without) == Meaning::of(&Packet::Connect(again))
        }
        _ => false,
    }
}
