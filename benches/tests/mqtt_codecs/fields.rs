//! Fields and properties by name, as `mqtt-protocol-core` reads them: an error that our codec makes in reading as in
//! writing would not be found by what another codec writes back.

use std::fmt::Debug;

use fogmux_mqtt::{Packet, Properties, Version};
use mqtt_protocol_core::mqtt::packet::{Packet as Core, Properties as CoreProperties, Property, v5_0};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use crate::meaning::Case;
use crate::peers::{Peer, core_packet};

/// Names and values.
#[derive(Debug, Default, PartialEq)]
struct Fields(Vec<(&'static str, String)>);

impl Fields {
    fn with(mut self, name: &'static str, value: impl Debug) -> Self {
        self.0.push((name, format!("{value:?}")));
        self
    }

    fn reason(self, code: u8) -> Self {
        self.with("reason", code)
    }
}

/// Compares the fields of a packet that both read.
pub(crate) fn compare(version: Version, bytes: &[u8]) -> TestCaseResult {
    let case = Case::new(Peer::Core, version, bytes).unwrap();
    if let (Some(packet), Some(theirs)) = (case.packet(), core_packet(version, bytes)) {
        prop_assert_eq!(ours(packet), core(&theirs), "{:?}", packet);
    }
    Ok(())
}

fn ours(packet: &Packet<'_>) -> Fields {
    let fields = Fields::default();
    match packet {
        Packet::Connect(it) => fields
            .with("clean start", it.clean_start)
            .with("keep alive", it.keep_alive)
            .with("client", it.client_id)
            .with("user", it.user)
            .with("password", it.password)
            .with("will", it.will.map(|will| (will.topic, will.payload, will.qos.bits(), will.retain)))
            .with("properties", properties(it.properties))
            .with("will properties", properties(it.will.map_or(Properties::NONE, |will| will.properties))),
        Packet::Connack(it) => {
            let fields = fields.with("session", it.session_present).with("properties", properties(it.properties));
            fields.reason(it.reason.0)
        }
        Packet::Publish(it) => fields
            .with("topic", it.topic)
            .with("flags", (it.qos.bits(), it.retain, it.dup))
            .with("id", it.packet_id.map(|id| id.get()))
            .with("payload", it.payload)
            .with("properties", properties(it.properties)),
        Packet::Puback(it) | Packet::Pubrec(it) | Packet::Pubrel(it) | Packet::Pubcomp(it) => {
            fields.with("id", it.packet_id.get()).reason(it.reason.0).with("properties", properties(it.properties))
        }
        Packet::Subscribe(it) => {
            let entry = |(filter, options): (&str, fogmux_mqtt::SubscriptionOptions)| {
                let handling = options.retain_handling as u8;
                (filter.to_owned(), options.qos.bits(), options.no_local, options.retain_as_published, handling)
            };
            let fields = fields.with("id", it.packet_id.get()).with("properties", properties(it.properties));
            fields.with("entries", it.entries.iter().map(entry).collect::<Vec<_>>())
        }
        Packet::Suback(it) => {
            let fields = fields.with("id", it.packet_id.get()).with("properties", properties(it.properties));
            fields.with("codes", it.codes.iter().map(|code| code.0).collect::<Vec<_>>())
        }
        Packet::Unsubscribe(it) => {
            let fields = fields.with("id", it.packet_id.get()).with("properties", properties(it.properties));
            fields.with("filters", it.filters.iter().collect::<Vec<_>>())
        }
        Packet::Unsuback(it) => {
            let fields = fields.with("id", it.packet_id.get()).with("properties", properties(it.properties));
            fields.with("codes", it.codes.iter().map(|code| code.0).collect::<Vec<_>>())
        }
        Packet::Pingreq => fields.with("ping", "request"),
        Packet::Pingresp => fields.with("ping", "response"),
        Packet::Disconnect(it) => fields.reason(it.reason.0).with("properties", properties(it.properties)),
        Packet::Auth(it) => fields.reason(it.reason.0).with("properties", properties(it.properties)),
    }
}

/// A macro, because the types of the two versions have the same methods and no trait.
macro_rules! connect {
    ($it:expr) => {{
        let will = $it.will_topic().zip($it.will_payload());
        Fields::default()
            .with("clean start", $it.clean_start())
            .with("keep alive", $it.keep_alive())
            .with("client", $it.client_id())
            .with("user", $it.user_name())
            .with("password", $it.password())
            .with("will", will.map(|(topic, payload)| (topic, payload, $it.will_qos() as u8, $it.will_retain())))
    }};
}

macro_rules! publish {
    ($it:expr) => {
        Fields::default()
            .with("topic", $it.topic_name())
            .with("flags", ($it.qos() as u8, $it.retain(), $it.dup()))
            .with("id", $it.packet_id())
            .with("payload", $it.payload().as_slice())
    };
}

macro_rules! ack {
    ($it:expr) => {
        Fields::default().with("id", $it.packet_id())
    };
}

macro_rules! ack_v5 {
    ($it:expr) => {
        ack!($it)
            .reason($it.reason_code().map_or(0, |code| code as u8))
            .with("properties", theirs($it.props().as_ref()))
    };
}

macro_rules! entries {
    ($it:expr) => {
        $it.entries()
            .iter()
            .map(|entry| {
                let options = entry.sub_opts();
                let qos = options.qos() as u8;
                (entry.topic_filter().to_owned(), qos, options.nl(), options.rap(), options.rh() as u8)
            })
            .collect::<Vec<_>>()
    };
}

macro_rules! filters {
    ($it:expr) => {
        $it.entries().iter().map(|filter| filter.as_str()).collect::<Vec<_>>()
    };
}

macro_rules! codes {
    ($codes:expr) => {
        $codes.iter().map(|code| *code as u8).collect::<Vec<_>>()
    };
}

fn core(packet: &Core) -> Fields {
    let fields = Fields::default();
    let none = || Vec::<String>::new();
    match packet {
        Core::V3_1_1Connect(it) => connect!(it).with("properties", none()).with("will properties", none()),
        Core::V3_1_1Connack(it) => {
            let reason = fogmux_mqtt::ReasonCode::from_connack_v3(it.return_code() as u8).unwrap();
            fields.with("session", it.session_present()).with("properties", none()).reason(reason.0)
        }
        Core::V3_1_1Publish(it) => publish!(it).with("properties", none()),
        Core::V3_1_1Puback(it) => ack!(it).reason(0).with("properties", none()),
        Core::V3_1_1Pubrec(it) => ack!(it).reason(0).with("properties", none()),
        Core::V3_1_1Pubrel(it) => ack!(it).reason(0).with("properties", none()),
        Core::V3_1_1Pubcomp(it) => ack!(it).reason(0).with("properties", none()),
        Core::V3_1_1Subscribe(it) => ack!(it).with("properties", none()).with("entries", entries!(it)),
        Core::V3_1_1Suback(it) => ack!(it).with("properties", none()).with("codes", codes!(it.return_codes())),
        Core::V3_1_1Unsubscribe(it) => ack!(it).with("properties", none()).with("filters", filters!(it)),
        Core::V3_1_1Unsuback(it) => ack!(it).with("properties", none()).with("codes", none()),
        Core::V3_1_1Disconnect(_) => fields.reason(0).with("properties", none()),
        Core::V3_1_1Pingreq(_) | Core::V5_0Pingreq(_) => fields.with("ping", "request"),
        Core::V3_1_1Pingresp(_) | Core::V5_0Pingresp(_) => fields.with("ping", "response"),
        Core::V5_0Connect(it) => {
            let own = connect!(it).with("properties", theirs(Some(it.props())));
            own.with("will properties", theirs(Some(it.will_props())))
        }
        Core::V5_0Connack(it) => {
            let fields = fields.with("session", it.session_present()).with("properties", theirs(Some(it.props())));
            fields.reason(it.reason_code() as u8)
        }
        Core::V5_0Publish(it) => publish!(it).with("properties", theirs(Some(it.props()))),
        Core::V5_0Puback(it) => ack_v5!(it),
        Core::V5_0Pubrec(it) => ack_v5!(it),
        Core::V5_0Pubrel(it) => ack_v5!(it),
        Core::V5_0Pubcomp(it) => ack_v5!(it),
        Core::V5_0Subscribe(it) => ack!(it).with("properties", theirs(Some(it.props()))).with("entries", entries!(it)),
        Core::V5_0Suback(it) => {
            ack!(it).with("properties", theirs(Some(it.props()))).with("codes", codes!(it.reason_codes()))
        }
        Core::V5_0Unsubscribe(it) => {
            ack!(it).with("properties", theirs(Some(it.props()))).with("filters", filters!(it))
        }
        Core::V5_0Unsuback(it) => {
            ack!(it).with("properties", theirs(Some(it.props()))).with("codes", codes!(it.reason_codes()))
        }
        Core::V5_0Disconnect(it) => {
            let code = it.reason_code().map_or(0, |code| code as u8);
            fields.reason(code).with("properties", theirs(it.props().as_ref()))
        }
        Core::V5_0Auth(it) => auth(it),
    }
}

fn auth(it: &v5_0::Auth) -> Fields {
    let code = it.reason_code().map_or(0, |code| code as u8);
    Fields::default().reason(code).with("properties", theirs(it.props().as_ref()))
}

/// `name(value)` in order, flags as numbers.
fn properties(list: Properties<'_>) -> Vec<String> {
    let text = |property| format!("{property:?}").replace("(true)", "(1)").replace("(false)", "(0)");
    list.iter().map(text).collect()
}

fn theirs(list: Option<&CoreProperties>) -> Vec<String> {
    list.into_iter().flatten().map(their_property).collect()
}

fn their_property(property: &Property) -> String {
    match property {
        Property::PayloadFormatIndicator(it) => format!("PayloadFormatIndicator({})", it.val()),
        Property::MessageExpiryInterval(it) => format!("MessageExpiryInterval({})", it.val()),
        Property::ContentType(it) => format!("ContentType({:?})", it.val()),
        Property::ResponseTopic(it) => format!("ResponseTopic({:?})", it.val()),
        Property::CorrelationData(it) => format!("CorrelationData({:?})", it.val()),
        Property::SubscriptionIdentifier(it) => format!("SubscriptionIdentifier({})", it.val()),
        Property::SessionExpiryInterval(it) => format!("SessionExpiryInterval({})", it.val()),
        Property::AssignedClientIdentifier(it) => format!("AssignedClientIdentifier({:?})", it.val()),
        Property::ServerKeepAlive(it) => format!("ServerKeepAlive({})", it.val()),
        Property::AuthenticationMethod(it) => format!("AuthenticationMethod({:?})", it.val()),
        Property::AuthenticationData(it) => format!("AuthenticationData({:?})", it.val()),
        Property::RequestProblemInformation(it) => format!("RequestProblemInformation({})", it.val()),
        Property::WillDelayInterval(it) => format!("WillDelayInterval({})", it.val()),
        Property::RequestResponseInformation(it) => format!("RequestResponseInformation({})", it.val()),
        Property::ResponseInformation(it) => format!("ResponseInformation({:?})", it.val()),
        Property::ServerReference(it) => format!("ServerReference({:?})", it.val()),
        Property::ReasonString(it) => format!("ReasonString({:?})", it.val()),
        Property::ReceiveMaximum(it) => format!("ReceiveMaximum({})", it.val()),
        Property::TopicAliasMaximum(it) => format!("TopicAliasMaximum({})", it.val()),
        Property::TopicAlias(it) => format!("TopicAlias({})", it.val()),
        Property::MaximumQos(it) => format!("MaximumQos({})", it.val()),
        Property::RetainAvailable(it) => format!("RetainAvailable({})", it.val()),
        Property::UserProperty(it) => format!("UserProperty({:?}, {:?})", it.key(), it.val()),
        Property::MaximumPacketSize(it) => format!("MaximumPacketSize({})", it.val()),
        Property::WildcardSubscriptionAvailable(it) => format!("WildcardSubscriptionAvailable({})", it.val()),
        Property::SubscriptionIdentifierAvailable(it) => format!("SubscriptionIdentifierAvailable({})", it.val()),
        Property::SharedSubscriptionAvailable(it) => format!("SharedSubscriptionAvailable({})", it.val()),
    }
}
