//! All contexts of a server, found by what a request says (RFC 8613 §3.3, §5.1).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::context::Context;
use crate::id::Id;

/// How many contexts of one 'kid' a request without 'kid context' may mean. Each costs a decryption, and nothing is
/// known yet of who asks; a server may ask for the 'kid context' (RFC 8613 §5.1).
const TRIES_MAX: usize = 4;

/// The contexts by Recipient ID.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    contexts: HashMap<Id, SmallVec<[Arc<Context>; 1]>>,
    numbers: HashSet<u64>,
}

/// Two contexts that a request could not tell apart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the contexts of {first} and {second} have the same recipient ID and ID context")]
pub struct Clash {
    /// The one that was there.
    pub first: Arc<str>,
    /// The one that was to be added.
    pub second: Arc<str>,
}

impl Ring {
    /// Adds a context.
    ///
    /// # Errors
    /// [`Clash`] when requests of its owner could not be told from those of another.
    pub fn add(&mut self, context: Arc<Context>) -> Result<(), Clash> {
        let same = self.contexts.entry(*context.recipient_id()).or_default();
        if let Some(first) = same.iter().find(|other| other.id_context() == context.id_context()) {
            return Err(Clash { first: Arc::clone(first.name()), second: Arc::clone(context.name()) });
        }
        self.numbers.insert(context.number());
        same.push(context);
        Ok(())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Whether the context with this [number](Context::number) is one of them.
    #[must_use]
    pub fn holds(&self, number: u64) -> bool {
        self.numbers.contains(&number)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Context>> {
        self.contexts.values().flatten()
    }

    /// Those that a request may mean: with the 'kid context' it names; without, any of
    /// this 'kid' if they are few (RFC 8613 §5.1).
    pub(crate) fn candidates(&self, kid: &Id, kid_context: Option<&[u8]>) -> impl Iterator<Item = &Arc<Context>> {
        let of_kid = self.contexts.get(kid).map(SmallVec::as_slice).unwrap_or_default();
        let of_kid = if kid_context.is_none() && of_kid.len() > TRIES_MAX { &[] } else { of_kid };
        of_kid.iter().filter(move |context| kid_context.is_none() || context.id_context() == kid_context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Parameters, Requests, Reservation, SequenceStore, Start};

    struct Nowhere;

    impl SequenceStore for Nowhere {
        fn reserve(&self, _: Reservation) {}
    }

    fn context(number: usize) -> Arc<Context> {
        let parameters = Parameters {
            master_secret: vec![1; 16].into(),
            master_salt: Vec::new(),
            id_context: Some(vec![u8::try_from(number).unwrap()]),
            sender_id: Id::new(b"s").unwrap(),
            recipient_id: Id::new(b"r").unwrap(),
            algorithm: Algorithm::default(),
        };
        let start = Start { next: 0, durable: 0, requests: Requests::SeenBelow(0) };
        Context::new("alice".into(), &parameters, start, Arc::new(Nowhere)).unwrap()
    }

    #[test]
    fn s5_1_many_contexts_of_one_kid_are_not_tried_in_turn() {
        let (mut ring, kid) = (Ring::default(), Id::new(b"r").unwrap());
        for number in 0..TRIES_MAX {
            ring.add(context(number)).unwrap();
        }
        assert_eq!(ring.candidates(&kid, None).count(), TRIES_MAX);
        ring.add(context(TRIES_MAX)).unwrap();
        assert_eq!(ring.candidates(&kid, None).count(), 0);
        assert_eq!(ring.candidates(&kid, Some(&[2])).count(), 1);
    }

    #[test]
    fn it_knows_its_own() {
        let (mut ring, one, two) = (Ring::default(), context(1), context(2));
        ring.add(Arc::clone(&one)).unwrap();
        assert!(ring.holds(one.number()) && !ring.holds(two.number()));
        assert_eq!(ring.len(), 1);
    }
}
