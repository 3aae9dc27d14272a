//! The document of `GET /api/v1/system`.

use serde::Serialize;

/// `GET /api/v1/system`. A member is absent where the machine does not say.
#[derive(Debug, Default, Serialize)]
pub struct System {
    /// The model of a board.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor: Option<SystemProcessor>,
    /// Processor time of the gateway since its start, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_cpu_seconds: Option<f64>,
    /// The memory of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<SystemMemory>,
    /// The temperature of the processor, in degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<f64>,
    /// The state of the power supply of a Raspberry Pi.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttling: Option<Throttling>,
    /// The disk of the data directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<SystemDisk>,
}

/// The processors of the machine.
#[derive(Debug, Serialize)]
pub struct SystemProcessor {
    /// Their number.
    pub count: usize,
    /// Ticks in which they were not idle, since the machine started.
    pub busy_ticks: u64,
    /// All ticks: two readings make a share.
    pub total_ticks: u64,
    /// Tasks that run or want to, over a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
}

/// The memory of the machine.
#[derive(Debug, Serialize)]
pub struct SystemMemory {
    /// All of it.
    pub total_bytes: u64,
    /// The bytes that programs can have.
    pub available_bytes: u64,
}

/// The conditions that a Raspberry Pi suffers from, in words.
#[derive(Debug, Serialize)]
pub struct Throttling {
    /// Now.
    pub now: Vec<&'static str>,
    /// Since the machine started.
    pub before: Vec<&'static str>,
}

/// A file system, and the medium below it.
#[derive(Debug, Serialize)]
pub struct SystemDisk {
    /// Bytes that the gateway can still write.
    pub free_bytes: u64,
    /// All of them.
    pub total_bytes: u64,
    /// Whether it is mounted read-only.
    pub read_only: bool,
    /// The name of the disk or card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Errors that ext4 has noted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
    /// How much of its life is used at most, in percent; SD cards do not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub life_used_percent: Option<u32>,
    /// Bytes written a day, on average since the machine started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_bytes_a_day: Option<u64>,
}

impl System {
    /// Writes it as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}
