//! What waits for a slow observer: the newest of each subject, in the order in which the subjects came.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::code::Code;
use crate::etag::ETag;
use crate::response::{Location, Payload, Response, seconds};
use crate::server::relations::Notification;
use crate::time::Timestamp;

/// The notifications that wait for one observer.
#[derive(Debug, Default)]
pub(crate) struct Held {
    items: VecDeque<Item>,
    bytes: usize,
}

/// A notification that has been kept.
#[derive(Debug)]
pub(crate) struct Item {
    subject: u64,
    confirmable: bool,
    code: Code,
    etag: Option<ETag>,
    location: Option<(Box<str>, Box<str>)>,
    content_format: Option<u16>,
    max_age: Option<u32>,
    payload: Bytes,
    since: Timestamp,
}

/// What keeping one more meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Added,
    Replaced,
    /// The oldest was dropped for it.
    Dropped,
}

impl Held {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn pop(&mut self) -> Option<Item> {
        let item = self.items.pop_front()?;
        self.bytes = self.bytes.saturating_sub(item.bytes());
        Some(item)
    }

    pub(crate) fn push_front(&mut self, item: Item) {
        self.bytes += item.bytes();
        self.items.push_front(item);
    }

    pub(crate) fn push(&mut self, now: Timestamp, notification: &Notification<'_>, max: usize) -> Kept {
        let item = Item::new(now, notification);
        if let Some(old) = self.items.iter_mut().find(|old| old.subject == item.subject) {
            self.bytes = (self.bytes + item.bytes()).saturating_sub(old.bytes());
            *old = item;
            return Kept::Replaced;
        }
        let full = self.items.len() >= max.max(1);
        if full {
            self.pop();
        }
        self.bytes += item.bytes();
        self.items.push_back(item);
        if full { Kept::Dropped } else { Kept::Added }
    }
}

impl Item {
    fn new(now: Timestamp, notification: &Notification<'_>) -> Self {
        let response = &notification.response;
        Self {
            subject: notification.subject,
            confirmable: notification.confirmable,
            code: response.code,
            etag: response.etag,
            location: response.location.map(|location| (location.root.into(), location.path.into())),
            content_format: response.content_format,
            max_age: response.max_age,
            payload: response.payload.to_bytes(),
            since: now,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let location = self.location.as_ref().map_or(0, |(root, path)| root.len() + path.len());
        size_of::<Self>() + self.payload.len() + location
    }

    /// As it is to be sent now: it has aged while it waited. `None` when it holds no longer.
    pub(crate) fn notification(&self, now: Timestamp) -> Option<Notification<'_>> {
        let age = seconds(now.since(self.since));
        let max_age = match self.max_age {
            Some(max_age) if max_age > 0 => Some(max_age.checked_sub(age).filter(|left| *left > 0)?),
            other => other,
        };
        let location = self.location.as_ref().map(|(root, path)| Location { root, path });
        let response = Response {
            code: self.code,
            etag: self.etag,
            location,
            content_format: self.content_format,
            max_age,
            size1: None,
            payload: Payload::Shared(&self.payload),
        };
        Some(Notification { response, confirmable: self.confirmable, subject: self.subject })
    }
}
