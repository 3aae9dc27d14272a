//! The bytes of the accounts' subscriptions, whether anybody is connected or not, in shares by principal (ADR 0068).

use std::sync::{Arc, MutexGuard, PoisonError};

use fogmux_bus::{COUNTS_BYTES, NoRoom, Room, Shares, allocation};

use super::{
    accounts::{Account, Accounts},
    followed::Followed,
    kept::{STORED_BYTES, subscription_key_bytes},
};

/// The bytes of all accounts' subscriptions.
#[derive(Debug, Default)]
pub(super) struct Weights {
    bytes: usize,
    shares: Shares,
}

impl Weights {
    /// Counts an account's subscriptions anew.
    pub(super) fn weigh(&mut self, bare: &str, account: &mut Account) {
        let after = account.bytes(bare);
        let before = std::mem::replace(&mut account.weight, after);
        if before > 0 {
            self.bytes -= before;
            self.shares.remove(&account.principal, before);
        }
        if account.weight > 0 {
            self.bytes += account.weight;
            account.principal = self.shares.name(&account.principal);
            self.shares.add(&account.principal, account.weight);
        }
    }

    /// Whether an account may have so many bytes more of subscriptions.
    pub(super) fn admit(&self, room: Room, account: &Account, more: usize) -> Result<(), NoRoom> {
        if more == 0 { Ok(()) } else { room.admit(self.bytes, self.shares.of(&account.principal).bytes, more) }
    }

    /// Bytes of the heap that all subscriptions take.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes of the principal that has most.
    pub(super) fn largest(&self) -> usize {
        self.shares.largest_bytes()
    }
}

impl Accounts {
    pub(super) fn weights(&self) -> MutexGuard<'_, Weights> {
        self.weights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an account's subscriptions anew, after each change of them.
    pub(super) fn weigh(&self, bare: &str, account: &mut Account) {
        self.weights().weigh(bare, account);
    }
}

impl Account {
    /// The bytes of the heap that its subscriptions take, and the account with them.
    fn bytes(&self, bare: &str) -> usize {
        let follows: usize = self.follows.iter().map(|followed| followed.bytes(bare, self)).sum();
        if follows == 0 { 0 } else { follows + self.own_bytes(bare) }
    }

    fn own_bytes(&self, bare: &str) -> usize {
        2 * size_of::<(Arc<str>, Self)>() + shared_text(bare) + shared_text(&self.principal)
    }

    /// The bytes that one more subscription takes.
    pub(super) fn bytes_more(&self, bare: &str, followed: &Followed) -> usize {
        followed.bytes(bare, self) + if self.follows.is_empty() { self.own_bytes(bare) } else { 0 }
    }
}

impl Followed {
    /// The bytes of the heap that it takes in the list of its account, which is half full after it has grown, and in
    /// the store.
    fn bytes(&self, bare: &str, account: &Account) -> usize {
        let group = self.subscription.group.as_deref().map_or(0, shared_text);
        let resource = self.resource.as_deref().map_or(0, |resource| allocation(resource.len()));
        let texts = shared_text(&self.node) + shared_text(&self.subscription.filter) + group + resource;
        let is_kept = self.resource.is_none() && !account.anonymous;
        let stored = if is_kept { STORED_BYTES + allocation(subscription_key_bytes(bare, &self.node)) } else { 0 };
        2 * size_of::<Self>() + texts + stored
    }
}

fn shared_text(text: &str) -> usize {
    allocation(COUNTS_BYTES + text.len())
}
