//! Large events for observers of single resources: nothing retains an event, so its rest is kept until it is fetched
//! (RFC 7959 §2.6), and the next one waits for room.

use std::collections::BTreeSet;

use fogmux_coap::server::{Registered, Room, StreamLimits};
use fogmux_coap::{Block, BlockSize};

use super::*;

/// Bytes of an event: a block and the rest.
const BYTES: usize = 1400;
/// Events that all room holds.
const ROOM: usize = 10;

/// A connection with an observation for each of many resources.
struct Reader {
    server: Server<SocketAddr>,
    now: Timestamp,
    peer: SocketAddr,
    relations: Vec<RelationId>,
    out: Outbox<SocketAddr>,
}

impl Reader {
    fn new(observations: u8) -> Self {
        let config = ServerConfig { reliable: true, download_bytes_max: BYTES * ROOM, ..ServerConfig::default() };
        let mut server = Server::new(config, 42, Box::new(|_: &[u8]| [7; 8]));
        let (now, peer) = (Timestamp::from_millis(1_000_000), address(true));
        server.connect(now, peer, StreamLimits { message_bytes_max: 1152, bert: false }, 1152);
        let mut reader = Self { server, now, peer, relations: Vec::new(), out: Outbox::default() };
        for number in 0..observations {
            let (registered, _) = reader.get(number, &[REGISTER]);
            reader.relations.push(registered.unwrap().relation());
        }
        reader
    }

    /// GET of a resource. Returns the answer, which is empty unless it is a block of what is kept.
    fn get(&mut self, resource: u8, options: &[(OptionNumber, &[u8])]) -> (Option<Registered>, Sent) {
        let (mut bytes, room) = (Vec::new(), Room::default());
        let mut encoder = Encoder::new(&mut bytes, Type::Confirmable, Code::GET, 1, &Token::new(&[resource]).unwrap());
        let path: [(OptionNumber, &[u8]); 1] = [(OptionNumber::URI_PATH, &[resource])];
        let mut all: Vec<_> = options.iter().chain(&path).collect();
        all.sort_by_key(|(number, _)| *number);
        all.into_iter().for_each(|(number, value)| encoder.push(*number, value));
        encoder.finish();
        let message = Message::decode(&bytes).unwrap();
        let incoming = self.server.handle_stream(self.now, self.peer, message, &room, &mut self.out);
        let Incoming { mut ticket, .. } = incoming.unwrap();
        let registered = self.server.observe(self.now, &mut ticket).ok();
        self.server.respond(self.now, ticket, &Response::new(Code::CONTENT), &mut self.out);
        let answer = sent(&self.out).remove(0);
        self.out.clear();
        (registered, answer)
    }

    /// Notifies of an event, whose bytes are all the number of the resource.
    fn notify(&mut self, resource: u8) -> Notified {
        let body = [resource; BYTES];
        let response = Response { payload: Payload::Slice(&body), ..Response::new(Code::CONTENT) };
        let notification = Notification { response, confirmable: false, encoded: None, event: true };
        let relation = self.relations[usize::from(resource)];
        let told = self.server.notify(self.now, relation, &notification, &mut self.out);
        self.out.clear();
        told
    }

    /// Fetches the last block of an event.
    fn fetch(&mut self, resource: u8) -> Vec<u8> {
        let block = Block { number: 1, more: false, size: BlockSize::at_most(1024) }.encode().to_be_bytes();
        let (_, answer) = self.get(resource, &[(OptionNumber::BLOCK2, &block[3..])]);
        answer.message().payload().to_vec()
    }
}

#[test]
fn s2_6_rests_of_events_of_single_resources_do_not_displace_each_other() {
    let mut reader = Reader::new(30);
    let mut open = BTreeSet::new();
    for resource in 0..30 {
        if reader.notify(resource) == Notified::Sent {
            open.insert(resource);
        }
    }
    assert_eq!(open.len(), ROOM / 2, "an owner leaves half of the room to others");
    let mut told = 0;
    while let Some(resource) = open.pop_first() {
        let rest = vec![resource; BYTES - 1024];
        assert_eq!(
            reader.fetch(resource),
            rest,
            "event {resource} is lost: {} are counted",
            reader.server.events_lost()
        );
        told += 1;
        while let Some(event) = reader.server.poll_event() {
            let Event::Ready { relation } = event else { panic!("{event:?}") };
            let ready = reader.relations.iter().position(|other| *other == relation).unwrap();
            let ready = u8::try_from(ready).unwrap();
            if reader.notify(ready) == Notified::Sent {
                open.insert(ready);
            }
        }
    }
    assert_eq!((told, reader.server.events_lost()), (30, 0));
}

#[test]
fn s2_6_an_event_of_a_single_resource_that_nobody_fetches_is_counted_when_it_goes() {
    let mut reader = Reader::new(1);
    assert_eq!(reader.notify(0), Notified::Sent);
    reader.now = reader.now + Duration::from_secs(3600);
    reader.server.handle_timeout(reader.now, &mut reader.out);
    assert!(reader.fetch(0).len() < BYTES - 1024);
    assert_eq!(reader.server.events_lost(), 1);
}
