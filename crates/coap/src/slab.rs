//! Values under small numbers that are never mistaken for the ones that had the number before.

/// A place in a slab and the generation of what lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    pub(crate) const fn to_u64(self) -> u64 {
        ((self.generation as u64) << 32) | self.index as u64
    }

    pub(crate) fn from_u64(number: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
        Self { generation: u32::from_be_bytes([a, b, c, d]), index: u32::from_be_bytes([e, f, g, h]) }
    }

    pub(crate) fn index(self) -> usize {
        usize::try_from(self.index).unwrap_or(usize::MAX)
    }
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// How many places there are, taken or not.
    pub(crate) fn places(&self) -> usize {
        self.entries.len()
    }

    /// `None` only beyond four thousand million values; callers have limits far below.
    pub(crate) fn insert(&mut self, value: T) -> Option<Key> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.entries.push(Entry { generation: 0, value: None });
                u32::try_from(self.entries.len() - 1).ok()?
            }
        };
        let entry = self.entries.get_mut(usize::try_from(index).ok()?)?;
        entry.value = Some(value);
        Some(Key { index, generation: entry.generation })
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let entry = self.entries.get(key.index())?;
        entry.value.as_ref().filter(|_| entry.generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.index())?;
        entry.value.as_mut().filter(|_| entry.generation == key.generation)
    }

    /// Returns the entry at an index with its key, regardless of the generation.
    pub(crate) fn at(&self, index: usize) -> Option<(Key, &T)> {
        let entry = self.entries.get(index)?;
        let key = Key { index: u32::try_from(index).ok()?, generation: entry.generation };
        entry.value.as_ref().map(|value| (key, value))
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let entry = self.entries.get_mut(key.index())?;
        if entry.generation != key.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }
}
