//! The part of a batch of publications that goes into the store of sessions.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use super::{
    earlier::Earlier,
    log::{SessionLog, StoredDelivery},
    message::StoredMessage,
    record::Manner,
    store::{Batch, Gathering, IfRefused, Parcel, SessionStore},
};
use crate::{
    mailbox::Delivery,
    message::{Message, Publication, Publisher},
    outcome::Outcome,
    retained::{Completion, expires_unix_ms},
};

/// The [`Gathering`] of a batch of publications. Begins with the first delivery that has a record, so it costs nothing
/// as long as no session outlives its connection.
#[derive(Debug, Default)]
pub struct Gather {
    begun: OnceCell<Arc<Gathering>>,
    parcels: RefCell<Parcels>,
    /// Deliveries that were put.
    stored: Cell<u64>,
    if_refused: IfRefused,
}

/// The messages of a batch that are put, in this order.
#[derive(Debug, Default)]
struct Parcels {
    parcels: Vec<Arc<Parcel>>,
    /// Their places, by the address of the message. Not in the publication, which each message would pay for.
    places: HashMap<*const Message, usize>,
}

impl Gather {
    /// For messages that go from one session to others: what the first one forgets, if that has records. The others
    /// keep their deliveries even if the store does not take them.
    pub(crate) fn handing_on(forgets: Option<Box<dyn Batch>>) -> Self {
        let if_refused = IfRefused::Kept;
        let begun = forgets.map(|batch| OnceCell::from(Gathering::open(batch, if_refused))).unwrap_or_default();
        Self { begun, if_refused, ..Self::default() }
    }

    /// The gathering, begun if need be.
    pub fn begin(&self, store: &dyn SessionStore) -> &Arc<Gathering> {
        self.begun.get_or_init(|| Gathering::open(store.batch(), self.if_refused))
    }

    /// The number of deliveries of publications that were put.
    pub(crate) const fn stored(&self) -> u64 {
        self.stored.get()
    }

    /// Puts what this holds. Ready if it holds nothing.
    pub fn append(&self) -> Completion {
        self.begun.get().map_or(Completion::Ready, |gathering| gathering.append(self.parcels.take().parcels))
    }

    /// The same for the publisher whose messages it holds: ready, too, when all clients have acknowledged them. Batches
    /// of the publisher that are held since `earlier` are not overtaken.
    pub(crate) fn append_published(&self, publisher: &Arc<Publisher>, earlier: &mut Earlier) -> Completion {
        let Some(gathering) = self.begun.get() else { return Completion::Ready };
        let parcels = self.parcels.take().parcels;
        let completion = gathering.append_published_behind(parcels, || earlier.append(publisher));
        if gathering.is_held() {
            earlier.push(publisher, gathering);
        }
        completion
    }

    /// Has it appended with its publications, even if all clients were sent them at once: nobody sends them again after
    /// a crash.
    pub fn append_at_once(&self) {
        if let Some(gathering) = self.begun.get() {
            gathering.append_at_once();
        }
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
        self.parcels.borrow_mut().parcels.push(parcel);
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
        gather.stored.set(gather.stored.get() + 1);
        let gathering = gather.begin(store);
        // Held by the publication, so that no other message has its address.
        let message = delivery.share(self);
        let Parcels { parcels, places } = &mut *gather.parcels.borrow_mut();
        let place = match places.entry(Arc::as_ptr(message)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                gathering.with(|batch| batch.charge(&self.publisher.principal));
                parcels.push(Parcel::new(gathering, StoredMessage::of(message, expires_unix_ms(message)))?);
                self.note_stored();
                *new.insert(parcels.len() - 1)
            }
        };
        log.deliver(parcels.get(place)?, manner, gathering)
    }

    /// Notes that something of it is in the store of sessions, so that its acknowledgement waits for that.
    pub fn note_stored(&self) {
        self.outcome.set(Outcome { stored: true, ..self.outcome() });
    }
}
