//! Many connections of one role, made a few at a time, and what they have in common afterwards.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio::time::{Instant, sleep_until, timeout};

use super::CONNECTING_MAX;
use crate::driver::{Client, Driver, DriverError, Role};
use crate::measure::latency::Latency;
use crate::outcome::Bytes;

/// A handshake under heavy loss takes most of a minute.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(90);
/// In which a connection ends in good order.
pub(super) const CLOSE_MAX: Duration = Duration::from_secs(5);

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
    /// Connects clients of these numbers, in this order, as fast as it goes.
    pub(crate) async fn open(
        driver: &dyn Driver,
        role: Role,
        numbers: impl IntoIterator<Item = u32>,
    ) -> Result<Self, DriverError> {
        let numbers: Vec<u32> = numbers.into_iter().collect();
        Self::open_over(Duration::ZERO, driver, role, &numbers).await
    }

    /// Connects clients of these numbers, in this order. They begin one after the other over so much time, and later
    /// where those before hold them up.
    pub(crate) async fn open_over(
        spread: Duration,
        driver: &dyn Driver,
        role: Role,
        numbers: &[u32],
    ) -> Result<Self, DriverError> {
        let mut all = Self::default();
        let (began, each) = (Instant::now(), spread / u32::try_from(numbers.len()).unwrap_or(u32::MAX).max(1));
        let connect = async |(place, number): (u32, u32)| {
            if !spread.is_zero() {
                sleep_until(began + each * place).await;
            }
            let made = timeout(CONNECT_MAX, driver.connect(role, number)).await;
            made.unwrap_or_else(|_| Err(DriverError::Connection(format!("no connection within {CONNECT_MAX:?}"))))
        };
        let mut made =
            std::pin::pin!(stream::iter((0..).zip(numbers.iter().copied())).map(connect).buffered(CONNECTING_MAX));
        while let Some(connected) = made.try_next().await? {
            all.took.record_ns(super::stage::nanoseconds(connected.took).max(1));
            all.cipher = connected.cipher;
            all.clients.push(Rc::new(RefCell::new(connected.client)));
        }
        Ok(all)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.clients.len()).unwrap_or(u32::MAX)
    }

    /// The bytes that all connections have carried so far.
    pub(crate) fn bytes(&self) -> Bytes {
        self.clients.iter().fold(Bytes::default(), |sum, client| sum.plus(client.borrow().bytes()))
    }

    /// Closes all connections properly. Their tasks must have ended.
    pub(crate) async fn close(self) {
        let ours = self.clients.into_iter().filter_map(Rc::into_inner);
        // Nothing is measured any more, so a close that takes too long is abandoned.
        let goodbyes = ours.map(|client| timeout(CLOSE_MAX, client.into_inner().close()));
        let mut closing = stream::iter(goodbyes).buffer_unordered(CONNECTING_MAX);
        while closing.next().await.is_some() {}
    }
}
