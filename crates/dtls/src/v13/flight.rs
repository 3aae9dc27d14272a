//! A flight (RFC 9147 §5.8): in pieces that are sent until they were acknowledged, each or all of them.

use std::{collections::VecDeque, time::Duration};

use super::record::{Content, Number, Writing};
use crate::wire::{self, ContentType, DTLS_1_2, Fragment, message};

/// Bytes of a datagram of a handshake: what goes through IPv6 everywhere (RFC 8200 §5) with some room for tunnels.
const DATAGRAM: usize = 1200;
/// Bytes of a message that one record takes, if the peer has no smaller limit (RFC 8449).
const PIECE: usize = 1100;
/// RFC 9147 §5.8.2: one second at first, doubled, up to a minute.
pub(super) const INTERVAL_FIRST: Duration = Duration::from_secs(1);
pub(super) const INTERVAL_LAST: Duration = Duration::from_secs(60);
/// Records of ours that are remembered, to know what an acknowledgement is of.
const SENT_MAX: usize = 128;

/// Whole messages, one behind the other: a ServerHello in the clear, and what is protected by the handshake's keys.
pub(super) struct Flight {
    messages: Vec<u8>,
    pieces: Vec<Piece>,
    sent: VecDeque<(Number, usize)>,
    interval: Duration,
    again_at: Option<Duration>,
}

struct Piece {
    /// Of which message, by where that begins.
    message: usize,
    offset: usize,
    len: usize,
    arrived: bool,
}

/// The record numbers and keys of a flight.
pub(super) struct Writers<'a> {
    /// The next number in the clear.
    pub(super) plain: &'a mut u64,
    pub(super) sealed: &'a mut Writing,
    /// The identifier that the peer wants.
    pub(super) cid: &'a [u8],
}

impl Flight {
    /// Cuts messages into records that hold `content_max` bytes.
    pub(super) fn new(messages: Vec<u8>, content_max: usize) -> Self {
        let most = content_max.saturating_sub(wire::HANDSHAKE_HEADER).clamp(1, PIECE);
        let mut pieces = Vec::new();
        let mut rest = &messages[..];
        while let Some((message, after)) = Fragment::split(rest) {
            let start = messages.len() - rest.len();
            let mut offset = 0;
            loop {
                let len = (message.length - offset).min(most);
                pieces.push(Piece { message: start, offset, len, arrived: false });
                offset += len;
                if offset >= message.length {
                    break;
                }
            }
            rest = after;
        }
        Self { messages, pieces, sent: VecDeque::new(), interval: INTERVAL_FIRST, again_at: None }
    }

    /// Gives datagrams with what has not arrived to `send`, and sets the alarm.
    pub(super) fn send(&mut self, now: Duration, writers: &mut Writers<'_>, send: &mut dyn FnMut(&[u8])) {
        let mut datagram = Vec::with_capacity(DATAGRAM);
        let mut payload = Vec::new();
        for at in 0..self.pieces.len() {
            let Some(piece) = self.pieces.get(at).filter(|piece| !piece.arrived) else { continue };
            let Some((message, _)) = self.messages.get(piece.message..).and_then(Fragment::split) else { continue };
            let body = message.body.get(piece.offset..piece.offset + piece.len).unwrap_or_default();
            payload.clear();
            wire::put_fragment(&mut payload, message.kind, message.sequence, message.length, piece.offset, body);
            if datagram.len() + payload.len() + writers.sealed.overhead(writers.cid) > DATAGRAM && !datagram.is_empty()
            {
                send(&datagram);
                datagram.clear();
            }
            let number = writers.put(message.kind, &payload, &mut datagram);
            if let Some(number) = number {
                self.sent.push_back((number, at));
                if self.sent.len() > SENT_MAX {
                    self.sent.pop_front();
                }
            }
        }
        if !datagram.is_empty() {
            send(&datagram);
        }
        self.again_at = self.pieces.iter().any(|piece| !piece.arrived).then(|| now + self.interval);
    }

    /// A record has arrived.
    pub(super) fn acknowledge(&mut self, number: Number) {
        let at = self.sent.iter().find(|(sent, _)| *sent == number).map(|(_, at)| *at);
        if let Some(piece) = at.and_then(|at| self.pieces.get_mut(at)) {
            piece.arrived = true;
        }
        if self.pieces.iter().all(|piece| piece.arrived) {
            self.again_at = None;
        }
    }

    /// All of it has arrived: whoever answers has read it to its end.
    pub(super) fn acknowledge_all(&mut self) {
        self.pieces.iter_mut().for_each(|piece| piece.arrived = true);
        self.again_at = None;
    }

    /// Whether there is nothing in it that has not arrived.
    pub(super) fn has_arrived(&self) -> bool {
        !self.pieces.is_empty() && self.pieces.iter().all(|piece| piece.arrived)
    }

    /// When it goes out again unless something comes.
    pub(super) const fn again_at(&self) -> Option<Duration> {
        self.again_at
    }

    /// The next repeat waits twice as long.
    pub(super) fn slow_down(&mut self) {
        self.interval = (self.interval * 2).min(INTERVAL_LAST);
    }
}

impl Writers<'_> {
    /// Appends a record with a piece of a message.
    fn put(&mut self, kind: u8, payload: &[u8], out: &mut Vec<u8>) -> Option<Number> {
        if kind != message::SERVER_HELLO {
            return self.sealed.seal(self.cid, Content::Handshake, payload, out);
        }
        let sequence = *self.plain;
        wire::put_record(out, ContentType::Handshake, DTLS_1_2, wire::number(0, sequence), payload);
        *self.plain += 1;
        Some(Number { epoch: 0, sequence })
    }
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;
    use crate::{
        limit::RecordLimit,
        suite::Aead,
        v13::record::{Reading, Sealed},
    };

    #[test]
    fn rfc_8449_s4_pieces_keep_to_the_limit_and_those_in_the_clear_as_well() {
        let mut messages = Vec::new();
        wire::put_message(&mut messages, message::SERVER_HELLO, 1, &[1; 90]);
        wire::put_message(&mut messages, message::ENCRYPTED_EXTENSIONS, 2, &[]);
        wire::put_message(&mut messages, message::CERTIFICATE, 3, &[2; 3000]);
        for announced in [64_u16, 65, 100, 1112, 1113, 1114, (1 << 14) + 1] {
            let mut sealed = Writing::new(Aead::Gcm, Zeroizing::new([1; 32]), 2);
            sealed.limit_to(RecordLimit::parse(&announced.to_be_bytes()).unwrap());
            let mut read = Reading::new(Aead::Gcm, Zeroizing::new([1; 32]), 2);
            let mut flight = Flight::new(messages.clone(), sealed.content_max());
            let (mut plain, mut hello, mut certificate) = (0, 0, Vec::new());
            let writers = &mut Writers { plain: &mut plain, sealed: &mut sealed, cid: &[] };
            flight.send(Duration::ZERO, writers, &mut |datagram| {
                assert!(datagram.len() <= DATAGRAM);
                let mut rest = datagram;
                while !rest.is_empty() {
                    let Some((record, after)) = Sealed::split(rest) else {
                        let (record, after) = wire::Record::split(rest).unwrap();
                        assert!(record.payload.len() <= usize::from(announced), "{}", record.payload.len());
                        hello += Fragment::split(record.payload).unwrap().0.body.len();
                        rest = after;
                        continue;
                    };
                    rest = after;
                    let mut inner = Vec::new();
                    read.open(&record, &mut inner).unwrap();
                    assert!(inner.len() < usize::from(announced), "{} of {announced}, and the type", inner.len());
                    let fragment = Fragment::split(&inner).unwrap().0;
                    certificate.resize(certificate.len() + fragment.body.len(), fragment.kind);
                }
            });
            assert_eq!((hello, certificate.len()), (90, 3000), "{announced}");
            assert_eq!(plain == 1, announced > 90 + 12, "{announced}: {plain} records");
        }
    }

    #[test]
    fn s7_2_only_what_has_not_arrived_goes_out_again() {
        let mut messages = Vec::new();
        wire::put_message(&mut messages, message::SERVER_HELLO, 1, &[1; 90]);
        wire::put_message(&mut messages, message::CERTIFICATE, 2, &[2; 3000]);
        wire::put_message(&mut messages, message::FINISHED, 3, &[3; 32]);
        let mut flight = Flight::new(messages, 1 << 14);
        let mut sealed = Writing::new(Aead::Gcm, Zeroizing::new([1; 32]), 2);
        let mut plain = 4;
        let mut sizes = |flight: &mut Flight| {
            let mut sizes = Vec::new();
            let writers = &mut Writers { plain: &mut plain, sealed: &mut sealed, cid: &[] };
            flight.send(Duration::ZERO, writers, &mut |datagram| sizes.push(datagram.len()));
            assert!(sizes.iter().all(|size| *size <= DATAGRAM), "{sizes:?}");
            sizes.len()
        };
        assert_eq!(sizes(&mut flight), 4);
        flight.acknowledge(Number { epoch: 0, sequence: 4 });
        flight.acknowledge(Number { epoch: 2, sequence: 0 });
        flight.acknowledge(Number { epoch: 2, sequence: 1 });
        assert_eq!(sizes(&mut flight), 1, "the rest of the certificate, and Finished");
        assert_eq!(flight.again_at(), Some(INTERVAL_FIRST));
        flight.acknowledge(Number { epoch: 2, sequence: 4 });
        assert!(flight.again_at().is_some());
        flight.acknowledge(Number { epoch: 2, sequence: 5 });
        assert_eq!((sizes(&mut flight), flight.again_at()), (0, None));
    }
}
