//! Published measurements as data, and run again: the document's number beside ours, then what its authors conclude.
//!
//! A [`Paper`] is a file of `papers/`, checked when it is loaded. [`plan()`] makes experiments of its cells, each once
//! however many cells want it; [`tabulate`] fills a [`PaperResult`] with their outcomes, which `report` prints. No
//! number of ours is ever in those files, and none of a document in this code, but in tests.

pub mod claim;
pub mod explain;
pub mod file;
pub mod formula;
pub mod frames;
pub mod metric;
pub mod plan;
pub mod run;
#[cfg(test)]
mod setups;
pub mod table;

pub use file::{NAMES, Paper, PaperError, load};
pub use plan::{Plan, plan};
pub use run::tabulate;
pub use table::PaperResult;
