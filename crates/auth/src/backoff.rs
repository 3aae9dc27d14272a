//! Exponential back-off after failed logins, per address and per user name. Pure: the time is an argument.
//!
//! An attacker with many addresses can make a name wait, so a name's wait is kept short; an address's may grow long.
//! At addresses from which a user has logged in, the name's wait counts the failures of that address only, so that
//! failures elsewhere do not keep its owner out ([`home`]).

mod home;

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use foldhash::quality::RandomState;
use home::Homes;

use crate::users::USER_BYTES_MAX;

/// Attempts under way at once of a party that did not fail of late: half of those that may wait for a verification, so
/// that no address fills that room alone. Devices that come back together after a power cut are no guessers.
const UNDER_WAY_MAX: u32 = 128;

/// How much patience there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackoffConfig {
    /// Failures that cost nothing: people mistype.
    pub free_failures: u32,
    /// The wait after the first failure that costs; doubled with each further one.
    pub first: Duration,
    /// The longest wait of an address.
    pub address_max: Duration,
    /// The longest wait of a user name.
    pub user_max: Duration,
    /// A party that was quiet for this long is forgotten.
    pub forget_after: Duration,
    /// Parties remembered at most, addresses and names each.
    pub entries_max: usize,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self {
            free_failures: 10,
            first: Duration::from_millis(500),
            address_max: Duration::from_secs(300),
            user_max: Duration::from_secs(10),
            forget_after: Duration::from_secs(900),
            entries_max: 4096,
        }
    }
}

/// An attempt comes too early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// How long to wait.
    pub time: Duration,
    /// The reason for the wait.
    pub cause: WaitCause,
}

/// The cause of a wait. Only the first says something about the address: strangers can make the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitCause {
    /// Failures from this address.
    Address,
    /// Failures at this name, wherever they came from.
    Name,
    /// Attempts under way, of which none has failed yet.
    UnderWay,
}

/// Recent failures by address and by user.
#[derive(Debug, Default)]
pub struct Backoff {
    config: BackoffConfig,
    addresses: HashMap<IpAddr, Failures, RandomState>,
    users: HashMap<Box<str>, Failures, RandomState>,
    homes: Homes,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last_ms: u64,
    /// Attempts that have begun and not ended.
    under_way: u32,
}

impl Backoff {
    /// An empty table.
    #[must_use]
    pub fn new(config: BackoffConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// Another patience from now on.
    pub fn configure(&mut self, config: BackoffConfig) {
        self.config = config;
    }

    /// How long a login from `address` as `user` has to wait; nothing when it may be tried now. Loopback addresses
    /// never wait: behind them are proxies and the operator.
    #[must_use]
    pub fn wait(&self, now_ms: u64, address: IpAddr, user: &str) -> Option<Wait> {
        self.judge(now_ms, address, user, self.addresses.get(&network(address)).copied())
    }

    /// The longer wait of address and name. The address is the cause if failures from there alone are enough for one.
    fn judge(&self, now_ms: u64, address: IpAddr, user: &str, of_address: Option<Failures>) -> Option<Wait> {
        let left = |failures: Option<Failures>, max, cause| {
            let failures = failures?;
            let cause = if failures.count == 0 { WaitCause::UnderWay } else { cause };
            Some(Wait { time: self.left(now_ms, &failures, max), cause }).filter(|wait| !wait.time.is_zero())
        };
        let of_user = self.homes.get(network(address), user).or_else(|| self.users.get(user)).copied();
        let by_address = left(of_address, self.config.address_max, WaitCause::Address);
        let by_user = left(of_user, self.config.user_max, WaitCause::Name);
        let (Some(first), Some(second)) = (by_address, by_user) else { return by_address.or(by_user) };
        let cause = if first.cause == WaitCause::Address { first.cause } else { second.cause };
        Some(Wait { time: first.time.max(second.time), cause })
    }

    /// Begins an attempt. Beside failures it counts as one until it [ends](Self::ended), so that many at once come no
    /// further than one after another.
    ///
    /// # Errors
    /// How long to wait.
    pub fn begin(&mut self, now_ms: u64, address: IpAddr, user: &str) -> Result<(), Wait> {
        if let Some(wait) = self.wait(now_ms, address, user) {
            return Err(wait);
        }
        let begins = |failures: &mut Failures| failures.under_way = failures.under_way.saturating_add(1);
        self.of_address(now_ms, address).into_iter().for_each(begins);
        self.of_user(now_ms, user).into_iter().for_each(begins);
        self.homes.get_mut(network(address), user).into_iter().for_each(begins);
        Ok(())
    }

    /// An attempt has ended that was [begun](Self::begin) with the same address and name. Its outcome is noted beside
    /// this.
    pub fn ended(&mut self, address: IpAddr, user: &str) {
        let network = network(address);
        let less = |failures: &mut Failures| {
            failures.under_way = failures.under_way.saturating_sub(1);
            failures.count == 0 && failures.under_way == 0
        };
        if self.addresses.get_mut(&network).is_some_and(less) {
            self.addresses.remove(&network);
        }
        self.ended_handshake(address, user);
    }

    /// Begins an attempt to prove a key in a handshake. Unlike [`Self::begin`] it does not count for the address while
    /// it is under way: behind one address a whole site may come back at once after a power cut, each device with a key
    /// of its own, and a handshake has no word for "later".
    ///
    /// # Errors
    /// How long to wait.
    pub fn begin_handshake(&mut self, now_ms: u64, address: IpAddr, user: &str) -> Result<(), Wait> {
        let source = network(address);
        let of_address = self.addresses.get(&source).map(|failures| Failures { under_way: 0, ..*failures });
        if let Some(wait) = self.judge(now_ms, address, user, of_address) {
            return Err(wait);
        }
        let begins = |failures: &mut Failures| failures.under_way = failures.under_way.saturating_add(1);
        self.of_user(now_ms, user).into_iter().for_each(begins);
        self.homes.get_mut(source, user).into_iter().for_each(begins);
        Ok(())
    }

    /// An attempt of [`Self::begin_handshake`] has ended. Its outcome is noted beside this.
    pub fn ended_handshake(&mut self, address: IpAddr, user: &str) {
        let less = |failures: &mut Failures| {
            failures.under_way = failures.under_way.saturating_sub(1);
            failures.count == 0 && failures.under_way == 0
        };
        if self.users.get_mut(user).is_some_and(less) {
            self.users.remove(user);
        }
        if let Some(home) = self.homes.get_mut(network(address), user) {
            less(home);
        }
    }

    /// The entry of an address, made if it is missing; loopback addresses have none.
    fn of_address(&mut self, now_ms: u64, address: IpAddr) -> Option<&mut Failures> {
        let (most, oldest_ms) = (self.config.entries_max, self.oldest_ms(now_ms));
        let shared = address.to_canonical().is_loopback();
        (!shared).then(|| entry(&mut self.addresses, network(address), most, now_ms, oldest_ms))
    }

    /// The entry of a name, made if it is missing.
    fn of_user(&mut self, now_ms: u64, user: &str) -> Option<&mut Failures> {
        let (most, oldest_ms) = (self.config.entries_max, self.oldest_ms(now_ms));
        let named = (1..=USER_BYTES_MAX).contains(&user.len());
        named.then(|| entry(&mut self.users, user.into(), most, now_ms, oldest_ms))
    }

    /// The time before which failures are forgotten.
    fn oldest_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(millis(self.config.forget_after))
    }

    /// Notes a failed login; `user` is `""` where no name was said. At an address from which the user has logged in, it
    /// counts for that address and name only.
    pub fn failed(&mut self, now_ms: u64, address: IpAddr, user: &str) {
        let oldest_ms = self.oldest_ms(now_ms);
        let fails = |failures: &mut Failures| {
            failures.count = if failures.last_ms < oldest_ms { 1 } else { failures.count.saturating_add(1) };
            failures.last_ms = now_ms;
        };
        self.of_address(now_ms, address).into_iter().for_each(fails);
        match self.homes.get_mut(network(address), user) {
            Some(home) => fails(home),
            None => self.of_user(now_ms, user).into_iter().for_each(fails),
        }
    }

    /// Takes a failed login back that was noted a moment ago.
    pub fn failure_taken_back(&mut self, address: IpAddr, user: &str) {
        let source = network(address);
        let less = |failures: &mut Failures| failures.count = failures.count.saturating_sub(1);
        self.addresses.get_mut(&source).into_iter().for_each(less);
        match self.homes.get_mut(source, user) {
            Some(home) => less(home),
            None => self.users.get_mut(user).into_iter().for_each(less),
        }
    }

    /// Notes a login that succeeded. It forgives the name, at an address from which the user had logged in before only
    /// there: guesses elsewhere go on waiting. The address is forgiven by time only, or one good account would cover
    /// for guesses at others.
    pub fn succeeded(&mut self, now_ms: u64, address: IpAddr, user: &str) {
        let source = network(address);
        if self.homes.get(source, user).is_none()
            && let Some(failures) = self.users.get_mut(user)
        {
            failures.count = 0;
            if failures.under_way == 0 {
                self.users.remove(user);
            }
        }
        if (1..=USER_BYTES_MAX).contains(&user.len()) {
            self.homes.note(now_ms, source, user, self.config.entries_max);
        }
    }

    fn left(&self, now_ms: u64, failures: &Failures, max: Duration) -> Duration {
        let free = self.config.free_failures.saturating_add(1);
        // One at a time is left to who has no free failures any more.
        let room = match free.saturating_sub(failures.count) {
            _ if failures.count == 0 => UNDER_WAY_MAX,
            left => left.max(1),
        };
        if failures.under_way >= room {
            return self.config.first.max(Duration::from_millis(1));
        }
        let Some(costing) = failures.count.checked_sub(free) else {
            return Duration::ZERO;
        };
        let wait = self.config.first.saturating_mul(2_u32.saturating_pow(costing)).min(max);
        let until_ms = failures.last_ms.saturating_add(millis(wait));
        Duration::from_millis(until_ms.saturating_sub(now_ms))
    }
}

fn entry<K: std::hash::Hash + Eq + Clone>(
    table: &mut HashMap<K, Failures, RandomState>,
    key: K,
    entries_max: usize,
    now_ms: u64,
    oldest_ms: u64,
) -> &mut Failures {
    if !table.contains_key(&key) && table.len() >= entries_max {
        table.retain(|_, failures| failures.last_ms >= oldest_ms);
        // Still full of recent ones: the mildest quarter gives way, which a flood of new names cannot use to hide the
        // worst.
        if table.len() >= entries_max {
            let mut counts: Vec<u32> = table.values().map(|failures| failures.count).collect();
            counts.sort_unstable();
            let limit = counts.get(counts.len() / 4).copied().unwrap_or(u32::MAX);
            let mut room = table.len() / 4 + 1;
            table.retain(|_, failures| {
                let goes = room > 0 && failures.count <= limit;
                room -= usize::from(goes);
                !goes
            });
        }
    }
    let failures = table.entry(key).or_insert(Failures { count: 0, last_ms: now_ms, under_way: 0 });
    if failures.last_ms < oldest_ms {
        failures.count = 0;
    }
    failures
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// One IPv6 host has a whole /64 to come from.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests;
