//! The turns of a connection.

use super::*;
use crate::coap::{CoapConfig, tests::run};

#[test]
fn pings_are_work_of_a_turn() {
    /// As many as a read holds.
    const PINGS: usize = 21_000;
    run(CoapConfig::default(), true, async |house| {
        let hub = Hub::of(&house.ctx).unwrap();
        let path = hub.open(Peer::plain(house.address, true), WireKind::Stream);
        let (room, mut asked, mut turns) = (Room::default(), 0, 0);
        loop {
            turns += 1;
            let taken = hub.take(path, &room, |_| {
                asked += 1;
                Ok((asked <= PINGS).then_some(Heard::Ping { token: Token::EMPTY, custody: true }))
            });
            if taken.all {
                break;
            }
        }
        assert!(turns >= PINGS / 1024, "{PINGS} Pings in {turns} turns");
    });
}
