//! Requests of owners: nodes, their configuration, subscriptions and affiliations of others (XEP-0060 §8).

use std::sync::Arc;

use fogmux_auth::Action;
use fogmux_bus::{Completion, NoRoom, ReadGate as _};
use fogmux_xmpp::{
    Jid, PubsubCondition, StanzaCondition, StanzaError,
    form::Form,
    iq::Answer,
    pubsub::{
        self, Affiliation, AffiliationChange, NodeConfig, SubscriptionChange, SubscriptionOut, SubscriptionState,
    },
    writer::written_len,
};

use super::{
    core::Core,
    login::random_name,
    nodes::{Made, NotChanged, NotMade},
    publish::{full, topic},
    subscribe::check_list,
};
use crate::shares::Table;

/// Instant nodes (§8.1.2) are topics below this level.
const INSTANT_PREFIX: &str = "instant/";

/// The name is too long for a node with a configuration or affiliations of its own.
fn too_long() -> StanzaError {
    StanzaError::new(StanzaCondition::NotAcceptable).because("the name of the node is too long")
}

impl Core {
    /// Whether the sender may act as the node's owner: it may write the topic, and is its owner or the node has none.
    /// The gateway's rules take precedence over ownership.
    pub(super) fn owned(&self, node: &str) -> Result<(), StanzaError> {
        topic(node)?;
        let forbidden = Err(StanzaError::new(StanzaCondition::Forbidden));
        match self.door().nodes.affiliation(node, self.me.gate.affiliate()) {
            Some(Affiliation::Owner) if self.me.gate.may_write(node) => Ok(()),
            Some(Affiliation::Owner) => Err(self.refusal(Action::Write, node)),
            Some(
                Affiliation::Publisher
                | Affiliation::PublishOnly
                | Affiliation::Member
                | Affiliation::None
                | Affiliation::Outcast,
            ) => forbidden,
            None if !self.me.gate.may_write(node) => Err(self.refusal(Action::Write, node)),
            // A client that may write a topic but not read it is not told whether it has a message.
            None if self.me.gate.may_read(node) && !self.exists(node) => {
                Err(StanzaError::new(StanzaCondition::ItemNotFound))
            }
            None => Ok(()),
        }
    }

    /// Whether a topic is a node: it was created as one, or it has a retained message.
    pub(super) fn exists(&self, node: &str) -> bool {
        let known = self.door().nodes.affiliation(node, self.me.gate.affiliate()).is_some();
        known || self.ctx.bus().latest(node, self.ctx.now()).is_some()
    }

    /// §8.1
    pub(super) fn create(
        &mut self,
        answer: &Answer<'_>,
        node: Option<&str>,
        form: Option<&Form<'_>>,
    ) -> Result<(), StanzaError> {
        let instant = node.is_none();
        let node = node.map_or_else(|| format!("{INSTANT_PREFIX}{}", random_name()), str::to_owned);
        topic(&node)?;
        if !self.me.gate.may_write(&node) {
            return Err(self.refusal(Action::Write, &node));
        }
        let mut config = NodeConfig::default();
        if let Some(form) = form {
            config.apply(form)?;
        }
        let narrows = config.access_model != pubsub::AccessModel::Open;
        let made = self.create_node(&node, Some(config), Made::Asked);
        let made = made.map_err(|why| match why {
            NotMade::Exists => StanzaError::new(StanzaCondition::Conflict),
            NotMade::NotKept => full(),
            NotMade::TooLong => too_long(),
            NotMade::Full(_) => {
                StanzaError::new(StanzaCondition::ResourceConstraint).with(PubsubCondition::MaxNodesExceeded)
            }
        })?;
        if narrows {
            self.ctx.bus().invalidate();
        }
        self.keep(made)?;
        if instant {
            answer.result(&mut self.out, |w| pubsub::write_created(w, &node));
        } else {
            answer.empty(&mut self.out);
        }
        Ok(())
    }

    /// §8.2
    pub(super) fn get_config(&mut self, answer: &Answer<'_>, node: &str) -> Result<(), StanzaError> {
        self.owned(node)?;
        let config = self.door().nodes.config(node);
        answer.result(&mut self.out, |w| pubsub::write_node_config(w, Some(node), &config));
        Ok(())
    }

    /// §8.3
    pub(super) fn default_config(&mut self, answer: &Answer<'_>) {
        answer.result(&mut self.out, |w| pubsub::write_node_config(w, None, &NodeConfig::default()));
    }

    /// §8.2.5
    pub(super) fn set_config(
        &mut self,
        answer: &Answer<'_>,
        node: &str,
        form: Option<&Form<'_>>,
    ) -> Result<(), StanzaError> {
        self.owned(node)?;
        let Some(form) = form else {
            answer.empty(&mut self.out);
            return Ok(());
        };
        let nodes = &self.door().nodes;
        let mut config = NodeConfig::clone(&nodes.config(node));
        config.apply(form)?;
        let adopted = self.adopt(node)?;
        let changed = self.door().nodes.configure(node, &config, self.principal(), self.ctx.bus());
        match changed {
            Ok((narrowed, kept)) => {
                if narrowed {
                    self.ctx.bus().invalidate();
                }
                self.keep(kept).inspect_err(|_| self.abandon(node, adopted))?;
            }
            // Somebody has deleted it meanwhile.
            Err(NotChanged::Missing) => {}
            Err(why) => {
                self.abandon(node, adopted);
                return Err(self.not_changed(why));
            }
        }
        if config.notify_config {
            let mut event = Vec::new();
            pubsub::write_configuration(&mut event, node, &config);
            pubsub::write_event_tail(&mut event, std::iter::empty());
            for (bare, followed) in self.door().accounts.followers(node) {
                self.door().accounts.notify(&bare, followed.resource.as_deref(), &event);
            }
        }
        answer.empty(&mut self.out);
        Ok(())
    }

    /// Makes a node that belongs to the sender, and counts a refusal for its share.
    pub(super) fn create_node(
        &self,
        node: &str,
        config: Option<NodeConfig>,
        made: Made,
    ) -> Result<Completion, NotMade> {
        let (affiliate, by) = (self.me.gate.affiliate(), self.principal());
        let result = self.door().nodes.create(node, affiliate, by, config, made, self.ctx.bus());
        if let Err(NotMade::Full(why)) = result {
            self.no_room(Table::Nodes, why);
        }
        result
    }

    /// Counts a refusal for the sake of others.
    pub(super) fn no_room(&self, table: Table, why: NoRoom) {
        if why == NoRoom::Share {
            self.ctx.shared.metrics.shares.refused(table, self.principal(), self.ctx.now());
        }
    }

    /// The error for a node that was not changed, and counts a refusal for the sender's share.
    fn not_changed(&self, why: NotChanged) -> StanzaError {
        match why {
            NotChanged::Missing => StanzaError::new(StanzaCondition::ItemNotFound),
            NotChanged::Affiliations => StanzaError::new(StanzaCondition::NotAcceptable),
            NotChanged::NotKept => full(),
            NotChanged::Full(why) => {
                self.no_room(Table::Nodes, why);
                StanzaError::new(StanzaCondition::ResourceConstraint).because("nodes take as many bytes as they may")
            }
        }
    }

    /// Makes a topic without an owner a node of the sender, which may write it. Returns whether it was none.
    fn adopt(&self, node: &str) -> Result<bool, StanzaError> {
        match self.create_node(node, None, Made::Asked) {
            // The next step writes the same record.
            Ok(_) => Ok(true),
            Err(NotMade::Exists) => Ok(false),
            Err(NotMade::Full(_)) => Err(StanzaError::new(StanzaCondition::ResourceConstraint)),
            Err(NotMade::TooLong) => Err(too_long()),
            Err(NotMade::NotKept) => Err(full()),
        }
    }

    /// A topic that was adopted for the sake of a change that was refused is no node again.
    fn abandon(&self, node: &str, adopted: bool) {
        if adopted {
            drop(self.door().nodes.remove(node, self.principal()));
        }
    }

    /// §8.8.1
    pub(super) fn get_subscriptions(&mut self, answer: &Answer<'_>, node: &str) -> Result<(), StanzaError> {
        self.owned(node)?;
        let followers = self.door().accounts.followers(node);
        let jids: Vec<String> = followers.iter().map(|(bare, followed)| followed.jid(bare)).collect();
        let state = SubscriptionState::Subscribed;
        let out: Vec<SubscriptionOut<'_>> = jids.iter().map(|jid| SubscriptionOut { node, jid, state }).collect();
        check_list(jids.iter().map(|jid| written_len(jid)))?;
        answer.result(&mut self.out, |w| pubsub::write_owner_subscriptions(w, node, &out));
        Ok(())
    }

    /// §8.8.2: an owner ends subscriptions. It makes none for others, whose share of subscriptions it would use up, and
    /// tells nobody of a change that is none. Pending states do not exist here.
    pub(super) fn set_subscriptions(
        &mut self,
        answer: &Answer<'_>,
        node: &str,
        changes: &[SubscriptionChange],
    ) -> Result<(), StanzaError> {
        self.owned(node)?;
        let awaits = |change: &SubscriptionChange| {
            matches!(change.state, SubscriptionState::Pending | SubscriptionState::Unconfigured)
        };
        if changes.iter().any(awaits) {
            return Err(StanzaError::unsupported("manage-subscriptions"));
        }
        for change in changes.iter().filter(|change| change.state == SubscriptionState::Subscribed) {
            self.check_subscribed(node, &change.jid)?;
        }
        for change in changes.iter().filter(|change| change.state != SubscriptionState::Subscribed) {
            let (bare, resource) = (change.jid.bare_str(), change.jid.resource());
            let ended = self.door().accounts.unfollow(self.ctx.bus(), self.principal(), bare, node, resource);
            let Some(ended) = ended else { continue };
            self.keep(ended)?;
            let mut event = Vec::new();
            pubsub::write_subscription_notice(&mut event, node, change.jid.as_str(), change.state);
            pubsub::write_event_tail(&mut event, std::iter::empty());
            self.door().accounts.notify(change.jid.bare_str(), change.jid.resource(), &event);
        }
        answer.empty(&mut self.out);
        Ok(())
    }

    /// Confirms a subscription that is there already, and refuses to make one (RFC 6120 §8.3.3.10).
    fn check_subscribed(&self, node: &str, jid: &Jid) -> Result<(), StanzaError> {
        let found = self.door().accounts.find(jid.bare_str(), node, jid.resource());
        match found.filter(|followed| !followed.wildcard) {
            Some(_) => Ok(()),
            None => Err(StanzaError::new(StanzaCondition::NotAllowed).because("only the subscriber itself subscribes")),
        }
    }

    /// §8.9.1
    pub(super) fn get_affiliations(&mut self, answer: &Answer<'_>, node: &str) -> Result<(), StanzaError> {
        self.owned(node)?;
        let affiliations = self.door().nodes.affiliations(node);
        let affiliations: Vec<(&str, Affiliation)> = affiliations.iter().map(|(jid, a)| (&**jid, *a)).collect();
        answer.result(&mut self.out, |w| pubsub::write_owner_affiliations(w, node, &affiliations));
        Ok(())
    }

    /// §8.9.2; a node keeps an owner (§8.9.2.4).
    pub(super) fn set_affiliations(
        &mut self,
        answer: &Answer<'_>,
        node: &str,
        changes: &[AffiliationChange],
    ) -> Result<(), StanzaError> {
        self.owned(node)?;
        let adopted = self.adopt(node)?;
        let changes: Vec<(Arc<str>, Affiliation)> =
            changes.iter().map(|change| (change.jid.bare_str().into(), change.affiliation)).collect();
        let changed = self.door().nodes.affiliate(node, &changes, self.principal(), self.ctx.bus());
        let kept = changed.map_err(|why| self.not_changed(why)).inspect_err(|_| self.abandon(node, adopted))?;
        self.ctx.bus().invalidate();
        self.keep(kept).inspect_err(|_| self.abandon(node, adopted))?;
        answer.empty(&mut self.out);
        Ok(())
    }
}
