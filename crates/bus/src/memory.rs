//! The memory held by all mailboxes, against a mark for all of them.
//!
//! Above the mark the publishers of the principal that holds most wait for a few seconds, and its mailboxes give way;
//! nobody else is concerned (ADR 0038).

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use fogmux_fair::Owner;

use crate::{
    Timestamp,
    account::{Account, Accounts},
    door::Door,
};

/// The fraction of the high mark that one client may hold beyond its own bound, and all of them beyond the mark.
const EXCESS: usize = 8;
/// The fraction of the high mark by which an account has to change before the table of all accounts is told: an owner
/// that holds less is never the one that holds most.
const STEP: usize = 1024;
/// More than so many times the mark is far too much.
const FAR_TOO_MUCH: usize = 4;
/// How long publishers wait for the mark to be left, whoever holds what is above it.
const PATIENCE: Duration = Duration::from_secs(2);
/// At no time.
const NEVER: u64 = u64::MAX;
/// No account.
const NOBODY: u64 = u64::MAX;

/// Bytes held in mailboxes, against a mark.
#[derive(Debug)]
pub struct Memory {
    used: AtomicUsize,
    /// Held by mailboxes without an owner, which have bounds of their own.
    unowned: AtomicUsize,
    waiting_messages: AtomicUsize,
    by_door: [Depth; Door::ALL.len()],
    high: usize,
    waiting: Mutex<Vec<Waker>>,
    accounts: Mutex<Accounts>,
    /// The number of the account whose owner holds most.
    heaviest: AtomicU64,
    /// The first look at which more was held than the mark allows, in milliseconds, if that has been so ever since.
    pressed_since: AtomicU64,
    /// Publishers have waited for long enough: until the mark is left, nobody waits for it.
    is_waived: AtomicBool,
}

/// Messages and bytes in the mailboxes of one door.
#[derive(Debug, Default)]
struct Depth {
    messages: AtomicUsize,
    bytes: AtomicUsize,
}

fn change(total: &AtomicUsize, before: usize, after: usize) {
    if after > before {
        total.fetch_add(after - before, Relaxed);
    } else if after < before {
        total.fetch_sub(before - after, Relaxed);
    }
}

impl Memory {
    pub(crate) fn new(high_bytes: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            unowned: AtomicUsize::new(0),
            waiting_messages: AtomicUsize::new(0),
            by_door: Default::default(),
            high: high_bytes,
            waiting: Mutex::new(Vec::new()),
            accounts: Mutex::new(Accounts::new()),
            heaviest: AtomicU64::new(NOBODY),
            pressed_since: AtomicU64::new(NEVER),
            is_waived: AtomicBool::new(false),
        }
    }

    /// Bytes held now by mailboxes that belong to somebody.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Bytes held now by all mailboxes.
    #[must_use]
    pub fn held(&self) -> usize {
        self.used() + self.unowned.load(Relaxed)
    }

    /// Messages that wait in mailboxes; see [`crate::Mailbox::waiting`].
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting_messages.load(Relaxed)
    }

    /// Messages that wait in the mailboxes of a door, and the bytes that these hold.
    #[must_use]
    pub fn depth(&self, door: Door) -> (usize, usize) {
        let depth = self.by_door.get(door.place());
        depth.map_or((0, 0), |depth| (depth.messages.load(Relaxed), depth.bytes.load(Relaxed)))
    }

    pub(crate) fn change_waiting(&self, door: Option<Door>, before: usize, after: usize) {
        change(&self.waiting_messages, before, after);
        if let Some(depth) = self.of(door) {
            change(&depth.messages, before, after);
        }
    }

    /// Notes what a mailbox holds, whoever it belongs to.
    pub(crate) fn change_bytes(&self, door: Option<Door>, before: usize, after: usize) {
        if let Some(depth) = self.of(door) {
            change(&depth.bytes, before, after);
        }
    }

    fn of(&self, door: Option<Door>) -> Option<&Depth> {
        self.by_door.get(door?.place())
    }

    /// The mark, in bytes.
    #[must_use]
    pub const fn high(&self) -> usize {
        self.high
    }

    /// Whether more is held than the mark allows, so that the owner that holds most has to give way.
    #[must_use]
    pub fn pressure(&self) -> bool {
        self.used() > self.high
    }

    /// Whether so many bytes are more than the mark and the publications that were under way when it was reached.
    #[must_use]
    pub const fn is_overfull(&self, held: usize) -> bool {
        held > self.high.saturating_add(self.high / EXCESS)
    }

    /// Whether so many bytes are several times the mark.
    #[must_use]
    pub const fn is_far_too_much(&self, held: usize) -> bool {
        held > self.high.saturating_mul(FAR_TOO_MUCH)
    }

    /// Whether so many bytes are twice the mark.
    #[must_use]
    pub const fn is_doubled(&self, held: usize) -> bool {
        held > self.high.saturating_mul(2)
    }

    /// Whether the mark is reached, and no owner holds more than this one.
    #[must_use]
    pub fn is_held_by(&self, owner: &Owner) -> bool {
        self.pressure() && self.accounts().number(owner).is_some_and(|number| self.is_heaviest(number))
    }

    /// Whether publishers of this owner have to wait or are refused: it is the principal that holds most, and the mark
    /// was reached a short time ago. Clients without a name never wait for what others from their host hold.
    #[must_use]
    pub fn stops(&self, owner: &Owner) -> bool {
        owner.is_principal() && !self.is_waived.load(Relaxed) && self.is_held_by(owner)
    }

    /// Looks whether publishers have waited for long enough, to be called about once a second. The time before
    /// `went_on`, in which the gateway did not run, does not count.
    pub fn look(&self, now: Timestamp, went_on: Timestamp) {
        if !self.pressure() {
            self.note_room();
            return;
        }
        let since = self.pressed_since.fetch_min(now.as_millis(), Relaxed);
        let since = Timestamp::from_millis(since).min(now).max(went_on);
        if now.since(since) >= PATIENCE && !self.is_waived.swap(true, Relaxed) {
            self.wake();
        }
    }

    /// The mark is left: publishers wait anew the next time it is reached, and those that wait now go on.
    #[cold]
    fn note_room(&self) {
        self.pressed_since.store(NEVER, Relaxed);
        self.is_waived.store(false, Relaxed);
        self.wake();
    }

    /// The account of an owner, which mailboxes name by [`crate::Mailbox::account`].
    pub fn account(self: &Arc<Self>, owner: Owner) -> Arc<Account> {
        self.accounts().account(owner, self)
    }

    /// The bytes that each owner holds, for owners above a thousandth of the mark.
    #[must_use]
    pub fn held_by_owner(&self) -> Vec<(Owner, usize)> {
        self.accounts().held()
    }

    pub(crate) fn is_heaviest(&self, number: u64) -> bool {
        self.heaviest.load(Relaxed) == number
    }

    pub(crate) fn step(&self) -> usize {
        (self.high / STEP).max(1)
    }

    pub(crate) fn tell(&self, account: &Account) {
        let mut accounts = self.accounts();
        accounts.tell(account);
        self.note_heaviest(accounts);
    }

    pub(crate) fn forget(&self, account: &Account) {
        let mut accounts = self.accounts();
        accounts.forget(account);
        self.note_heaviest(accounts);
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishers of the owner that held most go on when another one does.
    fn note_heaviest(&self, accounts: MutexGuard<'_, Accounts>) {
        let now = accounts.heaviest().unwrap_or(NOBODY);
        let before = self.heaviest.swap(now, Relaxed);
        drop(accounts);
        if now != before {
            self.wake();
        }
    }

    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(Waker::wake);
    }

    /// The bytes that one client may hold beyond its own bound, because publishers wait for it.
    #[must_use]
    pub const fn excess_max(&self) -> usize {
        self.high / EXCESS
    }

    /// Completes once there is room again, another owner holds more, or publishers have waited for long enough.
    pub const fn relieved(&self, owner: Owner) -> Relieved<'_> {
        Relieved { memory: self, owner: Some(owner) }
    }

    /// Completes once there is room again, or publishers have waited for long enough: for messages whose publisher has
    /// gone, so that nobody is held up.
    pub const fn eased(&self) -> Relieved<'_> {
        Relieved { memory: self, owner: None }
    }

    /// As [`change`](Self::change), of a mailbox that belongs to nobody.
    pub(crate) fn change_unowned(&self, before: usize, after: usize) {
        if after > before {
            self.unowned.fetch_add(after - before, Relaxed);
        } else {
            self.unowned.fetch_sub(before - after, Relaxed);
        }
    }

    /// Mailboxes hold `after` bytes instead of `before`. What a door keeps elsewhere is not counted here: nobody's
    /// messages are to be dropped for it, and no publisher is to wait.
    pub(crate) fn change(&self, before: usize, after: usize) {
        if after >= before {
            if after > before {
                self.used.fetch_add(after - before, Relaxed);
            }
            return;
        }
        let freed = before - after;
        let was = self.used.fetch_sub(freed, Relaxed);
        if was > self.high && was - freed <= self.high {
            self.note_room();
        }
    }
}

/// See [`Memory::relieved`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Relieved<'a> {
    memory: &'a Memory,
    /// `None`: whoever holds most.
    owner: Option<Owner>,
}

impl Relieved<'_> {
    fn stops(&self) -> bool {
        let Self { memory, owner } = self;
        match owner {
            Some(owner) => memory.stops(owner),
            None => memory.pressure() && !memory.is_waived.load(Relaxed),
        }
    }
}

impl Future for Relieved<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.stops() {
            return Poll::Ready(());
        }
        let mut waiting = self.memory.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|w| w.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        drop(waiting);
        // Room may have been made between the look and the registration.
        if self.stops() { Poll::Pending } else { Poll::Ready(()) }
    }
}
