//! Datagrams that the kernel gave to another worker than the one that has their session: it goes by addresses, and
//! whoever has an identifier may have moved. The identifier names the worker, and the datagram goes there.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use fogmux_dtls::identified;
use tokio::sync::mpsc;

use super::transport::Path;

/// Datagrams that wait for one worker. They are rare: each is of a device that has a new address. One more is dropped,
/// and comes again as datagrams do.
const WAITING_MAX: usize = 256;

/// A datagram that came to the wrong worker.
type Astray = (Path, Box<[u8]>);

/// The worker that a datagram belongs to, and whether that one has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// This worker's, as far as can be seen from outside.
    Ours,
    /// Another worker's, which has it now.
    Given,
    /// No worker's, or that of a worker whose queue is full; it is dropped.
    Nobodys,
}

/// One worker's end.
pub struct Handover {
    number: Option<u8>,
    workers: Arc<[mpsc::Sender<Astray>]>,
    astray: mpsc::Receiver<Astray>,
}

impl Handover {
    /// Ends for so many workers, which know each other.
    #[must_use]
    pub fn among(workers: usize) -> Vec<Self> {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..workers).map(|_| mpsc::channel(WAITING_MAX)).unzip();
        let workers: Arc<[_]> = senders.into();
        let end = |(number, astray)| Self { number: u8::try_from(number).ok(), workers: Arc::clone(&workers), astray };
        receivers.into_iter().enumerate().map(end).collect()
    }

    /// The first byte of this worker's connection identifiers. Beyond 256 workers there are none.
    pub(super) const fn number(&self) -> Option<u8> {
        self.number
    }

    /// Takes a datagram that is for another worker.
    pub(super) fn take(&self, path: Path, datagram: &[u8]) -> Whose {
        let Some(number) = identified(datagram).filter(|number| Some(*number) != self.number) else {
            return Whose::Ours;
        };
        let worker = self.workers.get(usize::from(number));
        let given = worker.is_some_and(|worker| worker.try_send((path, datagram.into())).is_ok());
        if given { Whose::Given } else { Whose::Nobodys }
    }

    /// The next that came to another.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Astray> {
        match self.astray.poll_recv(cx) {
            Poll::Ready(Some(astray)) => Poll::Ready(astray),
            // Our own sender is there as long as we are.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

impl std::fmt::Debug for Handover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handover").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: Path = Path {
        remote: std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 5),
        local: None,
        association: 0,
    };

    /// A record of DTLS 1.3 with an identifier of that worker.
    fn record(worker: u8) -> [u8; 40] {
        let mut record = [0; 40];
        (record[0], record[1]) = (0b0011_1111, worker);
        record
    }

    #[test]
    fn what_is_of_another_goes_there_and_no_more_than_has_room() {
        let mut ends = Handover::among(2);
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        assert_eq!(ends[0].take(PATH, &record(0)), Whose::Ours);
        assert_eq!(ends[0].take(PATH, &[22; 40]), Whose::Ours, "without identifier");
        assert_eq!(ends[0].take(PATH, &record(7)), Whose::Nobodys);
        for number in 0..WAITING_MAX + 5 {
            let whose = ends[0].take(PATH, &record(1));
            assert_eq!(whose, if number < WAITING_MAX { Whose::Given } else { Whose::Nobodys });
        }
        let count = std::iter::from_fn(|| ends[1].poll(cx).is_ready().then_some(())).take(2 * WAITING_MAX).count();
        assert!(count > 0 && count <= WAITING_MAX, "{count}");
        assert!(ends[0].poll(cx).is_pending());
    }
}
