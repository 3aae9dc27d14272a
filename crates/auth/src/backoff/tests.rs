//! Tests of the login back-off.

use super::*;

const FAR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

#[test]
fn waits_double_up_to_the_maximum_and_are_forgotten() {
    let mut backoff = Backoff::new(BackoffConfig { free_failures: 2, ..BackoffConfig::default() });
    let mut waits = Vec::new();
    for _ in 0..14 {
        backoff.failed(1000, FAR, "alice");
        waits.push(backoff.wait(1000, FAR, "nobody").map_or(0, |wait| wait.time.as_millis()));
    }
    assert_eq!(waits[..6], [0, 0, 500, 1000, 2000, 4000]);
    assert_eq!(waits[13], 300_000);
    let elsewhere = IpAddr::from([192, 0, 2, 2]);
    let by_name = Wait { time: Duration::from_secs(10), cause: WaitCause::Name };
    assert_eq!(backoff.wait(1000, elsewhere, "alice"), Some(by_name));
    assert_eq!(backoff.wait(1000, FAR, "alice").unwrap().cause, WaitCause::Address);
    assert_eq!(backoff.wait(1000 + 10_000, elsewhere, "alice"), None);
    backoff.failed(2_000_000, FAR, "alice");
    assert_eq!(backoff.wait(2_000_000, FAR, "alice"), None, "forgotten after fifteen quiet minutes");
}

#[test]
fn fifty_at_once_come_no_further_than_one_after_another() {
    let mut backoff = Backoff::default();
    let elsewhere = |number: u8| IpAddr::from([198, 51, 100, number]);
    // Of an address that did not fail, all are tried; then each of them counts.
    let begun = |backoff: &mut Backoff, now_ms| {
        (0..50).filter(|user| backoff.begin(now_ms, FAR, &user.to_string()).is_ok()).count()
    };
    assert_eq!(begun(&mut backoff, 0), 50);
    for user in 0..50 {
        backoff.ended(FAR, &user.to_string());
        backoff.failed(0, FAR, &user.to_string());
    }
    assert_eq!(begun(&mut backoff, 299_999), 0);
    assert_eq!(begun(&mut backoff, 300_000), 1, "the wait is over: for one");
    // The same for a name, from many addresses.
    for number in 0..3 {
        backoff.failed(0, elsewhere(number), "alice");
    }
    let begun = (0..50).filter(|number| backoff.begin(0, elsewhere(*number), "alice").is_ok()).count();
    assert_eq!(begun, 8, "three of eleven have failed");
}

#[test]
fn what_succeeds_or_could_not_be_tried_leaves_nothing_behind() {
    let mut backoff = Backoff::default();
    for _ in 0..2 {
        let begun = (0..1000).filter(|_| backoff.begin(0, FAR, "alice").is_ok()).count();
        assert_eq!(begun, 128);
        assert_eq!(backoff.wait(0, FAR, "alice").unwrap().cause, WaitCause::UnderWay);
        for _ in 0..128 {
            backoff.ended(FAR, "alice");
            backoff.succeeded(0, FAR, "alice");
        }
        assert!(backoff.users.is_empty() && backoff.addresses.is_empty());
    }
    assert_eq!(backoff.begin(0, FAR, "alice"), Ok(()));
    backoff.succeeded(0, FAR, "alice");
    backoff.ended(FAR, "alice");
    assert!(backoff.users.is_empty());
}

#[test]
fn a_success_forgives_the_name_but_not_the_address() {
    let mut backoff = Backoff::new(BackoffConfig { free_failures: 0, ..BackoffConfig::default() });
    backoff.failed(0, FAR, "alice");
    backoff.succeeded(0, FAR, "alice");
    assert!(backoff.wait(0, [192, 0, 2, 2].into(), "alice").is_none());
    assert!(backoff.wait(0, FAR, "alice").is_some());
    for _ in 0..50 {
        backoff.failed(0, [127, 0, 0, 1].into(), "bob");
    }
    assert!(backoff.wait(0, [127, 0, 0, 1].into(), "carol").is_none());
}

#[test]
fn failures_elsewhere_do_not_keep_the_owner_out() {
    let config = BackoffConfig { free_failures: 0, entries_max: 64, ..BackoffConfig::default() };
    for home in [[192, 0, 2, 9], [127, 0, 0, 1]].map(IpAddr::from) {
        let mut backoff = Backoff::new(config);
        backoff.succeeded(0, home, "alice");
        for number in 2..49 {
            backoff.failed(1, [127, 0, 0, number].into(), "alice");
        }
        assert_eq!(backoff.wait(1, home, "alice"), None);
        backoff.succeeded(1, home, "alice");
        assert!(backoff.wait(1, [192, 0, 2, 2].into(), "alice").is_some(), "guesses elsewhere go on waiting");
        // A device may have been connected for weeks.
        let later_ms = 30 * 24 * 3600 * 1000;
        backoff.failed(later_ms, FAR, "alice");
        assert_eq!(backoff.wait(later_ms, home, "alice"), None);
        // Somebody else at the same address, as behind a proxy, waits for the failures that are made there.
        for _ in 0..5 {
            backoff.failed(later_ms, home, "alice");
        }
        assert!(backoff.wait(later_ms, home, "alice").is_some());
        backoff.succeeded(later_ms + 10_000, home, "alice");
        assert_eq!(backoff.homes.get(home, "alice").unwrap().count, 0);
    }
}

#[test]
fn a_site_of_devices_with_keys_comes_back_at_once() {
    let mut backoff = Backoff::default();
    backoff.failed(0, FAR, "broken");
    for device in 0..1000 {
        assert_eq!(backoff.begin_handshake(0, FAR, &device.to_string()), Ok(()));
    }
    // Guesses at one key are another matter.
    assert_eq!((0..1000).filter(|_| backoff.begin_handshake(0, FAR, "0").is_ok()).count(), 127);
    for device in 0..1000 {
        backoff.ended_handshake(FAR, &device.to_string());
    }
    assert_eq!(backoff.users.len(), 2);
    assert_eq!(backoff.addresses.get(&FAR).unwrap().under_way, 0);
}

#[test]
fn no_account_fills_the_table_of_known_addresses() {
    let mut backoff = Backoff::new(BackoffConfig { entries_max: 64, ..BackoffConfig::default() });
    let home = IpAddr::from([192, 0, 2, 9]);
    backoff.succeeded(0, home, "alice");
    for number in 0..100_u8 {
        backoff.succeeded(1, [198, 51, 100, number].into(), "bob");
    }
    assert_eq!(backoff.homes.len(), 17);
    assert!(backoff.homes.get(home, "alice").is_some());
    for number in 0..1000_u64 {
        backoff.succeeded(2 + number, home, &number.to_string());
        assert!(backoff.homes.len() <= 64);
    }
    assert!(backoff.homes.get(home, "999").is_some() && backoff.homes.get(home, "alice").is_none());
}

#[test]
fn the_tables_are_bounded_and_keep_the_worst() {
    let mut backoff = Backoff::new(BackoffConfig { free_failures: 0, entries_max: 64, ..BackoffConfig::default() });
    for _ in 0..9 {
        backoff.failed(0, FAR, "victim");
    }
    for number in 0..10_000_u32 {
        backoff.failed(1, IpAddr::from(number.to_be_bytes()), &number.to_string());
    }
    assert!(backoff.users.len() <= 64 && backoff.addresses.len() <= 64);
    assert!(backoff.wait(1, FAR, "victim").is_some_and(|wait| wait.time > Duration::from_secs(60)));
    // A /64 is one party.
    backoff.failed(1, "2001:db8::1".parse().unwrap(), "x");
    assert!(backoff.wait(1, "2001:db8::ffff".parse().unwrap(), "y").is_some());
}
