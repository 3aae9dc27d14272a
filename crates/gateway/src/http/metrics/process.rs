//! The metrics that every exporter of Prometheus has: of the process, under names without a prefix, and of the release.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use super::descriptor;
use crate::process::Process;

/// A reading of the process.
#[derive(Debug)]
pub(super) struct OfProcess(pub(super) Option<Process>);

impl Collector for OfProcess {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(process) = self.0 else { return Ok(()) };
        let help = "Processor time, of the program and of the system for it";
        let cpu = ConstCounter::new(process.cpu_s);
        cpu.encode(descriptor(&mut encoder, "process_cpu_seconds", help, MetricType::Counter)?)?;
        let help = "When the process started, in seconds since 1970";
        let started = ConstGauge::new(process.started_unix_s);
        started.encode(descriptor(&mut encoder, "process_start_time_seconds", help, MetricType::Gauge)?)?;
        for (name, help, value) in [
            ("process_virtual_memory_bytes", "Virtual memory", Some(process.virtual_bytes)),
            ("process_resident_memory_bytes", "Resident memory", Some(process.resident_bytes)),
            ("process_open_fds", "Open file descriptors", Some(process.open_fds)),
            ("process_max_fds", "The limit of open file descriptors", process.fds_max),
            ("process_threads", "Threads", Some(process.threads)),
        ] {
            let Some(value) = value else { continue };
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(descriptor(&mut encoder, name, help, MetricType::Gauge)?)?;
        }
        Ok(())
    }
}

/// The release.
pub(super) fn build(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "1, for the version that runs";
    let mut family = descriptor(encoder, "build_info", help, MetricType::Gauge)?;
    ConstGauge::new(1_i64).encode(family.encode_family(&[("version", env!("CARGO_PKG_VERSION"))])?)
}
