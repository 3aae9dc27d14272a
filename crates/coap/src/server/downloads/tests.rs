//! Room for downloads: the peers that find some, and the downloads that are dropped for it.

use super::*;
use crate::slab::Slab;

const CONFIG: fn() -> ServerConfig =
    || ServerConfig { download_bytes_max: 1000, downloads_max: 100, ..ServerConfig::default() };

fn downloads() -> Downloads {
    Downloads::new(&CONFIG(), FixedState::with_seed(1))
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn snapshot(now: Timestamp, bytes: usize) -> Snapshot {
    Snapshot { body: vec![7; bytes].into(), etag: None, content_format: None, touched: now }
}

fn owner(name: &str) -> Owner {
    Owner::principal(name.into())
}

fn peers() -> [Key; 3] {
    let mut slab = Slab::new();
    [(); 3].map(|()| slab.insert(()).unwrap())
}

#[test]
fn a_hog_does_not_end_the_download_of_another() {
    let (mut downloads, [hog, victim, _]) = (downloads(), peers());
    downloads.keep(at(1), ((victim, 0, 0), owner("victim")), snapshot(at(1), 400));
    for number in 0..50 {
        downloads.keep(at(2), ((hog, 0, number), owner("hog")), snapshot(at(2), 100));
        assert!(downloads.room.weight() <= 1000);
    }
    assert!(downloads.find(at(50), (victim, 0, 0)).is_some());
    assert_eq!(downloads.take_gave_way(), Some((44, owner("hog"))));
    assert_eq!(downloads.map.len(), 7);
    assert_eq!(downloads.lost(), 0, "all of that can be fetched anew");
}

#[test]
fn an_event_waits_until_those_before_are_fetched() {
    let (mut downloads, [peer, ..]) = (downloads(), peers());
    let keep = |downloads: &mut Downloads, seconds, number| {
        downloads.keep_event(at(seconds), ((peer, 0, number), owner("ada")), snapshot(at(seconds), 200))
    };
    assert!(keep(&mut downloads, 1, 0) && keep(&mut downloads, 1, 1), "half of the room");
    assert!(!keep(&mut downloads, 1, 2));
    assert!(!keep(&mut downloads, 1, 0), "a newer one of the same resource");
    // Progress of one is progress of all: they are fetched one after the other.
    assert!(downloads.find(at(9), (peer, 0, 0)).is_some());
    assert!(!keep(&mut downloads, 12, 2));
    downloads.finish((peer, 0, 0));
    assert!(keep(&mut downloads, 12, 2));
    assert!(downloads.find(at(12), (peer, 0, 0)).is_none() && downloads.find(at(12), (peer, 0, 1)).is_some());
    assert_eq!((downloads.lost(), downloads.map.len()), (0, 2));
    // A client that fetches nothing holds nobody up for long, and what it has not fetched is counted.
    assert!(!keep(&mut downloads, 21, 3) && keep(&mut downloads, 22, 3));
    assert_eq!(downloads.lost(), 1);
    downloads.sweep(at(100));
    assert_eq!((downloads.lost(), downloads.room.weight(), downloads.progress.len()), (3, 0, 0));
}

#[test]
fn an_event_of_one_that_has_none_finds_room() {
    let (mut downloads, [ada, bob, eve]) = (downloads(), peers());
    for number in 0..2 {
        assert!(downloads.keep_event(at(1), ((ada, 0, number), owner("ada")), snapshot(at(1), 250)));
        assert!(downloads.keep_event(at(1), ((bob, 0, number), owner("bob")), snapshot(at(1), 250)));
    }
    assert!(downloads.keep_event(at(1), ((eve, 0, 0), owner("eve")), snapshot(at(1), 250)));
    assert!(!downloads.keep_event(at(1), ((eve, 0, 1), owner("eve")), snapshot(at(1), 250)), "but not a second one");
    assert_eq!((downloads.lost(), downloads.map.len()), (1, 4));
    assert!(downloads.keep_event(at(1), ((eve, 0, 1), owner("eve")), snapshot(at(1), 2000)), "never any room");
    assert_eq!(downloads.lost(), 2);
}

#[test]
fn what_is_kept_besides_displaces_nothing() {
    let (mut downloads, [ada, ..]) = (downloads(), peers());
    downloads.keep(at(1), ((ada, 0, 0), owner("ada")), snapshot(at(1), 900));
    downloads.keep_besides(((ada, 0, 1), owner("ada")), snapshot(at(1), 200));
    assert!(downloads.find(at(1), (ada, 0, 1)).is_none() && downloads.find(at(1), (ada, 0, 0)).is_some());
    downloads.forget(ada);
    assert!(downloads.is_empty() && downloads.room.is_empty());
}
