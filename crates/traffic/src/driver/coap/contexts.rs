//! OSCORE contexts of the clients: one file each, and beside it how far its sequence numbers are used (RFC 8613
//! appendix B.1.1).

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fogmux_client::oscore::Reserved;
use fogmux_oscore::Context;

use crate::driver::{DriverError, Role};

/// Numbers that a context sets aside at once: enough for hours at any rate, and of 2^40 a thousand runs that are killed
/// may lose as many. Whatever was not used is given back.
const SET_ASIDE: u64 = 1 << 30;

/// The contexts that were read, so that a client that connects again goes on with the numbers of the one before.
#[derive(Default)]
pub(super) struct Contexts {
    directory: PathBuf,
    known: RefCell<HashMap<(Role, u32), Reserved>>,
}

impl Contexts {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), known: RefCell::default() }
    }

    /// The context of a client.
    pub(super) fn of(&self, role: Role, number: u32) -> Result<Arc<Context>, DriverError> {
        let mut known = self.known.borrow_mut();
        if let Some(reserved) = known.get(&(role, number)) {
            return Ok(Arc::clone(reserved.context()));
        }
        let name = match role {
            Role::Publisher => "publisher",
            Role::Subscriber => "subscriber",
        };
        let path = self.directory.join(format!("{name}-{number}.toml"));
        let reserved = Reserved::read(&path, SET_ASIDE).map_err(|error| DriverError::Connection(error.to_string()))?;
        let context = Arc::clone(reserved.context());
        known.insert((role, number), reserved);
        Ok(context)
    }
}
