//! The mailbox of a session as its connection holds it, until another connection takes the session over.

use std::{sync::Arc, task::Context};

use fogmux_bus::{Claim, Displaced, Slot};

use super::mailbox::MqttMailbox;

/// A slot and the claim to it. [`Claimed::slot`] is for what holds without the claim, too.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) slot: Arc<Slot<MqttMailbox>>,
    pub(super) claim: Claim,
}

impl Claimed {
    /// Looks at the mailbox, or changes it.
    ///
    /// # Errors
    /// [`Displaced`] when another connection has taken it over; nothing was done then.
    #[inline]
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut MqttMailbox) -> T) -> Result<T, Displaced> {
        self.slot.with_claim(self.claim, look)
    }

    /// Takes deliveries out, and is woken by the next.
    ///
    /// # Errors
    /// [`Displaced`] when another connection has taken it over; nothing was drained then.
    #[inline]
    pub(super) fn poll_with<T>(
        &self,
        cx: &Context<'_>,
        drain: impl FnOnce(&mut MqttMailbox) -> T,
    ) -> Result<T, Displaced> {
        self.slot.poll_with(self.claim, cx, drain)
    }

    /// Reads the mailbox while the connection sleeps; `None` when a wake is under way or it was taken over.
    #[inline]
    pub(super) fn with_asleep<T>(&self, look: impl FnOnce(&MqttMailbox) -> T) -> Option<T> {
        self.slot.with_asleep(self.claim, look)
    }
}
