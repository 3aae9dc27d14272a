//! Certificates of an ACME server: the one in use, and why there is no newer one.

use std::time::Duration;

use fogmux_net::{Named, Role};

use super::Subject;
use super::finding::Report;
use crate::acme::{self, Failure, State};
use crate::config::acme::{Acme, Challenge};
use crate::modes::quoted;
use fogmux_net::validity::{DAY_S, Days, Stage, Validity};

/// The command that has the gateway try again at once.
const RELOAD: &str = "sudo systemctl reload fogmux";

pub(super) fn examine(subject: &Subject<'_>, report: &mut Report) {
    let Subject { config, directory, now, .. } = subject;
    if config.acme.domains.is_empty() {
        return;
    }
    let files = acme::files(directory);
    let is_valid = files.certificate.exists() && certificate(&files.certificate, &config.acme, *now, report);
    let state = match State::read(&files.state) {
        Ok(state) => state,
        Err(error) => {
            let text = format!("{}: {error}", files.state.display());
            return report.warning("acme-failure", text, format!("rm {}", quoted(&files.state)));
        }
    };
    if let (Some(failure), 1..) = (&state.last_failure, state.failures) {
        failed(&state, failure, &config.acme, is_valid, *now, report);
    } else if !is_valid {
        let text = format!("none yet from {}; clients are shown the gateway's own", config.acme.directory);
        report.warning("acme-certificate", text, super::gateway::RESTART);
    }
}

/// Reports its dates and names; whether it can be used.
fn certificate(file: &std::path::Path, acme: &Acme, now: Duration, report: &mut Report) -> bool {
    let read = Named::read(file).ok();
    let Some((named, dates)) = read.as_ref().and_then(|named| Some((named, named.dates()?))) else {
        let text = format!("{}: damaged; another is ordered at the next start", file.display());
        report.problem("acme-certificate", text, super::gateway::RESTART);
        return false;
    };
    let covers = |domain: &String| named.names().iter().any(|name| name.eq_ignore_ascii_case(domain));
    if let Some(domain) = acme.domains.iter().find(|domain| !covers(domain)) {
        let text = format!("{}: not for {domain}; one that is will be ordered", file.display());
        report.warning("acme-certificate", text, super::gateway::RESTART);
    }
    let validity = Validity::of(Role::ServerByName, now.as_secs(), dates);
    let text = format!("{}, {}: {validity}", file.display(), named.names().join(", "));
    match validity.stage {
        Stage::Good => report.ok("acme-certificate", text),
        Stage::Month | Stage::Week => {
            report.warning("acme-certificate", format!("{text}, and its renewal is late"), RELOAD);
        }
        Stage::Early => report.problem("acme-certificate", text, "timedatectl"),
        Stage::Expired => report.problem("acme-certificate", text, RELOAD),
    }
    validity.stage != Stage::Expired
}

fn failed(state: &State, failure: &Failure, acme: &Acme, is_valid: bool, now: Duration, report: &mut Report) {
    let count = state.failures;
    let ago = Days(now.as_secs().saturating_sub(failure.unix_s));
    let minutes = state.next_unix_s.saturating_sub(now.as_secs()).min(2 * DAY_S).div_ceil(60);
    let text = format!(
        "{count} attempts have failed, the last {ago} ago: {}; the next is in {minutes} minutes",
        failure.reason
    );
    let mend = mend(failure, acme);
    if is_valid { report.warning("acme-failure", text, mend) } else { report.problem("acme-failure", text, mend) }
}

/// The command that shows or mends the cause (RFC 8555 §6.7).
fn mend(failure: &Failure, acme: &Acme) -> String {
    let domain = acme.domains.first().map(String::as_str).unwrap_or_default();
    let ca = acme.ca_file.as_ref().map(|file| format!(" --cacert {}", quoted(file))).unwrap_or_default();
    match failure.problem.as_deref() {
        Some("rateLimited") => format!("wait; then {RELOAD}"),
        Some("dns") => format!("getent ahosts {domain}"),
        Some("caa") => format!("dig +short CAA {domain}"),
        Some("connection" | "unauthorized" | "incorrectResponse" | "tls") => match acme.challenge {
            Challenge::Http01 => format!("curl -i http://{domain}/healthz"),
            Challenge::TlsAlpn01 => format!("openssl s_client -connect {domain}:443 -servername {domain}"),
        },
        Some("externalAccountRequired") => "set acme.external_account and acme.external_account_key_file".to_owned(),
        Some(Failure::EXTERNAL_ACCOUNT) => {
            "correct acme.external_account and acme.external_account_key_file".to_owned()
        }
        Some(Failure::KEY_FILE) => {
            let file = acme.external_account_key_file.as_deref().map(quoted).unwrap_or_default();
            format!("write the key of acme.external_account, in base64url, to {file}")
        }
        Some("invalidContact" | "unsupportedContact") => "correct acme.contact".to_owned(),
        Some("rejectedIdentifier") => "correct acme.domains".to_owned(),
        Some(_) => RELOAD.to_owned(),
        None => format!("curl -sS{ca} {}", acme.directory),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_failure_is_worse_without_a_certificate_and_has_what_mends_it() {
        let acme = Acme { domains: vec!["fog.example".to_owned()], ..Acme::default() };
        let of = |problem: Option<&str>, is_valid| {
            let failure = Failure { unix_s: 0, reason: "why".into(), problem: problem.map(str::to_owned) };
            let state = State { failures: 2, next_unix_s: 90, ..State::default() };
            let mut report = Report::default();
            failed(&state, &failure, &acme, is_valid, Duration::from_secs(30), &mut report);
            report.0.remove(0)
        };
        let found = of(Some("connection"), false);
        assert_eq!(found.level, Level::Problem);
        assert!(found.text.ends_with("why; the next is in 1 minutes"), "{}", found.text);
        assert_eq!(found.mend.as_deref(), Some("curl -i http://fog.example/healthz"));
        assert_eq!(of(Some("rateLimited"), true).level, Level::Warning);
        assert!(of(None, true).mend.unwrap().starts_with("curl -sS https://acme-v02"));
        assert!(of(Some(Failure::EXTERNAL_ACCOUNT), true).mend.unwrap().starts_with("correct acme.external_account "));
    }
}
