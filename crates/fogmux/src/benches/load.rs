//! The load of the gateway, taken when it is asked for: a gateway that nobody measures with counts nothing.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use fogmux_gateway::Shared;
use rustix::time::{ClockId, clock_gettime};

use super::limits::{LOAD_PUBLICATIONS, LOAD_SHARE, LOAD_WINDOW};

/// Counters at a moment.
struct Reading {
    at: Instant,
    processor_seconds: f64,
    publications: u64,
}

impl Reading {
    fn of(gateway: &Shared) -> Self {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        #[expect(clippy::cast_precision_loss, reason = "seconds of a processor are below 2^53")]
        let processor_seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
        let publications = gateway.bus.counters().published.load(Relaxed);
        Self { at: Instant::now(), processor_seconds, publications }
    }
}

/// Takes the load for a moment. Returns it in words if it is too high for a measurement beside it.
pub(super) async fn look(gateway: &Shared) -> Option<String> {
    let before = Reading::of(gateway);
    tokio::time::sleep(LOAD_WINDOW).await;
    let after = Reading::of(gateway);
    let seconds = after.at.duration_since(before.at).as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "publications of a second are below 2^53")]
    let publications = after.publications.saturating_sub(before.publications) as f64 / seconds;
    said((after.processor_seconds - before.processor_seconds) / seconds, publications)
}

fn said(share: f64, publications: f64) -> Option<String> {
    if share <= LOAD_SHARE && publications <= LOAD_PUBLICATIONS {
        return None;
    }
    let (share, limit) = (share * 100.0, LOAD_SHARE * 100.0);
    Some(format!(
        "it used {share:.0} % of a core and took {publications:.0} publications a second just now; a measurement \
         beside it is for less than {limit:.0} % and {LOAD_PUBLICATIONS:.0}/s, or for `anyway`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_is_a_load() {
        assert_eq!(said(0.0, 0.0), None);
        assert_eq!(said(LOAD_SHARE, LOAD_PUBLICATIONS), None);
        assert!(said(LOAD_SHARE + 0.01, 0.0).unwrap().starts_with("it used 26 %"));
        assert!(said(0.0, LOAD_PUBLICATIONS + 1.0).unwrap().contains("501 publications"));
    }
}
