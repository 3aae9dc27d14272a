//! The directory of jobs, one below it for each, by number: the record, the lines of progress, what the generator said,
//! and its report.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use fogmux_http::api::{BenchState, ReportFormat};

use super::job::Job;
use super::limits::{KEPT_BYTES_MAX, KEPT_MAX, REPORT_BYTES_MAX};

const RECORD: &str = "job.json";
const RECORD_BYTES_MAX: u64 = 64 << 10;
/// Why a job of an earlier gateway has no results.
pub(super) const GATEWAY_ENDED: &str = "the gateway ended";

/// The directory.
#[derive(Clone, Debug)]
pub(super) struct Shelf(PathBuf);

impl Shelf {
    pub(super) fn at(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// The place of a job.
    pub(super) fn place(&self, id: u64) -> PathBuf {
        self.0.join(id.to_string())
    }

    /// The directory of all jobs.
    pub(super) fn directory(&self) -> &Path {
        &self.0
    }

    /// Reads all jobs. Those that had not ended are failed: their gateway is gone. A record that cannot be read may be
    /// one of a later release: its files stay until others push them out.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) fn jobs(&self) -> io::Result<BTreeMap<u64, Job>> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            entries => entries?,
        };
        let mut jobs = BTreeMap::new();
        for entry in entries {
            let entry = entry?;
            let id = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
            let Some(id) = id.filter(|_| entry.file_type().is_ok_and(|kind| kind.is_dir())) else { continue };
            let mut job = self.record(id).unwrap_or_else(|| unreadable(id));
            if !job.has_ended() {
                job.end(BenchState::Failed, Some(GATEWAY_ENDED.to_owned()));
                if let Err(error) = self.keep(&job) {
                    // It is failed again at the next start. Who removes jobs makes room on the disk.
                    tracing::warn!(id, %error, "the state of a measurement cannot be written");
                }
            }
            jobs.insert(id, job);
        }
        Ok(jobs)
    }

    fn record(&self, id: u64) -> Option<Job> {
        let text = read(&self.place(id).join(RECORD), RECORD_BYTES_MAX).ok()?;
        serde_json::from_slice(&text).ok().filter(|job: &Job| job.id == id)
    }

    /// Makes the place of a job, with its record.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn make(&self, job: &Job) -> io::Result<()> {
        fs::create_dir_all(self.place(job.id))?;
        self.keep(job).inspect_err(|_| {
            let _ = self.remove(job.id);
        })
    }

    /// Writes the record anew; a reader finds the old or the new one.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn keep(&self, job: &Job) -> io::Result<()> {
        let (place, text) = (self.place(job.id), serde_json::to_vec(job)?);
        let fresh = place.join("job.json.new");
        fs::write(&fresh, text)?;
        fs::rename(fresh, place.join(RECORD))
    }

    /// Removes a job with its results.
    ///
    /// # Errors
    /// Files of it stay.
    pub(super) fn remove(&self, id: u64) -> io::Result<()> {
        fs::remove_dir_all(self.place(id))
    }

    /// Whether there is a report.
    pub(super) fn has_report(&self, id: u64) -> bool {
        self.place(id).join(ReportFormat::Json.file()).is_file()
    }

    /// A report, or nothing if there is none.
    ///
    /// # Errors
    /// It cannot be read, or is too large.
    pub(super) fn report(&self, id: u64, format: ReportFormat) -> io::Result<Option<Vec<u8>>> {
        match read(&self.place(id).join(format.file()), REPORT_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    /// The ended jobs that have to leave, so that the others keep the bounds: the oldest, and never the newest.
    pub(super) fn leaving(&self, jobs: &BTreeMap<u64, Job>) -> Vec<u64> {
        let (mut kept, mut bytes, mut leaving) = (0, 0_u64, Vec::new());
        for id in jobs.values().rev().filter(|job| job.has_ended()).map(|job| job.id) {
            kept += 1;
            bytes = bytes.saturating_add(bytes_of(&self.place(id)));
            if kept > 1 && (kept > KEPT_MAX || bytes > KEPT_BYTES_MAX) {
                leaving.push(id);
            }
        }
        leaving
    }
}

/// Bytes of the files in a directory.
pub(super) fn bytes_of(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|found| found.len()).sum()
}

/// A file that has no more than so many bytes.
pub(super) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let length = usize::try_from(file.metadata()?.len().min(bytes_max)).unwrap_or_default();
    let mut bytes = Vec::with_capacity(length + 1);
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("{}: more than {bytes_max} bytes", path.display())));
    }
    Ok(bytes)
}

fn unreadable(id: u64) -> Job {
    Job {
        id,
        state: BenchState::Failed,
        arguments: Vec::new(),
        repetitions: 0,
        anyway: false,
        by: String::new(),
        submitted_unix_ms: 0,
        started_unix_ms: None,
        ended_unix_ms: None,
        reason: Some("its record cannot be read".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u64, state: BenchState) -> Job {
        Job { state, reason: None, by: "admin".to_owned(), ..unreadable(id) }
    }

    fn shelf() -> (tempfile::TempDir, Shelf) {
        let home = tempfile::tempdir().unwrap();
        let shelf = Shelf::at(home.path().join("bench"));
        (home, shelf)
    }

    #[test]
    fn jobs_of_a_gateway_that_ended_are_failed() {
        let (_home, shelf) = shelf();
        assert!(shelf.jobs().unwrap().is_empty());
        for (id, state) in [(1, BenchState::Done), (2, BenchState::Running), (10, BenchState::Submitted)] {
            shelf.make(&job(id, state)).unwrap();
        }
        fs::create_dir(shelf.place(11)).unwrap();
        fs::create_dir(shelf.directory().join("notes")).unwrap();
        for _ in 0..2 {
            let jobs = shelf.jobs().unwrap();
            let found: Vec<_> = jobs.values().map(|job| (job.id, job.state, job.reason.as_deref())).collect();
            let ended = Some(GATEWAY_ENDED);
            assert_eq!(found.first(), Some(&(1, BenchState::Done, None)));
            assert_eq!(found.get(1..3), Some(&[(2, BenchState::Failed, ended), (10, BenchState::Failed, ended)][..]));
            assert_eq!(found.get(3..), Some(&[(11, BenchState::Failed, Some("its record cannot be read"))][..]));
        }
    }

    #[test]
    fn a_record_that_cannot_be_written_hides_no_job() {
        let (_home, shelf) = shelf();
        for (id, state) in [(1, BenchState::Done), (2, BenchState::Running)] {
            shelf.make(&job(id, state)).unwrap();
        }
        // As a full disk would, for root as well.
        fs::create_dir(shelf.place(2).join("job.json.new")).unwrap();
        let states: Vec<_> = shelf.jobs().unwrap().into_values().map(|job| job.state).collect();
        assert_eq!(states, [BenchState::Done, BenchState::Failed]);
    }

    #[test]
    fn a_report_of_the_greatest_size_is_given_out() {
        let (_home, shelf) = shelf();
        shelf.make(&job(1, BenchState::Done)).unwrap();
        let file = File::create(shelf.place(1).join(ReportFormat::Json.file())).unwrap();
        file.set_len(REPORT_BYTES_MAX).unwrap();
        assert_eq!(
            shelf.report(1, ReportFormat::Json).unwrap().map(|report| report.len() as u64),
            Some(REPORT_BYTES_MAX)
        );
        file.set_len(REPORT_BYTES_MAX + 1).unwrap();
        assert!(shelf.report(1, ReportFormat::Json).is_err());
    }

    #[test]
    fn the_oldest_leave_first_by_number_and_by_bytes() {
        let (_home, shelf) = shelf();
        let last = KEPT_MAX as u64 + 3;
        for id in 1..=last {
            shelf.make(&job(id, if id == 2 { BenchState::Running } else { BenchState::Done })).unwrap();
        }
        let mut jobs: BTreeMap<_, _> = (1..=last).filter_map(|id| Some((id, shelf.record(id)?))).collect();
        assert_eq!(shelf.leaving(&jobs), [3, 1]);
        let large = |id| File::create(shelf.place(id).join("live")).unwrap().set_len(KEPT_BYTES_MAX).unwrap();
        large(last - 1);
        assert_eq!(shelf.leaving(&jobs).first(), Some(&(last - 1)));
        large(last);
        jobs.retain(|id, _| *id >= last - 1);
        assert_eq!(shelf.leaving(&jobs), [last - 1]);
        jobs.remove(&(last - 1));
        assert!(shelf.leaving(&jobs).is_empty(), "the newest stays, however large it is");
    }
}
