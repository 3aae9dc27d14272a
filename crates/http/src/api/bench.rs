//! The documents about measurements of the traffic generator, which the gateway starts in processes of their own.

use serde::{Deserialize, Serialize};

use super::access::given;
use super::documents::Moment;
use crate::problem::{Kind, Problem};

/// The path below which jobs are.
pub const BENCH_PATH: &str = "/api/v1/bench/";

/// The format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportFormat {
    /// For programs, and for a comparison.
    Json,
    /// For documents.
    Markdown,
    /// A page with plots.
    Html,
}

impl ReportFormat {
    /// The name of the file.
    #[must_use]
    pub const fn file(self) -> &'static str {
        match self {
            Self::Json => "report.json",
            Self::Markdown => "report.md",
            Self::Html => "report.html",
        }
    }

    /// The media type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Json => super::CONTENT_TYPE,
            Self::Markdown => "text/markdown; charset=utf-8",
            Self::Html => "text/html; charset=utf-8",
        }
    }
}

/// The body of `POST /api/v1/bench`: exactly one of `run`, `matrix` and `paper`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default, deserialize_with = "given")]
    run: Option<BenchRun>,
    #[serde(default, deserialize_with = "given")]
    matrix: Option<BenchMatrix>,
    #[serde(default, deserialize_with = "given")]
    paper: Option<BenchPaper>,
    #[serde(default)]
    anyway: bool,
}

/// A measurement that is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchRequest {
    /// The measurement.
    pub wanted: BenchWanted,
    /// Whether it is done on a loaded gateway as well.
    pub anyway: bool,
}

/// A kind of measurement, as `fogmux bench` has it. The words are not checked yet.
#[derive(Debug, Clone, PartialEq)]
pub enum BenchWanted {
    /// One experiment.
    Run(BenchRun),
    /// Doors under security profiles.
    Matrix(BenchMatrix),
    /// A table of a published document.
    Paper(BenchPaper),
}

/// One experiment. What is left out is as the command line has it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BenchRun {
    /// Door of publishers or requesting clients.
    #[serde(default, deserialize_with = "given")]
    pub door: Option<String>,
    /// Door of subscribers.
    #[serde(default, deserialize_with = "given")]
    pub to: Option<String>,
    /// Security profile.
    #[serde(default, deserialize_with = "given")]
    pub security: Option<String>,
    /// `deliver`, `get`, `put`, `post`, `connect` or `hold`.
    #[serde(default, deserialize_with = "given")]
    pub operation: Option<String>,
    /// 0, 1 or 2.
    #[serde(default, deserialize_with = "given")]
    pub qos: Option<u8>,
    /// Bytes of a payload.
    #[serde(default, deserialize_with = "given")]
    pub size: Option<u32>,
    /// Publishers or requesting clients.
    #[serde(default, deserialize_with = "given")]
    pub pubs: Option<u32>,
    /// Subscribers.
    #[serde(default, deserialize_with = "given")]
    pub subs: Option<u32>,
    /// Operations a second; as many as windows allow without.
    #[serde(default, deserialize_with = "given")]
    pub rate: Option<u32>,
    /// Seconds of a repetition.
    #[serde(default, deserialize_with = "given")]
    pub seconds: Option<u32>,
    /// Repetitions.
    #[serde(default, deserialize_with = "given")]
    pub repeat: Option<u32>,
    /// Name of a link.
    #[serde(default, deserialize_with = "given")]
    pub link: Option<String>,
}

/// Every one of these doors under every one of these profiles.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BenchMatrix {
    /// Doors; all of them without.
    pub doors: Vec<String>,
    /// Security profiles; all of them without.
    pub securities: Vec<String>,
    /// Bytes of payloads.
    pub sizes: Vec<u32>,
    /// Levels of QoS.
    pub qos: Vec<u8>,
    /// Seconds of a repetition.
    #[serde(default, deserialize_with = "given")]
    pub seconds: Option<u32>,
    /// Repetitions.
    #[serde(default, deserialize_with = "given")]
    pub repeat: Option<u32>,
    /// Name of a link.
    #[serde(default, deserialize_with = "given")]
    pub link: Option<String>,
}

/// A table of a published document, shortened: fewer messages, one repetition.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BenchPaper {
    /// The document.
    pub name: String,
    /// The table.
    pub table: String,
    /// Name of a link, in place of the document's.
    #[serde(default, deserialize_with = "given")]
    pub link: Option<String>,
}

impl BenchRequest {
    /// Reads it.
    ///
    /// # Errors
    /// It is no JSON, has other members, or not exactly one measurement.
    pub fn parse(body: &[u8]) -> Result<Self, Problem<'static>> {
        let invalid = |detail: String| Problem::new(Kind::InvalidBody).detail(detail);
        let body: Body = serde_json::from_slice(body).map_err(|error| invalid(error.to_string()))?;
        let wanted = match body {
            Body { run: Some(run), matrix: None, paper: None, .. } => BenchWanted::Run(run),
            Body { run: None, matrix: Some(matrix), paper: None, .. } => BenchWanted::Matrix(matrix),
            Body { run: None, matrix: None, paper: Some(paper), .. } => BenchWanted::Paper(paper),
            Body { .. } => return Err(invalid("exactly one of `run`, `matrix` and `paper`".to_owned())),
        };
        Ok(Self { wanted, anyway: body.anyway })
    }
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BenchState {
    /// It waits.
    Submitted,
    /// It is the one that is measured.
    Running,
    /// Its results are there.
    Done,
    /// It has ended without them, or with only a part.
    Failed,
}

/// `GET /api/v1/bench`.
#[derive(Debug, Serialize)]
pub struct Bench {
    /// Whether this program can measure.
    pub available: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Jobs, the newest first.
    pub jobs: Vec<BenchJob>,
    /// Jobs that may wait at most.
    pub waiting_max: usize,
    /// Ended jobs that are kept at most.
    pub kept_max: usize,
    /// Bytes of their files at most.
    pub kept_bytes_max: u64,
}

/// A job.
#[derive(Debug, Clone, Serialize)]
pub struct BenchJob {
    /// Its number.
    pub id: u64,
    /// Its state.
    pub state: BenchState,
    /// The command that does the same by hand.
    pub command: String,
    /// The principal that has submitted it.
    pub by: String,
    /// When that was.
    pub submitted: Moment,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Moment>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Moment>,
    /// Why it failed or still waits, or what is to be known of its results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether there is a report.
    pub report: bool,
    /// Repetitions of all its experiments.
    pub repetitions: u32,
    /// How far it is; only in the document of this job alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<BenchProgress>,
}

/// The progress of a job, by the lines that it writes each second.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BenchProgress {
    /// Repetitions that have ended.
    pub ended: u32,
    /// Of these, those that failed.
    pub failed: u32,
    /// The experiment under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
    /// The last samples, the oldest first.
    pub samples: Vec<BenchSample>,
}

/// A second of a measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BenchSample {
    /// The repetition, from 1.
    pub repetition: u32,
    /// Operations or deliveries in this second.
    pub per_s: f64,
    /// Median latency so far, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_p50_us: Option<f64>,
    /// The 99th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_p99_us: Option<f64>,
}

/// `GET /api/v1/bench/choices`: everything that may be asked for.
#[derive(Debug, Default, Serialize)]
pub struct BenchChoices {
    /// Doors with the profiles and levels of QoS that each has.
    pub doors: Vec<BenchDoor>,
    /// Operations.
    pub operations: Vec<&'static str>,
    /// Links.
    pub links: Vec<&'static str>,
    /// Published documents.
    pub papers: Vec<BenchDocument>,
    /// The greatest numbers.
    pub most: BenchMost,
}

/// A door.
#[derive(Debug, Serialize)]
pub struct BenchDoor {
    /// Its name.
    pub door: &'static str,
    /// Its security profiles.
    pub securities: Vec<String>,
    /// Its levels of QoS.
    pub qos: Vec<u8>,
}

/// A published document.
#[derive(Debug, Serialize)]
pub struct BenchDocument {
    /// Its name.
    pub name: String,
    /// Its title, authors and year.
    pub title: String,
    /// Its tables.
    pub tables: Vec<BenchTable>,
}

/// A table of a document.
#[derive(Debug, Serialize)]
pub struct BenchTable {
    /// Its name.
    pub table: String,
    /// Its title.
    pub title: String,
}

/// The greatest numbers of a request.
#[derive(Debug, Default, Serialize)]
pub struct BenchMost {
    /// Bytes of a payload.
    pub size: u32,
    /// Publishers, and subscribers.
    pub clients: u32,
    /// Operations a second.
    pub rate: u32,
    /// Seconds of a repetition.
    pub seconds: u32,
    /// Repetitions.
    pub repeat: u32,
    /// Repetitions of all experiments of a job.
    pub repetitions: u32,
    /// Seconds of a job.
    pub job_seconds: u32,
}

macro_rules! json {
    ($($document:ident)*) => {
        $(impl $document {
            /// Writes it as JSON.
            #[must_use]
            pub fn to_json(&self) -> Vec<u8> {
                // No number in it is one that JSON lacks: those come from JSON.
                serde_json::to_vec(self).unwrap_or_default()
            }
        })*
    };
}

json!(Bench BenchJob BenchChoices);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_exactly_one_measurement() {
        let parse = |text: &str| BenchRequest::parse(text.as_bytes());
        assert!(parse("{\"run\":{\"door\":null}}").is_err() && parse("{\"run\":{},\"paper\":null}").is_err());
        let one = parse(r#"{"run":{"door":"mqtt","qos":1},"anyway":true}"#).unwrap();
        assert!(one.anyway && matches!(one.wanted, BenchWanted::Run(BenchRun { qos: Some(1), .. })));
        assert!(parse(r#"{"paper":{"name":"a","table":"1"}}"#).is_ok());
        for wrong in [
            "",
            "{}",
            "[]",
            r#"{"run":{},"matrix":{}}"#,
            r#"{"run":{"out":"/etc"}}"#,
            r#"{"run":{"door":["mqtt"]}}"#,
            r#"{"run":{"size":-1}}"#,
            r#"{"matrix":{"doors":"mqtt"}}"#,
            r#"{"paper":{"name":"a"}}"#,
            r#"{"peer":"mqtt://x"}"#,
        ] {
            assert_eq!(parse(wrong).unwrap_err().kind, Kind::InvalidBody, "{wrong}");
        }
    }
}
