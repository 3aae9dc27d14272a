//! Warnings of a running gateway about certificates: 30 days before they expire, 7 days before, and when they have.
//!
//! Certificates are judged as they are in use, not as their files are now. Each is named once for each of these dates,
//! and from 7 days before once a day. A clock that is set is followed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fogmux_net::{InUse, Role, TlsConfig};

use fogmux_net::validity::{DAY_S, Stage, Validity, subject};

/// How long a certificate that was named is not named again, unless it becomes worse.
const SAID_EVERY: Duration = Duration::from_secs(DAY_S);

/// The certificates that were named.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    said: Vec<Said>,
}

#[derive(Debug)]
struct Said {
    certificate: InUse,
    stage: Stage,
    at: SystemTime,
}

impl Expiry {
    /// Logs what there is to say now, of revocation lists as well.
    pub(super) fn look(&mut self, tls: &TlsConfig) {
        for warning in self.due(tls.in_use(), SystemTime::now()) {
            tracing::warn!("{warning}");
        }
        if let Some(clients) = tls.clients() {
            clients.look_at_lists();
        }
    }

    fn due(&mut self, certificates: Vec<InUse>, now: SystemTime) -> Vec<String> {
        let unix_s = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut warnings = Vec::new();
        let mut said = Vec::new();
        for certificate in certificates {
            let validity = Validity::of(certificate.role, unix_s, &certificate.dates);
            if validity.stage == Stage::Good {
                continue;
            }
            let before = self.said.iter().find(|before| before.certificate == certificate);
            let (stage, at) = match before {
                Some(before) if !before.is_due(validity.stage, now) => (before.stage, before.at),
                Some(_) | None => {
                    let InUse { role, file, dates } = &certificate;
                    let (file, subject, consequence) = (file.display(), subject(*role, dates), consequence(*role));
                    warnings.push(format!("{file}: {subject} {validity}; {consequence}"));
                    (validity.stage, now)
                }
            };
            said.push(Said { certificate, stage, at });
        }
        // Certificates that are good again, or not in use any more, are forgotten.
        self.said = said;
        warnings
    }
}

impl Said {
    fn is_due(&self, stage: Stage, now: SystemTime) -> bool {
        // More than a day, so that the last daily warning is the one that the certificate has expired. A clock that is
        // set back must not keep warnings away for years.
        let since = now.duration_since(self.at).unwrap_or_else(|back| back.duration());
        stage > self.stage || (stage > Stage::Month && since > SAID_EVERY)
    }
}

const fn consequence(role: Role) -> &'static str {
    match role {
        Role::Server => "clients do not accept it beyond its dates; a new one is read within seconds",
        Role::ServerByName => "its renewal is late, and `fogmux doctor` says why",
        Role::ServerChain => "clients that know no other way to an authority do not accept it beyond its dates",
        // RFC 5280 §6.1: the dates of a trust anchor are no part of a path.
        Role::ClientAuthority => "beyond its dates the gateway accepts what it has signed, and other programs may not",
    }
}

#[cfg(test)]
mod tests {
    use fogmux_net::pki::Dates;

    use super::*;

    const END: u64 = 1_800_000_000;

    fn certificate(role: Role) -> InUse {
        let dates = Dates {
            subject: "CN=a".into(),
            issuer: String::new(),
            not_before_unix_s: 1_700_000_000,
            not_after_unix_s: END,
        };
        InUse { role, file: "/a.pem".into(), dates }
    }

    #[test]
    fn each_date_is_named_once_and_the_last_week_daily() {
        let mut expiry = Expiry::default();
        let mut days = Vec::new();
        // Every minute from 40 days before to 3 days after.
        for minute in 0..43 * 1440 {
            let now = UNIX_EPOCH + Duration::from_secs(END - 40 * DAY_S + minute * 60);
            for warning in expiry.due(vec![certificate(Role::Server)], now) {
                assert!(warning.starts_with("/a.pem: the certificate CN=a expire"), "{warning}");
                days.push(i64::try_from(minute / 1440).unwrap() - 40);
            }
        }
        assert_eq!(days, [-30, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2]);
    }

    #[test]
    fn clocks_that_are_set_and_new_certificates_are_followed() {
        let mut expiry = Expiry::default();
        let at = |unix_s| UNIX_EPOCH + Duration::from_secs(unix_s);
        let mut said = |now, all| expiry.due(all, at(now)).len();
        let old = || certificate(Role::Server);
        assert_eq!(said(600, vec![old()]), 1, "a board without a battery");
        assert_eq!(said(601, vec![old()]), 0);
        assert_eq!(said(END - 100 * DAY_S, vec![old()]), 0, "it heard of today");
        assert_eq!(said(END + 1, vec![old()]), 1);
        assert_eq!(said(END - 8 * DAY_S, vec![old()]), 0, "back, but it has said worse");
        let mut new = old();
        new.dates.not_after_unix_s = END + 90 * DAY_S;
        assert_eq!(said(END + 1, vec![new]), 0, "replaced");
        assert_eq!(said(END + 1, vec![old()]), 1, "and the old one is back");
        assert_eq!(said(END + 2, vec![old(), certificate(Role::ClientAuthority)]), 1, "each has its own");
    }
}
