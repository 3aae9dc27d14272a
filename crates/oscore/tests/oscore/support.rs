//! Support for the tests: two ends of a context, and a store without a disk.

use std::sync::{Arc, Mutex};

use fogmux_coap::{Code, Encoder, Message, OptionNumber, Token, Type};
use fogmux_oscore::{Algorithm, Context, Id, Parameters, Requests, Reservation, Ring, SequenceStore, Start};

/// A store that grants every reservation at once and records it.
#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) granted: Mutex<Vec<u64>>,
}

impl SequenceStore for Disk {
    fn reserve(&self, reservation: Reservation) {
        self.granted.lock().unwrap().push(reservation.below());
        reservation.is_durable();
    }
}

/// Grants nothing: each reservation fails.
pub(crate) struct BrokenDisk;

impl SequenceStore for BrokenDisk {
    fn reserve(&self, _: Reservation) {}
}

pub(crate) const UNUSED: Start = Start { next: 0, durable: 1024, requests: Requests::SeenBelow(0) };

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// The client's side of RFC 8613 appendix C.1, but for the IDs.
pub(crate) fn parameters(sender: &str, recipient: &str) -> Parameters {
    Parameters {
        master_secret: hex("0102030405060708090a0b0c0d0e0f10").into(),
        master_salt: hex("9e7ca92223786340"),
        id_context: None,
        sender_id: Id::new(&hex(sender)).unwrap(),
        recipient_id: Id::new(&hex(recipient)).unwrap(),
        algorithm: Algorithm::default(),
    }
}

pub(crate) fn context(parameters: &Parameters, start: Start) -> Arc<Context> {
    Context::new("test".into(), parameters, start, Arc::new(Disk::default())).unwrap()
}

/// A client and a server that has only its context.
pub(crate) struct Ends {
    pub(crate) client: Arc<Context>,
    pub(crate) server: Ring,
}

impl Ends {
    pub(crate) fn new(parameters: &Parameters) -> Self {
        Self::with(parameters, UNUSED)
    }

    /// With a server that starts like this.
    pub(crate) fn with(parameters: &Parameters, start: Start) -> Self {
        let mut server = Ring::default();
        server.add(context(&parameters.mirrored(), start)).unwrap();
        Self { client: context(parameters, UNUSED), server }
    }
}

/// A GET for `/tv1` with these options before and behind.
pub(crate) fn get(path: &str, observe: Option<u32>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let token = Token::new(&[7, 7]).unwrap();
    Encoder::new(&mut bytes, Type::Confirmable, Code::GET, 0x1234, &token)
        .uint_if(OptionNumber::OBSERVE, observe)
        .option(OptionNumber::URI_PATH, path.as_bytes())
        .finish();
    bytes
}

/// A 2.05 to [`get`].
pub(crate) fn content(payload: &[u8], observe: Option<u32>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let token = Token::new(&[7, 7]).unwrap();
    Encoder::new(&mut bytes, Type::Acknowledgement, Code::CONTENT, 0x1234, &token)
        .uint_if(OptionNumber::OBSERVE, observe)
        .uint(OptionNumber::MAX_AGE, 30)
        .payload(payload);
    bytes
}

pub(crate) fn decode(bytes: &[u8]) -> Message<'_> {
    Message::decode(bytes).unwrap()
}
