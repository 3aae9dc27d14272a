//! SUBSCRIBE and UNSUBSCRIBE: what is asked, what the rules and limits grant, what is pulled from the retained messages.

use std::sync::Arc;

use fogmux_auth::{Action, Door, Reach};
use fogmux_bus::{ReadGate, SubscribeOptions, Subscription};
use fogmux_mqtt::{
    Packet, Properties, PropertyBuffer, ReasonCode, ReasonCodes, RetainHandling, Suback, Subscribe,
    SubscriptionOptions, Unsuback, Unsubscribe,
};

use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    connection::{Connection, End},
    retained::Pull,
    session::TAG,
    translate,
};
use crate::credential;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Answers each filter with a code, in order ([MQTT-3.8.4-6]), and says why when there was only one to refuse.
    pub(super) fn subscribe(&mut self, subscribe: &Subscribe<'_>) -> Result<(), End> {
        let id = subscribe.properties.subscription_ids().next();
        let mut codes = Vec::new();
        let mut why = None;
        for (filter, options) in subscribe.entries.iter() {
            let code = match self.subscribe_to(filter, options, id) {
                Ok(()) => options.qos.bits(),
                Err((reason, text)) => {
                    why.get_or_insert(text);
                    reason.0
                }
            };
            codes.push(code);
        }
        let mut list = PropertyBuffer::new();
        let text = why.filter(|_| codes.len() == 1);
        let properties = self.explanation(text.as_deref(), &mut list);
        let suback = Suback { packet_id: subscribe.packet_id, properties, codes: ReasonCodes::new(&codes) };
        let buffer = self.output.buffer(&self.ctx);
        Packet::Suback(suback).encode(self.version, buffer).map_err(|_| End::Closed)
    }

    fn subscribe_to(
        &mut self,
        filter: &str,
        options: SubscriptionOptions,
        id: Option<u32>,
    ) -> Result<(), (ReasonCode, String)> {
        let subscription =
            Subscription::parse(filter).map_err(|error| (ReasonCode::TOPIC_FILTER_INVALID, error.to_string()))?;
        let options = if self.bridge { options.of_bridge(subscription.group.is_some()) } else { options };
        let access = self.gate.access();
        if let Reach::Nothing(decision) = access.may_subscribe(&subscription.filter) {
            self.ctx.shared.metrics.mqtt.unauthorized.increment();
            let (who, topic) = (access.principal(), &*subscription.filter);
            credential::note_refusal(&self.ctx, who, Door::Mqtt, Action::Read, topic, &decision);
            return Err((ReasonCode::NOT_AUTHORIZED, decision.to_string()));
        }
        let too_many = || (ReasonCode::QUOTA_EXCEEDED, String::from("too many subscriptions"));
        let limit = self.ctx.shared.mqtt.config.subscriptions_max;
        if self.pulls() >= limit {
            return Err(too_many());
        }
        let admitted = self.slot.with_claim(self.claim, |mailbox| {
            let set = mailbox.subscriptions.get_or_insert_default();
            set.contains(&subscription) || (set.len() < limit && set.insert(subscription.clone()))
        });
        if admitted != Ok(true) {
            return Err(too_many());
        }
        let gate: Arc<dyn ReadGate> = Arc::<super::access::Gate>::clone(&self.gate);
        let bus_options = SubscribeOptions {
            tag: TAG,
            max_qos: translate::to_bus(options.qos),
            no_local: options.no_local,
            retain_as_published: options.retain_as_published,
            id,
            gate: Some(gate),
        };
        let Ok(existed) = self.ctx.bus().subscribe(&self.slot, &subscription, bus_options) else {
            self.forget(&subscription);
            return Err(too_many());
        };
        let wanted = match options.retain_handling {
            RetainHandling::Always => true,
            RetainHandling::IfNew => !existed,
            RetainHandling::Never => false,
        };
        // §4.8.2: a shared subscription is sent no retained messages.
        if wanted && subscription.group.is_none() {
            self.rare().pulls.push_back(Pull::new(subscription.filter, translate::to_bus(options.qos), id));
        }
        Ok(())
    }

    fn forget(&self, subscription: &Subscription) -> bool {
        let forget = |mailbox: &mut super::mailbox::MqttMailbox| {
            mailbox.subscriptions.as_mut().is_some_and(|set| set.remove(subscription))
        };
        self.slot.with_claim(self.claim, forget).unwrap_or(false)
    }

    /// Answers each filter with a code, in order ([MQTT-3.10.4-4], [MQTT-3.11.3-1]).
    pub(super) fn unsubscribe(&mut self, unsubscribe: &Unsubscribe<'_>) -> Result<(), End> {
        let mut codes = Vec::new();
        for filter in unsubscribe.filters.iter() {
            codes.push(self.unsubscribe_from(filter).0);
        }
        let codes = ReasonCodes::new(&codes);
        let unsuback = Unsuback { packet_id: unsubscribe.packet_id, properties: Properties::NONE, codes };
        let buffer = self.output.buffer(&self.ctx);
        Packet::Unsuback(unsuback).encode(self.version, buffer).map_err(|_| End::Closed)
    }

    fn unsubscribe_from(&mut self, filter: &str) -> ReasonCode {
        let Ok(subscription) = Subscription::parse(filter) else { return ReasonCode::TOPIC_FILTER_INVALID };
        if self.pulls() > 0 {
            self.rare().pulls.retain(|pull| !pull.is_for(&subscription.filter));
        }
        if self.forget(&subscription) && self.ctx.bus().unsubscribe(&self.slot, &subscription, TAG) {
            ReasonCode::SUCCESS
        } else {
            ReasonCode::NO_SUBSCRIPTION_EXISTED
        }
    }
}
