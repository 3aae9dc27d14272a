//! Disks that take nothing: full, read-only, or failing. The gateway runs on what it can read.

use std::io::{self, ErrorKind};

use crate::exit::Failure;

/// Whether the disk is what refused, and not a permission or a wrong path.
pub(crate) fn refuses(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    let kinds = [ErrorKind::QuotaExceeded, ErrorKind::ReadOnlyFilesystem, ErrorKind::StorageFull];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(EIO)
}

/// Whether a failure comes from a disk that refuses.
pub(crate) fn caused(failure: &Failure) -> bool {
    failure.error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(refuses)
}

#[cfg(test)]
mod tests {
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
