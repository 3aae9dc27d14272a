//! The progress of a job, by the lines that the generator writes each second.

use std::collections::VecDeque;
use std::path::Path;

use fogmux_http::api::{BenchProgress, BenchSample};
use serde::Deserialize;

use super::limits::JOB_BYTES_MAX;
use super::shelf::read;

/// The file of lines.
pub(super) const LIVE: &str = "live.ndjson";
/// Samples that are shown: the last five minutes.
const SAMPLES_MAX: usize = 300;

#[derive(Deserialize)]
struct Line {
    experiment: String,
    repetition: u32,
    state: String,
    per_s: Option<f64>,
    latency_p50_us: Option<f64>,
    latency_p99_us: Option<f64>,
    problem: Option<String>,
}

fn lines(place: &Path) -> Vec<Line> {
    let text = read(&place.join(LIVE), JOB_BYTES_MAX).unwrap_or_default();
    // A line that is being written is passed over.
    text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// Returns the reason why the last repetition that failed did.
pub(super) fn problem(place: &Path) -> Option<String> {
    lines(place).into_iter().rev().find_map(|line| line.problem)
}

/// Returns the progress so far.
pub(super) fn progress(place: &Path) -> BenchProgress {
    let (mut progress, mut samples) = (BenchProgress::default(), VecDeque::new());
    for line in lines(place) {
        match line.state.as_str() {
            "done" => progress.ended += 1,
            "failed" => (progress.ended, progress.failed) = (progress.ended + 1, progress.failed + 1),
            _ => {}
        }
        if let Some(per_s) = line.per_s {
            let Line { repetition, latency_p50_us, latency_p99_us, .. } = line;
            samples.push_back(BenchSample { repetition, per_s, latency_p50_us, latency_p99_us });
            if samples.len() > SAMPLES_MAX {
                samples.pop_front();
            }
        }
        progress.experiment = Some(line.experiment);
    }
    progress.samples = samples.into();
    progress
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_progress() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(progress(place.path()).ended, 0);
        let sample = r#"{"experiment":"mqtt","repetition":2,"state":"running","per_s":7.5,"latency_p50_us":3}"#;
        let ended = |state| format!(r#"{{"unix_ms":2,"experiment":"mqtt","repetition":1,"state":"{state}"}}"#);
        let lines = [ended("done"), ended("failed"), vec![sample; 400].join("\n"), r#"{"unix_ms":"#.to_owned()];
        std::fs::write(place.path().join(LIVE), lines.join("\n")).unwrap();
        let progress = progress(place.path());
        assert_eq!((progress.ended, progress.failed, progress.samples.len()), (2, 1, SAMPLES_MAX));
        let last = progress.samples.last().unwrap();
        assert_eq!((last.repetition, last.latency_p50_us, last.latency_p99_us), (2, Some(3.0), None));
        assert_eq!(progress.experiment.as_deref(), Some("mqtt"));
    }
}
