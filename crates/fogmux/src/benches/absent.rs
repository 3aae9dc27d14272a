//! A program without the traffic generator measures nothing, and says so.

use std::path::Path;
use std::sync::Arc;

use fogmux_gateway::Shared;
use fogmux_gateway::administration::{Refusal, bench::BenchCommand};
use fogmux_http::api::Bench;

const WHY: &str = "this program was built without the traffic generator, the feature `bench`";

/// In place of the jobs. Not a unit, so that both programs make theirs in the same way.
#[derive(Debug, Default)]
pub(crate) struct Benches(());

impl Benches {
    /// Answers a command. Errors of an answer: nobody waits for it any more.
    pub(crate) fn command(&mut self, _directory: &Path, _gateway: &Arc<Shared>, command: BenchCommand) {
        match command {
            BenchCommand::List(answer) => {
                let reason = Some(WHY.to_owned());
                let none =
                    Bench { available: false, reason, jobs: vec![], waiting_max: 0, kept_max: 0, kept_bytes_max: 0 };
                drop(answer.send(Ok(none.to_json())));
            }
            BenchCommand::Choices(answer)
            | BenchCommand::Show(_, answer)
            | BenchCommand::Report(_, _, answer)
            | BenchCommand::Compare(_, _, answer) => drop(answer.send(Err(Refusal::Missing(WHY)))),
            BenchCommand::Submit(_, answer) => drop(answer.send(Err(Refusal::Missing(WHY)))),
            BenchCommand::End(_, _, answer) => drop(answer.send(Err(Refusal::Missing(WHY)))),
        }
    }

    /// Nothing is under way.
    pub(crate) async fn stop(&mut self) {}
}
