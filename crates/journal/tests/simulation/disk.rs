//! A disk in memory that forgets at a crash what was not synchronised.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    io,
};

use fogmux_journal::{Disk, Slot};

use crate::random::Random;

const SECTOR: usize = 512;

#[derive(Clone, Debug, Default)]
struct SegmentFile {
    /// The content as reads return it.
    cached: Vec<u8>,
    /// The content that survives a crash.
    durable: Vec<u8>,
    /// Sectors that may be written back at any time.
    dirty: BTreeSet<usize>,
}

impl SegmentFile {
    fn write_back(&mut self, sector: usize) {
        let range = sector * SECTOR..(sector + 1) * SECTOR;
        self.durable[range.clone()].copy_from_slice(&self.cached[range]);
    }
}

/// How often operations fail: once in so many, or never if 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    pub(crate) write: usize,
    pub(crate) sync: usize,
    pub(crate) create: usize,
    pub(crate) read: usize,
    pub(crate) remove: usize,
}

/// Reads that fail for a while: of some segments, with one error, so many times.
#[derive(Clone, Debug)]
pub(crate) struct Outage {
    pub(crate) slots: BTreeSet<Slot>,
    /// The number of the system's error.
    pub(crate) errno: i32,
    pub(crate) reads: usize,
}

pub(crate) const EIO: i32 = 5;
/// EPERM, ENOMEM, EACCES, ENFILE, EMFILE: none of them says that a medium has lost something.
pub(crate) const NOT_OF_THE_MEDIUM: [i32; 5] = [1, 12, 13, 23, 24];

#[derive(Debug)]
struct State {
    files: BTreeMap<Slot, SegmentFile>,
    random: Random,
    /// Bytes that all files may have.
    space: usize,
    faults: Faults,
    outage: Option<Outage>,
    /// Operations until the power fails.
    fuse: Option<usize>,
    crashed: bool,
    /// A block that cannot be read until it is written.
    bad_block: Option<(Slot, usize)>,
}

/// The disk.
#[derive(Debug)]
pub(crate) struct SimulatedDisk(RefCell<State>);

impl SimulatedDisk {
    pub(crate) fn new(seed: u64) -> Self {
        Self(RefCell::new(State {
            files: BTreeMap::new(),
            random: Random::new(seed ^ 0xd15c),
            space: usize::MAX,
            faults: Faults::default(),
            outage: None,
            fuse: None,
            crashed: false,
            bad_block: None,
        }))
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.0.borrow_mut().faults = faults;
    }

    pub(crate) fn set_outage(&self, outage: Option<Outage>) {
        self.0.borrow_mut().outage = outage;
    }

    pub(crate) fn set_space(&self, bytes: usize) {
        self.0.borrow_mut().space = bytes;
    }

    /// Has the power fail in the middle of the operation after so many.
    pub(crate) fn light_fuse(&self, operations: usize) {
        self.0.borrow_mut().fuse = Some(operations);
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.0.borrow().crashed
    }

    /// The power comes back: of what was not synchronised, each sector is there or not, or all are, or none.
    pub(crate) fn restart(&self) {
        let state = &mut *self.0.borrow_mut();
        let choice = state.random.below(4);
        for file in state.files.values_mut() {
            for sector in std::mem::take(&mut file.dirty) {
                let survives = match choice {
                    0 => false,
                    1 => true,
                    _ => state.random.once_in(2),
                };
                if survives {
                    file.write_back(sector);
                }
            }
            file.cached = file.durable.clone();
        }
        state.crashed = false;
        state.fuse = None;
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.borrow().files.values().map(|file| file.cached.len()).sum()
    }

    pub(crate) fn slots(&self) -> Vec<Slot> {
        self.0.borrow().files.keys().copied().collect()
    }

    /// Changes the bytes of a segment behind the journal's back.
    pub(crate) fn damage(&self, slot: Slot, damage: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.0.borrow_mut();
        let file = state.files.get_mut(&slot).unwrap();
        assert!(file.dirty.is_empty());
        damage(&mut file.durable);
        file.cached = file.durable.clone();
    }

    pub(crate) fn set_bad_block(&self, slot: Slot, block: usize) {
        self.0.borrow_mut().bad_block = Some((slot, block));
    }

    pub(crate) fn content(&self, slot: Slot) -> Vec<u8> {
        self.0.borrow().files[&slot].cached.clone()
    }
}

impl State {
    /// Begins an operation. Returns whether the power fails in it.
    fn begin(&mut self) -> io::Result<bool> {
        if self.crashed {
            return Err(io::Error::other("no power"));
        }
        self.crashed = self.fuse == Some(0);
        self.fuse = self.fuse.map(|left| left.saturating_sub(1));
        Ok(self.crashed)
    }

    fn fails(&mut self, once_in: usize) -> bool {
        once_in > 0 && self.random.once_in(once_in)
    }
}

fn broken() -> io::Error {
    io::Error::other("the disk failed")
}

fn unreadable() -> io::Error {
    io::Error::from_raw_os_error(EIO)
}

impl Disk for SimulatedDisk {
    fn list(&self) -> io::Result<Vec<(Slot, u64)>> {
        let state = &mut *self.0.borrow_mut();
        if state.begin()? {
            return Err(broken());
        }
        Ok(state.files.iter().map(|(slot, file)| (*slot, file.cached.len() as u64)).collect())
    }

    fn create(&self, slot: Slot, bytes: u32) -> io::Result<()> {
        let state = &mut *self.0.borrow_mut();
        let crashes = state.begin()?;
        let used: usize = state.files.values().map(|file| file.cached.len()).sum();
        if used + bytes as usize > state.space {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if state.fails(state.faults.create) || crashes && state.random.once_in(2) {
            return Err(broken());
        }
        state.bad_block = state.bad_block.filter(|(bad, _)| *bad != slot);
        let zeros = vec![0; bytes as usize];
        state.files.insert(slot, SegmentFile { cached: zeros.clone(), durable: zeros, dirty: BTreeSet::new() });
        if crashes { Err(broken()) } else { Ok(()) }
    }

    fn write(&self, slot: Slot, offset: u32, bytes: &[u8]) -> io::Result<()> {
        let state = &mut *self.0.borrow_mut();
        let fails = state.begin()? | state.fails(state.faults.write);
        assert!(offset.is_multiple_of(4096) && bytes.len().is_multiple_of(4096), "whole blocks");
        let length = if fails { state.random.below(bytes.len() / SECTOR + 1) * SECTOR } else { bytes.len() };
        let file = state.files.get_mut(&slot).ok_or(io::ErrorKind::NotFound)?;
        let start = offset as usize;
        let blocks = start / 4096..(start + length).div_ceil(4096);
        state.bad_block = state.bad_block.filter(|(bad, block)| *bad != slot || !blocks.contains(block));
        file.cached[start..start + length].copy_from_slice(&bytes[..length]);
        file.dirty.extend(start / SECTOR..(start + length) / SECTOR);
        if fails { Err(broken()) } else { Ok(()) }
    }

    fn sync(&self, slot: Slot) -> io::Result<()> {
        let state = &mut *self.0.borrow_mut();
        let crashes = state.begin()?;
        let fails = state.fails(state.faults.sync);
        let State { files, random, .. } = state;
        let file = files.get_mut(&slot).ok_or(io::ErrorKind::NotFound)?;
        // A power cut leaves the choice to the restart. A failure is worse: what was not written never will be, and
        // reads see it nevertheless.
        if !crashes {
            for sector in std::mem::take(&mut file.dirty) {
                if !fails || random.once_in(2) {
                    file.write_back(sector);
                }
            }
        }
        if crashes || fails { Err(broken()) } else { Ok(()) }
    }

    fn read(&self, slot: Slot, offset: u32, bytes: &mut [u8]) -> io::Result<()> {
        let state = &mut *self.0.borrow_mut();
        if state.begin()? | state.fails(state.faults.read) {
            return Err(unreadable());
        }
        if let Some(outage) = state.outage.as_mut().filter(|outage| outage.slots.contains(&slot) && outage.reads > 0) {
            outage.reads -= 1;
            return Err(io::Error::from_raw_os_error(outage.errno));
        }
        let file = state.files.get(&slot).ok_or(io::ErrorKind::NotFound)?;
        let blocks = offset as usize / 4096..(offset as usize + bytes.len()).div_ceil(4096);
        if state.bad_block.is_some_and(|(bad, block)| bad == slot && blocks.contains(&block)) {
            return Err(unreadable());
        }
        let found = file.cached.get(offset as usize..offset as usize + bytes.len());
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn remove(&self, slot: Slot) -> io::Result<()> {
        let state = &mut *self.0.borrow_mut();
        let crashes = state.begin()?;
        if state.fails(state.faults.remove) || crashes && state.random.once_in(2) {
            return Err(broken());
        }
        state.files.remove(&slot).ok_or(io::ErrorKind::NotFound)?;
        if crashes { Err(broken()) } else { Ok(()) }
    }
}
