//! The limit of open files: a connection is one, and the usual soft limit of 1024 is for programs that use `select`.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More is never needed, and some systems have no hard limit at all.
const ENOUGH: u64 = 1 << 20;
/// For what is no connection: listeners, the store, the log.
const RESERVE: u64 = 256;

/// Raises the soft limit as far as the hard one allows; gives how many connections that leaves room for.
///
/// Without that bound `accept` would fail with EMFILE, and so would the store.
pub(crate) fn room_for_connections() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if limit.current.is_some_and(|soft| soft < hard)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(hard), maximum: limit.maximum })
    {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(ENOUGH);
    usize::try_from(files.saturating_sub(RESERVE).max(1)).unwrap_or(usize::MAX)
}
