//! Exchanges that others have overtaken by far: they leave the entries, so that a peer that never ends one of them is
//! still sent what its window allows.

use super::{FINISHED_SPAN, IDENTIFIERS, Outbound, State};
use crate::PacketId;

/// Unfinished exchanges older than all entries.
#[derive(Debug)]
pub(super) struct Overtaken<M> {
    /// The oldest first.
    pub(super) exchanges: Vec<(PacketId, State<M>)>,
    /// Those before this one were sent on this connection.
    pub(super) resent: usize,
}

impl<M> Overtaken<M> {
    fn position(&self, id: PacketId) -> Option<usize> {
        self.exchanges.iter().position(|(taken, _)| *taken == id)
    }
}

impl<M> Outbound<M> {
    /// Entries at most.
    pub(super) fn span(&self) -> usize {
        (usize::from(self.config.window) + FINISHED_SPAN).min(IDENTIFIERS)
    }

    /// Whether so many entries more may stand behind those that there are, if the oldest leave.
    #[inline]
    pub(super) fn may_grow(&self, more: usize) -> bool {
        match (self.entries.len() + more).checked_sub(self.span()) {
            None | Some(0) => true,
            Some(excess) => self.may_make_way(excess),
        }
    }

    fn may_make_way(&self, excess: usize) -> bool {
        // Identifiers that are left out because they are still in use take places among the entries.
        let most = usize::from(self.config.window).min(IDENTIFIERS - self.span());
        let room = most.saturating_sub(self.overtaken_count());
        self.entries.iter().take(excess).filter(|entry| !matches!(entry, State::Finished)).count() <= room
    }

    /// Has the oldest entries leave until so many more may stand behind the others.
    pub(super) fn make_way(&mut self, more: usize) {
        let excess = (self.entries.len() + more).saturating_sub(self.span());
        for _ in 0..excess.min(self.entries.len()) {
            let id = self.first;
            match self.entries.pop_front() {
                None | Some(State::Finished) => {}
                Some(unfinished) => {
                    let empty = || Box::new(Overtaken { exchanges: Vec::new(), resent: 0 });
                    let overtaken = self.overtaken.get_or_insert_with(empty);
                    overtaken.exchanges.push((id, unfinished));
                    overtaken.resent = overtaken.exchanges.len();
                }
            }
            self.first = id.next();
            self.resent = self.resent.saturating_sub(1);
        }
        self.drop_finished();
    }

    /// Leaves out identifiers that are still in use when all others have been used ([MQTT-2.2.1-4]).
    pub(super) fn pass_taken(&mut self) {
        while self.is_overtaken(self.next_id()) {
            if self.entries.is_empty() {
                self.first = self.first.next();
            } else {
                self.entries.push_back(State::Finished);
                self.resent = self.entries.len();
            }
        }
    }

    #[inline]
    pub(super) fn is_overtaken(&self, id: PacketId) -> bool {
        self.overtaken.as_ref().is_some_and(|overtaken| overtaken.position(id).is_some())
    }

    #[inline]
    pub(super) fn overtaken_count(&self) -> usize {
        self.overtaken.as_ref().map_or(0, |overtaken| overtaken.exchanges.len())
    }

    pub(super) fn overtaken_entry(&mut self, id: PacketId) -> Option<&mut State<M>> {
        let overtaken = self.overtaken.as_mut()?;
        let at = overtaken.position(id)?;
        overtaken.exchanges.get_mut(at).map(|(_, state)| state)
    }

    /// Drops those that are over.
    pub(super) fn drop_overtaken(&mut self) {
        let Some(overtaken) = &mut self.overtaken else { return };
        let before = overtaken.resent;
        let mut index = 0;
        overtaken.exchanges.retain(|(_, state)| {
            let is_over = matches!(state, State::Finished);
            overtaken.resent -= usize::from(is_over && index < before);
            index += 1;
            !is_over
        });
        if overtaken.exchanges.is_empty() {
            self.overtaken = None;
        }
    }
}
