//! The part of a batch of publications that goes into the store of sessions.

use std::{
    cell::{OnceCell, RefCell},
    sync::Arc,
};

use super::{
    log::{SessionLog, StoredDelivery},
    message::StoredMessage,
    record::Manner,
    store::{Gathering, Parcel, SessionStore},
};
use crate::{
    mailbox::Delivery,
    message::{Message, Publication},
    outcome::Outcome,
    retained::{Completion, expires_unix_ms},
};

/// The [`Gathering`] of a batch of publications. Begins with the first delivery that has a record, so it costs nothing
/// as long as no session outlives its connection.
#[derive(Debug, Default)]
pub struct Gather {
    begun: OnceCell<Arc<Gathering>>,
    parcels: RefCell<Vec<Arc<Parcel>>>,
}

impl Gather {
    /// The gathering, begun if need be.
    pub fn begin(&self, store: &dyn SessionStore) -> &Arc<Gathering> {
        self.begun.get_or_init(|| Gathering::new(store))
    }

    /// Puts what this holds. Ready if it holds nothing.
    pub fn append(&self) -> Completion {
        self.begun.get().map_or(Completion::Ready, |gathering| gathering.append(self.parcels.take()))
    }

    /// Puts a delivery of a message that is delivered to one session only. `None` if it is too late for that.
    pub fn put(
        &self,
        message: &Message,
        store: &dyn SessionStore,
        log: &mut SessionLog,
        manner: Manner,
    ) -> Option<StoredDelivery> {
        let gathering = self.begin(store);
        gathering.with(|batch| batch.charge(log.principal()));
        let parcel = Parcel::new(gathering, StoredMessage::of(message, expires_unix_ms(message)))?;
        let delivery = log.deliver(&parcel, manner, gathering);
        self.parcels.borrow_mut().push(parcel);
        delivery
    }
}

impl Publication<'_> {
    /// Puts a delivery of it, and the message if it is the first. `None` if it is too late for that.
    pub fn store(
        &self,
        delivery: &Delivery<'_>,
        store: &dyn SessionStore,
        log: &mut SessionLog,
        manner: Manner,
    ) -> Option<StoredDelivery> {
        let gather = delivery.gather?;
        let gathering = gather.begin(store);
        if self.parcel.get().is_none() {
            let message = delivery.share(self);
            gathering.with(|batch| batch.charge(&self.publisher.principal));
            let parcel = Parcel::new(gathering, StoredMessage::of(message, expires_unix_ms(message)))?;
            gather.parcels.borrow_mut().push(Arc::clone(&parcel));
            self.note_stored();
            let _ = self.parcel.set(parcel);
        }
        log.deliver(self.parcel.get()?, manner, gathering)
    }

    /// Notes that something of it is in the store of sessions, so that its acknowledgement waits for that.
    pub fn note_stored(&self) {
        self.outcome.set(Outcome { stored: true, ..self.outcome() });
    }
}
