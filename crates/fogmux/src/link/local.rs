//! The session of a link at the gateway's MQTT door, whose queue holds what waits for the other broker.

use fogmux_auth::Principal;
use fogmux_gateway::runtime::Inside;
use fogmux_mqtt::{
    Connect, Disconnect, Packet, PacketId, Properties, Property, PropertyBuffer, ReasonCode, RetainHandling,
    SESSION_NEVER_EXPIRES, Subscribe, SubscribeEntries, SubscriptionOptions, TopicFilters, Unsubscribe, Version,
};
use tokio::io::DuplexStream;

use super::failure::Failure;
use super::mapping::{Direction, Mapping};
use super::side::{Side, Welcome};

/// Packets of the MQTT door have its bounds.
pub(super) const PACKET_BYTES_MAX: u32 = 268_435_460;

/// Identifiers of SUBSCRIBE and UNSUBSCRIBE. Messages that are passed on bring identifiers from the other broker, which
/// counts up from 1.
const SUBSCRIBE_ID: u16 = u16::MAX;
const UNSUBSCRIBE_ID: u16 = u16::MAX - 1;

/// A session at the MQTT door.
pub(super) struct Local<'a> {
    pub(super) inside: &'a Inside,
    pub(super) principal: &'a Principal,
    pub(super) client_id: &'a str,
}

impl Local<'_> {
    /// Connects; `receive_maximum` messages of QoS 1 and 2 are under way at most.
    pub(super) async fn connect(&self, receive_maximum: u16) -> Result<(Side<DuplexStream>, Welcome), Failure> {
        self.open(receive_maximum, false, SESSION_NEVER_EXPIRES).await
    }

    /// Ends the session and forgets what waits in it.
    pub(super) async fn end(&self) -> Result<(), Failure> {
        let (mut side, _) = self.open(1, true, 0).await?;
        side.send(&goodbye()).await
    }

    async fn open(
        &self,
        receive_maximum: u16,
        clean_start: bool,
        session_expiry: u32,
    ) -> Result<(Side<DuplexStream>, Welcome), Failure> {
        let stream = self.inside.connect(self.principal.clone());
        let mut side = Side::new(stream, Direction::Out, PACKET_BYTES_MAX);
        let mut list = PropertyBuffer::new();
        let properties =
            [Property::SessionExpiryInterval(session_expiry), Property::ReceiveMaximum(receive_maximum.max(1))];
        properties.into_iter().try_for_each(|property| list.push(property)).map_err(Failure::new)?;
        let connect = Connect {
            version: Version::V5,
            bridge: false,
            clean_start,
            keep_alive: 0,
            client_id: self.client_id,
            will: None,
            user: None,
            password: None,
            properties: list.properties(),
        };
        let welcome = side.connect(&connect).await?;
        Ok((side, welcome))
    }

    /// Has the session queue what the link will pass on, whether the other broker is there or not. `stale` are filters
    /// of an earlier configuration. Returns the terms of the gateway, with whether the session was there before.
    pub(super) async fn prepare(&self, out: &Mapping, stale: &[String]) -> Result<Welcome, Failure> {
        let (mut side, welcome) = self.connect(1).await?;
        let mut answers = 0;
        if !stale.is_empty() {
            let filters: Vec<&str> = stale.iter().map(String::as_str).collect();
            unsubscribe(&filters, &mut side.output)?;
            answers += 1;
        }
        if subscribe(out, |_| RetainHandling::Never, &mut side.output)? {
            answers += 1;
        }
        let filters = out.filters();
        while answers > 0 {
            side.send(&Packet::Pingreq).await?;
            side.take(|packet, _| {
                if let Packet::Suback(ack) = packet {
                    for ((filter, _), code) in filters.iter().zip(ack.codes.iter()) {
                        if code.is_error() {
                            return Err(Failure::not_subscribed(Direction::Out, filter, code));
                        }
                    }
                }
                // Messages in flight come as well; they come again.
                answers -= i32::from(matches!(packet, Packet::Suback(_) | Packet::Unsuback(_)));
                Ok(())
            })?;
            if answers > 0 {
                side.receive().await?;
            }
        }
        side.send(&goodbye()).await?;
        Ok(welcome)
    }
}

/// Appends SUBSCRIBE for a list. Returns whether it has filters.
///
/// Neither side gives the link back what came through it (No Local), and a retained message stays one.
pub(super) fn subscribe(
    mapping: &Mapping,
    retain_handling: impl Fn(&str) -> RetainHandling,
    output: &mut Vec<u8>,
) -> Result<bool, Failure> {
    let options = |filter, qos| {
        let retain_handling = retain_handling(filter);
        SubscriptionOptions { qos, no_local: true, retain_as_published: true, retain_handling }
    };
    let entries: Vec<_> = mapping.filters().into_iter().map(|(filter, qos)| (filter, options(filter, qos))).collect();
    let Some(packet_id) = PacketId::new(SUBSCRIBE_ID).filter(|_| !entries.is_empty()) else { return Ok(false) };
    let entries = SubscribeEntries::new(&entries);
    let packet = Packet::Subscribe(Subscribe { packet_id, properties: Properties::NONE, entries });
    packet.encode(Version::V5, output).map_err(Failure::new)?;
    Ok(true)
}

/// Appends UNSUBSCRIBE.
pub(super) fn unsubscribe(filters: &[&str], output: &mut Vec<u8>) -> Result<(), Failure> {
    let Some(packet_id) = PacketId::new(UNSUBSCRIBE_ID) else { return Ok(()) };
    let packet = Unsubscribe { packet_id, properties: Properties::NONE, filters: TopicFilters::new(filters) };
    Packet::Unsubscribe(packet).encode(Version::V5, output).map_err(Failure::new)
}

/// DISCONNECT that leaves the session as it is.
pub(super) const fn goodbye() -> Packet<'static> {
    Packet::Disconnect(Disconnect::with_reason(ReasonCode::SUCCESS))
}
