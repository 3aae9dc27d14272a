//! Counters of an end of the link: `/proc/net/dev`, opened once in the namespace and read again from anywhere.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::namespace::Namespace;
use super::{LinkError, veth};

/// Two devices are in it, of which each takes a line of up to 130 characters, and two lines of headings.
const FILE_BYTES: usize = 2_048;

/// An open file of one namespace, which remains readable from others.
#[derive(Clone, Debug)]
pub(super) struct Counters(Arc<File>);

/// The traffic that a device has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) bytes: u64,
    pub(super) packets: u64,
}

impl Counters {
    pub(super) fn of(namespace: &Namespace) -> Result<Self, LinkError> {
        let _entered = namespace.enter()?;
        File::open("/proc/thread-self/net/dev")
            .map(|file| Self(Arc::new(file)))
            .map_err(LinkError::kernel("/proc/net/dev"))
    }

    pub(super) fn sent(&self) -> Sent {
        let mut buffer = [0; FILE_BYTES];
        let length = self.0.read_at(&mut buffer, 0).unwrap_or(0);
        let text = buffer.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default();
        sent_of(text, veth::END).unwrap_or_default()
    }
}

/// proc_pid_net_dev(5): eight columns received, then bytes and packets transmitted.
fn sent_of(text: &str, device: &str) -> Option<Sent> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    let mut columns = line.split_ascii_whitespace().skip(8);
    Some(Sent { bytes: columns.next()?.parse().ok()?, packets: columns.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_found() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
                    lo:       1       2    0    0    0     0          0         0        3       4    0    0    0     0       0          0\n \
                    end0:    1296      16    0    0    0     0          0         0     4711      17    0    0    0     0       0          0\n";
        assert_eq!(sent_of(text, "end0"), Some(Sent { bytes: 4_711, packets: 17 }));
        assert_eq!(sent_of(text, "end1"), None);
    }
}
