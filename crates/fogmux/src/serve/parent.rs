//! A gateway that serves one other process, such as the traffic generator, and ends with it: one that is killed cannot
//! end its children.

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::exit::{Failure, Status};

/// Has SIGTERM sent to this process when its parent ends, which has to be `pid`.
pub(super) fn end_with(pid: i32) -> Result<(), Failure> {
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
