//! Sources from which a user has logged in: there a login waits for failures of that source at that name only, so that
//! failures elsewhere do not keep the name's owner out. Behind a shared address (a proxy on this machine, a NAT) others
//! may sit: their failures count there as well.

use std::{collections::HashMap, net::IpAddr};

use foldhash::quality::RandomState;

use super::Failures;

/// Sources remembered of one user; a device moves, but no account fills the table.
const OF_USER_MAX: usize = 16;

/// Pairs of source and user. The least recent are forgotten first, never by time alone: a device may stay connected for
/// weeks before it has to log in again.
#[derive(Debug, Default)]
pub(super) struct Homes {
    by_user: HashMap<Box<str>, Vec<Home>, RandomState>,
    /// Pairs in the table.
    len: usize,
}

#[derive(Debug)]
struct Home {
    source: IpAddr,
    last_ms: u64,
    failures: Failures,
}

impl Homes {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The failures of a source at a name that has logged in from there.
    pub(super) fn get(&self, source: IpAddr, user: &str) -> Option<&Failures> {
        let home = self.by_user.get(user)?.iter().find(|home| home.source == source)?;
        Some(&home.failures)
    }

    pub(super) fn get_mut(&mut self, source: IpAddr, user: &str) -> Option<&mut Failures> {
        let home = self.by_user.get_mut(user)?.iter_mut().find(|home| home.source == source)?;
        Some(&mut home.failures)
    }

    /// Notes a login that succeeded, which forgives the failures of that source at that name.
    pub(super) fn note(&mut self, now_ms: u64, source: IpAddr, user: &str, entries_max: usize) {
        let homes = match self.by_user.get_mut(user) {
            Some(homes) => homes,
            None => self.by_user.entry(user.into()).or_default(),
        };
        if let Some(home) = homes.iter_mut().find(|home| home.source == source) {
            home.last_ms = now_ms;
            home.failures.count = 0;
            return;
        }
        if homes.len() >= OF_USER_MAX {
            let oldest = homes.iter().enumerate().min_by_key(|(_, home)| home.last_ms).map(|(at, _)| at);
            if let Some(at) = oldest {
                homes.swap_remove(at);
                self.len -= 1;
            }
        }
        homes.push(Home { source, last_ms: now_ms, failures: Failures { count: 0, last_ms: now_ms, under_way: 0 } });
        self.len += 1;
        if self.len > entries_max {
            // A quarter at once, so that the table is not walked for each login.
            self.shrink(entries_max - entries_max / 4);
        }
    }

    fn shrink(&mut self, most: usize) {
        let mut times: Vec<u64> = self.by_user.values().flatten().map(|home| home.last_ms).collect();
        times.sort_unstable();
        let mut surplus = self.len.saturating_sub(most);
        let newest_to_go = times.get(surplus.saturating_sub(1)).copied().unwrap_or_default();
        self.by_user.retain(|_, homes| {
            homes.retain(|home| {
                let goes = surplus > 0 && home.last_ms <= newest_to_go;
                surplus -= usize::from(goes);
                !goes
            });
            !homes.is_empty()
        });
        self.len = self.by_user.values().map(Vec::len).sum();
    }
}
