//! Fair shares of tables that all principals fill together (ADR 0031).
//!
//! A table is free for all until only its reserve is left. From there on a principal may take more only while it has no
//! more than what is free: those who have much are refused first, and a newcomer still finds room.

use std::sync::Arc;

use hashbrown::HashMap;

/// The default of [`Room`]'s reserve, in percent of the table.
pub const RESERVE_PERCENT: u8 = 10;
/// Places that small tables reserve at least, as far as a quarter of them allows.
const RESERVE_MIN: usize = 16;

/// The size of a table, in entries or bytes, with the part of it that is reserved for those who have little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    max: usize,
    reserve: usize,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// The table is full.
    #[error("the table is full")]
    Full,
    /// The rest of the table is reserved for principals who have less of it.
    #[error("the rest is reserved for others")]
    Share,
}

impl Room {
    /// A table of `max` and, on top of it, a reserve of `percent`, at least 16 places or, in small tables, a quarter.
    /// With 0 percent, and in tables of fewer than four places, there is no reserve.
    #[must_use]
    pub const fn new(max: usize, percent: u8) -> Self {
        let percent = if percent > 100 { 100 } else { percent as usize };
        let part = (max / 100) * percent + (max % 100) * percent / 100;
        let least = if max / 4 < RESERVE_MIN { max / 4 } else { RESERVE_MIN };
        let reserve = if percent == 0 || part > least { part } else { least };
        Self { max: max.saturating_add(reserve), reserve }
    }

    /// The room left in the table, its reserve included.
    #[must_use]
    pub const fn left(self, used: usize) -> usize {
        self.max.saturating_sub(used)
    }

    /// The room left that is not reserved: whoever asks is admitted to it.
    #[must_use]
    pub const fn free_for_all(self, used: usize) -> usize {
        self.left(used).saturating_sub(self.reserve)
    }

    /// Whether a principal that has `own` of the `used` may take `more`.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub const fn admit(self, used: usize, own: usize, more: usize) -> Result<(), NoRoom> {
        let free = self.max.saturating_sub(used);
        if more > free {
            return Err(NoRoom::Full);
        }
        if self.reserve == 0 || free - more >= self.reserve || own.saturating_add(more) <= free {
            return Ok(());
        }
        Err(NoRoom::Share)
    }
}

/// The part of one principal in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The number of entries.
    pub count: usize,
    /// The bytes of the entries.
    pub bytes: usize,
}

/// The shares of all principals that have something in a table. All anonymous clients are one principal: whoever needs
/// no name could otherwise come as many.
#[derive(Debug, Default)]
pub struct Shares(HashMap<Arc<str>, Share, foldhash::fast::RandomState>);

impl Shares {
    /// The share of a principal.
    #[must_use]
    pub fn of(&self, principal: &str) -> Share {
        self.0.get(principal).copied().unwrap_or_default()
    }

    /// The text of a principal's name that is in use here already, if it has something: entries share it.
    #[must_use]
    pub fn name(&self, principal: &Arc<str>) -> Arc<str> {
        let known = self.0.get_key_value(principal).map(|(name, _)| name);
        Arc::clone(known.unwrap_or(principal))
    }

    /// The bytes of the principal that has most.
    #[must_use]
    pub fn largest_bytes(&self) -> usize {
        self.0.values().map(|share| share.bytes).max().unwrap_or(0)
    }

    /// Adds an entry of `bytes`. Returns the principal's share from now on.
    pub fn add(&mut self, principal: &Arc<str>, bytes: usize) -> Share {
        let share = self.0.entry(Arc::clone(principal)).or_default();
        share.count += 1;
        share.bytes += bytes;
        *share
    }

    /// Removes an entry of `bytes`. Returns the principal's share from now on.
    pub fn remove(&mut self, principal: &str, bytes: usize) -> Share {
        let Some(share) = self.0.get_mut(principal) else { return Share::default() };
        share.count = share.count.saturating_sub(1);
        share.bytes = share.bytes.saturating_sub(bytes);
        let left = *share;
        if left.count == 0 {
            self.0.remove(principal);
        }
        left
    }

    /// The number of principals that have something.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nobody has anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The largest number of entries that one principal has.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.0.values().map(|share| share.count).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_principal_leaves_the_reserve_and_newcomers_find_room() {
        for max in [1, 2, 3, 4, 20, 97, 1000] {
            let room = Room::new(max, RESERVE_PERCENT);
            let mut used = 0;
            while room.admit(used, used, 1).is_ok() {
                used += 1;
            }
            assert_eq!(used, max, "one alone has what the limit says");
            let reserve = room.left(used);
            // The smallest tables have none.
            assert!(max < 4 || reserve > 0, "{max}");
            for newcomer in 0..reserve {
                assert_eq!(room.admit(used + newcomer, 0, 1), Ok(()), "{max}: newcomer {newcomer}");
            }
            assert_eq!(room.admit(max + reserve, 0, 1), Err(NoRoom::Full));
        }
    }

    #[test]
    fn without_a_reserve_the_table_is_one_principals() {
        let room = Room::new(20, 0);
        assert_eq!(room.admit(19, 19, 1), Ok(()));
        assert_eq!(room.admit(20, 20, 1), Err(NoRoom::Full));
        assert_eq!(room.admit(25, 0, 0), Ok(()));
    }

    #[test]
    fn what_is_removed_leaves_nothing() {
        let mut shares = Shares::default();
        let ada: Arc<str> = "ada".into();
        assert_eq!(shares.add(&ada, 10), Share { count: 1, bytes: 10 });
        assert_eq!(shares.add(&ada, 5), Share { count: 2, bytes: 15 });
        assert_eq!((shares.largest(), shares.of("bob")), (2, Share::default()));
        assert_eq!(shares.remove("ada", 10), Share { count: 1, bytes: 5 });
        assert_eq!(shares.remove("ada", 5), Share::default());
        assert!(shares.is_empty());
    }
}
