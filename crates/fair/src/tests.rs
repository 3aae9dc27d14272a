//! Properties that hold for any sequence of arrivals.

use std::{collections::HashMap, net::IpAddr};

use proptest::prelude::*;

use super::*;

fn user(name: &str) -> Owner {
    Owner::principal(name.into())
}

fn host(address: &str) -> Owner {
    Owner::nameless(address.parse::<IpAddr>().unwrap())
}

/// The owners of the property: principals, and nameless clients of several networks.
fn owners() -> Vec<Owner> {
    let hosts = ["192.0.2.1", "192.0.2.2", "198.51.100.1", "2001:db8::1", "2001:db8:0:1::1", "2001:db8:1::1"];
    ["ada", "bob", "eve"].map(user).into_iter().chain(hosts.map(host)).collect()
}

/// Has entries give way until the room is no longer overfull, and checks each: none is of an owner that has no more
/// than its share.
fn give_way(room: &mut Room<u64>) -> Vec<u64> {
    let mut gone = Vec::new();
    while room.is_overfull() {
        assert_is_above_its_share(room, &room.heaviest().unwrap());
        let (heaviest, next) = (room.heaviest().unwrap(), room.give_way(|_| None::<()>).unwrap());
        assert_eq!(next.owner, heaviest);
        gone.push(next.number);
    }
    assert_eq!(room.give_way(|_| Some(())), None);
    gone
}

/// At each level of the tree the node is above the share that it has there.
fn assert_is_above_its_share(room: &Room<u64>, owner: &Owner) {
    let mut node = owner.0.clone();
    let mut path = vec![node.clone()];
    while let Some(parent) = node.parent() {
        path.push(parent.clone());
        node = parent;
    }
    path.pop();
    let mut share = room.weight_max as f64;
    for node in path.into_iter().rev() {
        let parent = node.parent().unwrap();
        let siblings = room.weights.keys().filter(|other| other.parent().as_ref() == Some(&parent)).count();
        share /= siblings as f64;
        assert!(room.weight_of(&node) as f64 > share, "{node:?} has no more than {share}");
    }
}

proptest! {
    #[test]
    fn an_owner_below_its_share_never_gives_way(
        weight_max in 1_usize..500,
        steps in prop::collection::vec((0_usize..9, 0_usize..120, 0_usize..4), 1..200),
    ) {
        let owners = owners();
        let mut room = Room::new(weight_max);
        let mut there: Vec<u64> = Vec::new();
        for (owner, weight, kind) in steps {
            match kind {
                0 if !there.is_empty() => { room.leave(there.remove(weight % there.len())); }
                1 if !there.is_empty() => { room.set(there[owner % there.len()], weight); }
                _ => there.push(room.enter(owners[owner].clone(), weight, 0)),
            }
            let gone = give_way(&mut room);
            there.retain(|number| !gone.contains(number));
            prop_assert!(room.weight() <= weight_max);
            prop_assert_eq!(room.len(), there.len());
            let sum: usize = room.entries.values().map(|entry| entry.weight).sum();
            prop_assert_eq!(room.weight(), sum);
            let mut by_owner: HashMap<&Owner, usize> = HashMap::new();
            room.entries.values().for_each(|entry| *by_owner.entry(&entry.owner).or_default() += entry.weight);
            for owner in &owners {
                prop_assert_eq!(room.weight_of_owner(owner), by_owner.get(owner).copied().unwrap_or(0));
            }
        }
        there.into_iter().for_each(|number| { room.leave(number); });
        prop_assert!(room.weights.is_empty() && room.by_weight.is_empty() && room.by_owner.is_empty());
    }

    #[test]
    fn who_has_no_more_than_its_share_keeps_all_of_it(
        weights in prop::collection::vec(0_usize..400, 9), budget in 0_usize..2000
    ) {
        let owners: Vec<_> = owners().into_iter().zip(weights).collect();
        let kept = divide(&owners, budget);
        let (has, keeps) = (owners.iter().map(|(_, has)| has).sum::<usize>(), kept.iter().sum::<usize>());
        prop_assert!(keeps <= budget.min(has));
        // Rounding costs less than one for each owner.
        prop_assert!(keeps + owners.len() > budget.min(has));
        // Three principals, and all the nameless as a fourth: networks of two hosts, one, two and one of those.
        let shares = [4, 4, 4, 32, 32, 16, 32, 32, 16];
        for (((owner, has), kept), share) in owners.iter().zip(&kept).zip(shares) {
            prop_assert!(kept <= has);
            prop_assert!(*kept == *has || *kept + 4 >= budget / share, "{owner} keeps {kept} of {has}");
        }
    }

    #[test]
    fn a_level_fits_the_budget_and_is_the_largest_that_does(
        mut sizes in proptest::collection::vec(0_usize..1000, 1..50), budget in 0_usize..20_000
    ) {
        let level = level(&mut sizes, budget);
        let sum = |level: usize| sizes.iter().map(|size| *size.min(&level)).sum::<usize>();
        prop_assert!(sum(level) <= budget);
        if level < usize::MAX {
            prop_assert!(sum(level + 1) > budget);
        }
    }

    #[test]
    fn a_newcomer_within_its_share_always_gets_in(others in prop::collection::vec((1_usize..9, 1_usize..400), 1..100)) {
        let owners = owners();
        let mut room = Room::new(1000);
        for (owner, weight) in others {
            room.enter(owners[owner].clone(), weight, 0);
            give_way(&mut room);
        }
        // Ada is one of at most four: two others with a name, and all the nameless.
        for _ in 0..5 {
            let number = room.enter(owners[0].clone(), 50, 0);
            prop_assert!(!give_way(&mut room).contains(&number));
        }
        prop_assert_eq!(room.weight_of_owner(&owners[0]), 250);
    }
}

#[test]
fn all_nameless_clients_have_one_share_and_networks_share_it() {
    let mut room = Room::new(1000);
    let ada = room.enter(user("ada"), 500, 0);
    let far = room.enter(host("198.51.100.7"), 20, 0);
    for host in 0..=255 {
        for _ in 0..4 {
            room.enter(Owner::nameless([192, 0, 2, host].into()), 10, 0);
        }
    }
    give_way(&mut room);
    assert!(room.get(ada).is_some() && room.get(far).is_some());
    assert_eq!(room.weight(), 1000);
    let of_hosts = (0..=255).map(|host| room.weight_of_owner(&Owner::nameless([192, 0, 2, host].into())));
    assert!(of_hosts.max() <= Some(10), "hosts of a network are equal");
}

#[test]
fn of_an_owner_the_one_that_rests_gives_way_or_the_newest() {
    let mut room = Room::new(40);
    let [first, second, third, fourth] = [5_u64, 9, 0, 0].map(|rested| room.enter(user("ada"), 10, rested));
    assert_eq!(room.give_way(|_| Some(())), None, "there is room");
    let mut more = |least: u64| {
        let number = room.enter(user("ada"), 10, 0);
        (number, room.give_way(|rested| (*rested >= least).then_some(*rested)).unwrap().number)
    };
    assert_eq!(more(5).1, second);
    assert_eq!(more(5).1, first);
    let (newest, gone) = more(5);
    assert_eq!(newest, gone);
    assert_eq!(more(0).1, third, "the oldest of equals");
    assert!(!room.set(second, 1) && room.set(fourth, 10));
    assert_eq!((room.len(), room.free(), room.get(fourth)), (4, 0, Some(&0)));
}

#[test]
fn an_address_is_its_host() {
    assert_eq!(host("::ffff:192.0.2.1"), host("192.0.2.1"));
    assert_eq!(host("2001:db8::1"), host("2001:db8::2"));
    assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
    assert_eq!(host("2001:db8:0:1::1").0.parent(), host("2001:db8::1").0.parent());
    assert_eq!([user("ada"), host("2001:db8::9")].map(|owner| owner.to_string()), ["ada", "2001:db8::"]);
}

#[test]
fn those_who_share_with_an_owner_are_itself_or_all_the_nameless() {
    let mut room = Room::new(100);
    room.enter(user("ada"), 50, 0);
    assert_eq!(room.heaviest_beside(&host("192.0.2.1")), None);
    assert_eq!(room.heaviest_beside(&user("bob")), None);
    room.enter(host("192.0.2.1"), 1, 0);
    room.enter(host("192.0.2.2"), 2, 0);
    assert_eq!(room.heaviest_beside(&user("ada")), Some(user("ada")));
    assert_eq!(room.heaviest_beside(&host("198.51.100.1")), Some(host("192.0.2.2")));
}

#[test]
fn an_entry_gives_way_only_to_an_owner_that_has_two_fewer_where_their_shares_part() {
    let mut room = Room::new(0);
    let [first, second, elsewhere] = ["192.0.2.1", "192.0.2.2", "198.51.100.1"].map(host);
    for owner in [&first, &first, &second] {
        room.enter(owner.clone(), 1, 0);
    }
    assert_eq!(room.heavier_than(&first), None, "it has most itself");
    assert_eq!(room.heavier_than(&second), Some(first.clone()), "of its own network");
    room.enter(second.clone(), 1, 0);
    assert_eq!(room.heavier_than(&second), None, "among equals nobody");
    room.enter(first.clone(), 1, 0);
    room.enter(elsewhere.clone(), 4, 0);
    assert_eq!(room.heavier_than(&second), Some(first.clone()), "its network has more");
    assert_eq!(room.heavier_than(&elsewhere), Some(first), "its host has more, its network fewer");
}
