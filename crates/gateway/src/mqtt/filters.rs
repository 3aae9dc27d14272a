//! The filters of SUBSCRIBE and UNSUBSCRIBE, handled in turns if there are many (ADR 0020): a packet may have ten
//! thousand. Until all are handled, the packet is not answered, and nothing that came behind it is handled.
//!
//! All filters are validated before the first is subscribed to: a malformed packet has no effect.

use fogmux_bus::{Completion, Subscription};
use fogmux_mqtt::{
    Packet, PacketId, Properties, PropertyBuffer, ReasonCode, ReasonCodes, Suback, Subscribe, SubscribeEntries,
    SubscriptionOptions, TopicFilters, Unsuback, Unsubscribe,
};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    connection::{Connection, End},
    ending::UNSUBSCRIBED,
    set_aside::SetAside,
    subscribe::{Made, too_many},
    withheld::Otherwise,
};

/// The work of a subscription, in deliveries: it takes some four microseconds, rules included.
const SUBSCRIBED: u64 = 64;
/// The work of a filter that changes nothing, or of validating one.
const LOOKED_AT: u64 = 4;
/// Bytes of a filter that are as much work as a delivery: its levels are walked and their names copied.
const BYTES_PER_DELIVERY: usize = 4;

/// The request that the filters belong to.
#[derive(Clone, Copy, Debug)]
enum Request {
    Subscribe {
        /// The Subscription Identifier.
        id: Option<u32>,
    },
    Unsubscribe,
}

/// The progress on the filters of a packet.
#[derive(Debug)]
pub(super) struct Filters {
    request: Request,
    packet_id: PacketId,
    /// Bytes of the filters that were looked at in this pass.
    at: usize,
    /// Filters that were validated.
    count: usize,
    /// The reason codes, once all are validated.
    codes: Option<Vec<u8>>,
    /// Why the first was refused.
    why: Option<String>,
    /// The part of them that the store of sessions is to keep.
    kept: Kept,
}

/// The subscriptions of a packet that the store of sessions is to keep.
#[derive(Debug, Default)]
struct Kept {
    /// Those that it has not been given yet, with the places of their reason codes.
    made: Vec<(usize, Made)>,
    /// Those that it was given.
    places: Vec<usize>,
    /// Those of them that were not there before.
    new: Vec<Subscription>,
    /// When it has them all.
    completion: Completion,
}

/// Filters that have still to be handled, with their bytes.
#[derive(Debug)]
pub(super) struct Unhandled {
    bytes: Vec<u8>,
    filters: Filters,
}

impl Unhandled {
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len() + self.filters.codes.as_ref().map_or(0, Vec::capacity)
    }
}

impl Filters {
    fn new(request: Request, packet_id: PacketId) -> Self {
        Self { request, packet_id, at: 0, count: 0, codes: None, why: None, kept: Kept::default() }
    }

    /// The next filter of this pass, with the options of a subscription.
    fn next<'b>(&mut self, bytes: &'b [u8]) -> Option<(&'b str, SubscriptionOptions)> {
        let left = bytes.get(self.at..)?;
        let (next, rest) = match self.request {
            Request::Subscribe { .. } => {
                let (next, rest) = SubscribeEntries::from_bytes(left).split_first()?;
                (next, rest.as_bytes())
            }
            Request::Unsubscribe => {
                let (next, rest) = TopicFilters::from_bytes(left).split_first()?;
                ((next, SubscriptionOptions::default()), rest.as_bytes())
            }
        };
        self.at = bytes.len() - rest.len();
        Some(next)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Handles as many filters as others have to wait for, and sets the rest aside.
    pub(super) fn subscribe(&mut self, subscribe: &Subscribe<'_>) -> Result<(), End> {
        let id = subscribe.properties.subscription_ids().next();
        let filters = Filters::new(Request::Subscribe { id }, subscribe.packet_id);
        self.begin_filters(subscribe.entries.as_bytes(), filters)
    }

    /// The same for filters that are no longer wanted.
    pub(super) fn unsubscribe(&mut self, unsubscribe: &Unsubscribe<'_>) -> Result<(), End> {
        let filters = Filters::new(Request::Unsubscribe, unsubscribe.packet_id);
        self.begin_filters(unsubscribe.filters.as_bytes(), filters)
    }

    fn begin_filters(&mut self, bytes: &[u8], mut filters: Filters) -> Result<(), End> {
        if !self.handle_filters(bytes, &mut filters)? {
            self.set_filters_aside(Unhandled { bytes: bytes.to_vec(), filters });
        }
        Ok(())
    }

    /// Goes on with filters that were set aside.
    pub(super) fn go_on_with_filters(&mut self, mut rest: Unhandled) -> Result<(), End> {
        let is_over = self.handle_filters(&rest.bytes, &mut rest.filters)?;
        if !is_over {
            self.set_filters_aside(rest);
        }
        Ok(())
    }

    /// The connection may end before their turn. What waits by shared subscriptions that have been left by then goes to
    /// other members all the same.
    fn set_filters_aside(&mut self, rest: Unhandled) {
        if matches!(rest.filters.request, Request::Unsubscribe) {
            drop(self.leave_groups());
        }
        self.rare().set_aside = Some(Box::new(SetAside::Filters(rest)));
    }

    /// Handles filters, one at least, until others have their turn. Returns whether all are handled.
    fn handle_filters(&mut self, bytes: &[u8], filters: &mut Filters) -> Result<bool, End> {
        let is_over = self.look_at_filters(bytes, filters)?;
        if !filters.kept.made.is_empty() {
            self.keep_subscriptions(&mut filters.kept)?;
        }
        if is_over {
            let codes = filters.codes.take().unwrap_or_default();
            self.answer_filters(filters, &codes)?;
        }
        Ok(is_over)
    }

    /// Gives the store of sessions what was subscribed to in this turn.
    fn keep_subscriptions(&mut self, kept: &mut Kept) -> Result<(), End> {
        let appended = self.mailbox.with(|mailbox| {
            for (place, Made { subscription, wanted, existed }) in kept.made.drain(..) {
                if let Some(durable) = &mut mailbox.durable {
                    durable.subscribe(&subscription, wanted);
                }
                kept.places.push(place);
                kept.new.extend((!existed).then_some(subscription));
            }
            mailbox.append()
        });
        let completion = appended.map_err(|_| End::Displaced)?;
        kept.completion = kept.completion.and(&completion);
        Ok(())
    }

    /// The same without the store.
    fn look_at_filters(&mut self, bytes: &[u8], filters: &mut Filters) -> Result<bool, End> {
        loop {
            let work = match (filters.next(bytes), &mut filters.codes) {
                (Some((filter, _)), None) => {
                    // A filter that is correct, but not accepted here, gets its reason code later.
                    let _ = self.well_formed(filter)?;
                    filters.count += 1;
                    LOOKED_AT
                }
                (None, None) => {
                    self.check_answer(filters.count)?;
                    (filters.at, filters.codes) = (0, Some(Vec::with_capacity(filters.count)));
                    LOOKED_AT
                }
                (Some((filter, options)), Some(codes)) => {
                    let (code, work) = match filters.request {
                        Request::Subscribe { .. } if codes.len() >= self.ctx.door.config.subscriptions_max => {
                            // Filters beyond what a client may have are not looked at.
                            let (reason, text) = too_many();
                            codes.resize(filters.count, reason.0);
                            (filters.at, filters.why) = (bytes.len(), Some(text));
                            continue;
                        }
                        Request::Subscribe { id } => {
                            let subscription = self.well_formed(filter)?;
                            let code = match self.subscribe_to(subscription, options, id) {
                                Ok(made) => {
                                    filters.kept.made.extend(self.facts.durable.then_some((codes.len(), made)));
                                    options.qos.bits()
                                }
                                Err((reason, text)) => {
                                    filters.why.get_or_insert(text);
                                    reason.0
                                }
                            };
                            (code, SUBSCRIBED)
                        }
                        Request::Unsubscribe => {
                            let subscription = self.well_formed(filter)?;
                            let reason = self.unsubscribe_from(subscription.as_ref());
                            (reason.0, if reason == ReasonCode::SUCCESS { UNSUBSCRIBED } else { LOOKED_AT })
                        }
                    };
                    codes.push(code);
                    work.saturating_add(u64::try_from(filter.len() / BYTES_PER_DELIVERY).unwrap_or(u64::MAX))
                }
                (None, Some(_)) => return Ok(true),
            };
            self.work.deliveries.add(work);
            if self.work.deliveries.are_enough() {
                return Ok(false);
            }
        }
    }

    /// Answers each filter with a reason code, in order ([MQTT-3.8.4-6], [MQTT-3.10.4-4], [MQTT-3.11.3-1]), with a
    /// Reason String if there was only one and it was refused.
    fn answer_filters(&mut self, filters: &mut Filters, codes: &[u8]) -> Result<(), End> {
        let text = filters.why.take().filter(|_| codes.len() == 1);
        let packet_id = filters.packet_id;
        match filters.request {
            Request::Subscribe { .. } => {
                let mut list = PropertyBuffer::new();
                let properties = self.explanation(text.as_deref(), &mut list);
                let suback = |codes| Packet::Suback(Suback { packet_id, properties, codes: ReasonCodes::new(codes) });
                let Kept { made: _, places, new, completion } = std::mem::take(&mut filters.kept);
                if places.is_empty() {
                    return self.answer(&suback(codes));
                }
                let mut refusals = codes.to_vec();
                for place in places {
                    if let Some(code) = refusals.get_mut(place) {
                        *code = ReasonCode::QUOTA_EXCEEDED.0;
                    }
                }
                let granted = self.encoded(&suback(codes))?;
                let refused = self.encoded(&suback(&refusals))?;
                self.withhold(completion, granted, Otherwise::Refuse(refused, new));
                Ok(())
            }
            Request::Unsubscribe => {
                let codes = ReasonCodes::new(codes);
                let unsuback = Packet::Unsuback(Unsuback { packet_id, properties: Properties::NONE, codes });
                let left = self.leave_groups();
                if !self.facts.durable && left.is_ready() {
                    return self.answer(&unsuback);
                }
                let bytes = self.encoded(&unsuback)?;
                // Subscriptions that an earlier connection has ended may not be forgotten yet.
                let appended = self.mailbox.with(|mailbox| {
                    let appended = mailbox.append();
                    let before = mailbox.durable.as_mut().map(|durable| durable.forgotten());
                    before.map_or(appended.clone(), |before| appended.and(&before))
                });
                let completion = appended.map_err(|_| End::Displaced)?;
                self.withhold(completion.and(&left), bytes, Otherwise::End);
                Ok(())
            }
        }
    }

    /// An answer that may wait for the store of sessions.
    fn encoded(&mut self, packet: &Packet<'_>) -> Result<Vec<u8>, End> {
        let mut bytes = Vec::new();
        let encoded = packet.encode_within(self.facts.version, self.facts.packet_bytes_max, &mut bytes);
        encoded.map_err(|error| self.misbehaved(&error, ReasonCode::PACKET_TOO_LARGE))?;
        self.ctx.shared.metrics.mqtt_only.control_out.increment();
        Ok(bytes)
    }
}
