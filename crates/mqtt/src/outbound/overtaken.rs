//! Exchanges that others have overtaken by far: they leave the entries, so that a peer that never ends one of them is
//! still sent what its window allows.

use std::collections::BTreeMap;

use super::{FINISHED_SPAN, IDENTIFIERS, Outbound, State};
use crate::PacketId;

/// Unfinished exchanges older than all entries. An acknowledgement finds its own without a look at the others.
#[derive(Debug)]
pub(super) struct Overtaken<M> {
    /// By age: the oldest has the lowest number.
    exchanges: BTreeMap<u64, (PacketId, State<M>)>,
    ages: BTreeMap<PacketId, u64>,
    /// The number of the next.
    next: u64,
    /// Those before this number were sent on this connection.
    resent: u64,
    /// The one that was looked at last, which may be over since.
    looked_at: Option<u64>,
}

impl<M> Default for Overtaken<M> {
    fn default() -> Self {
        Self { exchanges: BTreeMap::new(), ages: BTreeMap::new(), next: 0, resent: 0, looked_at: None }
    }
}

impl<M> Overtaken<M> {
    fn push(&mut self, id: PacketId, state: State<M>) {
        self.exchanges.insert(self.next, (id, state));
        self.ages.insert(id, self.next);
        self.next += 1;
        self.resent = self.next;
    }

    fn remove_if_over(&mut self, age: u64) {
        if let Some((id, State::Finished)) = self.exchanges.get(&age) {
            self.ages.remove(id);
            self.exchanges.remove(&age);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.exchanges.len()
    }

    /// The oldest first.
    pub(super) fn states(&self) -> impl Iterator<Item = &State<M>> {
        self.exchanges.values().map(|(_, state)| state)
    }

    /// The oldest first.
    pub(super) fn states_mut(&mut self) -> impl Iterator<Item = &mut State<M>> {
        self.exchanges.values_mut().map(|(_, state)| state)
    }

    /// The oldest first.
    pub(super) fn into_states(self) -> impl Iterator<Item = State<M>> {
        self.exchanges.into_values().map(|(_, state)| state)
    }

    /// All have to be sent again. Drops those that are over.
    pub(super) fn resume(&mut self) {
        (self.resent, self.looked_at) = (0, None);
        self.exchanges.retain(|_, (_, state)| !matches!(state, State::Finished));
        let exchanges = &self.exchanges;
        self.ages.retain(|_, age| exchanges.contains_key(age));
    }

    /// The next that has to be sent again.
    pub(super) fn next_to_resend(&mut self) -> Option<(PacketId, &mut State<M>)> {
        let (_, (id, state)) = self.exchanges.range_mut(self.resent..).next()?;
        Some((*id, state))
    }

    /// The same, to look at.
    pub(super) fn first_to_resend(&self) -> Option<&State<M>> {
        self.exchanges.range(self.resent..).next().map(|(_, (_, state))| state)
    }

    /// All that have to be sent again, the oldest first.
    pub(super) fn states_to_resend(&mut self) -> impl Iterator<Item = &mut State<M>> {
        self.exchanges.range_mut(self.resent..).map(|(_, (_, state))| state)
    }

    /// It was sent, or is over.
    pub(super) fn note_resent(&mut self) {
        if let Some((age, _)) = self.exchanges.range(self.resent..).next() {
            let age = *age;
            self.resent = age + 1;
            self.remove_if_over(age);
        }
    }

    pub(super) fn is_resending(&self) -> bool {
        self.exchanges.range(self.resent..).next().is_some()
    }

    /// Bytes held, the messages aside.
    pub(super) fn bytes(&self) -> usize {
        self.len() * (size_of::<(u64, PacketId, State<M>)>() + size_of::<(PacketId, u64)>())
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
                Some(unfinished) => self.overtaken.get_or_insert_default().push(id, unfinished),
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
        self.overtaken.as_ref().is_some_and(|overtaken| overtaken.ages.contains_key(&id))
    }

    #[inline]
    pub(super) fn overtaken_count(&self) -> usize {
        self.overtaken.as_ref().map_or(0, |overtaken| overtaken.len())
    }

    pub(super) fn overtaken_entry(&mut self, id: PacketId) -> Option<&mut State<M>> {
        let overtaken = self.overtaken.as_mut()?;
        let age = *overtaken.ages.get(&id)?;
        overtaken.looked_at = Some(age);
        overtaken.exchanges.get_mut(&age).map(|(_, state)| state)
    }

    /// Drops the one that was looked at, if it is over.
    pub(super) fn drop_overtaken(&mut self) {
        let Some(overtaken) = &mut self.overtaken else { return };
        if let Some(age) = overtaken.looked_at.take() {
            overtaken.remove_if_over(age);
        }
        if overtaken.exchanges.is_empty() {
            self.overtaken = None;
        }
    }
}
