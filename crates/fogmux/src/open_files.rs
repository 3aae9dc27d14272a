//! The limit of open files. A connection is one, and the usual soft limit of 1024 is meant for programs that use
//! `select`.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More is never needed, and some systems have no hard limit.
const ENOUGH: u64 = 1 << 20;
/// Files reserved for other purposes than connections: tables and journals of the store, files that are reread,
/// outgoing requests. A quarter of the files if there are few.
const RESERVE: u64 = 64;

/// Raises the soft limit to the hard limit.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if limit.current.is_some_and(|soft| soft < hard)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(hard), maximum: limit.maximum })
    {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// Returns how many of the `wanted` connections the limit allows, beside the files open now. To be called before there
/// are connections.
///
/// Without this bound `accept` would fail with EMFILE, and so would the store.
pub(crate) fn room_for_connections(wanted: usize) -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(ENOUGH);
    // Linux and the BSDs list them there; elsewhere this is an estimate.
    let open = std::fs::read_dir("/dev/fd").map_or(RESERVE, |files| files.count() as u64);
    let room = usize::try_from(room(files, open)).unwrap_or(usize::MAX);
    if room < wanted {
        tracing::info!(
            room,
            open,
            limit = files,
            wanted,
            "the system's limit of open files allows fewer connections than configured"
        );
    }
    room.min(wanted)
}

/// Whether so many clients of a measurement, of which each has a socket, are within the limit of this process, which is
/// that of the gateway it starts.
///
/// # Errors
/// They are not, with both numbers.
#[cfg(feature = "bench")]
pub(crate) fn check_room(clients: u64) -> Result<(), String> {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(ENOUGH).min(ENOUGH);
    let needed = clients + RESERVE;
    if needed > files {
        return Err(format!("{clients} clients need {needed} open files, and the limit is {files} (`ulimit -n`)"));
    }
    Ok(())
}

const fn room(files: u64, open: u64) -> u64 {
    let left = files.saturating_sub(open);
    let reserve = if left / 4 < RESERVE { left / 4 } else { RESERVE };
    let room = left - reserve;
    if room == 0 { 1 } else { room }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_of_what_is_left_is_for_connections() {
        assert_eq!(room(1_048_576, 60), 1_048_452);
        assert_eq!(room(1024, 60), 900);
        assert_eq!(room(200, 60), 105);
        assert_eq!(room(64, 60), 3);
        assert_eq!(room(60, 60), 1);
        assert_eq!(room(10, 60), 1);
    }
}
