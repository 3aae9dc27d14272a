//! Changes of what the server says, before it says it.

use super::Server12;

impl Server12 {
    pub(crate) fn edit(&mut self, kind: u8, edit: impl FnOnce(&mut Vec<u8>) + 'static) -> &mut Self {
        self.edits.push((kind, Box::new(edit)));
        self
    }

    pub(crate) fn skip(&mut self, kind: u8) -> &mut Self {
        self.plan.retain(|at| *at != kind);
        self.last.retain(|at| *at != kind);
        self
    }

    pub(crate) fn twice(&mut self, kind: u8) -> &mut Self {
        self.before(kind, kind)
    }

    pub(crate) fn before(&mut self, kind: u8, new: u8) -> &mut Self {
        match self.plan.iter().position(|at| *at == kind) {
            Some(place) => self.plan.insert(place, new),
            None => {
                let place = self.last.iter().position(|at| *at == kind).unwrap();
                self.last.insert(place, new);
            }
        }
        self
    }

    pub(crate) fn swap(&mut self, one: u8, other: u8) -> &mut Self {
        let place = |kind| self.plan.iter().position(|at| *at == kind).unwrap();
        let (one, other) = (place(one), place(other));
        self.plan.swap(one, other);
        self
    }

    pub(crate) fn in_epoch(&mut self, kind: u8, epoch: u16) -> &mut Self {
        self.epochs.push((kind, epoch));
        self
    }
}
