//! The words of `doctor` and `check` about a rollover of the gateway's own authority: one that is under way, and one
//! that is due.

use std::path::Path;
use std::time::Duration;

use fogmux_net::pki::rollover::Phase;
use fogmux_net::pki::{self, Rollover};
use fogmux_net::validity::{DAY_S, Stage, Validity};

/// A rollover is due when the authority has less than this left: devices are visited one by one, and certificates that
/// are valid for two years are made until then.
const DUE_S: u64 = 365 * DAY_S;

/// How far a rollover is, and the command of its next step.
pub(crate) fn said(Rollover { phase, old, new }: &Rollover, now: Duration) -> String {
    let validity = |dates| Validity::at(now.as_secs(), dates);
    let (has, next) = match phase {
        Phase::Begun => ("has begun", "switch"),
        Phase::Switched => ("has switched", "finish"),
    };
    format!(
        "a rollover from {} ({}) to {} ({}) {has}; `fogmux pki rollover {next}` is its next step",
        old.subject,
        validity(old),
        new.subject,
        validity(new)
    )
}

/// The text on the authority in a file, if it ends soon.
pub(crate) fn due(file: &Path, now: Duration) -> Option<String> {
    let dates = pki::dates(file).ok()?.into_iter().next()?;
    let ends_soon = dates.not_after_unix_s < now.as_secs().saturating_add(DUE_S);
    let validity = Validity::at(now.as_secs(), &dates);
    let consequence = match validity.stage {
        Stage::Expired => "devices that look at its dates refuse the gateway",
        Stage::Good | Stage::Month | Stage::Week | Stage::Early => "every device needs another one by then",
    };
    ends_soon.then(|| format!("{}: {} {validity}; {consequence}", file.display(), dates.subject))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_rollover_is_due_a_year_before_the_end_and_names_its_next_step() {
        let directory = tempfile::tempdir().unwrap();
        let made = Duration::from_secs(1_800_000_000);
        let file = pki::ensure(directory.path(), &[], UNIX_EPOCH + made).unwrap().ca;
        let end = pki::dates(&file).unwrap()[0].not_after_unix_s;
        assert_eq!(due(&file, Duration::from_secs(end - DUE_S)), None);
        let said_then = due(&file, Duration::from_secs(end - DUE_S + 1)).unwrap();
        assert!(said_then.contains("valid for 364 days"), "{said_then}");
        let begun = pki::rollover::begin(directory.path(), fogmux_net::KeyKind::EcdsaP256, UNIX_EPOCH + made).unwrap();
        assert!(said(&begun, made).contains("rollover switch"), "{}", said(&begun, made));
        assert_eq!(begun.old.not_after_unix_s, end);
    }
}
