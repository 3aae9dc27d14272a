//! Many connections of one role, made a few at a time, and what they have in common afterwards.

use std::cell::RefCell;
use std::rc::Rc;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use super::CONNECTING_MAX;
use crate::driver::{Client, Driver, DriverError, Role};
use crate::measure::latency::Latency;
use crate::outcome::Bytes;

/// A client that its task drives, and whose counters others read.
pub(crate) type Shared = Rc<RefCell<Box<dyn Client>>>;

/// Connections and what making them took.
#[derive(Default)]
pub(crate) struct Connections {
    pub(crate) clients: Vec<Shared>,
    pub(crate) took: Latency,
    pub(crate) cipher: String,
}

impl Connections {
    /// Connects clients 0 to `count`, in this order.
    pub(crate) async fn open(driver: &dyn Driver, role: Role, count: u32) -> Result<Self, DriverError> {
        let mut all = Self::default();
        let mut made = stream::iter(0..count).map(|number| driver.connect(role, number)).buffered(CONNECTING_MAX);
        while let Some(connected) = made.try_next().await? {
            all.took.record_ns(super::stage::nanoseconds(connected.took).max(1));
            all.cipher = connected.cipher;
            all.clients.push(Rc::new(RefCell::new(connected.client)));
        }
        Ok(all)
    }

    /// What all of them have carried so far.
    pub(crate) fn bytes(&self) -> Bytes {
        self.clients.iter().fold(Bytes::default(), |sum, client| sum.plus(client.borrow().bytes()))
    }

    /// Ends all of them in good order. Their tasks must be gone.
    pub(crate) async fn close(self) {
        let ours = self.clients.into_iter().filter_map(Rc::into_inner);
        let mut closing = stream::iter(ours.map(|client| client.into_inner().close())).buffer_unordered(CONNECTING_MAX);
        while closing.next().await.is_some() {}
    }
}
