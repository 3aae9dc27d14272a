//! `GET /api/v1/system`: the machine below the gateway, as `fogmux doctor` reads it.

use std::{os::unix::fs::MetadataExt as _, path::Path};

use fogmux_http::api::{System, SystemDisk, SystemMemory, SystemProcessor, Throttling};
use rustix::fs::{StatVfsMountFlags, statvfs};

use super::super::conn::Conn;
use crate::{
    machine::{Machine, THROTTLING},
    process::Process,
};

/// A reading.
pub(super) fn document(conn: &Conn) -> Vec<u8> {
    let machine = Machine::here();
    let processor = machine.processor().map(|processor| SystemProcessor {
        count: processor.count,
        busy_ticks: processor.busy,
        total_ticks: processor.total,
        load: machine.load(),
    });
    let memory = machine.memory();
    System {
        model: machine.model(),
        processor,
        gateway_cpu_seconds: Process::read().map(|process| process.cpu_s),
        memory: memory.map(|memory| SystemMemory { total_bytes: memory.total, available_bytes: memory.available }),
        temperature_celsius: machine.temperature().map(|thousandths| thousandths as f64 / 1000.0),
        throttling: machine.throttled().map(throttling),
        disk: conn.ctx.shared.administration.data().and_then(|directory| disk(&machine, directory)),
    }
    .to_json()
}

fn throttling(bits: u32) -> Throttling {
    let words = |bits: u32| THROTTLING.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, words)| *words).collect();
    Throttling { now: words(bits), before: words(bits >> 16) }
}

fn disk(machine: &Machine, directory: &Path) -> Option<SystemDisk> {
    let found = statvfs(directory).ok()?;
    let device = machine.device(std::fs::metadata(directory).ok()?.dev());
    let wear = device.as_ref().map(|device| machine.wear(&device.disk)).unwrap_or_default();
    Some(SystemDisk {
        free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
        total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
        read_only: found.f_flag.contains(StatVfsMountFlags::RDONLY),
        errors: device.as_ref().and_then(|device| machine.ext4_errors(device)),
        device: device.map(|device| device.disk),
        life_used_percent: wear.used_tenths.map(|tenths| u32::from(tenths) * 10),
        written_bytes_a_day: wear.written_a_day,
    })
}
