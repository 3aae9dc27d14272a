//! Subscribing (XEP-0060 §6.1 to §6.4) and one's own subscriptions (§5.6).

use fogmux_auth::{Action, Reach};
use fogmux_bus::{Filter, ReadGate as _, Subscription};
use fogmux_xmpp::{
    ErrorKind, Jid, PubsubCondition, StanzaCondition, StanzaError,
    form::Form,
    iq::Answer,
    pubsub::{self, Affiliation, Expire, FilterOption, SubscribeOptions, SubscriptionOut, SubscriptionState},
    writer::written_len,
};

use super::{
    accounts::NotFollowed,
    core::Core,
    fill::{Replay, Why},
    followed::{Follow, Followed, Options, subscription},
    publish::{full, topic},
};
use crate::{credential, shares::Table};

/// Bytes of a list of subscriptions or affiliations, and of each entry beside its names.
const LIST_BYTES_MAX: usize = 1 << 20;
const ENTRY_BYTES: usize = 80;

impl Core {
    /// §6.1
    pub(super) fn subscribe(
        &mut self,
        answer: &Answer<'_>,
        node: Option<&str>,
        jid: &Jid,
        options: Option<&SubscribeOptions>,
    ) -> Result<(), StanzaError> {
        self.own_address(jid)?;
        let filter = options.and_then(|options| options.filter.as_ref());
        let node = match (filter, node) {
            (Some(FilterOption::Text(text)), _) => text,
            (_, Some(node)) => node,
            (_, None) => return Err(StanzaError::bad_request().with(PubsubCondition::NodeidRequired)),
        };
        let subscription = if filter.is_some() { self.may_follow(node)? } else { self.may_subscribe(node)? };
        let follow = Follow {
            node,
            wildcard: filter.is_some(),
            resource: jid.resource(),
            options: chosen(options.unwrap_or(&SubscribeOptions::default()))?,
            subscription,
        };
        let accounts = &self.door().accounts;
        let known = accounts.find(self.me.jid.bare_str(), node, jid.resource()).is_some();
        let kept = accounts.follow(self.ctx.bus(), self.me.jid.bare_str(), &follow);
        let kept = kept.map_err(|why| self.not_followed(why))?;
        self.keep(kept)?;
        let out = SubscriptionOut { node, jid: jid.as_str(), state: SubscriptionState::Subscribed };
        answer.result(&mut self.out, |w| pubsub::write_subscribed(w, &out));
        if !known {
            let followed = self.door().accounts.delivered_to(&self.me.jid).into_iter();
            let mut new = followed.filter(|f| *f.node == *node && f.resource.as_deref() == jid.resource());
            if let Some(followed) = new.next() {
                self.replays.push(Replay::new(&followed, Why::Subscribed));
            }
        }
        Ok(())
    }

    /// §6.1.3.1: the sender's own address, bare or of this resource.
    fn own_address(&self, jid: &Jid) -> Result<(), StanzaError> {
        let own = jid.as_str() == self.me.jid.bare_str() || *jid == self.me.jid;
        if own { Ok(()) } else { Err(StanzaError::bad_request().with(PubsubCondition::InvalidJid)) }
    }

    /// Checks a subscription to one node: the gateway's rules, then the owner's (§6.1.3).
    fn may_subscribe(&self, node: &str) -> Result<Subscription, StanzaError> {
        topic(node)?;
        let gate = &self.me.gate;
        if !gate.access().may_read(node) {
            return Err(self.refusal(Action::Read, node));
        }
        if let Some((config, affiliation)) = self.door().nodes.standing(node, gate.affiliate()) {
            if matches!(affiliation, Affiliation::Outcast | Affiliation::PublishOnly) {
                return Err(StanzaError::new(StanzaCondition::Forbidden));
            }
            if !gate.may_read(node) {
                // §6.1.3.5
                return Err(StanzaError::new(StanzaCondition::NotAllowed).with(PubsubCondition::ClosedNode));
            }
            if !config.subscribe && affiliation != Affiliation::Owner {
                return Err(StanzaError::unsupported("subscribe"));
            }
        }
        let filter = Filter::new(node).map_err(|_| StanzaError::new(StanzaCondition::NotAcceptable))?;
        Ok(Subscription::to(filter))
    }

    /// Checks a subscription to a filter. Messages that may not be read are left out at delivery.
    fn may_follow(&self, filter: &str) -> Result<Subscription, StanzaError> {
        let subscription = Subscription::parse(filter).map_err(|error| {
            StanzaError::bad_request().with(PubsubCondition::InvalidOptions).because(error.to_string())
        })?;
        let text = subscription.filter.as_str();
        match self.me.gate.access().may_subscribe(text) {
            Reach::Everything | Reach::Some => Ok(subscription),
            Reach::Nothing(decision) => Err(self.refused_by(Action::Read, text, &decision)),
        }
    }

    /// §6.1.3.11
    fn not_followed(&self, why: NotFollowed) -> StanzaError {
        match why {
            NotFollowed::Account => {
                StanzaError::new(StanzaCondition::PolicyViolation).with(PubsubCondition::TooManySubscriptions)
            }
            NotFollowed::Full => StanzaError::new(StanzaCondition::ResourceConstraint),
            NotFollowed::Bytes(why) => {
                self.no_room(Table::XmppSubscriptions, why);
                StanzaError::new(StanzaCondition::ResourceConstraint)
                    .because("subscriptions take as many bytes as they may")
            }
            NotFollowed::NotKept => full(),
        }
    }

    /// §6.2
    pub(super) fn unsubscribe(
        &mut self,
        answer: &Answer<'_>,
        node: Option<&str>,
        jid: &Jid,
    ) -> Result<(), StanzaError> {
        let node = node.ok_or(StanzaError::bad_request().with(PubsubCondition::NodeidRequired))?;
        if self.own_address(jid).is_err() {
            return Err(StanzaError::new(StanzaCondition::Forbidden));
        }
        let bare = self.me.jid.bare_str();
        let Some(kept) = self.door().accounts.unfollow(self.ctx.bus(), self.principal(), bare, node, jid.resource())
        else {
            // §6.2.3.2
            let error = StanzaError::new(StanzaCondition::UnexpectedRequest).of_kind(ErrorKind::Cancel);
            return Err(error.with(PubsubCondition::NotSubscribed));
        };
        self.keep(kept)?;
        answer.empty(&mut self.out);
        Ok(())
    }

    fn subscribed(&self, node: Option<&str>, jid: &Jid) -> Result<Followed, StanzaError> {
        let node = node.ok_or(StanzaError::bad_request().with(PubsubCondition::NodeidRequired))?;
        if self.own_address(jid).is_err() {
            return Err(StanzaError::new(StanzaCondition::Forbidden));
        }
        let found = self.door().accounts.find(self.me.jid.bare_str(), node, jid.resource());
        let missing = StanzaError::new(StanzaCondition::UnexpectedRequest).of_kind(ErrorKind::Modify);
        found.ok_or_else(|| missing.with(PubsubCondition::NotSubscribed))
    }

    /// §6.3.2
    pub(super) fn get_options(
        &mut self,
        answer: &Answer<'_>,
        node: Option<&str>,
        jid: &Jid,
    ) -> Result<(), StanzaError> {
        let followed = self.subscribed(node, jid)?;
        let options = current(&followed);
        let filter = followed.wildcard.then_some(&*followed.node);
        answer.result(&mut self.out, |w| {
            pubsub::write_subscription_options(w, node, Some(jid.as_str()), &options, filter);
        });
        Ok(())
    }

    /// §6.3.5
    pub(super) fn set_options(
        &mut self,
        answer: &Answer<'_>,
        node: Option<&str>,
        jid: &Jid,
        form: Option<&Form<'_>>,
    ) -> Result<(), StanzaError> {
        let followed = self.subscribed(node, jid)?;
        if let Some(form) = form {
            let mut options = current(&followed);
            options.apply(form)?;
            check_same_filter(&followed, options.filter.as_ref())?;
            let subscription = subscription(&followed.node, followed.wildcard).ok_or(StanzaError::bad_request())?;
            let follow = Follow {
                node: &followed.node,
                wildcard: followed.wildcard,
                resource: jid.resource(),
                options: chosen(&options)?,
                subscription,
            };
            let bare = self.me.jid.bare_str();
            let kept = self.door().accounts.follow(self.ctx.bus(), bare, &follow);
            let kept = kept.map_err(|why| self.not_followed(why))?;
            self.keep(kept)?;
        }
        answer.empty(&mut self.out);
        Ok(())
    }

    /// §6.4
    pub(super) fn default_options(&mut self, answer: &Answer<'_>, node: Option<&str>) {
        answer.result(&mut self.out, |w| {
            pubsub::write_subscription_options(w, node, None, &SubscribeOptions::default(), None);
        });
    }

    /// §5.6
    pub(super) fn subscriptions(&mut self, answer: &Answer<'_>, node: Option<&str>) -> Result<(), StanzaError> {
        let bare = self.me.jid.bare_str();
        let mut followed = self.door().accounts.followed(bare);
        self.deliveries.add(followed.len() as u64);
        followed.retain(|f| node.is_none_or(|node| node == &*f.node));
        let jids: Vec<String> = followed.iter().map(|f| f.jid(bare)).collect();
        let subscriptions: Vec<SubscriptionOut<'_>> = followed
            .iter()
            .zip(&jids)
            .map(|(f, jid)| SubscriptionOut { node: &f.node, jid, state: SubscriptionState::Subscribed })
            .collect();
        check_list(subscriptions.iter().map(|one| written_len(one.node) + written_len(one.jid)))?;
        answer.result(&mut self.out, |w| pubsub::write_subscriptions(w, node, &subscriptions));
        Ok(())
    }

    /// §5.7
    pub(super) fn affiliations(&mut self, answer: &Answer<'_>, node: Option<&str>) -> Result<(), StanzaError> {
        // All nodes are looked at if none is named.
        let looks = node.map_or_else(|| self.door().nodes.len() as u64, |_| 1);
        self.deliveries.add(looks);
        let affiliations = self.door().nodes.affiliations_of(self.me.gate.affiliate(), node);
        let affiliations: Vec<(&str, Affiliation)> = affiliations.iter().map(|(node, a)| (&**node, *a)).collect();
        check_list(affiliations.iter().map(|(node, _)| written_len(node)))?;
        answer.result(&mut self.out, |w| pubsub::write_affiliations(w, node, &affiliations));
        Ok(())
    }
}

/// Refuses a list that would be too long for a stanza: XEP-0060 has no pages for these.
pub(super) fn check_list(names: impl Iterator<Item = usize>) -> Result<(), StanzaError> {
    let bytes: usize = names.map(|name| name + ENTRY_BYTES).sum();
    if bytes <= LIST_BYTES_MAX {
        return Ok(());
    }
    Err(StanzaError::new(StanzaCondition::ResourceConstraint).because("the list is too long"))
}

/// The present options of a subscription, without the filter.
fn current(followed: &Followed) -> SubscribeOptions {
    let Options { deliver, include_body, expire } = followed.options;
    SubscribeOptions { deliver, include_body, expire, filter: None }
}

/// The options that a subscriber has chosen. A time of expiry in the past is refused.
fn chosen(options: &SubscribeOptions) -> Result<Options, StanzaError> {
    let &SubscribeOptions { deliver, include_body, expire, .. } = options;
    if matches!(expire, Some(Expire::At(at)) if at <= credential::unix_s()) {
        let error = StanzaError::bad_request().with(PubsubCondition::InvalidOptions);
        return Err(error.because("pubsub#expire is in the past"));
    }
    Ok(Options { deliver, include_body, expire })
}

/// Refuses another filter, which would be another subscription.
fn check_same_filter(followed: &Followed, filter: Option<&FilterOption>) -> Result<(), StanzaError> {
    let same = match filter {
        None => true,
        Some(FilterOption::Node) => followed.wildcard,
        Some(FilterOption::Text(text)) => followed.wildcard && **text == *followed.node,
    };
    if same { Ok(()) } else { Err(StanzaError::bad_request().with(PubsubCondition::InvalidOptions)) }
}
