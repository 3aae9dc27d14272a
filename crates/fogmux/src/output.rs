//! Standard output of the commands.

use std::fmt;
use std::io::{self, Write};

use crate::exit::Failure;

/// Writes formatted text to standard output, to its end: `println!` would panic where a disk is full.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::write(format_args!($($text)*)) };
}
pub(crate) use say;

/// Writes text to standard output and flushes it. A reader that has gone, as in `fogmux check --defaults | head`, has
/// read what it wanted.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn write(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    written(out.write_fmt(text).and_then(|()| out.flush()))
}

/// Returns what became of a write to standard output.
pub(crate) fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::io("standard output", &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Status;

    #[test]
    fn a_full_output_is_an_error_and_one_that_nobody_reads_is_not() {
        let failed = |kind: io::ErrorKind| written(Err(kind.into())).map_err(|failure| failure.status);
        assert_eq!(failed(io::ErrorKind::StorageFull), Err(Status::IoErr));
        assert_eq!(failed(io::ErrorKind::BrokenPipe), Ok(()));
    }
}
