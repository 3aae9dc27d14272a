//! Protected messages: the first byte chooses. A request that nobody sealed is refused with an answer the standard
//! names; a response that nobody sealed is not taken for one; any plain request comes out of the other end as it went
//! in.
#![no_main]

use std::sync::{Arc, LazyLock};

use fogmux_coap::{Class, Message, Timestamp};
use fogmux_oscore::{Algorithm, Context, Id, Opened, Parameters, Requests, Reservation, Ring, SequenceStore, Start};
use libfuzzer_sys::fuzz_target;

/// A disk that is never slow.
struct AtOnce;

impl SequenceStore for AtOnce {
    fn reserve(&self, reservation: Reservation) {
        reservation.is_durable();
    }
}

fn parameters() -> Parameters {
    Parameters {
        master_secret: (1..=16).collect::<Vec<u8>>().into(),
        master_salt: vec![0x9e, 0x7c, 0xa9, 0x22],
        id_context: None,
        sender_id: Id::new(&[1]).expect("short"),
        recipient_id: Id::new(b"").expect("short"),
        algorithm: Algorithm::default(),
    }
}

fn context(parameters: &Parameters) -> Arc<Context> {
    let start = Start { next: 0, durable: 0, requests: Requests::SeenBelow(0) };
    Context::new("fuzz".into(), parameters, start, Arc::new(AtOnce)).expect("good parameters")
}

static SERVER: LazyLock<Ring> = LazyLock::new(|| {
    let mut ring = Ring::default();
    ring.add(context(&parameters())).expect("the only one");
    ring
});
static CLIENT: LazyLock<Arc<Context>> = LazyLock::new(|| {
    let client = context(&parameters().mirrored());
    client.prepare();
    client
});
/// Of a context of its own: what is sealed with it is opened once.
const GET: [u8; 4] = [0x40, 0x01, 0x00, 0x01];

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else { return };
    let Ok(message) = Message::decode(rest) else { return };
    let mut inner = Vec::new();
    match first % 3 {
        0 => {
            if let Err(refused) = SERVER.open_request(Timestamp::ZERO, &message, &mut inner) {
                let _ = (refused.reason(), refused.text());
            } else {
                panic!("nobody sealed that");
            }
        }
        1 => {
            let mut sealed = Vec::new();
            let get = Message::decode(&GET).expect("a request");
            let Ok(mut pending) = CLIENT.seal_request(&get, &mut sealed) else { return };
            assert!(pending.open(&message, &mut inner).is_err(), "nobody sealed that");
        }
        _ => {
            if message.code.class() != Class::Request {
                return;
            }
            let mut sealed = Vec::new();
            let Ok(_) = CLIENT.seal_request(&message, &mut sealed) else { return };
            let outer = Message::decode(&sealed).expect("our own");
            match SERVER.open_request(Timestamp::ZERO, &outer, &mut inner) {
                Ok(Opened::Request(_) | Opened::Unproven(..)) => {}
                Err(refused) => panic!("our own is refused: {refused}"),
            }
            let came = Message::decode(&inner).expect("our own");
            assert_eq!((came.code, came.payload()), (message.code, message.payload()));
        }
    }
});
