//! Large events for many observers while there is no room for their rests (RFC 7959 §2.6).

use std::collections::VecDeque;

use fogmux_coap::server::{Observed, Room, StreamLimits};
use fogmux_coap::{Block, BlockSize, Location};

use super::*;

const BODY: [u8; 1400] = [7; 1400];
/// Events that fit into half of the room, which is that of ten: the newest is kept under the filter besides.
const FIT: usize = 4;

/// A connection with observations of a filter, none of which has been notified of the newest event of `ev/one`.
struct Crowd {
    server: Server<SocketAddr>,
    now: Timestamp,
    peer: SocketAddr,
    relations: Vec<RelationId>,
    out: Outbox<SocketAddr>,
}

impl Crowd {
    fn new(observations: u32) -> Self {
        let bytes = BODY.len() * 10;
        let config = ServerConfig { reliable: true, download_bytes_max: bytes, ..ServerConfig::default() };
        let mut server = Server::new(config, 42, Box::new(|_: &[u8]| [7; 8]));
        let (now, peer) = (Timestamp::from_millis(1_000_000), address(true));
        server.connect(now, peer, StreamLimits { message_bytes_max: 1152, bert: false }, 1152);
        let mut crowd = Self { server, now, peer, relations: Vec::new(), out: Outbox::default() };
        for number in 0..observations {
            let token = Token::new(&number.to_be_bytes()).unwrap();
            let relation = crowd.request(&token, &[(OptionNumber::OBSERVE, &[]), (OptionNumber::URI_QUERY, b"f=ev")]);
            crowd.relations.push(relation.unwrap());
        }
        crowd
    }

    fn request(&mut self, token: &Token, options: &[(OptionNumber, &[u8])]) -> Option<RelationId> {
        let (mut bytes, room) = (Vec::new(), Room::default());
        let mut encoder = Encoder::new(&mut bytes, Type::Confirmable, Code::GET, 1, token);
        options.iter().for_each(|(number, value)| encoder.push(*number, value));
        encoder.finish();
        let message = Message::decode(&bytes).unwrap();
        let Incoming { mut ticket, .. } =
            self.server.handle_stream(self.now, self.peer, message, &room, &mut self.out).unwrap();
        let registered = self.server.observe_as(self.now, &mut ticket, Observed::Many).ok();
        self.server.respond(self.now, ticket, &Response::new(Code::CONTENT), &mut self.out);
        self.out.clear();
        registered.map(|registered| registered.relation())
    }

    fn notify(&mut self, relation: RelationId, path: &str) -> Notified {
        let location = Some(Location { root: "ev", path });
        let response = Response { location, payload: Payload::Slice(&BODY), ..Response::new(Code::CONTENT) };
        let notification = Notification { response, confirmable: false, encoded: None, event: true };
        let told = self.server.notify(self.now, relation, &notification, &mut self.out);
        self.out.clear();
        told
    }

    /// Fills the client's half of the room, and has every observation wait for the room for one more event.
    fn fill(&mut self) {
        let all = self.relations.clone();
        for number in 0..FIT {
            assert_eq!(self.notify(all[number % all.len()], &format!("{number}")), Notified::Sent);
        }
        for (number, relation) in all.into_iter().enumerate() {
            assert_eq!(self.notify(relation, &format!("one{number}")), Notified::Later);
        }
    }

    /// The client fetches the last block.
    fn fetch(&mut self, path: &str) {
        let block = Block { number: 1, more: false, size: BlockSize::at_most(1024) }.encode().to_be_bytes();
        let options = [
            (OptionNumber::URI_PATH, &b"ev"[..]),
            (OptionNumber::URI_PATH, path.as_bytes()),
            (OptionNumber::BLOCK2, &block[3..]),
        ];
        self.request(&Token::new(b"get").unwrap(), &options);
    }

    /// The observations that are asked for their newest state, with the time passing.
    fn asked(&mut self, passes: Duration) -> VecDeque<RelationId> {
        self.now = self.now + passes;
        self.server.handle_timeout(self.now, &mut self.out);
        std::iter::from_fn(|| self.server.poll_event())
            .map(|event| match event {
                Event::Ready { relation } => relation,
                Event::ObserverGone { reason, .. } => panic!("{reason:?}"),
            })
            .collect()
    }

    fn number(&self, relation: RelationId) -> usize {
        self.relations.iter().position(|other| *other == relation).unwrap()
    }
}

#[test]
fn observers_without_room_are_not_all_tried_again_and_again() {
    let mut crowd = Crowd::new(500);
    crowd.fill();
    let mut tries = 0;
    for _ in 0..100 {
        for relation in crowd.asked(Duration::from_millis(20)) {
            tries += 1;
            let number = crowd.number(relation);
            assert_eq!(number, 0, "the first of them");
            assert_eq!(crowd.notify(relation, &format!("one{number}")), Notified::Later);
        }
    }
    assert!((10..=100).contains(&tries), "{tries} tries in two seconds");
    assert!(crowd.relations.iter().all(|relation| !crowd.server.is_forgotten(crowd.now, *relation)));
}

#[test]
fn observers_without_room_are_asked_in_order_when_something_was_fetched() {
    let mut crowd = Crowd::new(40);
    crowd.fill();
    let mut told = Vec::new();
    for fetched in 0..40 {
        crowd.fetch(&if fetched < FIT { format!("{fetched}") } else { format!("one{}", fetched - FIT) });
        let mut ready = crowd.asked(Duration::ZERO);
        assert!((1..=8).contains(&ready.len()), "{} are asked at once", ready.len());
        while let Some(relation) = ready.pop_front() {
            let number = crowd.number(relation);
            if crowd.notify(relation, &format!("one{number}")) == Notified::Sent {
                told.push(number);
            }
            ready.extend(crowd.asked(Duration::ZERO));
        }
    }
    assert_eq!(told, (0..40).collect::<Vec<_>>());
}

#[test]
fn observers_without_room_get_all_of_it_when_it_comes_at_once_and_none_waits_for_one_that_is_gone() {
    let mut crowd = Crowd::new(40);
    crowd.fill();
    let gone = crowd.relations[0];
    crowd.server.end_observation(gone);
    assert!(crowd.server.poll_event().is_some());
    let mut told = Vec::new();
    for _ in 0..12 {
        // A download that rests for ten seconds makes room.
        let mut ready = crowd.asked(Duration::from_secs(10));
        while let Some(relation) = ready.pop_front() {
            let number = crowd.number(relation);
            if crowd.notify(relation, &format!("one{number}")) == Notified::Sent {
                told.push(number);
            }
            ready.extend(crowd.asked(Duration::ZERO));
        }
    }
    assert_eq!(told, (1..40).collect::<Vec<_>>());
    assert_eq!(crowd.server.next_timeout().map(|at| at > crowd.now + Duration::from_secs(1)), Some(true), "idle again");
}
