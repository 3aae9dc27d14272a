//! Bytes on the wire: records (RFC 6347 §4.1), handshake fragments (§4.2.2), and the cursor that reads them. Nothing
//! here allocates for what a peer sends, and nothing can panic.

/// DTLS 1.2 on the wire (RFC 6347 §4.1): the ones' complement of 1.2.
pub(super) const DTLS_1_2: u16 = 0xfefd;
/// DTLS 1.3, in extensions only (RFC 9147 §5.3).
pub(super) const DTLS_1_3: u16 = 0xfefc;
/// DTLS 1.0, which HelloVerifyRequest wears whatever is negotiated later (RFC 6347 §4.2.1).
pub(super) const DTLS_1_0: u16 = 0xfeff;

/// Bytes of a record's header.
pub(super) const RECORD_HEADER: usize = 13;
/// Bytes of a handshake message's header.
pub(super) const HANDSHAKE_HEADER: usize = 12;
/// RFC 6347 §4.1: sequence numbers have 48 bits.
pub(super) const SEQUENCE_MAX: u64 = (1 << 48) - 1;

/// The content type of a record (RFC 5246 §6.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentType {
    ChangeCipherSpec,
    Alert,
    Handshake,
    ApplicationData,
    /// A protected record with an identifier; what it holds is said inside (RFC 9146 §4).
    Identified,
}

impl ContentType {
    pub(super) const fn parse(byte: u8) -> Option<Self> {
        match byte {
            20 => Some(Self::ChangeCipherSpec),
            21 => Some(Self::Alert),
            22 => Some(Self::Handshake),
            23 => Some(Self::ApplicationData),
            25 => Some(Self::Identified),
            _ => None,
        }
    }

    pub(super) const fn byte(self) -> u8 {
        match self {
            Self::ChangeCipherSpec => 20,
            Self::Alert => 21,
            Self::Handshake => 22,
            Self::ApplicationData => 23,
            Self::Identified => 25,
        }
    }
}

/// Bytes of the identifiers that we hand out: a worker, and what nobody can guess.
pub(super) const CID: usize = 8;
/// An identifier that we have handed out.
pub(super) type Cid = [u8; CID];
/// Bytes of an identifier that a peer wants in what we send; who wants longer ones gets none.
pub(super) const OTHERS_MAX: usize = 32;

/// Handshake messages (RFC 5246 §7.4, RFC 6347 §4.3.2, RFC 8446 §4, RFC 9147 §5.2).
pub(super) mod message {
    pub(crate) const HELLO_REQUEST: u8 = 0;
    pub(crate) const CLIENT_HELLO: u8 = 1;
    pub(crate) const SERVER_HELLO: u8 = 2;
    pub(crate) const HELLO_VERIFY_REQUEST: u8 = 3;
    pub(crate) const NEW_SESSION_TICKET: u8 = 4;
    pub(crate) const ENCRYPTED_EXTENSIONS: u8 = 8;
    pub(crate) const REQUEST_CONNECTION_ID: u8 = 9;
    pub(crate) const NEW_CONNECTION_ID: u8 = 10;
    pub(crate) const CERTIFICATE: u8 = 11;
    pub(crate) const SERVER_KEY_EXCHANGE: u8 = 12;
    pub(crate) const CERTIFICATE_REQUEST: u8 = 13;
    pub(crate) const SERVER_HELLO_DONE: u8 = 14;
    pub(crate) const CERTIFICATE_VERIFY: u8 = 15;
    pub(crate) const CLIENT_KEY_EXCHANGE: u8 = 16;
    pub(crate) const FINISHED: u8 = 20;
    pub(crate) const KEY_UPDATE: u8 = 24;
    /// A ClientHello that was answered with HelloRetryRequest, in transcripts (RFC 8446 §4.4.1).
    pub(crate) const MESSAGE_HASH: u8 = 254;
}

/// One record of a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) content: ContentType,
    pub(super) version: u16,
    pub(super) epoch: u16,
    pub(super) sequence: u64,
    /// Of records that have one: ours.
    pub(super) cid: Option<&'a Cid>,
    pub(super) payload: &'a [u8],
}

impl<'a> Record<'a> {
    /// Takes the first record off a datagram. `None`: what is left is no record, and is dropped (RFC 6347 §4.1.2.7).
    pub(super) fn split(datagram: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut reader = Reader(datagram);
        let content = ContentType::parse(reader.u8()?)?;
        let version = reader.u16()?;
        let epoch = reader.u16()?;
        let sequence = reader.u48()?;
        let cid = if content == ContentType::Identified { Some(reader.take(CID)?.first_chunk()?) } else { None };
        let payload = reader.vector16()?;
        // Any minor version may be on a ClientHello's record (RFC 6347 §4.1).
        (version >> 8 == 0xfe).then_some((Self { content, version, epoch, sequence, cid, payload }, reader.0))
    }

    /// Appends it as it came.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.push(self.content.byte());
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&self.number().to_be_bytes());
        out.extend_from_slice(self.cid.map_or(&[][..], |cid| cid));
        put_vector16(out, self.payload);
    }

    /// Epoch and sequence number as the 64 bits that nonce and additional data are made of.
    pub(super) fn number(&self) -> u64 {
        number(self.epoch, self.sequence)
    }
}

/// Epoch and sequence number in one.
pub(super) fn number(epoch: u16, sequence: u64) -> u64 {
    (u64::from(epoch) << 48) | (sequence & SEQUENCE_MAX)
}

/// Appends a plaintext record.
pub(super) fn put_record(out: &mut Vec<u8>, content: ContentType, version: u16, number: u64, payload: &[u8]) {
    put_record_header(out, content, version, number, payload.len());
    out.extend_from_slice(payload);
}

pub(super) fn put_record_header(out: &mut Vec<u8>, content: ContentType, version: u16, number: u64, len: usize) {
    out.push(content.byte());
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&length16(len));
}

/// A piece of a handshake message, maybe all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment<'a> {
    pub(super) kind: u8,
    pub(super) length: usize,
    pub(super) sequence: u16,
    pub(super) offset: usize,
    pub(super) body: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// Takes the first fragment off a handshake record.
    pub(super) fn split(payload: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut reader = Reader(payload);
        let kind = reader.u8()?;
        let length = reader.u24()?;
        let sequence = reader.u16()?;
        let offset = reader.u24()?;
        let body = reader.vector24()?;
        let inside = offset.checked_add(body.len()).is_some_and(|end| end <= length);
        inside.then_some((Self { kind, length, sequence, offset, body }, reader.0))
    }

    pub(super) const fn is_whole(&self) -> bool {
        self.offset == 0 && self.body.len() == self.length
    }
}

/// Appends a whole handshake message, the form that transcripts hash (RFC 6347 §4.2.6).
pub(super) fn put_message(out: &mut Vec<u8>, kind: u8, sequence: u16, body: &[u8]) {
    put_fragment(out, kind, sequence, body.len(), 0, body);
}

pub(super) fn put_fragment(out: &mut Vec<u8>, kind: u8, sequence: u16, length: usize, offset: usize, body: &[u8]) {
    out.push(kind);
    out.extend_from_slice(&length24(length));
    out.extend_from_slice(&sequence.to_be_bytes());
    out.extend_from_slice(&length24(offset));
    out.extend_from_slice(&length24(body.len()));
    out.extend_from_slice(body);
}

/// The two bytes of a length. What we write is never that long.
pub(super) fn length16(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes()
}

pub(super) fn length24(len: usize) -> [u8; 3] {
    let [_, a, b, c] = u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
    [a, b, c]
}

/// Appends what `write` writes behind its length in one byte.
pub(super) fn put_vector8(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(u8::try_from(bytes.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(bytes);
}

pub(super) fn put_vector16(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&length16(bytes.len()));
    out.extend_from_slice(bytes);
}

pub(super) fn put_vector24(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&length24(bytes.len()));
    out.extend_from_slice(bytes);
}

/// Appends an extension (RFC 5246 §7.4.1.4).
pub(super) fn put_extension(out: &mut Vec<u8>, number: u16, body: &[u8]) {
    out.extend_from_slice(&number.to_be_bytes());
    put_vector16(out, body);
}

/// Appends an extension that is one list behind its length.
pub(super) fn put_list_extension(out: &mut Vec<u8>, number: u16, list: &[u8]) {
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&length16(2 + list.len()));
    put_vector16(out, list);
}

/// Whether a list is one of numbers of two bytes, and has one at least: groups, signature schemes, versions.
pub(super) const fn is_numbers(list: &[u8]) -> bool {
    !list.is_empty() && list.len().is_multiple_of(2)
}

/// Reads from the front of what a peer sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u24(&mut self) -> Option<usize> {
        let [a, b, c] = self.array()?;
        usize::try_from(u32::from_be_bytes([0, a, b, c])).ok()
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn u48(&mut self) -> Option<u64> {
        let [a, b, c, d, e, f] = self.array()?;
        Some(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    pub(super) fn vector8(&mut self) -> Option<&'a [u8]> {
        let len = self.u8()?;
        self.take(usize::from(len))
    }

    pub(super) fn vector16(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    pub(super) fn vector24(&mut self) -> Option<&'a [u8]> {
        let len = self.u24()?;
        self.take(len)
    }

    /// The rest as numbers of two bytes.
    pub(super) fn numbers(self) -> impl Iterator<Item = u16> + use<'a> {
        let (pairs, _) = self.0.as_chunks::<2>();
        pairs.iter().map(|pair| u16::from_be_bytes(*pair))
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let mut bytes = Vec::new();
        put_record(&mut bytes, ContentType::Alert, DTLS_1_2, number(1, 7), &[1, 0]);
        put_record(&mut bytes, ContentType::Handshake, DTLS_1_0, number(0, 8), &[9]);
        let (first, rest) = Record::split(&bytes).unwrap();
        assert_eq!(
            (first.content, first.epoch, first.sequence, first.payload),
            (ContentType::Alert, 1, 7, &[1, 0][..])
        );
        let (second, rest) = Record::split(rest).unwrap();
        assert_eq!((second.version, second.number()), (DTLS_1_0, 8));
        assert!(rest.is_empty());
    }

    #[test]
    fn a_fragment_beyond_its_message_is_none() {
        let mut bytes = Vec::new();
        put_fragment(&mut bytes, 1, 0, 4, 3, &[1, 2]);
        assert_eq!(Fragment::split(&bytes), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = &bytes[..];
            while let Some((record, after)) = Record::split(rest) {
                let mut payload = record.payload;
                while let Some((_, more)) = Fragment::split(payload) {
                    payload = more;
                }
                rest = after;
            }
        }

        #[test]
        fn a_message_round_trips(kind: u8, sequence: u16, body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = Vec::new();
            put_message(&mut bytes, kind, sequence, &body);
            let (fragment, rest) = Fragment::split(&bytes).unwrap();
            prop_assert!(rest.is_empty() && fragment.is_whole());
            prop_assert_eq!((fragment.kind, fragment.sequence, fragment.body), (kind, sequence, &body[..]));
        }
    }
}
