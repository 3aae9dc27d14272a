//! The decision on who gives way, with the state given.

use proptest::prelude::*;

use super::*;

const QUEUE: usize = 16 << 20;
const TIGHT: usize = 48 << 20;

/// A look each second at clients that hold so many bytes each and take the part of that which `takes` gives; returns
/// who has to go at each look. Publishers have to pause at the looks that `pressed` names. Before the looks that
/// `stopped` names the gateway did not run.
fn looks(clients: &[(usize, usize)], pressed: &[bool], stopped: &[u64]) -> Vec<Vec<usize>> {
    let mut reclaim = Reclaim::new(QUEUE);
    let mut second = 0;
    let one = |(look, is_pressed): (u64, &bool)| {
        second += u64::from(!stopped.contains(&look));
        let now = Running::from_millis(second * 1000 + 500);
        let hold = |(id, (bytes, part)): (usize, &(usize, usize))| {
            let taken = if *part == 0 { 0 } else { bytes / part * usize::try_from(second).unwrap() };
            (id, Held { bytes: *bytes, connected: true, taken: u32::try_from(taken).unwrap() })
        };
        let held: Vec<_> = clients.iter().enumerate().map(hold).collect();
        let owners = [Clients { slow_bytes: TIGHT / KEPT, held }];
        let go = reclaim.judge(Look { now, is_pressed: *is_pressed }, &owners);
        let mut go: Vec<usize> = go.into_iter().collect();
        go.sort_unstable();
        go
    };
    (0..).zip(pressed).map(one).collect()
}

#[test]
fn those_that_hold_most_go_when_publishers_have_had_to_pause_for_two_seconds_however_much_they_read() {
    let readers = [(30 << 20, 2), (20 << 20, 2), (1 << 20, 2)];
    let none = Vec::<usize>::new();
    assert_eq!(looks(&readers, &[true; 3], &[]), [none.clone(), none.clone(), vec![0, 1]]);
    assert_eq!(looks(&readers, &[false; 9], &[]), vec![none.clone(); 9]);
    // Memory that comes back in between ends the wait.
    let flaps = [true, true, false, true, true, false, true, true];
    assert_eq!(looks(&readers, &flaps, &[]), vec![none.clone(); 8]);
    // The gateway was stopped, in which time nobody could take anything.
    let stopped = looks(&readers, &[true; 4], &[2]);
    assert_eq!(stopped, [none.clone(), none.clone(), none, vec![0, 1]]);
}

#[test]
fn nobody_goes_who_holds_less_than_half_a_queue_and_reads() {
    let readers: Vec<_> = (0..40).map(|_| (QUEUE / 2, 2)).collect();
    assert!(looks(&readers, &[true; 9], &[]).iter().all(Vec::is_empty));
}

#[test]
fn those_that_take_hardly_anything_go_after_two_seconds_in_which_the_gateway_ran() {
    // The last takes a fair part of its queue, the one before hardly anything.
    let clients = [(12 << 20, 0), (12 << 20, 32), (12 << 20, 8)];
    let none = Vec::<usize>::new();
    assert_eq!(looks(&clients, &[false; 3], &[]), [none.clone(), none.clone(), vec![0, 1]]);
    let stopped = looks(&clients, &[false; 4], &[2]);
    assert_eq!(stopped, [none.clone(), none.clone(), none.clone(), vec![0, 1]]);
    // It stops again and again, and runs for two seconds of eight.
    let often = looks(&clients, &[false; 9], &[1, 2, 3, 5, 6, 7]);
    assert_eq!(often.iter().position(|gone| *gone == [0, 1]), Some(8));
}

proptest! {
    /// For any amounts held and taken: after two seconds in which publishers had to pause, the clients that stay hold
    /// half of the total at most, unless each of them holds half a queue or less.
    #[test]
    fn publishers_never_wait_for_long_for_those_that_hold_most(
        clients in proptest::collection::vec((1_usize..(64 << 20), 0_usize..64), 1..30), before in 0_usize..4
    ) {
        let mut pressed = vec![false; before];
        pressed.extend([true; 3]);
        let seen = looks(&clients, &pressed, &[]);
        let gone = seen.last().unwrap();
        let left: Vec<usize> = (0..clients.len()).filter(|id| !gone.contains(id)).collect();
        let bytes = |ids: &[usize]| ids.iter().map(|id| clients[*id].0).sum::<usize>();
        let all = bytes(&(0..clients.len()).collect::<Vec<_>>());
        prop_assert!(bytes(&left) <= all / 2 || left.iter().all(|id| clients[*id].0 <= QUEUE / 2), "{gone:?}");
    }
}
