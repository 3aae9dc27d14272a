//! Retained messages that a link to another broker is sent for its subscriptions. Other clients subscribe again; a link
//! has to pass on all of them, however often its line is cut meanwhile.

use fogmux_bus::durable::Sequence;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{connection::Connection, mailbox::MqttMailbox, retained::Pulls};
use crate::links::CLIENT;

/// The state of them, in the session of the link.
#[derive(Debug, Default)]
pub(super) struct Announced {
    /// Not all have been queued.
    is_pulling: bool,
    /// The subscriptions of which some are not queued, while the link is away.
    left: Option<Pulls>,
    /// A connection took the session over before they were left to it.
    is_lost: bool,
    /// The last one that was queued with a record in the store.
    last: Option<Sequence>,
}

impl MqttMailbox {
    pub(super) fn announced(&mut self) -> Option<&mut Announced> {
        self.subscriptions.as_mut()?.announced.as_deref_mut()
    }

    /// A retained message was queued.
    pub(super) fn note_announced(&mut self, sequence: Option<Sequence>) {
        if let Some(announced) = self.announced() {
            announced.last = sequence.or(announced.last);
        }
    }

    /// Whether a link has not been sent all retained messages of its subscriptions, or has not acknowledged them all.
    pub(super) fn is_announcing(&mut self) -> bool {
        let Some(announced) = self.announced() else { return false };
        let Some(last) = announced.last.filter(|_| !announced.is_pulling) else { return announced.is_pulling };
        self.first_stored().is_some_and(|first| first <= last)
    }

    /// Whether retained messages that are to be sent will be sent, without another SUBSCRIBE.
    pub(super) fn goes_on_announcing(&mut self) -> bool {
        self.announced().is_some_and(|announced| !announced.is_lost)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    fn is_of_link(&self) -> bool {
        self.client.publisher.client.starts_with(CLIENT)
    }

    /// Retained messages of a subscription are to be sent.
    pub(super) fn begin_announcing(&self) {
        let begin = |mailbox: &mut MqttMailbox| {
            let announced = mailbox.subscriptions.get_or_insert_default().announced.get_or_insert_default();
            (announced.is_pulling, announced.is_lost) = (true, false);
        };
        if self.is_of_link() {
            // A displaced connection sees to nothing.
            let _ = self.mailbox.with(begin);
        }
    }

    /// All retained messages are queued.
    pub(super) fn end_announcing(&self) {
        if self.is_of_link() {
            let end = |mailbox: &mut MqttMailbox| mailbox.announced().map(|announced| announced.is_pulling = false);
            let _ = self.mailbox.with(end);
        }
    }

    /// Goes on with the retained messages that the last connection left.
    pub(super) fn resume_announcing(&mut self) {
        if !self.is_of_link() {
            return;
        }
        let left = self.mailbox.with(|mailbox| {
            let announced = mailbox.announced()?;
            let left = announced.left.take();
            announced.is_lost |= announced.is_pulling && left.is_none();
            left
        });
        if let Ok(Some(left)) = left {
            self.rare().pulls = left;
        }
    }

    /// Leaves the retained messages that are not queued to the next connection.
    pub(super) fn leave_announcing(&mut self) {
        if !self.is_of_link() || self.pulls() == 0 {
            return;
        }
        let left = std::mem::take(&mut self.rare().pulls);
        let _ = self.mailbox.with(|mailbox| mailbox.announced().map(|announced| announced.left = Some(left)));
    }
}
