//! Bytes that wait for a connection.

use super::super::transport::Path;
use super::Hub;

impl Hub {
    /// Takes what waits for a connection; `into` is empty and its room is used for what comes next.
    pub(super) fn swap_output(&self, path: Path, into: &mut Vec<u8>) {
        if let Some(line) = self.lines.borrow_mut().get_mut(&path.association) {
            std::mem::swap(&mut line.output, into);
        }
    }

    /// Whether anything waits for a connection.
    pub(super) fn has_output(&self, path: Path) -> bool {
        self.lines.borrow().get(&path.association).is_some_and(|line| !line.output.is_empty())
    }

    /// Writes beside the machine: signals.
    pub(super) fn write(&self, path: Path, write: impl FnOnce(fogmux_coap::stream::Framing, &mut Vec<u8>)) {
        if let Some(line) = self.lines.borrow_mut().get_mut(&path.association) {
            line.write(write);
        }
    }

    /// Writes what is no message: frames of a WebSocket.
    pub(super) fn write_raw(&self, path: Path, bytes: &[u8]) {
        if let Some(line) = self.lines.borrow_mut().get_mut(&path.association) {
            line.output.extend_from_slice(bytes);
        }
    }

    /// Notes that a connection's output was written.
    pub(super) fn relieve(&self, path: Path) {
        let was = self
            .lines
            .borrow_mut()
            .get_mut(&path.association)
            .is_some_and(|line| std::mem::replace(&mut line.congested, false));
        if was {
            let mut core = self.core.borrow_mut();
            let (now, core) = (core.machine_now(), &mut *core);
            core.server.set_congested(now, &path, false, &mut core.out);
            // Its backlog is sent at once, as far as it takes it.
            core.note_events();
            let more = core.serve_ready();
            core.count_outcomes();
            self.distribute(core);
            if (more || core.next_timeout() != self.armed.get())
                && let Some(waker) = &*self.waker.borrow()
            {
                waker.wake_by_ref();
            }
        }
    }

    /// Whether an answer to this connection waits for the store.
    pub(super) fn owes(&self, path: Path) -> bool {
        self.core.borrow().owes(&path)
    }
}
