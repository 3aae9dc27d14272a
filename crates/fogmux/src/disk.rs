//! Failures caused by a full, read-only or failing disk, which do not keep the gateway from starting.

use std::io;

use crate::exit::Failure;

/// Returns whether a failure comes from a disk that cannot be written.
pub(crate) fn caused(failure: &Failure) -> bool {
    failure.error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(fogmux_store::is_unwritable)
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
        assert!(!caused(&failure(ErrorKind::NotFound)));
    }
}
