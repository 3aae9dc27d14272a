//! Fairness and bounds of the queue.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn v4(network: u8, host: u8) -> IpAddr {
    [192, 0, network, host].into()
}

fn drained(queue: &mut LoginQueue<&'static str>) -> Vec<&'static str> {
    std::iter::from_fn(|| queue.pop()).collect()
}

#[test]
fn networks_take_turns_and_in_each_its_sources() {
    let mut queue = LoginQueue::default();
    let logins = [
        (v4(1, 1), "a1"),
        (v4(1, 1), "a2"),
        (v4(1, 1), "a3"),
        (v4(1, 2), "b1"),
        (v4(1, 2), "b2"),
        (v4(2, 1), "c1"),
        (v4(2, 1), "c2"),
    ];
    for (address, login) in logins {
        assert_eq!(queue.push(address, "x", login), Ok(None));
    }
    assert_eq!(drained(&mut queue), ["a1", "c1", "b1", "c2", "a2", "b2", "a3"]);
    assert!(queue.is_empty());
}

#[test]
fn a_64_is_one_source_a_48_one_network_and_a_mapped_address_is_ipv4() {
    let source = |text: &str| Source::of(text.parse().unwrap());
    assert_eq!(source("2001:db8:1:2::1"), source("2001:db8:1:2:ffff::9"));
    assert_ne!(source("2001:db8:1:2::1"), source("2001:db8:1:3::1"));
    assert_eq!(source("2001:db8:1:2::1").network(), source("2001:db8:1:ffff::1").network());
    assert_ne!(source("2001:db8:1::1").network(), source("2001:db8:2::1").network());
    assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
    assert_eq!(source("192.0.2.1").network(), source("192.0.2.254").network());
}

#[test]
fn who_has_logged_in_before_has_every_other_turn_in_a_flood() {
    let mut queue = LoginQueue::default();
    queue.succeeded(v4(1, 7), "alice");
    for host in 0..250 {
        for _ in 0..20 {
            let _ = queue.push(v4(1, host), "guess", "flood");
        }
    }
    assert_eq!(queue.len(), 384 + 20, "three quarters of half, and the neighbours of alice");
    assert_eq!(queue.push(v4(1, 7), "alice", "alice"), Ok(None), "a place is kept");
    let at = drained(&mut queue).iter().position(|login| *login == "alice").unwrap();
    assert!(at <= 2, "position {at}");
}

#[test]
fn a_full_network_makes_room_for_a_source_that_has_fewer() {
    let mut queue = LoginQueue::default();
    for number in 0..1000_u32 {
        let _ = queue.push(v4(1, u8::try_from(number % 47).unwrap()), "guess", number);
    }
    assert_eq!(queue.len(), 384, "three quarters of half");
    let lost = queue.push(v4(1, 200), "new", 9999).unwrap();
    assert!(lost.is_some_and(|lost| lost >= 300), "the newest of the longest: {lost:?}");
    let mut before = 0;
    while queue.pop() != Some(9999) {
        before += 1;
    }
    assert!(before <= 47, "after one login of each other source: {before}");
}

#[test]
fn a_source_has_half_of_the_room_and_is_refused_beyond() {
    let mut queue = LoginQueue::default();
    let taken = (0..1000).filter(|_| queue.push(v4(1, 1), "guess", ()).is_ok()).count();
    assert_eq!(taken, 256);
    queue.retain(|()| false);
    assert!(queue.is_empty());
    let mut small = LoginQueue::new(QueueConfig { waiting_max: 1, known_max: 0 });
    assert_eq!(small.push(v4(1, 1), "a", 1), Ok(None));
    assert_eq!(small.push(v4(1, 2), "a", 2), Err(2));
    let mut none = LoginQueue::new(QueueConfig { waiting_max: 0, known_max: 0 });
    assert_eq!(none.push(v4(1, 1), "a", 1), Err(1));
}

#[test]
fn those_who_have_logged_in_last_are_known() {
    let mut known = Known::new(8);
    let source = |host| Source::of(v4(1, host));
    for host in 0..100 {
        known.note(source(host), "a");
    }
    assert!(known.has_source(source(99)) && known.has_user(source(99), "a") && !known.has_user(source(99), "b"));
    assert!(!known.has_source(source(1)));
    known.configure(0);
    assert!(!known.has_source(source(99)));
}

proptest! {
    #[test]
    fn the_bounds_hold_and_nothing_is_lost_or_doubled(
        steps in proptest::collection::vec((0_u8..4, 0_u8..6, 0_u8..3, 0_u8..8), 1..400),
        waiting_max in 0_usize..40,
    ) {
        let mut queue = LoginQueue::new(QueueConfig { waiting_max, known_max: 16 });
        let mut inside: HashMap<usize, ()> = HashMap::new();
        for (number, (network, host, user, what)) in steps.into_iter().enumerate() {
            let (address, user) = (v4(network, host), user.to_string());
            match what {
                0 => queue.succeeded(address, &user),
                1 => if let Some(login) = queue.pop() {
                    prop_assert!(inside.remove(&login).is_some());
                },
                2 => {
                    queue.retain(|login| login % 2 == 0);
                    inside.retain(|login, ()| login % 2 == 0);
                }
                _ => match queue.push(address, &user, number) {
                    Ok(lost) => {
                        inside.insert(number, ());
                        if let Some(lost) = lost {
                            prop_assert!(inside.remove(&lost).is_some() && lost != number);
                        }
                    }
                    Err(refused) => prop_assert_eq!(refused, number),
                },
            }
            prop_assert_eq!(queue.len(), inside.len());
            prop_assert!(queue.len() <= waiting_max);
        }
        while let Some(login) = queue.pop() {
            prop_assert!(inside.remove(&login).is_some());
        }
        prop_assert!(inside.is_empty());
    }
}
