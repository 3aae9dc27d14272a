//! A process that serves one other, such as a gateway of the traffic generator, and ends with it: one that is killed
//! cannot end its children.

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::exit::{Failure, Status};

/// How much less of a processor such a process gets than its parent where both want one: nice(2).
#[cfg(feature = "bench")]
const NICE: i32 = 10;
/// The process that is killed first where memory is short (proc_pid_oom_score_adj(5)).
#[cfg(feature = "bench")]
const KILLED_FIRST: &str = "1000";

/// Has SIGTERM sent to this process when its parent ends, which has to be `pid`.
pub(crate) fn end_with(pid: i32) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(|error| Failure::io("prctl", &error.into()))?;
    // It may have ended before that, and then nobody sends anything.
    match getppid() {
        Some(parent) if parent.as_raw_nonzero().get() == pid => Ok(()),
        _ => Err(Failure::new(
            Status::Unavailable,
            format!("process {pid} is not, or no longer, the one that started this"),
        )),
    }
}

/// Leaves processor and memory to the parent, as far as the system permits: the unit of the packages does not permit
/// other priorities.
#[cfg(feature = "bench")]
pub(crate) fn give_way() {
    let _ = rustix::process::nice(NICE);
    let _ = std::fs::write("/proc/self/oom_score_adj", KILLED_FIRST);
}
