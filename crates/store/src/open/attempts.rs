//! The count of attempts to open the tree that ended the process, and of what they prove.
//!
//! The database panics on some kinds of damage, twice in a row where it unwinds, which ends the process. So a file says
//! while the tree is opened that an attempt is under way, and a panic is noted in it. Attempts that all panicked prove
//! damage. One that ended without a word proves none: it was killed, or the power went. An attempt that returns
//! leaves no count.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
    panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind},
    path::Path,
    sync::Arc,
    thread,
};

use super::faults::Failed;

/// The file of an attempt that is under way, or that ended the process.
const FILE: &str = "opening";
/// Free bytes that the disk must have for an attempt.
const ROOM_BYTES: usize = 256 << 10;
/// Attempts in a row that crashed the process, after which the tree is damaged.
const CRASHES_MAX: u16 = 3;
/// Attempts in a row that ended without a word, after which the gateway starts without the tree.
pub(super) const UNEXPLAINED_MAX: u16 = 5;

/// The attempts in a row that ended the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Past {
    crashes: u16,
    unexplained: u16,
}

impl Past {
    /// Reads the counts. A file that is no such is none: counts that are lost only delay a verdict.
    pub(super) fn read(directory: &Path) -> Self {
        let text = fs::read_to_string(directory.join(FILE)).unwrap_or_default();
        let mut words = text.split_whitespace();
        let mut count = |name: &str| words.next()?.strip_prefix(name)?.parse().ok();
        match (count("crashes="), count("unexplained=")) {
            (Some(crashes), Some(unexplained)) => Self { crashes, unexplained },
            _ => Self::default(),
        }
    }

    /// Why these attempts prove that the tree is damaged, if they do.
    pub(super) fn proof(&self) -> Option<String> {
        let Self { crashes, .. } = self;
        (*crashes >= CRASHES_MAX).then(|| format!("opening it has crashed the process {crashes} times in a row"))
    }

    /// Whether the process ended too often for a reason that is not known.
    pub(super) const fn is_unexplained(&self) -> bool {
        self.unexplained >= UNEXPLAINED_MAX
    }

    /// Removes the counts.
    pub(super) fn forget(&self, directory: &Path) {
        let _ = fs::remove_file(directory.join(FILE));
    }

    // Of one length, so that one is written over another in place.
    fn text(&self) -> String {
        format!("crashes={:<5} unexplained={:<5}\n", self.crashes, self.unexplained)
    }
}

/// An attempt that is under way.
#[derive(Debug)]
pub(super) struct Attempt {
    file: Arc<File>,
    past: Past,
}

impl Attempt {
    /// Notes that an attempt begins.
    ///
    /// # Errors
    /// When the disk has no room for one; the counts are then as they were.
    pub(super) fn begin(directory: &Path, past: &Past) -> io::Result<Self> {
        let path = directory.join(FILE);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
        let now = Past { unexplained: past.unexplained.saturating_add(1), ..*past };
        // Padded, so that a disk without room is noticed before the database is half-way through opening.
        let mut text = now.text();
        text.extend(std::iter::repeat_n(' ', ROOM_BYTES));
        if let Err(error) = file.write_all_at(text.as_bytes(), 0).and_then(|()| file.sync_all()) {
            let before = past.text();
            if *past == Past::default() {
                past.forget(directory);
            } else if file.set_len(before.len() as u64).is_ok() {
                let _ = file.write_all_at(before.as_bytes(), 0);
            }
            return Err(error);
        }
        Ok(Self { file: Arc::new(file), past: *past })
    }

    /// Runs the attempt. A panic is noted before it can end the process.
    pub(super) fn run<T>(&self, open: impl Fn() -> fjall::Result<T>) -> Result<T, Failed> {
        let (file, past) = (Arc::clone(&self.file), self.past);
        let crashed = Past { crashes: past.crashes.saturating_add(1), ..past };
        let note = move || {
            let _ = file.write_all_at(crashed.text().as_bytes(), 0);
            let _ = file.sync_data();
        };
        witnessed(note, || guarded(open))
    }

    /// Notes that the process has survived the attempt.
    pub(super) fn end(self, directory: &Path) {
        self.past.forget(directory);
    }
}

/// Opens a tree. A panic is tried once more: damage does the same again.
pub(super) fn guarded<T>(open: impl Fn() -> fjall::Result<T>) -> Result<T, Failed> {
    let once = || catch_unwind(AssertUnwindSafe(&open));
    match once() {
        Ok(done) => done.map_err(Ok),
        Err(panic) => match once() {
            Ok(Ok(tree)) => Ok(tree),
            // The lock, which the panic may have leaked, or the same again.
            Ok(Err(_)) | Err(_) => Err(Err(panic)),
        },
    }
}

/// Calls `note` at each panic of this thread, besides the hook that is set.
fn witnessed<T>(note: impl Fn() + Send + Sync + 'static, work: impl FnOnce() -> T) -> T {
    let before: Arc<dyn Fn(&PanicHookInfo<'_>) + Send + Sync> = Arc::from(panic::take_hook());
    let (here, hook) = (thread::current().id(), Arc::clone(&before));
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() == here {
            note();
        }
        hook(info);
    }));
    let done = work();
    panic::set_hook(Box::new(move |info| before(info)));
    done
}
