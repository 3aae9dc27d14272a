//! The oracle of a disk that fails: whatever fails first, a write that was refused is not found when the store is
//! opened again, and one that was acknowledged is.

use std::{fs, os::unix::fs::FileExt as _, path::Path};

use fogmux_bus::RetainedStore as _;
use proptest::{collection::vec, prelude::*};

use super::{
    tests::{message, wait},
    *,
};
use crate::{FjallStore, StoreConfig, scratch::Scratch, tree::Tree};

/// The state in which a failed write leaves the file.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The disk takes nothing of it.
    Nothing,
    /// The disk takes the beginning, in 256ths.
    Torn(u8),
    /// The disk takes all of it, and the synchronisation fails.
    Unsynced,
    /// As above; and the disk takes no note of the refusal either, but a journal can be cut.
    NoNote,
}

/// A store whose disk fails in its n-th write.
struct Faulty {
    tree: Tree,
    path: Box<Path>,
    good_writes: std::sync::atomic::AtomicUsize,
    fault: Fault,
}

impl Disk for Faulty {
    type Error = String;

    fn write(&self, changes: &mut Vec<Change>, until: Until) -> Result<(), String> {
        if self.good_writes.load(Relaxed) > 0 {
            self.good_writes.fetch_sub(1, Relaxed);
            return self.tree.write(changes, until).map_err(|error| error.to_string());
        }
        // The database's own bytes of this commit, from a copy: a commit that fails is not in its memory.
        let start = self.tree.begin_to_fail(&self.path);
        let (_scratch, copy) = Scratch::copy(&self.path).unwrap();
        Tree::open(&copy, &Counters::default()).unwrap().write(changes, Until::Synced).unwrap();
        let bytes = fs::read(copy.join("0.jnl")).unwrap();
        let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let taken = match self.fault {
            Fault::Nothing => start,
            Fault::Torn(part) => start + (end - start - 1) * usize::from(part) / 256,
            Fault::Unsynced | Fault::NoNote => end,
        };
        let file = fs::File::options().write(true).open(self.path.join("0.jnl")).unwrap();
        file.write_all_at(&bytes[start..taken], start as u64).unwrap();
        Err("as told".to_owned())
    }

    fn sync(&self) -> Result<(), String> {
        self.tree.sync().map_err(|error| error.to_string())
    }

    fn take_back(&self) {
        if matches!(self.fault, Fault::NoNote) {
            self.tree.cut_back();
        } else {
            self.tree.take_back();
        }
    }
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![Just(Fault::Nothing), any::<u8>().prop_map(Fault::Torn), Just(Fault::Unsynced), Just(Fault::NoNote)]
}

/// A write: its topic, its bytes or a removal, and whether the writer waits for its outcome before the next.
fn write() -> impl Strategy<Value = (u8, Option<usize>, bool)> {
    let bytes = prop_oneof![4 => 0_usize..2_000, 2 => 200_000_usize..600_000, 1 => 1_000_000_usize..1_200_000];
    (0_u8..6, proptest::option::weighted(0.8, bytes), any::<bool>())
}

fn stored(path: &Path) -> Vec<(String, usize)> {
    let store = FjallStore::open(&StoreConfig { durability: Durability::Group, ..StoreConfig::new(path) }).unwrap();
    let mut found = Vec::new();
    store.load(&mut |stored| found.push((stored.topic.to_string(), stored.payload.len())));
    assert_eq!((store.counters().moved_aside, store.counters().lost_commits), (0, 0));
    store.close().unwrap();
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_was_refused_is_not_found_and_what_was_acknowledged_is(
        lives in vec((vec(write(), 1..25), 0_usize..6, fault()), 1..4),
    ) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("store");
        let mut model = std::collections::BTreeMap::new();
        for (writes, good_writes, fault) in lives {
            // Makes it, so that its journal is number 0 in each life.
            drop(stored(&path));
            let counters = Arc::new(Counters::default());
            let tree = Tree::open(&path, &counters).unwrap();
            let faulty = Faulty { tree, path: path.as_path().into(), good_writes: good_writes.into(), fault };
            let queue = Queue::new(Durability::Group, 64 << 20);
            let undo = OnceLock::new();
            std::thread::scope(|scope| {
                scope.spawn(|| run(&queue, faulty, Durability::Group, &counters, &undo));
                let mut outcomes = Vec::new();
                for (topic, bytes, waits) in writes {
                    let topic = Topic::new(&format!("t/{topic}")).unwrap();
                    let write = match bytes {
                        Some(bytes) => Write::Put(message(topic.as_str(), vec![7; bytes]), None),
                        None => Write::Remove,
                    };
                    let completion = queue.push(&topic, write, None);
                    if waits {
                        let _ = wait(&completion);
                    }
                    outcomes.push((topic.to_string(), bytes, completion));
                }
                queue.close();
                for (topic, bytes, completion) in outcomes {
                    match (wait(&completion), bytes) {
                        (Ok(()), Some(bytes)) => { model.insert(topic, bytes); }
                        (Ok(()), None) => { model.remove(&topic); }
                        (Err(StoreFailed), _) => {}
                    }
                }
            });
            let expected: Vec<_> = model.iter().map(|(topic, bytes)| (topic.clone(), *bytes)).collect();
            prop_assert_eq!(stored(&path), expected);
        }
    }
}
