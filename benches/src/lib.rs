//! Criterion benches; the benches themselves are in `benches/`, how to read them in `docs/benchmarks.md`.

use std::io::{self, Cursor, Read, Write};

/// A stream that delivers its input and then ends; output is discarded.
#[derive(Debug)]
pub struct Wire(pub Cursor<Vec<u8>>);

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Wire {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
