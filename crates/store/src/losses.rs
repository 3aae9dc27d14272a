//! Losses by damage, in a file beside the journal: a line for each finding, with its date. A start repeats the
//! finding until the journal has cleaned the place; the file has it once.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use fogmux_journal::{Missing, Recovery};

/// The file in the directory of a store that lists what damage has cost, a line for each finding.
pub const FILE: &str = "losses";
/// A file that is longer gets no more lines.
const BYTES_MAX: u64 = 256 << 10;

/// Describes the findings of a start, a line each.
pub(crate) fn describe(recovery: &Recovery) -> Vec<String> {
    let mut all: Vec<String> = recovery.missing.iter().map(missing).collect();
    let mut count = |number: u64, words: &str| {
        if number > 0 {
            all.push(format!("{number} {words}"));
        }
    };
    count(recovery.incomplete, "records incomplete");
    count(recovery.unreadable_blocks, "blocks unreadable");
    count(recovery.short_files, "files cut short");
    count(recovery.long_files, "files longer than they were");
    count(u64::from(recovery.lost_end), "file gone in which the newest commits were, if there were any");
    all
}

fn missing(Missing { first, last, bytes }: &Missing) -> String {
    let at_most = bytes.map(|bytes| format!(", at most {bytes} bytes")).unwrap_or_default();
    format!("{} commit frames lost: {first} to {last}{at_most}", last - first + 1)
}

/// Adds those findings to the file that are not in it. Returns them.
///
/// # Errors
/// The file cannot be read or written.
pub(crate) fn note(directory: &Path, found: Vec<String>) -> io::Result<Vec<String>> {
    let path = directory.join(FILE);
    let before = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let is_new =
        |finding: &String| !before.lines().any(|line| line.split_once(' ').is_some_and(|(_, is)| is == finding));
    let new: Vec<String> = found.into_iter().filter(is_new).collect();
    if new.is_empty() || before.len() as u64 > BYTES_MAX {
        return Ok(new);
    }
    let date = date(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
    let lines: String = new.iter().map(|finding| format!("{date} {finding}\n")).collect();
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    file.write_all(lines.as_bytes())?;
    file.sync_all()?;
    Ok(new)
}

/// Says that parts of records were lost while the gateway runs, and notes it in the file.
pub(crate) fn tell(directory: &Path, lost_parts: u64) {
    let found = format!("{lost_parts} parts of records given up, which the disk failed to give for long");
    if let Err(error) = note(directory, vec![found.clone()]) {
        tracing::warn!(%error, "what is lost could not be noted in a file");
    }
    tracing::error!(
        found,
        file = %directory.join(FILE).display(),
        "the store is damaged: what was kept there is missing after a restart"
    );
}

/// RFC 3339 §5.6, from seconds since 1970.
fn date(unix_s: u64) -> String {
    let (days, of_day) = (unix_s / 86_400, unix_s % 86_400);
    // Years begin in March here, so that a leap day is the last of its year; 400 of them have 146 097 days.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = (400 * era + year_of_era + month / 10, (month + 2) % 12 + 1);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix_s, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(unix_s), expected);
        }
    }

    #[test]
    fn a_loss_while_the_gateway_runs_is_noted() {
        let directory = tempfile::tempdir().unwrap();
        tell(directory.path(), 3);
        let noted = fs::read_to_string(directory.path().join(FILE)).unwrap();
        assert!(noted.ends_with("Z 3 parts of records given up, which the disk failed to give for long\n"), "{noted}");
    }

    #[test]
    fn a_finding_is_noted_once() {
        let directory = tempfile::tempdir().unwrap();
        let missing = vec![Missing { first: 3, last: 5, bytes: Some(12_288) }];
        let mut recovery = Recovery { missing, short_files: 1, long_files: 1, ..Recovery::default() };
        let both = note(directory.path(), describe(&recovery)).unwrap();
        assert_eq!(
            both,
            ["3 commit frames lost: 3 to 5, at most 12288 bytes", "1 files cut short", "1 files longer than they were"]
        );
        recovery.lost_end = true;
        assert_eq!(note(directory.path(), describe(&recovery)).unwrap().len(), 1);
        assert!(note(directory.path(), describe(&recovery)).unwrap().is_empty());
        assert_eq!(fs::read_to_string(directory.path().join(FILE)).unwrap().lines().count(), 4);
    }
}
