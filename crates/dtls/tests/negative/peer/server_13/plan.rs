//! Changes of what the server says, before it says it.

use super::{
    Server13,
    wire::{self, ext, kind, vec16},
};

impl Server13 {
    pub(crate) fn edit(&mut self, kind: u8, edit: impl FnOnce(&mut Vec<u8>) + 'static) -> &mut Self {
        self.edits.push((kind, Box::new(edit)));
        self
    }

    /// EncryptedExtensions with a limit of records (RFC 8449 §4), which every record of our client keeps to.
    pub(crate) fn announce(&mut self, limit: u16) -> &mut Self {
        self.limit = self.limit.min(usize::from(limit));
        let body = vec16(&wire::extensions(&[(ext::RECORD_SIZE_LIMIT, limit.to_be_bytes().to_vec())]));
        self.edit(kind::ENCRYPTED_EXTENSIONS, move |b| *b = body)
    }

    pub(crate) fn skip(&mut self, kind: u8) -> &mut Self {
        self.plan.retain(|at| *at != kind);
        self
    }

    pub(crate) fn twice(&mut self, kind: u8) -> &mut Self {
        self.before(kind, kind)
    }

    pub(crate) fn before(&mut self, kind: u8, new: u8) -> &mut Self {
        let place = self.plan.iter().position(|at| *at == kind).unwrap();
        self.plan.insert(place, new);
        self
    }

    pub(crate) fn swap(&mut self, one: u8, other: u8) -> &mut Self {
        let place = |kind| self.plan.iter().position(|at| *at == kind).unwrap();
        let (one, other) = (place(one), place(other));
        self.plan.swap(one, other);
        self
    }
}
