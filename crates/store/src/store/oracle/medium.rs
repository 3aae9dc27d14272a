//! A disk in memory that fails, fills up and loses power as it is told.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Mutex, PoisonError},
};

use fogmux_journal::{Disk, Slot};

const SECTOR: usize = 512;

#[derive(Default)]
pub(super) struct SegmentFile {
    cached: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
}

#[derive(Default)]
pub(super) struct Platters {
    pub(super) files: BTreeMap<Slot, SegmentFile>,
    /// Writes and synchronisations until one fails.
    pub(super) fuse: Option<usize>,
    pub(super) space: Option<usize>,
    /// Reads fail with this error, so many times, of this segment or of all.
    pub(super) outage: Option<(i32, usize, Option<Slot>)>,
    /// Every operation but reads fails.
    pub(super) broken: bool,
    /// The power is gone.
    dark: bool,
    pub(super) random: u64,
}

/// A disk in memory. What was not synchronised survives a power cut in sectors, or not.
#[derive(Default)]
pub(super) struct Medium(Mutex<Platters>);

impl Platters {
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    fn begin(&mut self) -> io::Result<bool> {
        if self.dark {
            return Err(io::Error::other("no power"));
        }
        let fails = self.broken || self.fuse == Some(0);
        self.fuse = self.fuse.and_then(|left| left.checked_sub(1));
        Ok(fails)
    }

    fn file(&mut self, slot: Slot) -> io::Result<&mut SegmentFile> {
        self.files.get_mut(&slot).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn write_back(&mut self, slot: Slot, survives: impl Fn(u64) -> bool) {
        let sectors = self.files.get_mut(&slot).map(|file| std::mem::take(&mut file.dirty)).unwrap_or_default();
        for sector in sectors {
            let chance = self.below(100);
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            if let Some(file) = self.files.get_mut(&slot).filter(|_| survives(chance)) {
                file.durable[range.clone()].copy_from_slice(&file.cached[range]);
            }
        }
    }
}

impl Medium {
    pub(super) fn platters(&self) -> std::sync::MutexGuard<'_, Platters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn cut_power(&self) {
        self.platters().dark = true;
    }

    pub(super) fn power_up(&self) {
        let mut platters = self.platters();
        let share = platters.below(3) * 50;
        for slot in platters.files.keys().copied().collect::<Vec<_>>() {
            platters.write_back(slot, |chance| chance < share);
        }
        platters.files.values_mut().for_each(|file| file.cached = file.durable.clone());
        (platters.dark, platters.fuse, platters.space, platters.outage) = (false, None, None, None);
    }
}

impl Disk for Medium {
    fn list(&self) -> io::Result<Vec<(Slot, u64)>> {
        Ok(self.platters().files.iter().map(|(slot, file)| (*slot, file.cached.len() as u64)).collect())
    }

    fn create(&self, slot: Slot, bytes: u32) -> io::Result<()> {
        let mut platters = self.platters();
        platters.begin()?;
        let used: usize = platters.files.values().map(|file| file.cached.len()).sum();
        if platters.space.is_some_and(|space| used + bytes as usize > space) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let zeros = vec![0; bytes as usize];
        platters.files.insert(slot, SegmentFile { cached: zeros.clone(), durable: zeros, dirty: BTreeSet::new() });
        Ok(())
    }

    fn write(&self, slot: Slot, offset: u32, bytes: &[u8]) -> io::Result<()> {
        let mut platters = self.platters();
        let fails = platters.begin()?;
        let sectors = bytes.len() / SECTOR;
        let taken = if fails { usize::try_from(platters.below(sectors as u64 + 1)).unwrap() } else { sectors };
        let (file, start) = (platters.file(slot)?, offset as usize);
        file.cached[start..start + taken * SECTOR].copy_from_slice(&bytes[..taken * SECTOR]);
        file.dirty.extend(start / SECTOR..start / SECTOR + taken);
        if fails { Err(io::Error::other("as told")) } else { Ok(()) }
    }

    fn sync(&self, slot: Slot) -> io::Result<()> {
        let mut platters = self.platters();
        let fails = platters.begin()?;
        // Blocks that a failed synchronisation has not written never will be, though reads see them.
        platters.write_back(slot, |chance| !fails || chance < 50);
        if fails { Err(io::Error::other("as told")) } else { Ok(()) }
    }

    fn read(&self, slot: Slot, offset: u32, bytes: &mut [u8]) -> io::Result<()> {
        let mut platters = self.platters();
        if let Some((errno, left, of)) = &mut platters.outage
            && *left > 0
            && of.is_none_or(|of| of == slot)
        {
            *left -= 1;
            return Err(io::Error::from_raw_os_error(*errno));
        }
        let found = platters.file(slot)?.cached.get(offset as usize..offset as usize + bytes.len());
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn remove(&self, slot: Slot) -> io::Result<()> {
        let mut platters = self.platters();
        platters.begin()?;
        platters.files.remove(&slot);
        Ok(())
    }
}
