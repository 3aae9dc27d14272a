//! One filter of SUBSCRIBE or UNSUBSCRIBE: validation, permissions, limits, and the start of pulling retained messages.

use std::sync::Arc;

use fogmux_auth::{Action, Reach};
use fogmux_bus::{FilterError, ReadGate, SubscribeOptions, Subscription, SubscriptionError, durable::Wanted};
use fogmux_mqtt::{Packet, PacketId, Properties, ReasonCode, ReasonCodes, RetainHandling, Suback, SubscriptionOptions};

use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    connection::{Connection, End},
    mailbox::MqttMailbox,
    retained::Pull,
    session, translate,
};
use crate::audit;

/// A subscription that was made.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) subscription: Subscription,
    pub(super) wanted: Wanted,
    /// It was there before.
    pub(super) existed: bool,
}

pub(super) fn too_many() -> (ReasonCode, String) {
    (ReasonCode::QUOTA_EXCEEDED, String::from("too many subscriptions"))
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Parses a Topic Filter. A malformed one – empty ([MQTT-4.7.3-1]), with a misplaced wildcard ([MQTT-4.7.1-1],
    /// [MQTT-4.7.1-2]), with a broken `$share` ([MQTT-4.8.2-1], [MQTT-4.8.2-2]) – makes the packet malformed and ends
    /// the connection ([MQTT-4.13.1-1]; [MQTT-4.8.0-1] of 3.1.1), because 0x8F in SUBACK is for correctly formed
    /// filters (§3.9.3). The inner error is for filters that are correct but not accepted here.
    pub(super) fn well_formed(&mut self, filter: &str) -> Result<Result<Subscription, SubscriptionError>, End> {
        match Subscription::parse(filter) {
            Ok(subscription) => Ok(Ok(subscription)),
            Err(error @ SubscriptionError::Filter(FilterError::TooDeep)) => Ok(Err(error)),
            // Before version 5 `$share` is an ordinary level; only this gateway gives it a meaning.
            Err(error @ SubscriptionError::ShareName) if !self.facts.version.is_v5() => Ok(Err(error)),
            Err(error) => Err(self.misbehaved(&error, ReasonCode::MALFORMED_PACKET)),
        }
    }

    /// Checks that the client accepts a SUBACK or UNSUBACK with this many codes ([MQTT-3.1.2-24]), which it has to get.
    pub(super) fn check_answer(&mut self, codes: usize) -> Result<(), End> {
        let codes = vec![0; codes];
        let (packet_id, codes) = (PacketId::FIRST, ReasonCodes::new(&codes));
        let sample = Packet::Suback(Suback { packet_id, properties: Properties::NONE, codes });
        let encoded = sample.encode_within(self.facts.version, self.facts.packet_bytes_max, &mut Vec::new());
        encoded.map_err(|error| self.misbehaved(&error, ReasonCode::PACKET_TOO_LARGE))
    }

    /// Appends an answer that the client waits for. If it is larger than the client accepts, the connection ends
    /// ([MQTT-3.1.2-24]).
    pub(super) fn answer(&mut self, packet: &Packet<'_>) -> Result<(), End> {
        let (version, bytes_max) = (self.facts.version, self.facts.packet_bytes_max);
        self.ctx.shared.metrics.mqtt_only.control_out.increment();
        let encoded = packet.encode_within(version, bytes_max, self.output.buffer(&self.ctx));
        encoded.map_err(|error| self.misbehaved(&error, ReasonCode::PACKET_TOO_LARGE))
    }

    /// Subscribes. The error is the reason code and what it means.
    pub(super) fn subscribe_to(
        &mut self,
        subscription: Result<Subscription, SubscriptionError>,
        options: SubscriptionOptions,
        id: Option<u32>,
    ) -> Result<Made, (ReasonCode, String)> {
        let subscription = subscription.map_err(|error| (ReasonCode::TOPIC_FILTER_INVALID, error.to_string()))?;
        let options = if self.facts.bridge { options.of_bridge(subscription.group.is_some()) } else { options };
        let access = self.client.gate.access();
        if let Reach::Nothing(decision) = access.may_subscribe(&subscription.filter) {
            self.ctx.shared.metrics.mqtt.unauthorized.increment();
            audit::refused_action(&self.ctx, &access, None, Action::Read, &subscription.filter, &decision);
            return Err((ReasonCode::NOT_AUTHORIZED, decision.to_string()));
        }
        let config = &self.ctx.door.config;
        let (count_max, bytes_max) = (config.subscriptions_max, config.subscriptions_bytes_max);
        if self.pulls() >= count_max {
            return Err(too_many());
        }
        let admitted = self
            .mailbox
            .with(|mailbox| mailbox.subscriptions.get_or_insert_default().admit(&subscription, count_max, bytes_max));
        if admitted != Ok(true) {
            return Err(too_many());
        }
        let gate: Arc<dyn ReadGate> = Arc::<super::access::Gate>::clone(&self.client.gate);
        let bus_options = SubscribeOptions {
            tag: session::tag(&subscription),
            max_qos: translate::to_bus(options.qos),
            no_local: options.no_local,
            retain_as_published: options.retain_as_published,
            id,
            gate: Some(gate),
        };
        let Ok(existed) = self.ctx.bus().subscribe(&self.mailbox.slot, &subscription, bus_options) else {
            if subscription.group.is_none() {
                self.forget(&subscription);
            } else {
                // Messages may wait by it, if the client was leaving it.
                self.leave_group(&subscription);
                drop(self.leave_groups());
            }
            return Err(too_many());
        };
        let pulls = match options.retain_handling {
            RetainHandling::Always => true,
            RetainHandling::IfNew => !existed,
            RetainHandling::Never => false,
        };
        // §4.8.2: a shared subscription is sent no retained messages.
        if pulls && subscription.group.is_none() {
            self.rare().pulls.push(Pull::new(subscription.filter.clone(), translate::to_bus(options.qos), id));
            self.begin_announcing();
        }
        let SubscriptionOptions { qos, no_local, retain_as_published, .. } = options;
        let wanted = Wanted { max_qos: translate::to_bus(qos), no_local, retain_as_published, id };
        Ok(Made { subscription, wanted, existed })
    }

    fn forget(&self, subscription: &Subscription) -> bool {
        let forget = |mailbox: &mut MqttMailbox| {
            if let Some(durable) = &mut mailbox.durable {
                durable.unsubscribe(subscription);
            }
            mailbox.subscriptions.as_mut().is_some_and(|set| set.remove(subscription))
        };
        self.mailbox.with(forget).unwrap_or(false)
    }

    /// Leaves a shared subscription. The store forgets it when its messages have gone to others.
    fn leave_group(&self, subscription: &Subscription) -> bool {
        let leave =
            |mailbox: &mut MqttMailbox| mailbox.subscriptions.as_mut().is_some_and(|all| all.leave(subscription));
        self.mailbox.with(leave).unwrap_or(false)
    }

    /// Removes a subscription. Returns the reason code. [`leave_groups`](Self::leave_groups) is to be called behind all
    /// that are removed at once.
    pub(super) fn unsubscribe_from(&mut self, subscription: Result<&Subscription, &SubscriptionError>) -> ReasonCode {
        let Ok(subscription) = subscription else { return ReasonCode::TOPIC_FILTER_INVALID };
        if self.pulls() > 0 && subscription.group.is_none() {
            self.rare().pulls.remove(&subscription.filter);
        }
        let tag = session::tag(subscription);
        let existed =
            if subscription.group.is_some() { self.leave_group(subscription) } else { self.forget(subscription) };
        if !existed || !self.ctx.bus().unsubscribe(&self.mailbox.slot, subscription, tag) {
            return ReasonCode::NO_SUBSCRIPTION_EXISTED;
        }
        ReasonCode::SUCCESS
    }
}
