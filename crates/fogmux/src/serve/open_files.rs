//! The limit of open files: a connection is one, and the usual soft limit of 1024 is for programs that use `select`.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More is never needed, and some systems have no hard limit at all.
const ENOUGH: u64 = 1 << 20;

/// Raises the soft limit as far as the hard one allows; says so when that is less than `wanted`.
pub(crate) fn raise(wanted: usize) {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if limit.current.is_some_and(|soft| soft < hard)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(hard), maximum: limit.maximum })
    {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let now = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if u64::try_from(wanted).is_ok_and(|wanted| now < wanted) {
        tracing::warn!(
            open_files = now,
            connections_max = wanted,
            "the limit of open files comes before that of connections"
        );
    }
}
