//! CoAP by hand: datagrams as bytes, right or wrong.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::tcp;

pub use crate::coap_stream::Line;

/// Message types (RFC 7252 §3).
pub const CON: u8 = 0;
/// Non-confirmable.
pub const NON: u8 = 1;
/// Acknowledgement.
pub const ACK: u8 = 2;
/// Reset.
pub const RST: u8 = 3;

/// Methods (§12.1.1).
pub const GET: u8 = 0x01;
/// PUT.
pub const PUT: u8 = 0x03;

/// Option numbers (§12.2, RFC 7641, RFC 7959).
pub const OBSERVE: u16 = 6;
/// Uri-Path.
pub const URI_PATH: u16 = 11;
/// Content-Format.
pub const CONTENT_FORMAT: u16 = 12;
/// Block2.
pub const BLOCK2: u16 = 23;
/// Block1.
pub const BLOCK1: u16 = 27;

/// A message with options in ascending order of number; an empty payload is left out with its marker.
#[must_use]
pub fn message(kind: u8, code: u8, id: u16, token: &[u8], options: &[(u16, &[u8])], payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(token.len()).unwrap_or_default() & 0x0f;
    let mut out = vec![0x40 | (kind << 4) | length, code];
    out.extend(id.to_be_bytes());
    out.extend(token);
    let mut last = 0;
    for (number, value) in options {
        option(&mut out, number.saturating_sub(last), value);
        last = *number;
    }
    if !payload.is_empty() {
        out.push(0xff);
        out.extend(payload);
    }
    out
}

/// §3.1: delta and length in four bits each, 13 and 14 announcing one and two more bytes.
fn option(out: &mut Vec<u8>, delta: u16, value: &[u8]) {
    let (delta_nibble, delta_more) = nibble(delta);
    let (length_nibble, length_more) = nibble(u16::try_from(value.len()).unwrap_or(u16::MAX));
    out.push((delta_nibble << 4) | length_nibble);
    out.extend(delta_more);
    out.extend(length_more);
    out.extend(value);
}

fn nibble(value: u16) -> (u8, Vec<u8>) {
    match value {
        0..13 => (u8::try_from(value).unwrap_or_default(), Vec::new()),
        13..269 => (13, vec![u8::try_from(value - 13).unwrap_or_default()]),
        269.. => (14, (value - 269).to_be_bytes().to_vec()),
    }
}

/// A request for `/ps/<topic>`, one Uri-Path for each level.
#[must_use]
pub fn request(
    kind: u8,
    code: u8,
    id: u16,
    token: &[u8],
    topic: &str,
    more: &[(u16, &[u8])],
    payload: &[u8],
) -> Vec<u8> {
    let mut options: Vec<(u16, &[u8])> = vec![(URI_PATH, b"ps")];
    options.extend(topic.split('/').map(|level| (URI_PATH, level.as_bytes())));
    options.extend(more);
    options.sort_by_key(|(number, _)| *number);
    message(kind, code, id, token, &options, payload)
}

/// An endpoint of its own: a port that has not spoken to this server from this process.
///
/// The system may give a port again that is free since a moment ago. To the server that is the same endpoint, and a
/// Message ID that is used again there is a duplicate, which gets the response of the first (RFC 7252 §4.5).
///
/// # Errors
/// When no port is left.
pub fn endpoint(server: SocketAddr) -> Result<UdpSocket> {
    static SPOKEN: Mutex<BTreeSet<(SocketAddr, u16)>> = Mutex::new(BTreeSet::new());
    // Sockets with ports that have spoken are kept until there is another port, or they would be given once more.
    let mut spoken = Vec::new();
    let socket = loop {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let port = socket.local_addr()?.port();
        if SPOKEN.lock().unwrap_or_else(PoisonError::into_inner).insert((server, port)) {
            break socket;
        }
        spoken.push(socket);
    };
    socket.connect(server)?;
    socket.set_read_timeout(Some(tcp::PATIENCE))?;
    Ok(socket)
}

/// The next datagram, or None after `patience` without one.
///
/// # Errors
/// Any error but a timeout.
pub fn receive(socket: &UdpSocket, patience: Duration) -> Result<Option<Vec<u8>>> {
    let mut buffer = vec![0; 2048];
    socket.set_read_timeout(Some(patience))?;
    match socket.recv(&mut buffer) {
        Ok(count) => {
            buffer.truncate(count);
            Ok(Some(buffer))
        }
        Err(error) if tcp::is_timeout(error.kind()) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Sends and gives the code of the response; the response has to carry the token.
///
/// # Errors
/// When none comes.
pub fn exchange(socket: &UdpSocket, request: &[u8], token: &[u8]) -> Result<Vec<u8>> {
    socket.send(request)?;
    loop {
        let answer = receive(socket, tcp::PATIENCE)?.context("no response with our token")?;
        if answer.get(4..4 + token.len()) == Some(token) {
            return Ok(answer);
        }
    }
}

/// `2.05` as people write it.
#[must_use]
pub fn dotted(message: &[u8]) -> String {
    let code = message.get(1).copied().unwrap_or_default();
    format!("{}.{:02}", code >> 5, code & 0x1f)
}

/// Uri-Query.
pub const URI_QUERY: u16 = 15;
/// Location-Path.
pub const LOCATION_PATH: u16 = 8;
/// Accept.
pub const ACCEPT: u16 = 17;
/// FETCH (RFC 8132).
pub const FETCH: u8 = 0x05;
/// POST.
pub const POST: u8 = 0x02;
/// DELETE.
pub const DELETE: u8 = 0x04;

/// A message that has come, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// CON, NON, ACK or RST; 0 over a stream.
    pub kind: u8,
    /// Message identifier; 0 over a stream.
    pub id: u16,
    /// As a byte.
    pub code: u8,
    /// Token.
    pub token: Vec<u8>,
    /// Numbers and values.
    pub options: Vec<(u16, Vec<u8>)>,
    /// Payload.
    pub payload: Vec<u8>,
}

impl Message {
    /// Takes a datagram apart.
    ///
    /// # Errors
    /// When it is none of RFC 7252.
    pub fn of_datagram(bytes: &[u8]) -> Result<Self> {
        let (&[first, code, high, low], rest) = bytes.split_first_chunk().context("a short datagram")?;
        let id = u16::from_be_bytes([high, low]);
        Self { kind: first >> 4 & 3, id, code, ..Self::default() }.fill(rest, usize::from(first & 0x0f))
    }

    pub(crate) fn fill(mut self, rest: &[u8], token: usize) -> Result<Self> {
        let (token, mut rest) = rest.split_at_checked(token).context("a short token")?;
        self.token = token.to_vec();
        let mut number = 0;
        while let Some((first, after)) = rest.split_first() {
            if *first == 0xff {
                self.payload = after.to_vec();
                break;
            }
            let (delta, after) = extended(first >> 4, after).context("an option's delta")?;
            let (length, after) = extended(first & 0x0f, after).context("an option's length")?;
            let (value, after) = after.split_at_checked(usize::from(length)).context("an option's value")?;
            number += delta;
            self.options.push((number, value.to_vec()));
            rest = after;
        }
        Ok(self)
    }

    /// The value of an option as a number.
    #[must_use]
    pub fn uint(&self, number: u16) -> Option<u32> {
        let (_, value) = self.options.iter().find(|(found, _)| *found == number)?;
        Some(value.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
    }

    /// The topic that Location-Path names.
    #[must_use]
    pub fn topic(&self) -> String {
        let levels = self.options.iter().filter(|(number, _)| *number == LOCATION_PATH);
        let levels: Vec<_> = levels.skip(1).map(|(_, level)| String::from_utf8_lossy(level).into_owned()).collect();
        levels.join("/")
    }
}

fn extended(nibble: u8, rest: &[u8]) -> Option<(u16, &[u8])> {
    match nibble {
        0..13 => Some((nibble.into(), rest)),
        13 => rest.split_first().map(|(more, rest)| (u16::from(*more) + 13, rest)),
        14 => rest.split_first_chunk().map(|(more, rest)| (u16::from_be_bytes(*more) + 269, rest)),
        _ => None,
    }
}
