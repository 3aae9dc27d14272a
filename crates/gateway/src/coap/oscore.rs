//! OSCORE (RFC 8613) at the CoAP door: the contexts of all users, shared by all workers, and their sequence numbers on
//! the disk.
//!
//! `keyring` has the contexts, `start` says where their numbers begin and `restored` where those of a backup do,
//! `journal` keeps what must survive a power cut, and `shield` is what a worker puts between messages and requests.

mod journal;
mod keyring;
mod restored;
mod shield;
mod start;
#[cfg(test)]
mod tests;

pub use keyring::{Fresh, Keyring, KeyringError, journal_path};
pub use restored::{BackedUp, note_restored, reserved_below};

use std::{rc::Rc, sync::Arc};

use fogmux_coap::server::Protection;

use self::shield::Shield;
pub(super) use self::shield::Unopened;
use super::context::CoapContext;

/// Opens protected requests for one socket, or for the streams of one worker. Those that it cannot open are noted in
/// `unopened`.
pub(super) fn protection(ctx: &CoapContext, unopened: &Rc<Unopened>) -> Option<Box<dyn Protection>> {
    Some(Box::new(Shield::new(Arc::clone(&ctx.door.oscore)).noting(Rc::clone(unopened))))
}
