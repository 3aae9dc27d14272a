//! The keys of `[telemetry]`: traces of messages, for a collector that takes OTLP over HTTP.

use std::path::PathBuf;
use std::time::Duration;

use super::model::Config;
use super::reader::{Findings, Reader, Section};
use crate::callback::target::Target;

/// Telemetry for collectors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Telemetry {
    pub(crate) traces: Traces,
}

impl Section for Telemetry {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.section("traces", &mut self.traces);
    }
}

/// Spans of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Traces {
    /// The URL of the collector; nothing is traced when `""`.
    pub(crate) endpoint: String,
    /// PEM: the authorities of the collector's certificate; the system's when absent.
    pub(crate) ca_file: Option<PathBuf>,
    /// Whether spans may go to another machine without TLS.
    pub(crate) allow_plaintext: bool,
    /// The name of this gateway among other services.
    pub(crate) service_name: String,
    /// Of so many publications without a context one is traced; 0: none.
    pub(crate) sample_one_in: u32,
    /// Whether the context of a publication decides whether it is traced.
    pub(crate) follow_parents: bool,
    /// Spans that wait for the collector, at most.
    pub(crate) queue_spans_max: usize,
    /// Spans in one request, at most.
    pub(crate) batch_spans_max: usize,
    /// Between requests, unless the queue is half full.
    pub(crate) interval: Duration,
    /// The longest that a request may take, and the last ones at shutdown together.
    pub(crate) timeout: Duration,
}

impl Default for Traces {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            ca_file: None,
            allow_plaintext: false,
            service_name: "fogmux".to_owned(),
            sample_one_in: 1,
            follow_parents: true,
            queue_spans_max: 2048,
            batch_spans_max: 512,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
        }
    }
}

impl Traces {
    /// The collector; `None` if nothing is traced.
    pub(crate) fn collector(&self) -> Option<Target> {
        Target::anywhere(&self.endpoint)
    }
}

impl Section for Traces {
    fn read(&mut self, reader: &mut Reader<'_>) {
        let is_url = |text: &str| text.is_empty() || Target::anywhere(text).is_some();
        let accepted = "an address such as \"http://127.0.0.1:4318/v1/traces\", or \"\" for none";
        reader.text("endpoint", &mut self.endpoint, is_url, accepted);
        reader.path("ca_file", &mut self.ca_file);
        reader.flag("allow_plaintext", &mut self.allow_plaintext);
        let is_name = |text: &str| (1..=255).contains(&text.len());
        reader.text("service_name", &mut self.service_name, is_name, "a name of up to 255 bytes");
        reader.count("sample_one_in", &mut self.sample_one_in, 0..=1_000_000);
        reader.flag("follow_parents", &mut self.follow_parents);
        reader.count("queue_spans_max", &mut self.queue_spans_max, 16..=65_536);
        reader.count("batch_spans_max", &mut self.batch_spans_max, 1..=4096);
        reader.duration("interval", &mut self.interval, Duration::from_millis(100)..=Duration::from_secs(600));
        reader.duration("timeout", &mut self.timeout, Duration::from_millis(100)..=Duration::from_secs(30));
    }
}

/// Adds what a combination of keys shows.
pub(super) fn find_clashes(config: &Config, findings: &mut Findings) {
    let traces = &config.telemetry.traces;
    let Some(collector) = traces.collector() else { return };
    if !cfg!(feature = "otlp") {
        let found = "this program is built without traces";
        findings.clash("telemetry.traces.endpoint", found, "\"\", or a program built with the feature otlp");
    }
    if !collector.keeps_secrets() && !traces.allow_plaintext {
        findings.clash(
            "telemetry.traces.endpoint",
            "topics and client identifiers would leave this machine without encryption",
            "an https:// address, one of this machine, or telemetry.traces.allow_plaintext = true",
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Source, load};

    fn problems(keys: &str) -> Vec<String> {
        let text = format!("[telemetry.traces]\n{keys}\n");
        let problems = load(&[Source::new("f.toml", text)]).map_or_else(|problems| problems.0, |_| Vec::new());
        problems.iter().map(ToString::to_string).collect()
    }

    #[cfg(feature = "otlp")]
    #[test]
    fn spans_leave_this_machine_under_tls_unless_told() {
        for keys in [
            "",
            "endpoint = \"\"",
            "endpoint = \"http://127.0.0.1:4318/v1/traces\"",
            "endpoint = \"http://localhost:4318/v1/traces\"",
            "endpoint = \"https://collector.example/v1/traces\"",
            "endpoint = \"http://collector.example:4318/v1/traces\"\nallow_plaintext = true",
        ] {
            assert_eq!(problems(keys), [""; 0], "{keys}");
        }
        for endpoint in ["http://collector.example:4318/v1/traces", "127.0.0.1:4318", "grpc://127.0.0.1:4317"] {
            let problems = problems(&format!("endpoint = {endpoint:?}"));
            assert!(problems.len() == 1 && problems[0].contains("telemetry.traces.endpoint"), "{problems:?}");
        }
    }

    #[cfg(not(feature = "otlp"))]
    #[test]
    fn a_program_without_traces_says_so() {
        let problems = problems("endpoint = \"http://127.0.0.1:4318/v1/traces\"");
        assert!(problems.len() == 1 && problems[0].contains("built without traces"), "{problems:?}");
    }
}
