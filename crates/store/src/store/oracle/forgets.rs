//! Records that a failing disk did not forget are not there for ever.

use fogmux_bus::{
    SessionKey,
    durable::{Batch as Changes, Recovered, SessionLog, SessionStore},
};

use super::*;

fn open(medium: &Arc<Medium>) -> JournalStore {
    Rig::open(medium, Durability::Group).store
}

fn begin(store: &JournalStore) -> SessionLog {
    let mut batch = SessionStore::batch(store);
    let mut log = SessionLog::begin(SessionKey("s".into()), "ada".into(), None, batch.as_mut());
    let completion = batch.append();
    log.appended(&completion);
    assert!(wait(&completion));
    log
}

fn sessions(medium: &Arc<Medium>) -> usize {
    let store = open(medium);
    let found = Recovered::load(&store).sessions.len();
    store.close().unwrap();
    found
}

/// Appends changes of a session, and waits for them.
fn change(store: &JournalStore, log: &mut SessionLog, change: impl FnOnce(&mut SessionLog, &mut dyn Changes)) -> bool {
    let mut batch = SessionStore::batch(store);
    change(log, batch.as_mut());
    let completion = batch.append();
    log.appended(&completion);
    wait(&completion)
}

#[test]
fn a_session_that_ended_while_the_disk_failed_is_not_back() {
    // With a write when the disk works again, a trial of it, or nothing but the end of the process.
    for later in 0..3 {
        let medium = Arc::new(Medium::default());
        let store = open(&medium);
        let log = begin(&store);
        medium.platters().broken = true;
        let mut batch = SessionStore::batch(&store);
        log.end([], batch.as_mut());
        assert!(!wait(&batch.append()));
        medium.platters().broken = false;
        match later {
            0 => assert!(wait(&store.put(&message("a", 1), None, None))),
            1 => {
                store.0.trial();
                let deadline = Instant::now() + Duration::from_secs(60);
                while store.0.shared.ledger().trying {
                    assert!(Instant::now() < deadline, "nobody was told");
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            _ => drop(store.close()),
        }
        medium.cut_power();
        let _ = store.close();
        assert!(store.0.shared.ledger().spare.len() <= 1, "no more than the trial");
        drop(store);
        medium.power_up();
        assert_eq!(sessions(&medium), 0, "{later}");
    }
}

/// Its record that was to be replaced is the only one, and must not be forgotten by itself.
#[test]
fn a_session_whose_record_the_disk_did_not_replace_is_there_until_it_ends() {
    for ends in [false, true] {
        let medium = Arc::new(Medium::default());
        let store = open(&medium);
        let mut log = begin(&store);
        medium.platters().broken = true;
        for since in 0..3 {
            assert!(!change(&store, &mut log, |log, batch| log.disconnect(since, None, batch)));
        }
        medium.platters().broken = false;
        assert!(wait(&store.put(&message("a", 1), None, None)));
        if ends {
            assert!(change(&store, &mut log, |log, batch| log.disconnect(3, None, batch)));
            let mut batch = SessionStore::batch(&store);
            log.end([], batch.as_mut());
            assert!(wait(&batch.append()));
        }
        store.close().unwrap();
        drop(store);
        assert_eq!(sessions(&medium), usize::from(!ends));
    }
}
