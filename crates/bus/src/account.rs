//! Accounts: the bytes that the mailboxes of one owner hold, and the owner that holds most (ADR 0038).

use std::sync::{
    Arc, Weak,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use fogmux_fair::{Owner, Room};
use hashbrown::HashMap;

use crate::memory::Memory;

/// The bytes that the mailboxes of one owner hold; from [`Memory::account`].
///
/// A counter of its own, changed once for each batch and mailbox. The table of all owners, which has a lock, is told of
/// larger changes only.
#[derive(Debug)]
pub struct Account {
    owner: Owner,
    number: u64,
    used: AtomicUsize,
    told: AtomicUsize,
    memory: Arc<Memory>,
}

impl Account {
    /// The owner.
    #[must_use]
    pub const fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Bytes held now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Whether its owner holds most: the only one that is limited when memory is tight.
    #[must_use]
    pub fn is_heaviest(&self) -> bool {
        self.memory.is_heaviest(self.number)
    }

    /// Whether its mailboxes take no more where so many bytes are held: more than the mark and what was under way when
    /// it was reached.
    #[must_use]
    pub fn gives_way(&self, held: usize) -> bool {
        self.memory.is_overfull(held) && self.is_heaviest()
    }

    pub(crate) fn change(&self, before: usize, after: usize) {
        if after > before {
            self.used.fetch_add(after - before, Relaxed);
        } else if after < before {
            self.used.fetch_sub(before - after, Relaxed);
        } else {
            return;
        }
        self.memory.change(before, after);
        if self.used().abs_diff(self.told.load(Relaxed)) >= self.memory.step() {
            self.memory.tell(self);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.memory.forget(self);
    }
}

/// All accounts. [`Room`] knows which owner holds most, in the order of ADR 0036.
#[derive(Debug)]
pub(crate) struct Accounts {
    by_owner: HashMap<Owner, (u64, Weak<Account>), foldhash::fast::RandomState>,
    room: Room<()>,
}

impl Accounts {
    pub(crate) fn new() -> Self {
        Self { by_owner: HashMap::default(), room: Room::new(0) }
    }

    /// The account of an owner.
    pub(crate) fn account(&mut self, owner: Owner, memory: &Arc<Memory>) -> Arc<Account> {
        if let Some(account) = self.by_owner.get(&owner).and_then(|(_, account)| account.upgrade()) {
            return account;
        }
        let number = self.room.enter(owner.clone(), 0, ());
        let (used, told) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let account = Arc::new(Account { owner: owner.clone(), number, used, told, memory: Arc::clone(memory) });
        self.by_owner.insert(owner, (number, Arc::downgrade(&account)));
        account
    }

    /// Notes what an account holds.
    pub(crate) fn tell(&mut self, account: &Account) {
        let used = account.used();
        account.told.store(used, Relaxed);
        self.room.set(account.number, used);
    }

    pub(crate) fn forget(&mut self, account: &Account) {
        self.room.leave(account.number);
        // A new one may have taken its place meanwhile.
        if self.by_owner.get(&account.owner).is_some_and(|(number, _)| *number == account.number) {
            self.by_owner.remove(&account.owner);
        }
    }

    /// The number of the account whose owner holds most.
    pub(crate) fn heaviest(&self) -> Option<u64> {
        self.number(&self.room.heaviest()?)
    }

    /// The number of an owner's account.
    pub(crate) fn number(&self, owner: &Owner) -> Option<u64> {
        self.by_owner.get(owner).map(|(number, _)| *number)
    }

    /// The owners that hold memory, with the bytes of each.
    pub(crate) fn held(&self) -> Vec<(Owner, usize)> {
        let used = |(owner, (_, account)): (&Owner, &(u64, Weak<Account>))| {
            // Not upgraded: an account dropped under the lock would take the lock again.
            let used = self.room.weight_of_owner(owner);
            (account.strong_count() > 0 && used > 0).then(|| (owner.clone(), used))
        };
        self.by_owner.iter().filter_map(used).collect()
    }
}
