//! Exponential back-off after failed logins, per address and per user name. Pure: the time is an argument.
//!
//! An attacker with many addresses can make a name wait, so a name's wait is kept short; an address's may grow long.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use crate::users::USER_BYTES_MAX;

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

/// Who failed how often of late.
#[derive(Debug, Default)]
pub struct Backoff {
    config: BackoffConfig,
    addresses: HashMap<IpAddr, Failures>,
    users: HashMap<Box<str>, Failures>,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last_ms: u64,
}

impl Backoff {
    /// An empty table.
    #[must_use]
    pub fn new(config: BackoffConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// How long a login from `address` as `user` has to wait; nothing when it may be tried now. Loopback addresses never
    /// wait: behind them are proxies and the operator.
    #[must_use]
    pub fn wait(&self, now_ms: u64, address: IpAddr, user: &str) -> Option<Duration> {
        let address = network(address);
        let by_address =
            self.addresses.get(&address).map(|failures| self.left(now_ms, failures, self.config.address_max));
        let by_user = self.users.get(user).map(|failures| self.left(now_ms, failures, self.config.user_max));
        by_address.into_iter().chain(by_user).max().filter(|wait| !wait.is_zero())
    }

    /// Notes a failed login.
    pub fn failed(&mut self, now_ms: u64, address: IpAddr, user: &str) {
        let oldest_ms = now_ms.saturating_sub(millis(self.config.forget_after));
        if !address.to_canonical().is_loopback() {
            count(&mut self.addresses, network(address), self.config.entries_max, now_ms, oldest_ms);
        }
        if user.len() <= USER_BYTES_MAX {
            count(&mut self.users, user.into(), self.config.entries_max, now_ms, oldest_ms);
        }
    }

    /// Notes a login that succeeded: the name is forgiven, the address only by time, or one good account would cover for
    /// guesses at others.
    pub fn succeeded(&mut self, user: &str) {
        self.users.remove(user);
    }

    fn left(&self, now_ms: u64, failures: &Failures, max: Duration) -> Duration {
        let Some(costing) = failures.count.checked_sub(self.config.free_failures.saturating_add(1)) else {
            return Duration::ZERO;
        };
        let wait = self.config.first.saturating_mul(2_u32.saturating_pow(costing)).min(max);
        let until_ms = failures.last_ms.saturating_add(millis(wait));
        Duration::from_millis(until_ms.saturating_sub(now_ms))
    }
}

fn count<K: std::hash::Hash + Eq + Clone>(
    table: &mut HashMap<K, Failures>,
    key: K,
    entries_max: usize,
    now_ms: u64,
    oldest_ms: u64,
) {
    if !table.contains_key(&key) && table.len() >= entries_max {
        table.retain(|_, failures| failures.last_ms >= oldest_ms);
        // Still full of recent ones: the mildest quarter gives way, which a flood of new names cannot use to hide the worst.
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
    let failures = table.entry(key).or_insert(Failures { count: 0, last_ms: now_ms });
    let forgotten = failures.last_ms < oldest_ms;
    *failures = Failures { count: if forgotten { 1 } else { failures.count.saturating_add(1) }, last_ms: now_ms };
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// One IPv6 host has a whole /64 to come from.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn waits_double_up_to_the_maximum_and_are_forgotten() {
        let mut backoff = Backoff::new(BackoffConfig { free_failures: 2, ..BackoffConfig::default() });
        let mut waits = Vec::new();
        for _ in 0..14 {
            backoff.failed(1000, FAR, "alice");
            waits.push(backoff.wait(1000, FAR, "nobody").unwrap_or_default().as_millis());
        }
        assert_eq!(waits[..6], [0, 0, 500, 1000, 2000, 4000]);
        assert_eq!(waits[13], 300_000);
        let elsewhere = IpAddr::from([192, 0, 2, 2]);
        assert_eq!(backoff.wait(1000, elsewhere, "alice"), Some(Duration::from_secs(10)));
        assert_eq!(backoff.wait(1000 + 10_000, elsewhere, "alice"), None);
        backoff.failed(2_000_000, FAR, "alice");
        assert_eq!(backoff.wait(2_000_000, FAR, "alice"), None, "forgotten after fifteen quiet minutes");
    }

    #[test]
    fn a_success_forgives_the_name_but_not_the_address() {
        let mut backoff = Backoff::new(BackoffConfig { free_failures: 0, ..BackoffConfig::default() });
        backoff.failed(0, FAR, "alice");
        backoff.succeeded("alice");
        assert!(backoff.wait(0, [192, 0, 2, 2].into(), "alice").is_none());
        assert!(backoff.wait(0, FAR, "alice").is_some());
        for _ in 0..50 {
            backoff.failed(0, [127, 0, 0, 1].into(), "bob");
        }
        assert!(backoff.wait(0, [127, 0, 0, 1].into(), "carol").is_none());
    }

    #[test]
    fn the_tables_are_bounded_and_keep_the_worst() {
        let mut backoff = Backoff::new(BackoffConfig { free_failures: 0, entries_max: 64, ..BackoffConfig::default() });
        for _ in 0..9 {
            backoff.failed(0, FAR, "victim");
        }
        for number in 0..10_000_u32 {
            backoff.failed(1, IpAddr::from(number.to_be_bytes()), &number.to_string());
        }
        assert!(backoff.users.len() <= 64 && backoff.addresses.len() <= 64);
        assert!(backoff.wait(1, FAR, "victim").is_some_and(|wait| wait > Duration::from_secs(60)));
        // A /64 is one party.
        backoff.failed(1, "2001:db8::1".parse().unwrap(), "x");
        assert!(backoff.wait(1, "2001:db8::ffff".parse().unwrap(), "y").is_some());
    }
}
