//! ClientHello (RFC 5246 §7.4.1.2, RFC 6347 §4.2.1), and the look at a datagram that decides, before anything is kept,
//! what becomes of it.

pub(super) mod extension;

use std::{net::SocketAddr, time::Duration};

use super::{
    Alert, CookieKey, Suite13,
    limit::RecordLimit,
    v13::{self, Offer, Psks, Retry},
    wire::{self, ContentType, DTLS_1_0, DTLS_1_2, Fragment, Reader, Record, is_numbers, message},
};

/// RFC 5746 §3.3: a suite that stands for an empty `renegotiation_info`.
pub(super) const EMPTY_RENEGOTIATION_INFO: u16 = 0x00ff;

/// A ClientHello, as far as we look at it; borrowed from the datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClientHello<'a> {
    pub(super) random: [u8; 32],
    pub(super) session_id: &'a [u8],
    pub(super) cookie: &'a [u8],
    pub(super) suites: &'a [u8],
    pub(super) compressions: &'a [u8],
    pub(super) groups: Option<&'a [u8]>,
    pub(super) schemes: Option<&'a [u8]>,
    pub(super) extended_master_secret: bool,
    pub(super) renegotiation_info: bool,
    pub(super) point_formats: bool,
    /// Versions, when it says more than the one number in front (RFC 8446 §4.2.1).
    pub(super) versions: Option<&'a [u8]>,
    /// The cookie of a HelloRetryRequest; that of DTLS 1.2 is `cookie`.
    pub(super) retry_cookie: Option<&'a [u8]>,
    pub(super) key_shares: Option<&'a [u8]>,
    pub(super) psk_modes: Option<&'a [u8]>,
    pub(super) psks: Option<Psks<'a>>,
    /// The connection identifier it wants in records to it, maybe empty (RFC 9146 §3, RFC 9147 §9).
    pub(super) connection_id: Option<&'a [u8]>,
    /// The most that it takes in a record (RFC 8449 §4).
    pub(super) record_limit: Option<RecordLimit>,
}

impl<'a> ClientHello<'a> {
    pub(super) const EMPTY: Self = Self {
        random: [0; 32],
        session_id: &[],
        cookie: &[],
        suites: &[],
        compressions: &[],
        groups: None,
        schemes: None,
        extended_master_secret: false,
        renegotiation_info: false,
        point_formats: false,
        versions: None,
        retry_cookie: None,
        key_shares: None,
        psk_modes: None,
        psks: None,
        connection_id: None,
        record_limit: None,
    };

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Alert> {
        let mut reader = Reader(body);
        let version = reader.u16().ok_or(Alert::DecodeError)?;
        // A lower number is a newer version; DTLS 1.3 says 1.2 here (RFC 9147 §5.3).
        if version >> 8 != 0xfe || version > DTLS_1_2 {
            return Err(Alert::ProtocolVersion);
        }
        let mut hello = Self::offer(&mut reader).ok_or(Alert::DecodeError)?;
        if !hello.suites.len().is_multiple_of(2) || hello.session_id.len() > 32 {
            return Err(Alert::DecodeError);
        }
        if !hello.compressions.contains(&0) {
            return Err(Alert::IllegalParameter);
        }
        hello.renegotiation_info = Reader(hello.suites).numbers().any(|suite| suite == EMPTY_RENEGOTIATION_INFO);
        if !reader.is_empty() {
            let extensions = reader.vector16().filter(|_| reader.is_empty()).ok_or(Alert::DecodeError)?;
            hello.extensions(Reader(extensions))?;
        }
        Ok(hello)
    }

    fn offer(reader: &mut Reader<'a>) -> Option<Self> {
        Some(Self {
            random: reader.array()?,
            session_id: reader.vector8()?,
            cookie: reader.vector8()?,
            suites: reader.vector16()?,
            compressions: reader.vector8()?,
            ..Self::EMPTY
        })
    }

    fn extensions(&mut self, mut reader: Reader<'a>) -> Result<(), Alert> {
        let mut seen = [false; extension::OF_CLIENTS.len()];
        while !reader.is_empty() {
            let number = reader.u16().ok_or(Alert::DecodeError)?;
            // RFC 8446 §4.2.11: it is the last, for it is made over what is before.
            if self.psks.is_some() {
                return Err(Alert::IllegalParameter);
            }
            let body = reader.vector16().ok_or(Alert::DecodeError)?;
            // RFC 5246 §7.4.1.4: none twice. Of those that we do not know it is all the same.
            let known = extension::OF_CLIENTS.iter().position(|known| *known == number);
            if known.and_then(|at| seen.get_mut(at)).is_some_and(|seen| std::mem::replace(seen, true)) {
                return Err(Alert::IllegalParameter);
            }
            let list = || {
                let mut reader = Reader(body);
                reader.vector16().filter(|_| reader.is_empty()).ok_or(Alert::DecodeError)
            };
            let short = || {
                let mut reader = Reader(body);
                reader.vector8().filter(|_| reader.is_empty()).ok_or(Alert::DecodeError)
            };
            let numbers =
                || list().and_then(|list| Some(list).filter(|list| is_numbers(list)).ok_or(Alert::DecodeError));
            match number {
                extension::SUPPORTED_GROUPS => self.groups = Some(numbers()?),
                extension::SIGNATURE_ALGORITHMS => self.schemes = Some(numbers()?),
                extension::EC_POINT_FORMATS => {
                    let formats = short()?;
                    // RFC 8422 §5.1.2: uncompressed has to be there.
                    if !formats.contains(&0) {
                        return Err(Alert::IllegalParameter);
                    }
                    self.point_formats = true;
                }
                // RFC 7627 §5.1: it says all by being there.
                extension::EXTENDED_MASTER_SECRET if !body.is_empty() => return Err(Alert::DecodeError),
                extension::EXTENDED_MASTER_SECRET => self.extended_master_secret = true,
                extension::RENEGOTIATION_INFO => {
                    // RFC 5746 §3.6: in a first handshake it is empty.
                    if body != [0] {
                        return Err(Alert::HandshakeFailure);
                    }
                    self.renegotiation_info = true;
                }
                extension::SUPPORTED_VERSIONS => {
                    let versions = Some(short()?).filter(|list| is_numbers(list));
                    self.versions = Some(versions.ok_or(Alert::DecodeError)?);
                }
                extension::COOKIE => self.retry_cookie = Some(list()?),
                extension::KEY_SHARE => self.key_shares = Some(list()?),
                extension::PSK_KEY_EXCHANGE_MODES => self.psk_modes = Some(short()?),
                extension::PRE_SHARED_KEY => self.psks = Some(Psks::parse(body)?),
                extension::CONNECTION_ID => self.connection_id = Some(short()?),
                extension::RECORD_SIZE_LIMIT => self.record_limit = Some(RecordLimit::parse(body)?),
                // RFC 5246 §7.4.1.4: what a server does not know it ignores.
                _ => {}
            }
        }
        Ok(())
    }
}

/// The verdict on a datagram that belongs to no association.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict<'a> {
    /// Nothing: it is not for us, or not well formed.
    Drop,
    /// An answer that costs us nothing is in the buffer: a HelloVerifyRequest, a HelloRetryRequest or an alert.
    Answered,
    /// The client can receive at its address: a handshake may begin.
    Verified(Box<Verified<'a>>),
}

/// A ClientHello with a good cookie.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verified<'a> {
    pub(super) hello: ClientHello<'a>,
    /// The message with its header, as the transcript has it.
    pub(super) message: &'a [u8],
    /// Its `message_seq`, from which ours go on.
    pub(super) message_sequence: u16,
    /// Its record's sequence number, from which ours go on (RFC 6347 §4.2.1).
    pub(super) record_sequence: u64,
    /// The HelloRetryRequest that answered its first ClientHello, in DTLS 1.3; nothing in 1.2.
    pub(super) retry: Option<Retry>,
}

/// Looks at the first record of a datagram; `newer` are our suites of DTLS 1.3. Keeps nothing, whoever sent it and
/// however many there are.
pub(super) fn look<'a>(
    key: &CookieKey,
    now: Duration,
    from: SocketAddr,
    datagram: &'a [u8],
    newer: &[Suite13],
    answer: &mut Vec<u8>,
) -> Verdict<'a> {
    let Some((record, _)) = Record::split(datagram) else { return Verdict::Drop };
    if record.content != ContentType::Handshake || record.epoch != 0 {
        return Verdict::Drop;
    }
    let Some((fragment, _)) = Fragment::split(record.payload) else { return Verdict::Drop };
    // To put fragments together would be state. A ClientHello fits into one datagram (RFC 6347 §4.2.1 asks for that).
    if fragment.kind != message::CLIENT_HELLO || !fragment.is_whole() {
        return Verdict::Drop;
    }
    // Ours go on from its numbers, and must not come to their end (RFC 6347 §4.1). Nobody begins there.
    if record.sequence > wire::SEQUENCE_MAX / 2 || fragment.sequence > u16::MAX / 2 {
        return Verdict::Drop;
    }
    let hello = match ClientHello::parse(fragment.body) {
        Ok(hello) => hello,
        Err(alert) => {
            refuse(answer, record.sequence, alert);
            return Verdict::Answered;
        }
    };
    let message = record.payload.get(..wire::HANDSHAKE_HEADER + fragment.length).unwrap_or_default();
    let (message_sequence, record_sequence) = (fragment.sequence, record.sequence);
    match v13::look(key, now, from, newer, &hello, fragment.body) {
        // RFC 8446 §4.2.1: who says which versions it has has no others.
        (Offer::Older, _) if hello.versions.is_some_and(|list| !Reader(list).numbers().any(|at| at == DTLS_1_2)) => {
            refuse(answer, record.sequence, Alert::ProtocolVersion);
            return Verdict::Answered;
        }
        (Offer::Older, _) => {}
        (Offer::Verified(retry), _) => {
            let retry = Some(retry);
            let verified = Verified { hello, message, message_sequence, record_sequence, retry };
            return Verdict::Verified(Box::new(verified));
        }
        (Offer::Retried, body) => {
            v13::put_retry(answer, &record, fragment.sequence, &body);
            return Verdict::Answered;
        }
        (Offer::Refused(alert), _) => {
            refuse(answer, record.sequence, alert);
            return Verdict::Answered;
        }
    }
    if key.is_good(now, from, &hello) {
        let verified = Verified { hello, message, message_sequence, record_sequence, retry: None };
        return Verdict::Verified(Box::new(verified));
    }
    let cookie = key.make(now, from, &hello);
    put_hello_verify_request(answer, record.sequence, fragment.sequence, &cookie);
    Verdict::Answered
}

fn put_hello_verify_request(out: &mut Vec<u8>, record_sequence: u64, message_sequence: u16, cookie: &[u8]) {
    let mut body = Vec::with_capacity(3 + cookie.len());
    body.extend_from_slice(&DTLS_1_0.to_be_bytes());
    wire::put_vector8(&mut body, cookie);
    let mut payload = Vec::with_capacity(wire::HANDSHAKE_HEADER + body.len());
    wire::put_message(&mut payload, message::HELLO_VERIFY_REQUEST, message_sequence, &body);
    // RFC 6347 §4.2.1: the record has the number of the ClientHello's.
    wire::put_record(out, ContentType::Handshake, DTLS_1_0, wire::number(0, record_sequence), &payload);
}

/// Appends an alert in the clear.
pub(super) fn refuse(out: &mut Vec<u8>, record_sequence: u64, alert: Alert) {
    wire::put_record(out, ContentType::Alert, DTLS_1_2, wire::number(0, record_sequence), &alert.bytes());
}

/// For fuzzing: everything that is done with a datagram of a stranger. The answer is never longer than the question
/// by more than a cookie.
#[doc(hidden)]
pub fn prefilter(key: &CookieKey, now: Duration, from: SocketAddr, datagram: &[u8], answer: &mut Vec<u8>) -> bool {
    matches!(look(key, now, from, datagram, &Suite13::ALL, answer), Verdict::Verified(_))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A ClientHello in a record.
    pub(crate) fn hello(cookie: &[u8]) -> Vec<u8> {
        let mut body = DTLS_1_2.to_be_bytes().to_vec();
        body.extend([5; 32]);
        wire::put_vector8(&mut body, &[]);
        wire::put_vector8(&mut body, cookie);
        wire::put_vector16(&mut body, &[0xc0, 0xa8, 0x00, 0xff]);
        wire::put_vector8(&mut body, &[0]);
        let mut extensions = Vec::new();
        wire::put_extension(&mut extensions, extension::EXTENDED_MASTER_SECRET, &[]);
        wire::put_vector16(&mut body, &extensions);
        let mut payload = Vec::new();
        wire::put_message(&mut payload, message::CLIENT_HELLO, 1, &body);
        let mut datagram = Vec::new();
        wire::put_record(&mut datagram, ContentType::Handshake, DTLS_1_0, 3, &payload);
        datagram
    }

    fn from() -> SocketAddr {
        "192.0.2.1:5000".parse().unwrap()
    }

    #[test]
    fn s4_2_1_a_stranger_gets_a_cookie_and_is_believed_with_it() {
        let key = CookieKey::new(&[1; 32]);
        let mut answer = Vec::new();
        assert_eq!(look(&key, Duration::ZERO, from(), &hello(&[]), &Suite13::ALL, &mut answer), Verdict::Answered);
        let (record, _) = Record::split(&answer).unwrap();
        assert_eq!((record.version, record.sequence), (DTLS_1_0, 3));
        let (fragment, _) = Fragment::split(record.payload).unwrap();
        assert_eq!((fragment.kind, fragment.sequence), (message::HELLO_VERIFY_REQUEST, 1));
        let datagram = hello(&fragment.body[3..]);
        answer.clear();
        let Verdict::Verified(verified) = look(&key, Duration::ZERO, from(), &datagram, &Suite13::ALL, &mut answer)
        else {
            panic!()
        };
        assert!(verified.hello.extended_master_secret && verified.hello.renegotiation_info && answer.is_empty());
        assert_eq!((verified.message_sequence, verified.record_sequence), (1, 3));
    }

    #[test]
    fn numbers_near_their_end_are_not_answered() {
        let key = CookieKey::new(&[1; 32]);
        // The number of the record, and that of the message.
        for at in [5, wire::RECORD_HEADER + 4] {
            let mut datagram = hello(&[]);
            datagram[at] = 0xff;
            let mut answer = Vec::new();
            assert_eq!(look(&key, Duration::ZERO, from(), &datagram, &Suite13::ALL, &mut answer), Verdict::Drop);
        }
    }

    #[test]
    fn s7_4_1_4_extensions_come_once_and_whole() {
        let extensions = |list: &[(u16, &[u8])]| {
            let mut bytes = Vec::new();
            list.iter().for_each(|(number, body)| wire::put_extension(&mut bytes, *number, body));
            let mut hello = ClientHello::EMPTY;
            hello.extensions(Reader(&bytes))
        };
        let groups: (u16, &[u8]) = (10, &[0, 2, 0, 29]);
        let formats: (u16, &[u8]) = (11, &[2, 1, 0]);
        assert_eq!(extensions(&[groups, formats, (23, &[]), (0xff01, &[0]), (4711, &[]), (4711, &[])]), Ok(()));
        assert_eq!(extensions(&[groups, formats, groups]), Err(Alert::IllegalParameter));
        assert_eq!(extensions(&[(23, &[]), (23, &[])]), Err(Alert::IllegalParameter));
        assert_eq!(extensions(&[(10, &[0, 2, 0, 29, 0])]), Err(Alert::DecodeError));
        assert_eq!(extensions(&[(11, &[1, 1])]), Err(Alert::IllegalParameter), "without uncompressed");
        assert_eq!(extensions(&[(11, &[2, 0])]), Err(Alert::DecodeError));
        assert_eq!(extensions(&[(0xff01, &[1, 5])]), Err(Alert::HandshakeFailure));
    }

    #[test]
    fn an_old_version_is_told_so() {
        let key = CookieKey::new(&[1; 32]);
        let mut datagram = hello(&[]);
        datagram[wire::RECORD_HEADER + wire::HANDSHAKE_HEADER + 1] = 0xff;
        let mut answer = Vec::new();
        assert_eq!(look(&key, Duration::ZERO, from(), &datagram, &Suite13::ALL, &mut answer), Verdict::Answered);
        assert_eq!(Record::split(&answer).unwrap().0.payload, [2, 70]);
    }

    proptest! {
        #[test]
        fn any_change_to_a_hello_is_survived_and_answers_stay_small(at in 0_usize..90, byte: u8, cut in 0_usize..100) {
            let key = CookieKey::new(&[1; 32]);
            let mut datagram = hello(&[]);
            if let Some(place) = datagram.get_mut(at) {
                *place = byte;
            }
            datagram.truncate(cut);
            let mut answer = Vec::new();
            prefilter(&key, Duration::ZERO, from(), &datagram, &mut answer);
            prop_assert!(answer.len() <= 44);
        }
    }
}
