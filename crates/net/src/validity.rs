//! How much of its time a certificate has left, in the words of `check`, `doctor`, the administration API
//! and the log of a running gateway.

use std::fmt;

use crate::{dates::Dates, tls::Role};

/// Seconds of a day.
pub const DAY_S: u64 = 86_400;
/// The first warning: enough time to order a certificate from an authority that works by hand.
const MONTH_S: u64 = 30 * DAY_S;
/// The second: what renews certificates by itself has failed several times by now.
const WEEK_S: u64 = 7 * DAY_S;

/// The state of a certificate at a moment, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It is valid for longer than any warning is about.
    Good,
    /// It expires within 30 days.
    Month,
    /// It expires within 7 days.
    Week,
    /// It becomes valid later: the clock may be wrong.
    Early,
    /// It has expired.
    Expired,
}

/// The state of a certificate, with the seconds to the date that makes it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The state.
    pub stage: Stage,
    seconds: u64,
}

impl Validity {
    /// Judges a certificate by its purpose. One that is renewed by itself has a third of its lifetime left then, which
    /// may be days: it is late, not near its end, that is worth a word.
    #[must_use]
    pub const fn of(role: Role, now_unix_s: u64, dates: &Dates) -> Self {
        let judged = Self::at(now_unix_s, dates);
        match (role, judged.stage) {
            (Role::ServerByName, Stage::Month | Stage::Week) => {
                let lifetime = dates.not_after_unix_s.saturating_sub(dates.not_before_unix_s);
                let stage = match judged.seconds {
                    left if left <= lifetime / 12 => Stage::Week,
                    left if left <= lifetime / 4 => Stage::Month,
                    _ => Stage::Good,
                };
                Self { stage, seconds: judged.seconds }
            }
            (Role::Server | Role::ServerChain | Role::ServerByName | Role::ClientAuthority, _) => judged,
        }
    }

    /// Judges a certificate at a moment, in seconds since 1970.
    #[must_use]
    pub const fn at(now_unix_s: u64, dates: &Dates) -> Self {
        let Dates { not_before_unix_s, not_after_unix_s, .. } = dates;
        if now_unix_s < *not_before_unix_s {
            return Self { stage: Stage::Early, seconds: *not_before_unix_s - now_unix_s };
        }
        // The last second belongs to it (RFC 5280 §4.1.2.5).
        let Some(seconds) = not_after_unix_s.checked_sub(now_unix_s) else {
            return Self { stage: Stage::Expired, seconds: now_unix_s - *not_after_unix_s };
        };
        let stage = if seconds <= WEEK_S {
            Stage::Week
        } else if seconds <= MONTH_S {
            Stage::Month
        } else {
            Stage::Good
        };
        Self { stage, seconds }
    }
}

impl Stage {
    /// Its name in the administration API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Month => "month",
            Self::Week => "week",
            Self::Early => "early",
            Self::Expired => "expired",
        }
    }
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = Days(self.seconds);
        match self.stage {
            Stage::Good => write!(f, "valid for {days}"),
            Stage::Month | Stage::Week => write!(f, "expires in {days}"),
            Stage::Early => write!(f, "valid only in {days}; the clock may be in the past"),
            Stage::Expired => write!(f, "expired {days} ago"),
        }
    }
}

/// Names a certificate by its place and its subject, which may be empty (RFC 5280 §4.1.2.6).
#[must_use]
pub fn subject(role: Role, Dates { subject, .. }: &Dates) -> String {
    let place = match role {
        Role::Server => "the certificate",
        Role::ServerByName => "the certificate by ACME",
        Role::ServerChain => "the certificate, further down its chain,",
        Role::ClientAuthority => "the certificate of the clients' authority",
    };
    if subject.is_empty() { place.to_owned() } else { format!("{place} {subject}") }
}

/// Seconds, shown as whole days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Days(pub u64);

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 / DAY_S {
            0 => f.write_str("less than a day"),
            1 => f.write_str("1 day"),
            days => write!(f, "{days} days"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_renewed_by_itself_is_judged_by_its_lifetime() {
        let begin = 1_700_000_000;
        for lifetime in [90 * DAY_S, 6 * DAY_S] {
            let end = begin + lifetime;
            let dates = Dates {
                subject: String::new(),
                issuer: String::new(),
                not_before_unix_s: begin,
                not_after_unix_s: end,
            };
            let stage = |now| Validity::of(Role::ServerByName, now, &dates).stage;
            assert_eq!(stage(begin), Stage::Good);
            assert_eq!(stage(end - lifetime / 3), Stage::Good, "it is renewed now");
            assert_eq!(stage(end - lifetime / 4), Stage::Month);
            assert_eq!(stage(end - lifetime / 12), Stage::Week);
            assert_eq!(stage(end + 1), Stage::Expired);
            assert_eq!(stage(begin - 1), Stage::Early);
        }
        let dates = Dates {
            subject: String::new(),
            issuer: String::new(),
            not_before_unix_s: begin,
            not_after_unix_s: begin + 90 * DAY_S,
        };
        assert_eq!(Validity::of(Role::Server, dates.not_after_unix_s - 30 * DAY_S, &dates).stage, Stage::Month);
    }

    #[test]
    fn each_second_of_a_certificate_has_its_stage_and_words() {
        let end = 1_800_000_000;
        let dates = Dates {
            subject: String::new(),
            issuer: String::new(),
            not_before_unix_s: 1_700_000_000,
            not_after_unix_s: end,
        };
        for (now, stage, said) in [
            (0, Stage::Early, "valid only in 19675 days; the clock may be in the past"),
            (1_699_999_999, Stage::Early, "valid only in less than a day; the clock may be in the past"),
            (1_700_000_000, Stage::Good, "valid for 1157 days"),
            (end - 30 * DAY_S - 1, Stage::Good, "valid for 30 days"),
            (end - 30 * DAY_S, Stage::Month, "expires in 30 days"),
            (end - 7 * DAY_S - 1, Stage::Month, "expires in 7 days"),
            (end - 7 * DAY_S, Stage::Week, "expires in 7 days"),
            (end - DAY_S, Stage::Week, "expires in 1 day"),
            (end, Stage::Week, "expires in less than a day"),
            (end + 1, Stage::Expired, "expired less than a day ago"),
            (u64::MAX, Stage::Expired, "expired 213503982313767 days ago"),
        ] {
            let validity = Validity::at(now, &dates);
            assert_eq!((validity.stage, &*validity.to_string()), (stage, said), "{now}");
        }
    }
}
