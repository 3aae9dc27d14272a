//! A server that answers every request, with what it likes, for as long as it is asked: a request ends after a number
//! of messages that its bodies bound, and an observation keeps no more than it may.

use super::*;

/// Bytes of a body from the server.
const BODY_BYTES_MAX: usize = 256;
/// Bytes of the smallest block.
const BLOCK_BYTES_MIN: usize = 16;

/// The number that the server answers to a block option of the request.
#[derive(Clone, Copy, Debug)]
enum Number {
    /// There is no option.
    Absent,
    /// That of the request, or 0.
    Echoed,
    /// The one behind that.
    Next,
    Fixed(u32),
}

/// An answer to a request.
#[derive(Clone, Debug)]
struct Reply {
    code: u8,
    observe: bool,
    etag: u8,
    block1: (Number, bool, u32),
    block2: (Number, bool, u32),
    echo: bool,
    payload: usize,
    /// It comes on its own, without an acknowledgement.
    separate: bool,
}

const CODES: [u8; 8] = [0x5f, 0x45, 0x45, 0x44, 0x84, 0x8d, 0x81, 0x88];

impl Reply {
    fn write(&self, request: &Message<'_>, message_id: u16) -> Vec<u8> {
        let code = Code::from_byte(CODES[usize::from(self.code) % CODES.len()]);
        let (kind, id) = if self.separate {
            (Type::NonConfirmable, message_id)
        } else {
            (Type::Acknowledgement, request.message_id)
        };
        let block = |(number, more, size): (Number, bool, u32), option| {
            let asked = request.option(option).and_then(|option| option.uint()).map_or(0, |block| block >> 4);
            let number = match number {
                Number::Absent => return None,
                Number::Echoed => asked,
                Number::Next => asked + 1,
                Number::Fixed(number) => number,
            };
            Some(number << 4 | u32::from(more) << 3 | size)
        };
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, kind, code, id, &request.token);
        encoder.push(OptionNumber::ETAG, &[self.etag]);
        let mut uint = |number, value: Option<u32>| {
            value.iter().for_each(|value| encoder.push(number, UintValue::new(*value).as_slice()));
        };
        uint(OptionNumber::OBSERVE, self.observe.then_some(u32::from(message_id)));
        uint(OptionNumber::BLOCK2, block(self.block2, OptionNumber::BLOCK2));
        uint(OptionNumber::BLOCK1, block(self.block1, OptionNumber::BLOCK1));
        if self.echo {
            encoder.push(OptionNumber::ECHO, b"echo");
        }
        encoder.payload(&[b'x'; 64][..self.payload]);
        bytes
    }
}

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![
        1 => Just(Number::Absent),
        6 => Just(Number::Echoed),
        1 => Just(Number::Next),
        1 => (0_u32..5).prop_map(Number::Fixed),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let block = || (number(), prop::bool::weighted(0.8), 0_u32..3);
    let payload = prop_oneof![Just(16_usize), Just(32), Just(64), 0_usize..=64];
    let rest = (block(), block(), prop::bool::weighted(0.1), payload, prop::bool::weighted(0.1));
    let replies = (0_u8..8, prop::bool::weighted(0.2), prop::bool::weighted(0.1), rest);
    replies.prop_map(|(code, observe, etag, (block1, block2, echo, payload, separate))| Reply {
        code,
        observe,
        etag: u8::from(etag),
        block1,
        block2,
        echo,
        payload,
        separate,
    })
}

fn machine(reliable: bool) -> Machine {
    let bounds = ClientConfig { block_size: BlockSize::at_most(64), chunk: 64, ..ClientConfig::default() };
    let config =
        ClientConfig { reliable, body_bytes_max: BODY_BYTES_MAX, bodies_bytes_max: 2 * BODY_BYTES_MAX, ..bounds };
    Machine::new(config, 7, None)
}

/// Takes all messages that are to be sent. Returns the requests.
fn requests(machine: &mut Machine, now: Timestamp, ends: &mut Ends) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    while let Some(message) = machine.front() {
        if Message::decode(message).unwrap().code != Code::EMPTY {
            sent.push(message.to_vec());
        }
        machine.sent(now, ends);
    }
    sent
}

proptest! {
    #[test]
    fn a_request_ends_after_as_many_messages_as_its_bodies_have_blocks(
        replies in vec(reply(), 1..6),
        bytes in prop_oneof![Just(0_usize), Just(16), Just(64), Just(65), 0_usize..600],
        (reliable, confirmable) in any::<(bool, bool)>(),
    ) {
        let mut machine = machine(reliable);
        let (mut ends, mut now, mut id) = (Ends::default(), Timestamp::from_millis(1000), 60_000_u16);
        machine.request(&template(false, confirmable), &vec![b'y'; bytes], 0).unwrap();
        // Each block of the request, and one for each size; the answer twice, for it may change once; an Echo.
        let most = bytes / BLOCK_BYTES_MIN + 1 + 7 + 2 * (BODY_BYTES_MAX / BLOCK_BYTES_MIN + 1) + 1;
        let mut answers = replies.iter().cycle();
        for asked in 0.. {
            let Some(request) = requests(&mut machine, now, &mut ends).pop() else { break };
            prop_assert!(asked <= most, "{} requests for {} bytes", asked, bytes);
            id = id.wrapping_add(1);
            let reply = answers.next().unwrap().write(&Message::decode(&request).unwrap(), id);
            machine.handle(now, &reply, &mut ends);
            machine.check();
        }
        // An answer that was not heard leaves the request open, until its time is over.
        let end = now + Duration::from_secs(100 + 93);
        while let Some(due) = machine.next_timeout() {
            now = due;
            prop_assert!(now <= end);
            machine.handle_timeout(now, &mut ends);
            requests(&mut machine, now, &mut ends);
        }
        prop_assert_eq!((machine.in_flight(), machine.body_bytes), (0, 0));
        prop_assert!(ends.over.contains_key(&0));
    }

    #[test]
    fn an_observation_keeps_no_more_than_it_may(
        notified in vec((0_u8..60, prop::bool::weighted(0.9), prop::option::of(reply())), 0..200),
        reliable in any::<bool>(),
    ) {
        let mut machine = machine(reliable);
        let (mut ends, mut now, mut id) = (Ends::default(), Timestamp::from_millis(1000), 20_000_u16);
        machine.request(&template(true, true), b"", 0).unwrap();
        let registration = requests(&mut machine, now, &mut ends).pop().unwrap();
        let registration = Message::decode(&registration).unwrap();
        let mut open: VecDeque<Vec<u8>> = VecDeque::new();
        for (path, more, reply) in notified {
            id += 1;
            let mut datagram = Vec::new();
            let mut encoder =
                Encoder::new(&mut datagram, Type::NonConfirmable, Code::CONTENT, id, &registration.token);
            encoder.push(OptionNumber::OBSERVE, UintValue::new(u32::from(id)).as_slice());
            encoder.push(OptionNumber::LOCATION_PATH, &[b'a' + path % 26, b'a' + path / 26]);
            encoder.push(OptionNumber::BLOCK2, &[u8::from(more) << 3]);
            encoder.payload(&[b'x'; 16]);
            machine.handle(now, &datagram, &mut ends);
            machine.check();
            open.extend(requests(&mut machine, now, &mut ends));
            if let (Some(reply), Some(request)) = (reply, open.pop_front()) {
                machine.handle(now, &reply.write(&Message::decode(&request).unwrap(), id | 0x8000), &mut ends);
                machine.check();
                open.extend(requests(&mut machine, now, &mut ends));
            }
            // The observation, what is fetched for it, and another registration.
            prop_assert!(machine.in_flight() <= 1 + rests::RESTS_MAX + 1);
            prop_assert!(machine.exchanges.iter().all(|(_, it)| it.plain.capacity() < 512));
        }
        // All that waits has its turn, and time.
        for _ in 0..20_000 {
            let Some(due) = machine.next_timeout() else { break };
            now = due;
            machine.handle_timeout(now, &mut ends);
            requests(&mut machine, now, &mut ends);
        }
        prop_assert_eq!((machine.rests, machine.body_bytes, machine.waiting.len()), (0, 0, 0));
    }
}
