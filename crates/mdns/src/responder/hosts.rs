//! The unicast answers of each host: whoever forges sources on a link cannot have its neighbour flooded.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use fogmux_time::Timestamp;

/// Hosts that are counted apart. One more gets no unicast answer until the period of another is over.
const HOSTS_MAX: usize = 256;
/// Unicast answers to one host in a period. A browser that starts asks for all seven types, then for what it found.
const ANSWERS_MAX: u32 = 30;
const PERIOD: Duration = Duration::from_secs(10);

/// Counts unicast answers.
#[derive(Debug, Default)]
pub(super) struct Hosts(BTreeMap<IpAddr, (Timestamp, u32)>);

impl Hosts {
    /// Whether a host may get one more answer, which is counted.
    pub(super) fn admit(&mut self, now: Timestamp, host: IpAddr) -> bool {
        if !self.0.contains_key(&host) && self.0.len() >= HOSTS_MAX {
            self.0.retain(|_, (since, _)| now.since(*since) < PERIOD);
            if self.0.len() >= HOSTS_MAX {
                return false;
            }
        }
        let (since, count) = self.0.entry(host).or_insert((now, 0));
        if now.since(*since) >= PERIOD {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        *count <= ANSWERS_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_host_and_all_hosts_have_bounds_that_pass() {
        let (mut hosts, now) = (Hosts::default(), Timestamp::from_millis(5));
        let host = |number: u32| IpAddr::V4(Ipv4Addr::from_bits(number));
        assert!((0..30).all(|_| hosts.admit(now, host(1))));
        assert!(!hosts.admit(now, host(1)));
        assert!((2..=256).all(|number| hosts.admit(now, host(number))));
        assert!(!hosts.admit(now, host(257)));
        let later = now + PERIOD;
        assert!(hosts.admit(later, host(257)) && hosts.admit(later, host(1)));
        assert_eq!(hosts.0.len(), 2);
    }
}
