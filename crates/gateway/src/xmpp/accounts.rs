//! Accounts: connected resources and subscriptions.
//!
//! A subscription belongs to an account. One by bare address reaches every resource that is connected, whether it
//! connected before or after; it outlives connections, and the process too unless the account is anonymous. One by full
//! address ends with its resource.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use fogmux_bus::{Bus, Completion, FifoMailbox, NoRoom, Slot, Subscription};
use fogmux_xmpp::{Jid, pubsub::Expire};
use hashbrown::HashMap;

use super::{
    access::Gate,
    control::Control,
    doubts::Doubts,
    followed::{Before, Follow, Followed, Name, TAG_STEP, attach, detach, subscription},
    kept::{KeptSubscription, Records},
    weights::Weights,
};

/// The mailbox of a connection.
pub(super) type Inbox = Arc<Slot<FifoMailbox>>;

/// The presence of a resource, as far as it decides about messages to the bare address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Presence {
    /// None was sent, as by most devices. Messages are delivered.
    #[default]
    Unsaid,
    /// Available, with a priority of 0 or more.
    Available,
    /// Available, with a negative priority (RFC 6121 §8.5.2.1.1).
    Negative,
    /// Unavailable.
    Unavailable,
}

impl Presence {
    /// Whether messages to the bare address are delivered to the resource.
    pub(super) const fn takes_bare(self) -> bool {
        match self {
            Self::Unsaid | Self::Available => true,
            Self::Negative | Self::Unavailable => false,
        }
    }

    /// Whether the resource is available (RFC 6121 §4.2).
    pub(super) const fn is_available(self) -> bool {
        match self {
            Self::Available | Self::Negative => true,
            Self::Unsaid | Self::Unavailable => false,
        }
    }
}

/// A connected resource.
#[derive(Debug, Clone)]
pub(super) struct Resource {
    pub(super) inbox: Inbox,
    pub(super) gate: Arc<Gate>,
    pub(super) control: Arc<Control>,
    /// The client acknowledges stanzas, so that its subscriptions take QoS 1.
    pub(super) acknowledges: bool,
    /// Its presence.
    pub(super) presence: Presence,
}

/// Why a subscription was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotFollowed {
    /// The account's limit is reached.
    Account,
    /// The limit of the bus is reached.
    Full,
    /// As many bytes as there may be, or as this principal may have.
    Bytes(NoRoom),
    /// The store does not take it.
    NotKept,
}

/// An account with a connected resource or a subscription.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// Its principal: two principals may share an address in its folded form, but not an account.
    pub(super) principal: Arc<str>,
    pub(super) anonymous: bool,
    pub(super) resources: HashMap<Box<str>, Resource>,
    pub(super) follows: Vec<Followed>,
    /// The bytes of its subscriptions as they were counted last.
    pub(super) weight: usize,
}

pub(super) type Map = HashMap<Arc<str>, Account, foldhash::fast::RandomState>;

/// The bounds of subscriptions.
#[derive(Debug, Clone, Copy)]
pub(super) struct FollowsMax {
    pub(super) per_account: usize,
    /// Bytes of the heap of those of all accounts.
    pub(super) bytes: usize,
}

/// All accounts with a connected resource or a subscription.
#[derive(Debug)]
pub(super) struct Accounts {
    accounts: Mutex<Map>,
    next_tag: AtomicU64,
    /// No subscription expires before this time, in seconds since 1970.
    pub(super) next_expiry: AtomicU64,
    max: FollowsMax,
    /// The bytes of the accounts' subscriptions, in shares. Locked after `accounts`.
    pub(super) weights: Mutex<Weights>,
    pub(super) records: Records,
    /// Subscriptions as they were before changes that are not stored yet. Locked before `accounts`.
    pub(super) doubts: Mutex<Doubts<Name, Before>>,
}

/// Another principal is connected under the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OtherPrincipal;

impl Accounts {
    /// Loads the stored subscriptions, also where they exceed the bounds.
    pub(super) fn new(max: FollowsMax, records: Records) -> Self {
        let (mut accounts, mut tag) = (Map::default(), TAG_STEP);
        records.subscriptions(&mut |kept| {
            let Some(subscription) = subscription(&kept.node, kept.wildcard) else { return };
            let account = accounts
                .entry(kept.bare)
                .or_insert_with(|| Account { principal: kept.principal, ..Account::default() });
            let (node, wildcard, options) = (kept.node, kept.wildcard, kept.options);
            let tag_here = tag | options.tag_flags(None);
            account.follows.push(Followed { node, wildcard, resource: None, options, subscription, tag: tag_here });
            tag += TAG_STEP;
        });
        let mut weights = Weights::default();
        accounts.iter_mut().for_each(|(bare, account)| weights.weigh(bare, account));
        let weights = Mutex::new(weights);
        // The first run of the housekeeping computes it.
        let next_expiry = AtomicU64::new(0);
        let (next_tag, doubts) = (AtomicU64::new(tag), Mutex::default());
        Self { accounts: Mutex::new(accounts), next_tag, next_expiry, max, weights, records, doubts }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Map> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes every connection.
    pub(super) fn wake(&self) {
        for resource in self.lock().values().flat_map(|account| account.resources.values()) {
            resource.control.wake();
        }
    }

    /// Adds a resource. An existing one of the same name is disconnected (RFC 6120 §7.7.2.2).
    pub(super) fn join(
        &self,
        bus: &Bus,
        jid: &Jid,
        principal: &fogmux_auth::Principal,
        resource: Resource,
    ) -> Result<(), OtherPrincipal> {
        let name = jid.resource().unwrap_or_default();
        let mut accounts = self.lock();
        let account = accounts.entry(jid.bare_str().into()).or_insert_with(|| Account {
            principal: Arc::clone(&principal.name),
            anonymous: principal.anonymous,
            ..Account::default()
        });
        if account.principal != principal.name {
            return Err(OtherPrincipal);
        }
        if let Some(before) = account.resources.remove(name) {
            account.cut(bus, name, &before);
            self.weigh(jid.bare_str(), account);
            before.control.displace();
        }
        for follow in account.follows.iter().filter(|f| f.resource.is_none()) {
            // A bus that is full is no reason to refuse the connection; the subscription says so when it is made.
            let _ = attach(bus, follow, &resource);
        }
        account.resources.insert(name.into(), resource);
        Ok(())
    }

    /// Removes a resource, if it still belongs to this connection. Returns the shared subscriptions that reached it, by
    /// their tags: what waits in the inbox goes to other members.
    pub(super) fn leave(&self, bus: &Bus, jid: &Jid, inbox: &Inbox) -> HashMap<u64, Arc<Subscription>> {
        let name = jid.resource().unwrap_or_default();
        let mut accounts = self.lock();
        let Some(account) = accounts.get_mut(jid.bare_str()) else { return HashMap::new() };
        let shared = account.shared(name);
        if !account.resources.get(name).is_some_and(|r| Arc::ptr_eq(&r.inbox, inbox)) {
            return shared;
        }
        if let Some(resource) = account.resources.remove(name) {
            account.cut(bus, name, &resource);
            self.weigh(jid.bare_str(), account);
        }
        self.end_with_presence(bus, jid.bare_str(), account, name);
        if account.resources.is_empty() && (account.anonymous || account.follows.is_empty()) {
            account.follows.clear();
            self.weigh(jid.bare_str(), account);
            accounts.remove(jid.bare_str());
        }
        shared
    }

    /// The shared subscriptions that reach a resource, by their tags.
    pub(super) fn shared(&self, jid: &Jid) -> HashMap<u64, Arc<Subscription>> {
        let accounts = self.lock();
        accounts.get(jid.bare_str()).map(|one| one.shared(jid.resource().unwrap_or_default())).unwrap_or_default()
    }

    /// Notes that the client of this resource acknowledges stanzas from now on.
    pub(super) fn acknowledges(&self, bus: &Bus, jid: &Jid) {
        let name = jid.resource().unwrap_or_default();
        let mut accounts = self.lock();
        let Some(account) = accounts.get_mut(jid.bare_str()) else { return };
        let Some(resource) = account.resources.get_mut(name) else { return };
        resource.acknowledges = true;
        account.attach_all(bus, name);
    }

    /// Subscribes to a node or filter, or changes the options. If it cannot be done, nothing has changed.
    pub(super) fn follow(&self, bus: &Bus, bare: &str, follow: &Follow<'_>) -> Result<Completion, NotFollowed> {
        let mut doubts = self.doubts();
        let mut accounts = self.lock();
        let Some(account) = accounts.get_mut(bare) else { return Err(NotFollowed::Account) };
        let known = account.position(follow.node, follow.resource);
        if known.is_none() && account.follows.len() >= self.max.per_account {
            return Err(NotFollowed::Account);
        }
        let keep = follow.resource.is_none() && !account.anonymous;
        let before = known.and_then(|at| account.follows.get(at)).cloned();
        let number = before.as_ref().map_or_else(|| self.new_tag(), |before| before.tag & !(TAG_STEP - 1));
        let tag = number | follow.options.tag_flags(follow.resource);
        let followed = Followed {
            node: follow.node.into(),
            wildcard: follow.wildcard,
            resource: follow.resource.map(Box::from),
            options: follow.options,
            subscription: follow.subscription.clone(),
            tag,
        };
        let more = if known.is_none() { account.bytes_more(bare, &followed) } else { 0 };
        self.weights().admit(bus.room(self.max.bytes), account, more).map_err(NotFollowed::Bytes)?;
        let attached = account.reached(&followed).try_for_each(|resource| attach(bus, &followed, resource));
        let kept = attached.map_err(|_| NotFollowed::Full).and_then(|()| {
            let kept = if keep { self.keep(bare, account, &followed) } else { Completion::Ready };
            if matches!(kept, Completion::Failed) { Err(NotFollowed::NotKept) } else { Ok(kept) }
        });
        let kept = kept.inspect_err(|_| {
            account.reached(&followed).for_each(|resource| detach(bus, &followed, resource));
            before.iter().for_each(|before| account.attach(bus, before));
        })?;
        if let Some(before) = before.as_ref().filter(|before| before.tag != tag) {
            account.reached(before).for_each(|resource| detach(bus, before, resource));
        }
        if let Some(Expire::At(at)) = followed.options.expire {
            self.next_expiry.fetch_min(at, Ordering::Relaxed);
        }
        if keep {
            let before = Before { principal: Arc::clone(&account.principal), followed: before };
            doubts.push((bare.into(), Arc::clone(&followed.node)), &kept, before);
        }
        match known.and_then(|at| account.follows.get_mut(at)) {
            Some(before) => *before = followed,
            None => account.follows.push(followed),
        }
        self.weigh(bare, account);
        Ok(kept)
    }

    fn keep(&self, bare: &str, account: &Account, followed: &Followed) -> Completion {
        self.records.subscription(&KeptSubscription {
            bare: bare.into(),
            node: Arc::clone(&followed.node),
            principal: Arc::clone(&account.principal),
            wildcard: followed.wildcard,
            options: followed.options,
        })
    }

    fn new_tag(&self) -> u64 {
        self.next_tag.fetch_add(TAG_STEP, Ordering::Relaxed)
    }

    /// The subscriptions of an account.
    pub(super) fn followed(&self, bare: &str) -> Vec<Followed> {
        self.lock().get(bare).map(|account| account.follows.clone()).unwrap_or_default()
    }

    /// The subscriptions whose notifications are sent to this connection.
    pub(super) fn delivered_to(&self, jid: &Jid) -> Vec<Followed> {
        let name = jid.resource().unwrap_or_default();
        let accounts = self.lock();
        let Some(account) = accounts.get(jid.bare_str()) else { return Vec::new() };
        let Some(resource) = account.resources.get(name) else { return Vec::new() };
        account.follows.iter().filter(|f| f.reaches(name) && f.is_delivered_to(resource)).cloned().collect()
    }

    pub(super) fn find(&self, bare: &str, node: &str, resource: Option<&str>) -> Option<Followed> {
        let accounts = self.lock();
        let account = accounts.get(bare)?;
        account.follows.get(account.position(node, resource)?).cloned()
    }

    /// Whether the account is subscribed to the node by name.
    pub(super) fn follows(&self, bare: &str, node: &str) -> bool {
        self.lock().get(bare).is_some_and(|account| account.follows.iter().any(|f| !f.wildcard && *f.node == *node))
    }

    /// All subscriptions to a node by name, with their bare addresses.
    pub(super) fn followers(&self, node: &str) -> Vec<(Arc<str>, Followed)> {
        let accounts = self.lock();
        let all = accounts.iter().flat_map(|(bare, account)| account.follows.iter().map(move |f| (bare, f)));
        let of_node = all.filter(|(_, f)| !f.wildcard && *f.node == *node);
        of_node.map(|(bare, f)| (Arc::clone(bare), f.clone())).collect()
    }

    /// Sends an event to the connections of an address.
    pub(super) fn notify(&self, bare: &str, resource: Option<&str>, event: &[u8]) {
        let accounts = self.lock();
        let Some(account) = accounts.get(bare) else { return };
        for (name, connected) in &account.resources {
            if resource.map_or(connected.presence.takes_bare(), |wanted| wanted == &**name) {
                connected.control.notify(event);
            }
        }
    }
}

impl Account {
    pub(super) fn position(&self, node: &str, resource: Option<&str>) -> Option<usize> {
        self.follows.iter().position(|f| *f.node == *node && f.resource.as_deref() == resource)
    }

    /// The shared subscriptions that reach a resource, by their tags.
    fn shared(&self, resource: &str) -> HashMap<u64, Arc<Subscription>> {
        let shared = self.follows.iter().filter(|f| f.subscription.group.is_some() && f.reaches(resource));
        shared.map(|f| (f.tag, Arc::new(f.subscription.clone()))).collect()
    }

    /// The connections that a subscription reaches.
    pub(super) fn reached<'a>(&'a self, followed: &'a Followed) -> impl Iterator<Item = &'a Resource> {
        let wanted = followed.resource.as_deref();
        self.resources.iter().filter(move |(name, _)| wanted.is_none_or(|w| w == &***name)).map(|(_, r)| r)
    }

    /// Attaches a subscription that was there before to the bus.
    pub(super) fn attach(&self, bus: &Bus, followed: &Followed) {
        for resource in self.reached(followed) {
            // If the bus is full, it is attached with the next change.
            let _ = attach(bus, followed, resource);
        }
    }

    /// Attaches the subscriptions that reach a resource to the bus, or detaches them, depending on its presence.
    pub(super) fn attach_all(&self, bus: &Bus, name: &str) {
        let Some(resource) = self.resources.get(name) else { return };
        for follow in self.follows.iter().filter(|f| f.reaches(name)) {
            // If the bus is full, the subscription is attached with the next change; the resource stays connected.
            let _ = attach(bus, follow, resource);
        }
    }

    /// Removes and returns the subscriptions that `ends` selects.
    pub(super) fn take(&mut self, ends: impl Fn(&Followed) -> bool) -> Vec<Followed> {
        if !self.follows.iter().any(&ends) {
            return Vec::new();
        }
        let (gone, kept) = std::mem::take(&mut self.follows).into_iter().partition(ends);
        self.follows = kept;
        gone
    }

    /// Detaches a resource from the bus; subscriptions by its full address end.
    fn cut(&mut self, bus: &Bus, name: &str, resource: &Resource) {
        let own = |f: &Followed| f.resource.as_deref() == Some(name);
        for followed in self.follows.iter().filter(|f| f.resource.is_none() || own(f)) {
            detach(bus, followed, resource);
        }
        self.follows.retain(|f| !own(f));
    }
}
