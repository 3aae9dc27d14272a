//! Bytes on the wire, written and read without the code under test.

pub(crate) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const DATA: u8 = 23;
pub(crate) const IDENTIFIED: u8 = 25;
pub(crate) const ACK: u8 = 26;

pub(crate) const V10: u16 = 0xfeff;
pub(crate) const V12: u16 = 0xfefd;
pub(crate) const V13: u16 = 0xfefc;

/// Kinds of handshake messages.
pub(crate) mod kind {
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
    /// Not a message: a ChangeCipherSpec in a plan.
    pub(crate) const CHANGE_CIPHER: u8 = 200;
}

/// Numbers of extensions.
pub(crate) mod ext {
    pub(crate) const SERVER_NAME: u16 = 0;
    pub(crate) const MAX_FRAGMENT_LENGTH: u16 = 1;
    pub(crate) const GROUPS: u16 = 10;
    pub(crate) const POINT_FORMATS: u16 = 11;
    pub(crate) const SCHEMES: u16 = 13;
    pub(crate) const EXTENDED_MASTER_SECRET: u16 = 23;
    pub(crate) const RECORD_SIZE_LIMIT: u16 = 28;
    pub(crate) const PRE_SHARED_KEY: u16 = 41;
    pub(crate) const EARLY_DATA: u16 = 42;
    pub(crate) const VERSIONS: u16 = 43;
    pub(crate) const COOKIE: u16 = 44;
    pub(crate) const PSK_MODES: u16 = 45;
    pub(crate) const KEY_SHARE: u16 = 51;
    pub(crate) const CONNECTION_ID: u16 = 54;
    pub(crate) const RENEGOTIATION_INFO: u16 = 0xff01;
    /// Nobody's.
    pub(crate) const UNKNOWN: u16 = 0x4711;
}

pub(crate) fn vec8(bytes: &[u8]) -> Vec<u8> {
    [&[u8::try_from(bytes.len()).unwrap()][..], bytes].concat()
}

pub(crate) fn vec16(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

pub(crate) fn vec24(bytes: &[u8]) -> Vec<u8> {
    [&length24(bytes.len())[..], bytes].concat()
}

pub(crate) fn length24(length: usize) -> [u8; 3] {
    let [_, a, b, c] = u32::try_from(length).unwrap().to_be_bytes();
    [a, b, c]
}

/// A list of extensions without its length.
pub(crate) fn extensions(list: &[(u16, Vec<u8>)]) -> Vec<u8> {
    list.iter().flat_map(|(number, body)| [&number.to_be_bytes()[..], &vec16(body)].concat()).collect()
}

pub(crate) fn fragment(kind: u8, sequence: u16, length: usize, offset: usize, body: &[u8]) -> Vec<u8> {
    let header = [&[kind][..], &length24(length), &sequence.to_be_bytes(), &length24(offset)].concat();
    [header, vec24(body)].concat()
}

pub(crate) fn message(kind: u8, sequence: u16, body: &[u8]) -> Vec<u8> {
    fragment(kind, sequence, body.len(), 0, body)
}

/// Epoch and sequence number in one.
pub(crate) fn number(epoch: u16, sequence: u64) -> u64 {
    u64::from(epoch) << 48 | sequence
}

/// A record of DTLS 1.2, or one in the clear.
pub(crate) fn record(content: u8, number: u64, payload: &[u8]) -> Vec<u8> {
    [&[content][..], &V12.to_be_bytes(), &number.to_be_bytes(), &vec16(payload)].concat()
}

/// Reads from the front.
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    pub(crate) fn number(&mut self, len: usize) -> u64 {
        self.take(len).iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::try_from(self.number(2)).unwrap()
    }

    /// A vector behind its length in so many bytes.
    pub(crate) fn vector(&mut self, len: usize) -> &'a [u8] {
        let len = usize::try_from(self.number(len)).unwrap();
        self.take(len)
    }

    pub(crate) fn extensions(&mut self) -> Vec<(u16, Vec<u8>)> {
        let mut list = Cursor(self.vector(2));
        let mut all = Vec::new();
        while !list.0.is_empty() {
            all.push((list.u16(), list.vector(2).to_vec()));
        }
        all
    }
}

/// A ClientHello.
#[derive(Clone)]
pub(crate) struct ClientHello {
    pub(crate) version: u16,
    pub(crate) random: [u8; 32],
    pub(crate) session: Vec<u8>,
    pub(crate) cookie: Vec<u8>,
    pub(crate) suites: Vec<u16>,
    pub(crate) compressions: Vec<u8>,
    pub(crate) extensions: Vec<(u16, Vec<u8>)>,
}

impl ClientHello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let suites: Vec<u8> = self.suites.iter().flat_map(|suite| suite.to_be_bytes()).collect();
        [
            &self.version.to_be_bytes()[..],
            &self.random,
            &vec8(&self.session),
            &vec8(&self.cookie),
            &vec16(&suites),
            &vec8(&self.compressions),
            &vec16(&extensions(&self.extensions)),
        ]
        .concat()
    }
}

/// A ServerHello.
#[derive(Clone)]
pub(crate) struct ServerHello {
    pub(crate) version: u16,
    pub(crate) random: [u8; 32],
    pub(crate) session: Vec<u8>,
    pub(crate) suite: u16,
    pub(crate) compression: u8,
    pub(crate) extensions: Vec<(u16, Vec<u8>)>,
}

impl ServerHello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [
            &self.version.to_be_bytes()[..],
            &self.random,
            &vec8(&self.session),
            &self.suite.to_be_bytes(),
            &[self.compression],
            &vec16(&extensions(&self.extensions)),
        ]
        .concat()
    }

    pub(crate) fn decode(body: &[u8]) -> Self {
        let mut reader = Cursor(body);
        let version = reader.u16();
        let random = reader.take(32).try_into().unwrap();
        let session = reader.vector(1).to_vec();
        let suite = reader.u16();
        let compression = reader.take(1)[0];
        let extensions = if reader.0.is_empty() { Vec::new() } else { reader.extensions() };
        Self { version, random, session, suite, compression, extensions }
    }
}

/// The limit of records that is among extensions, if there is one.
pub(crate) fn limit_in(extensions: &[(u16, Vec<u8>)]) -> Option<usize> {
    let (_, body) = extensions.iter().find(|(number, _)| *number == ext::RECORD_SIZE_LIMIT)?;
    Some(usize::from(u16::from_be_bytes(body[..].try_into().ok()?)))
}

/// Edits of lists of extensions.
pub(crate) trait Extensions {
    fn list(&mut self) -> &mut Vec<(u16, Vec<u8>)>;

    /// Puts one in, in the place of the one with that number or before all others.
    fn put(&mut self, number: u16, body: &[u8]) {
        match self.list().iter_mut().find(|(at, _)| *at == number) {
            Some((_, old)) => *old = body.to_vec(),
            None => self.list().insert(0, (number, body.to_vec())),
        }
    }

    /// Puts the one with that number in a second time, before all others.
    fn twice(&mut self, number: u16) {
        let again = self.get(number).clone();
        self.list().insert(0, (number, again));
    }

    fn without(&mut self, number: u16) {
        self.list().retain(|(at, _)| *at != number);
    }

    /// Announces the most that the peer takes in a record (RFC 8449 §4).
    fn limit(&mut self, bytes: u16) {
        self.put(ext::RECORD_SIZE_LIMIT, &bytes.to_be_bytes());
    }

    fn get(&mut self, number: u16) -> &mut Vec<u8> {
        &mut self.list().iter_mut().find(|(at, _)| *at == number).unwrap().1
    }
}

impl Extensions for ClientHello {
    fn list(&mut self) -> &mut Vec<(u16, Vec<u8>)> {
        &mut self.extensions
    }
}

impl Extensions for ServerHello {
    fn list(&mut self) -> &mut Vec<(u16, Vec<u8>)> {
        &mut self.extensions
    }
}

/// The handshake messages in plaintext payloads, put together.
#[derive(Default)]
pub(crate) struct Parts(Vec<(u16, u8, Vec<u8>, usize)>);

impl Parts {
    /// Takes in the fragments of a record's payload, and gives the messages that they complete.
    pub(crate) fn push(&mut self, payload: &[u8]) -> Vec<(u8, u16, Vec<u8>)> {
        let (mut reader, mut whole) = (Cursor(payload), Vec::new());
        while !reader.0.is_empty() {
            let kind = reader.take(1)[0];
            let length = usize::try_from(reader.number(3)).unwrap();
            let sequence = reader.u16();
            let offset = usize::try_from(reader.number(3)).unwrap();
            let piece = reader.vector(3);
            if !self.0.iter().any(|(at, ..)| *at == sequence) {
                self.0.push((sequence, kind, vec![0; length], 0));
            }
            let at = self.0.iter().position(|(at, ..)| *at == sequence).unwrap();
            let (_, _, body, got) = &mut self.0[at];
            body[offset..offset + piece.len()].copy_from_slice(piece);
            *got += piece.len();
            if *got >= length {
                let (sequence, kind, body, _) = self.0.remove(at);
                whole.push((kind, sequence, body));
            }
        }
        whole
    }
}
