//! Numbers of contexts that come from a backup, on machines with right and with wrong clocks (RFC 8613 §7.2.1).

use super::{super::restored::note, *};

/// 2027-01-15, when the backup is made.
const BACKUP: u64 = 1_800_000_000;
/// 2020-01-01.
const EPOCH: u64 = 1_577_836_800;
const AT_BACKUP: u64 = (BACKUP - EPOCH) * 256;
const YEAR: u64 = 366 * 86_400 * 256;
/// Clocks of the machine that the backup is restored on: none, one of an image, right, and years later.
const CLOCKS: [u64; 4] = [600, 1_795_000_000, BACKUP + 60, BACKUP + 100_000_000];

/// A clock that was never set, as a Pi has it at boot.
fn unset() -> Duration {
    Duration::from_secs(600)
}

/// Restores a context that has no line, and returns the first number that is reserved for it.
fn begun(backup: BackedUp, clock: u64, random: u64) -> u64 {
    let data = Data::new();
    data.add("one.toml", &own_toml_at(1, "alice", Duration::from_secs(BACKUP - 86_400)));
    note(&data.journal(), backup, Duration::from_secs(clock), random).unwrap();
    let keyring = data.open_at(unset);
    assert_eq!((keyring.len(), keyring.why_waiting()), (1, None));
    reserved(&data) - 1024
}

/// How far numbers are reserved for the only context.
fn reserved(data: &Data) -> u64 {
    let fingerprint = parameters(1).fingerprint().to_string();
    let text = fs::read_to_string(data.journal()).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix(&*fingerprint)?.split(' ').nth(1)?.parse().ok());
    lines.max().expect("a line")
}

#[test]
fn s7_2_1_restored_numbers_begin_beyond_those_of_a_year_after_the_backup_whatever_the_clock_says() {
    // Reserved by the gateway: as many as the clock gives, more, and none.
    for below in [AT_BACKUP, 3 * AT_BACKUP, 0] {
        for clock in CLOCKS {
            let first = begun(BackedUp { unix_s: BACKUP, below }, clock, 0);
            assert!(first >= AT_BACKUP.max(below) + YEAR, "{first} of {below} at {clock}");
            assert!(first >= (clock.max(EPOCH) - EPOCH) * 256, "{first} at {clock}");
        }
    }
    // The clock of the old gateway was not set either.
    assert!(begun(BackedUp { unix_s: 600, below: AT_BACKUP }, 600, 0) >= AT_BACKUP + YEAR);
}

#[test]
fn s7_2_1_two_restores_of_one_backup_begin_apart() {
    let backup = BackedUp { unix_s: BACKUP, below: AT_BACKUP };
    for clock in CLOCKS {
        let mut firsts: Vec<u64> =
            (0..8_u64).map(|turn| begun(backup, clock, turn.wrapping_mul(1 << 61) / 7)).collect();
        firsts.sort_unstable();
        assert!(firsts.is_sorted_by(|a, b| a + 1_000_000 < *b), "{firsts:?}");
        // Partial IVs have 40 bits, of which a restore takes a sixteenth at most.
        assert!(*firsts.last().unwrap() < 1 << 38, "{firsts:?}");
    }
}

#[test]
fn s7_2_1_numbers_are_left_after_twenty_restores_of_restored_gateways() {
    let mut backup = BackedUp { unix_s: BACKUP, below: AT_BACKUP };
    for turn in 0..20_u64 {
        backup.below = begun(backup, BACKUP, turn.wrapping_mul(0x9e37_79b9_7f4a_7c15)) + 1024;
    }
    assert!(backup.below < (1 << 40) - (1 << 38), "{}", backup.below);
}

#[test]
fn b_1_2_a_context_that_was_new_at_the_backup_has_no_window_after_a_restore_at_a_stale_clock() {
    let data = Data::new();
    data.add("one.toml", &own_toml(1, "alice"));
    let backup = BackedUp { unix_s: since_1970().as_secs(), below: 0 };
    note(&data.journal(), backup, Duration::from_secs(600), 7).unwrap();
    // The clock is set before the gateway starts.
    assert!(is_asked_for_proof(&mut Shield::new(data.open()), &device(1)));
}

#[test]
fn a_context_without_numbers_waits_for_the_clock_and_others_do_not() {
    static SET: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    fn clock() -> Duration {
        if SET.load(Ordering::Relaxed) { since_1970() } else { unset() }
    }
    let data = Data::new();
    data.add("one.toml", &own_toml(1, "alice"));
    drop(data.open());
    data.add("two.toml", &toml::write(Some("bob"), &parameters(2)));
    let keyring = data.open_at(clock);
    assert_eq!(keyring.len(), 1, "alice's numbers are in the journal");
    let why = keyring.why_waiting().expect("bob's are not");
    assert!(why.contains("two.toml") && why.contains("clock") && !keyring.can_go_on(), "{why}");
    SET.store(true, Ordering::Relaxed);
    assert!(keyring.can_go_on());
    data.reload(&keyring);
    assert_eq!((keyring.len(), keyring.why_waiting(), keyring.can_go_on()), (2, None, false));
    assert!(is_asked_for_proof(&mut Shield::new(keyring), &device(2)));
}

#[test]
fn a_clock_before_the_keys_were_made_is_not_set() {
    let data = Data::new();
    data.add("one.toml", &own_toml_at(1, "alice", since_1970() + Duration::from_secs(86_400)));
    let keyring = data.open();
    assert!(keyring.is_empty() && keyring.why_waiting().is_some());
}
