//! The traffic generator: drives every door, ours or a peer's, under every security profile; measures what that costs;
//! and reruns the experiments of the documents that fogmux was born from.
//!
//! An [`Experiment`] says what is to be done, as data; the [`conductor`] sets up both ends of it. A [`driver`] makes
//! connections of one door; a [`pattern`] keeps many of them busy; [`measure`] reads clocks, counters and the machine;
//! [`link`] lays the network between the two ends. What comes out is an [`Outcome`] for each repetition, which
//! [`report`] and [`paper`] compare and print.
//!
//! Nothing here takes part in serving: the gateway is another process, as any other broker would be.

pub mod agent;
pub mod conductor;
pub mod driver;
pub mod experiment;
pub mod fleet;
pub mod handshakes;
pub mod link;
pub mod measure;
pub mod origin;
pub mod outcome;
pub mod paper;
pub mod pattern;
pub mod repetition;
pub mod report;
pub mod saturation;
pub mod target;
pub mod text;

pub use experiment::{Door, Experiment, Security};
pub use outcome::{Outcome, Run};
