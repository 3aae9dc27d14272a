//! Subscriptions that are ended by their subscriber or an owner, and changes of subscriptions that were not kept.

use std::sync::{Arc, MutexGuard, PoisonError, atomic::Ordering};

use fogmux_bus::{Bus, Completion};

use super::{
    accounts::{Account, Accounts},
    doubts::Doubts,
    followed::{Before, Followed, Name, detach},
};

impl Accounts {
    pub(super) fn doubts(&self) -> MutexGuard<'_, Doubts<Name, Before>> {
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Undoes the changes that the store has not kept.
    pub(super) fn undo(&self, bus: &Bus) {
        let mut doubts = self.doubts();
        let failed = doubts.failed();
        if failed.is_empty() {
            return;
        }
        let mut accounts = self.lock();
        for ((bare, node), Before { principal, followed }) in failed {
            let account =
                accounts.entry(Arc::clone(&bare)).or_insert_with(|| Account { principal, ..Account::default() });
            if let Some(at) = account.position(&node, None) {
                let gone = account.follows.remove(at);
                account.reached(&gone).for_each(|resource| detach(bus, &gone, resource));
            }
            if let Some(followed) = followed {
                account.attach(bus, &followed);
                account.follows.push(followed);
                // It may have expired meanwhile.
                self.next_expiry.store(0, Ordering::Relaxed);
            }
            self.weigh(&bare, account);
        }
        accounts.retain(|_, account| !account.resources.is_empty() || !account.follows.is_empty());
    }

    /// Removes the record of an ended subscription, if it had one, for the principal that has asked for that.
    pub(super) fn forget(&self, by: &Arc<str>, bare: &str, account: &Account, followed: &Followed) -> Completion {
        if followed.resource.is_some() || account.anonymous {
            return Completion::Ready;
        }
        self.records.no_subscription(by, bare, &followed.node)
    }

    /// Ends a subscription, unless the store does not take that.
    fn end(
        &self,
        bus: &Bus,
        by: &Arc<str>,
        (bare, account): (&Arc<str>, &mut Account),
        at: usize,
        doubts: &mut Doubts<Name, Before>,
    ) -> Completion {
        let Some(followed) = account.follows.get(at).cloned() else { return Completion::Ready };
        let kept = self.forget(by, bare, account, &followed);
        if matches!(kept, Completion::Failed) {
            return kept;
        }
        account.follows.remove(at);
        self.weigh(bare, account);
        account.reached(&followed).for_each(|resource| detach(bus, &followed, resource));
        let name = (Arc::clone(bare), Arc::clone(&followed.node));
        let before = Before { principal: Arc::clone(&account.principal), followed: Some(followed) };
        doubts.push(name, &kept, before);
        kept
    }

    /// Ends a subscription at the request of the principal `by`; `None` if there was none.
    pub(super) fn unfollow(
        &self,
        bus: &Bus,
        by: &Arc<str>,
        bare: &str,
        node: &str,
        resource: Option<&str>,
    ) -> Option<Completion> {
        let mut doubts = self.doubts();
        let mut accounts = self.lock();
        let account = accounts.get_mut(bare)?;
        let at = account.position(node, resource)?;
        Some(self.end(bus, by, (&bare.into(), account), at, &mut doubts))
    }

    /// Ends all subscriptions to a node that the principal `by` has deleted. Each may be stored by another commit.
    pub(super) fn forget_node(&self, bus: &Bus, by: &Arc<str>, node: &str) -> Vec<Completion> {
        let mut forgotten: Vec<Completion> = Vec::new();
        let mut doubts = self.doubts();
        let mut accounts = self.lock();
        for (bare, account) in accounts.iter_mut() {
            let of_node = |f: &Followed| !f.wildcard && *f.node == *node;
            // From the last on, so that places stay.
            for at in (0..account.follows.len()).rev() {
                if account.follows.get(at).is_some_and(of_node) {
                    let kept = self.end(bus, by, (bare, account), at, &mut doubts);
                    if forgotten.last().is_none_or(|last| !last.is_same(&kept)) {
                        forgotten.push(kept);
                    }
                }
            }
        }
        accounts.retain(|_, account| !account.resources.is_empty() || !account.follows.is_empty());
        forgotten
    }
}
