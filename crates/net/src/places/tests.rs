//! Places, by hand: no runtime, and futures are polled one at a time.

use std::{
    collections::HashMap,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use super::*;

type Taking = Pin<Box<dyn Future<Output = Place>>>;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn taking(places: &Places, from: IpAddr) -> Taking {
    let places = places.clone();
    Box::pin(async move { places.take(from).await })
}

fn poll<T>(future: &mut Pin<Box<dyn Future<Output = T>>>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ready) => Some(ready),
        Poll::Pending => None,
    }
}

fn taken(places: &Places, from: &str) -> Option<Place> {
    poll(&mut taking(places, ip(from)))
}

fn is_lost(place: &mut Place) -> bool {
    place.lost.try_recv() != Err(oneshot::error::TryRecvError::Empty)
}

fn sizes(places: &Places) -> (usize, usize) {
    places.with(|table| (table.held.len(), table.waiting.len()))
}

#[test]
fn the_oldest_handshake_of_the_heaviest_network_gives_way_to_another_network() {
    let places = Places::new(8);
    let silent = |host: u8| taken(&places, &format!("198.51.100.{}", host % 2)).unwrap();
    let mut held: Vec<Place> = (0..8).map(silent).collect();
    assert!(taken(&places, "198.51.100.0").is_none(), "the heaviest waits");
    let genuine = taken(&places, "192.0.2.1").unwrap();
    let lost: Vec<bool> = held.iter_mut().map(is_lost).collect();
    assert_eq!(lost.iter().filter(|lost| **lost).count(), 1);
    assert!(lost[0] || lost[1], "the oldest of a host: {lost:?}");
    // Its end is no second place for anybody.
    let at = lost.iter().position(|lost| *lost).unwrap();
    drop(held.remove(at));
    assert_eq!(sizes(&places), (8, 0));
    drop(genuine);
    assert_eq!(sizes(&places), (7, 0));
}

#[test]
fn a_host_has_its_share_of_the_network() {
    let places = Places::new(4);
    let mut held: Vec<Place> = (0..4).map(|_| taken(&places, "2001:db8:1::1").unwrap()).collect();
    let other = taken(&places, "2001:db8:1:1::1");
    assert!(other.is_some() && is_lost(&mut held[0]), "another /64 of the /48");
    assert!(taken(&places, "2001:db8:1::2").is_none(), "one host");
}

#[test]
fn a_fleet_behind_one_address_is_served_in_its_order() {
    let places = Places::new(2);
    let mut held: Vec<Place> = (0..2).map(|_| taken(&places, "192.0.2.1").unwrap()).collect();
    let mut row: Vec<Taking> = (0..3).map(|_| taking(&places, ip("192.0.2.1"))).collect();
    assert!(row.iter_mut().all(|taking| poll(taking).is_none()));
    assert!(!held.iter_mut().any(is_lost));
    // One that goes while it waits takes no place with it.
    drop(row.remove(1));
    held.remove(0);
    held.extend(poll(&mut row[0]));
    assert_eq!((held.len(), sizes(&places)), (2, (2, 1)));
    assert!(poll(&mut row[1]).is_none());
    held.clear();
    assert!(poll(&mut row[1]).is_some());
    drop(row);
    assert_eq!(sizes(&places), (0, 0));
}

#[test]
fn a_place_stays_with_its_network_and_else_goes_to_each_in_turn() {
    let places = Places::new(3);
    let [a, b, c] = ["192.0.2.1", "198.51.100.1", "203.0.113.1"];
    let mut held: Vec<Place> = [a, b, c].iter().map(|from| taken(&places, from).unwrap()).collect();
    let mut row: Vec<Taking> = ["192.0.2.2", "192.0.2.3", b].iter().map(|from| taking(&places, ip(from))).collect();
    assert!(row.iter_mut().all(|taking| poll(taking).is_none()), "nobody has two");
    drop(held.remove(0));
    let of_a = poll(&mut row[0]).expect("of its network");
    // Nobody of its network waits.
    drop(held.pop());
    let next: Vec<Option<Place>> = row.iter_mut().skip(1).map(poll).collect();
    assert_eq!(next.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false]);
    drop(of_a);
    assert!(row.last_mut().and_then(poll).is_some(), "the turn of the last");
}

#[test]
fn nobody_below_its_share_loses_a_place_or_waits() {
    const PLACES: usize = 12;
    let places = Places::new(PLACES);
    let hosts = ["192.0.2.1", "192.0.2.2", "198.51.100.1", "198.51.100.2", "203.0.113.1", "2001:db8::1"];
    let network = |from: &str| network_of(ip(from)).0;
    let mut held: Vec<(&str, Place)> = Vec::new();
    let mut seed = 88_172_645_463_325_252_u64;
    for _ in 0..5000 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let roll = usize::try_from(seed % 1000).unwrap();
        if roll < 250 && !held.is_empty() {
            held.swap_remove(roll % held.len());
            continue;
        }
        // The first host comes most often.
        let from = hosts[(roll % 12).saturating_sub(6)];
        let mut before: HashMap<IpAddr, usize> = HashMap::new();
        held.iter().for_each(|(from, _)| *before.entry(network(from)).or_default() += 1);
        let own = before.get(&network(from)).copied().unwrap_or(0);
        let most = before.values().copied().max().unwrap_or(0);
        let place = taken(&places, from);
        assert!(place.is_some() || held.len() == PLACES && own + 1 >= most, "{from} waits: {before:?}");
        held.extend(place.map(|place| (from, place)));
        held.retain_mut(|(victim, place)| {
            let lost = is_lost(place);
            let its = before.get(&network(victim)).copied().unwrap_or(0);
            assert!(!lost || network(victim) == network(from) || its >= own + 2, "{victim} to {from}: {before:?}");
            !lost
        });
        assert_eq!(sizes(&places), (held.len(), 0));
        assert!(held.len() <= PLACES);
    }
}
