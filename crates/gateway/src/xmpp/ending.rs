//! Subscriptions that end by themselves: with the subscriber's presence (XEP-0060 §12.4), or at a given time (§12.18).

use std::sync::atomic::Ordering;

use fogmux_bus::Bus;
use fogmux_xmpp::{
    Jid,
    pubsub::{self, Expire, SubscriptionState},
};

use super::{
    accounts::{Account, Accounts, Presence},
    followed::{Followed, detach},
};

impl Accounts {
    /// Changes the presence of a resource. Returns the one before.
    pub(super) fn set_presence(&self, bus: &Bus, jid: &Jid, presence: Presence) -> Presence {
        let name = jid.resource().unwrap_or_default();
        let mut accounts = self.lock();
        let Some(account) = accounts.get_mut(jid.bare_str()) else { return presence };
        let Some(resource) = account.resources.get_mut(name) else { return presence };
        let before = std::mem::replace(&mut resource.presence, presence);
        if before.takes_bare() != presence.takes_bare() {
            account.attach_all(bus, name);
        }
        if presence == Presence::Unavailable {
            self.end_with_presence(bus, jid.bare_str(), account, name);
        }
        before
    }

    /// Ends subscriptions that last as long as the presence of their subscriber (§12.4), after `name` has become
    /// unavailable.
    pub(super) fn end_with_presence(&self, bus: &Bus, bare: &str, account: &mut Account, name: &str) {
        let present = account.resources.values().any(|resource| resource.presence != Presence::Unavailable);
        let ends = |f: &Followed| {
            f.options.expire == Some(Expire::Presence) && f.resource.as_deref().map_or(!present, |own| own == name)
        };
        for followed in account.take(ends) {
            account.reached(&followed).for_each(|resource| detach(bus, &followed, resource));
            // Nobody waits for the completion: the record is removed when the store comes to it.
            drop(self.forget(&account.principal, bare, account, &followed));
        }
        self.weigh(bare, account);
    }

    /// Ends expired subscriptions (§12.18), and notifies their subscribers.
    pub(super) fn expire(&self, bus: &Bus, now_unix_s: u64) {
        if now_unix_s < self.next_expiry.load(Ordering::Relaxed) {
            return;
        }
        let mut next = u64::MAX;
        let mut accounts = self.lock();
        for (bare, account) in accounts.iter_mut() {
            let ends = |f: &Followed| matches!(f.options.expire, Some(Expire::At(at)) if at <= now_unix_s);
            let ended = account.take(ends);
            if !ended.is_empty() {
                self.weigh(bare, account);
            }
            for followed in ended {
                account.reached(&followed).for_each(|resource| detach(bus, &followed, resource));
                drop(self.forget(&account.principal, bare, account, &followed));
                let mut event = Vec::new();
                let (node, jid) = (&followed.node, followed.jid(bare));
                pubsub::write_subscription_notice(&mut event, node, &jid, SubscriptionState::None);
                pubsub::write_event_tail(&mut event, std::iter::empty());
                account.reached(&followed).for_each(|resource| resource.control.notify(&event));
            }
            let moments = account.follows.iter().filter_map(|f| match f.options.expire {
                Some(Expire::At(at)) => Some(at),
                Some(Expire::Presence) | None => None,
            });
            next = moments.fold(next, u64::min);
        }
        accounts.retain(|_, account| !account.resources.is_empty() || !account.follows.is_empty());
        // Under the lock: a subscription made meanwhile lowers it afterwards.
        self.next_expiry.store(next, Ordering::Relaxed);
    }
}
