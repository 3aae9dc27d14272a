//! Stub until its owner writes it.

use crate::driver::{Driver, DriverError};
use crate::experiment::{Door, Experiment};
use crate::target::Access;

/// The driver.
///
/// # Errors
/// Always, for now.
pub fn driver(door: Door, _: &Experiment, _: &Access) -> Result<Box<dyn Driver>, DriverError> {
    Err(DriverError::Unsupported { door, what: "driver" })
}
