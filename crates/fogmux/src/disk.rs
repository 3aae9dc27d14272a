//! Failures caused by a full, read-only or failing disk, which do not keep the gateway from starting.

use std::error::Error;
use std::io;

use crate::exit::{Failure, Status};

/// A failure of the disk in the words of whoever met it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct OfDisk(String);

/// Returns a failure that the disk has caused.
pub(crate) fn failure(message: String) -> Failure {
    Failure { status: Status::IoErr, error: anyhow::Error::new(OfDisk(message)) }
}

/// Returns whether a failure comes from a disk that cannot be written.
pub(crate) fn caused(failure: &Failure) -> bool {
    let of_disk = |cause: &(dyn Error + 'static)| {
        cause.is::<OfDisk>() || cause.downcast_ref::<io::Error>().is_some_and(fogmux_store::is_unwritable)
    };
    failure.error.chain().any(of_disk)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;
    use crate::exit::{OrFail as _, Status};

    #[test]
    fn a_full_disk_is_told_from_a_missing_permission() {
        let failure = |kind| Err::<(), _>(io::Error::from(kind)).or_fail(Status::IoErr, "writing").unwrap_err();
        assert!(caused(&failure(ErrorKind::StorageFull)));
        assert!(caused(&failure(ErrorKind::ReadOnlyFilesystem)));
        assert!(!caused(&failure(ErrorKind::PermissionDenied)));
        assert!(caused(&super::failure("told".to_owned())));
        assert!(!caused(&failure(ErrorKind::NotFound)));
    }
}
