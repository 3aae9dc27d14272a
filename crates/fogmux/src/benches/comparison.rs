//! The comparison of two reports, which is made by a process of its own like a measurement: reports are large.

use std::path::Path;
use std::process::Stdio;

use fogmux_gateway::administration::Refusal;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::child::{command, end};
use super::limits::{COMPARISON_MAX, REPORT_BYTES_MAX};

/// Compares the report of one job with that of a later one; `place` is the directory of all jobs.
///
/// # Errors
/// The process cannot be started, takes too long, or refuses the reports.
pub(super) async fn compare(place: &Path, before: u64, after: u64) -> Result<Vec<u8>, Refusal> {
    let file = |id: u64| format!("{id}/report.json");
    let words =
        ["bench", "compare", "--json", "--all"].map(str::to_owned).into_iter().chain([file(before), file(after)]);
    let failed = |error: std::io::Error| Refusal::Failed(format!("reports cannot be compared: {error}"));
    let mut command = command(&words.collect::<Vec<_>>(), place).map_err(failed)?;
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    let Some(stdout) = child.stdout.take() else { return Err(Refusal::Busy) };
    let mut said = Vec::new();
    let done = timeout(COMPARISON_MAX, stdout.take(REPORT_BYTES_MAX).read_to_end(&mut said)).await;
    let Ok(read) = done else {
        end(&mut child).await;
        return Err(Refusal::Failed("the comparison took too long".to_owned()));
    };
    read.map_err(failed)?;
    let status = child.wait().await.map_err(failed)?;
    // Whatever the reports came to, they were compared if there is something to read.
    if said.first() != Some(&b'{') {
        return Err(Refusal::Unusable(format!("these reports cannot be compared ({status})")));
    }
    Ok(said)
}
