//! Processor time and memory of processes.
