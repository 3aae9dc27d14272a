//! Clocks, counters and the machine: what is read while a pattern runs, and the statistics over what was read.

pub mod build;
pub mod counters;
pub mod energy;
pub mod environment;
pub mod gateway;
pub mod latency;
pub mod limits;
pub mod process;
pub mod statistics;
pub mod watch;
