//! A file that is sent while it is made.

use std::{io, time::Duration};

use bytes::Bytes;
use tokio::{
    runtime,
    sync::mpsc,
    time::{Instant, timeout_at},
};

/// Bytes of a piece.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that wait for the client.
const PIECES: usize = 4;
/// How long the client may take nothing.
const PATIENCE: Duration = Duration::from_secs(60);
/// The slowest client on average, in bytes a second: what is lent for the file is not lent for days.
const PACE: u64 = 16 << 10;

/// The reader's end.
#[derive(Debug)]
pub struct Download {
    /// The name that is suggested for it.
    pub name: String,
    /// Pieces of the file. Without an empty one at its end it is incomplete.
    pub(crate) pieces: mpsc::Receiver<Bytes>,
}

/// The writer's end, for a thread that may block.
#[derive(Debug)]
pub struct Upload {
    pieces: mpsc::Sender<Bytes>,
    piece: Vec<u8>,
    sent: u64,
    began: Instant,
    /// Has the time. Made by the thread that sends: dropped within another runtime, where there is no thread to be had,
    /// it would panic.
    runtime: Option<runtime::Runtime>,
}

/// Makes both ends.
#[must_use]
pub fn download(name: String) -> (Upload, Download) {
    let (sender, pieces) = mpsc::channel(PIECES);
    let piece = Vec::with_capacity(PIECE_BYTES);
    let upload = Upload { pieces: sender, piece, sent: 0, began: Instant::now(), runtime: None };
    (upload, Download { name, pieces })
}

impl Upload {
    /// Says that the file is complete. Without this the client is told that it is not.
    ///
    /// # Errors
    /// As those of a write.
    pub fn finish(mut self) -> io::Result<u64> {
        self.flush_piece()?;
        self.send(Bytes::new())?;
        Ok(self.sent)
    }

    fn flush_piece(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        self.send(piece.into())
    }

    fn send(&mut self, piece: Bytes) -> io::Result<()> {
        let bytes = piece.len() as u64;
        let slowest = self.began + PATIENCE + Duration::from_secs(self.sent / PACE);
        let until = slowest.min(Instant::now() + PATIENCE);
        let runtime = match self.runtime.take() {
            Some(runtime) => runtime,
            None => runtime::Builder::new_current_thread().enable_time().build()?,
        };
        let sent = runtime.block_on(async { timeout_at(until, self.pieces.send(piece)).await });
        self.runtime = Some(runtime);
        match sent {
            Ok(Ok(())) => self.sent += bytes,
            Ok(Err(_)) => return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the client has gone")),
            Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes it too slowly")),
        }
        Ok(())
    }
}

impl io::Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PIECE_BYTES.saturating_sub(self.piece.len());
        let taken = bytes.get(..room).unwrap_or(bytes);
        self.piece.extend_from_slice(taken);
        if self.piece.len() >= PIECE_BYTES {
            self.flush_piece()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flush_piece()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn all_bytes_arrive_and_an_end_that_is_missing_shows() {
        let content: Vec<u8> = (0..3 * PIECE_BYTES + 7).map(|at| at.to_le_bytes()[0]).collect();
        for is_finished in [true, false] {
            let (mut upload, mut download) = download("a".to_owned());
            let expected = content.clone();
            let writer = std::thread::spawn(move || {
                upload.write_all(&expected).unwrap();
                upload.flush().unwrap();
                if is_finished {
                    upload.finish().unwrap();
                }
            });
            let mut came = Vec::new();
            let mut ended = false;
            while let Some(piece) = download.pieces.blocking_recv() {
                ended = piece.is_empty();
                came.extend_from_slice(&piece);
            }
            writer.join().unwrap();
            assert!(came == content && ended == is_finished);
        }
    }

    #[test]
    fn a_client_that_takes_nothing_or_too_little_ends_it() {
        let (mut upload, download) = download("a".to_owned());
        let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async { tokio::time::pause() });
        upload.runtime = Some(runtime);
        let error = upload.write_all(&vec![0; (PIECES + 2) * PIECE_BYTES]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(download);
        let error = upload.write_all(&vec![0; PIECE_BYTES]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn one_that_nobody_sends_is_dropped_within_a_runtime() {
        drop(download("a".to_owned()));
    }
}
