//! The ClientHello of a client, for DTLS 1.2, 1.3 or both (RFC 5246 §7.4.1.2, RFC 8446 §4.1.2), and what of its
//! extensions a ServerHello of DTLS 1.2 may answer.

use super::{Agreed, Handshake};
use crate::{
    Alert, Suite, exchange,
    flight::Flight,
    hello::{EMPTY_RENEGOTIATION_INFO, extension},
    limit::RecordLimit,
    session::Identifiers,
    suite::Exchange,
    v13::{ClientHandshake, Greeted, SCHEMES_13, ServerHello},
    wire::{self, DTLS_1_2, OTHERS_MAX, Reader, message},
};

/// RFC 8446 §4.1.3: the ends of the random number of a server that would speak 1.3, and of one that would speak 1.2.
const DOWNGRADES: [&[u8; 8]; 2] = [b"DOWNGRD\x01", b"DOWNGRD\x00"];

impl Handshake {
    /// The suites of DTLS 1.2 for which there is what they need.
    pub(super) fn suites(&self) -> impl Iterator<Item = Suite> {
        let (psk, certificates) = (self.config.psk.is_some(), self.config.server.is_some());
        let has_groups = !self.config.groups.is_empty();
        self.config.suites.iter().copied().filter(move |suite| match suite.exchange() {
            Exchange::Psk => psk,
            Exchange::EcdhePsk => psk && has_groups,
            Exchange::EcdheEcdsa | Exchange::EcdheRsa => certificates && has_groups,
        })
    }

    /// Makes a ClientHello, with the cookie when there is one.
    pub(super) fn greet(&mut self) {
        let mut body = DTLS_1_2.to_be_bytes().to_vec();
        body.extend_from_slice(&self.randoms.client);
        wire::put_vector8(&mut body, &[]);
        wire::put_vector8(&mut body, &self.cookie);
        let newer = self.newer.iter().flat_map(|_| self.config.suites_13.iter()).map(|suite| suite.number());
        let older = self.suites().map(Suite::number);
        let scsv = self.speaks_older().then_some(EMPTY_RENEGOTIATION_INFO);
        let numbers: Vec<u8> = newer.chain(older).chain(scsv).flat_map(u16::to_be_bytes).collect();
        wire::put_vector16(&mut body, &numbers);
        wire::put_vector8(&mut body, &[0]);
        let mut extensions = Vec::new();
        self.put_extensions(&mut extensions);
        wire::put_vector16(&mut body, &extensions);
        if let Some(newer) = &self.newer {
            newer.bind(&mut body);
        }
        // RFC 6347 §4.2.1: the ClientHello without cookie and the HelloVerifyRequest are in no hash.
        self.transcript.clear();
        let mut messages = Vec::new();
        self.put(&mut messages, message::CLIENT_HELLO, &body);
        self.hello = body;
        self.flight = Flight::new(messages, None);
    }

    /// Whether a suite of DTLS 1.2 is offered that has a key exchange.
    fn has_curves(&self) -> bool {
        self.suites().any(|suite| suite.exchange() != Exchange::Psk)
    }

    fn speaks_older(&self) -> bool {
        self.suites().next().is_some()
    }

    fn put_extensions(&self, extensions: &mut Vec<u8>) {
        if self.speaks_older() {
            wire::put_extension(extensions, extension::EXTENDED_MASTER_SECRET, &[]);
        }
        let has_curves = self.has_curves();
        if has_curves || self.newer.is_some() && !self.config.groups.is_empty() {
            let groups: Vec<u8> = self.config.groups.iter().flat_map(|group| group.number().to_be_bytes()).collect();
            wire::put_list_extension(extensions, extension::SUPPORTED_GROUPS, &groups);
        }
        if has_curves {
            wire::put_extension(extensions, extension::EC_POINT_FORMATS, &[1, 0]);
        }
        if let Some((_, name)) = &self.config.server {
            let schemes = if self.speaks_older() { &exchange::SCHEMES[..] } else { &SCHEMES_13 };
            let schemes: Vec<u8> = schemes.iter().flat_map(|scheme| u16::from(*scheme).to_be_bytes()).collect();
            wire::put_list_extension(extensions, extension::SIGNATURE_ALGORITHMS, &schemes);
            if let rustls::pki_types::ServerName::DnsName(name) = name {
                // RFC 6066 §3: one name, of type host_name.
                let mut entry = vec![0];
                wire::put_vector16(&mut entry, name.as_ref().as_bytes());
                wire::put_list_extension(extensions, extension::SERVER_NAME, &entry);
            }
        }
        if let Some(cid) = &self.ours {
            let mut vector = Vec::with_capacity(1 + cid.len());
            wire::put_vector8(&mut vector, cid);
            wire::put_extension(extensions, extension::CONNECTION_ID, &vector);
        }
        // RFC 8449 §4: announced though it limits nothing, so that the server may announce its own.
        if self.newer.is_some() { RecordLimit::V13 } else { RecordLimit::V12 }.put(extensions);
        if let Some(newer) = &self.newer {
            newer.put_extensions(self.speaks_older(), extensions);
            newer.put_psk(&self.config, extensions);
        }
    }

    /// Takes in an answer of DTLS 1.3: a HelloRetryRequest, or the ServerHello with which its handshake begins. `None`:
    /// the server wants another ClientHello, which is made.
    pub(super) fn newer(
        &mut self,
        sequence: u16,
        answer: &ServerHello<'_>,
    ) -> Result<Option<Box<ClientHandshake>>, Alert> {
        if answer.is_retry() {
            let newer = self.newer.as_mut().ok_or(Alert::UnsupportedExtension)?;
            newer.retry(&self.config, &self.platform, &self.hello, answer)?;
            self.greet();
            return Ok(None);
        }
        let greeted = Greeted {
            config: self.config.clone(),
            platform: self.platform.clone(),
            newer: *self.newer.take().ok_or(Alert::UnsupportedExtension)?,
            random: self.randoms.client,
            hello: &self.hello,
            ours: self.ours,
            next_out: self.message_sequence,
            next_in: sequence.wrapping_add(1),
        };
        ClientHandshake::begin(greeted, answer).map(|begun| Some(Box::new(begun)))
    }

    /// Takes in a ServerHello of DTLS 1.2.
    pub(super) fn agreed(&mut self, body: &[u8]) -> Result<Agreed, Alert> {
        let mut reader = Reader(body);
        if reader.u16().ok_or(Alert::DecodeError)? != DTLS_1_2 {
            return Err(Alert::ProtocolVersion);
        }
        self.randoms.server = reader.array().ok_or(Alert::DecodeError)?;
        // RFC 8446 §4.2.1: whoever did not offer DTLS 1.2 does not speak it.
        if !self.speaks_older() {
            return Err(Alert::ProtocolVersion);
        }
        self.refuse_downgrade()?;
        reader.vector8().filter(|session| session.len() <= 32).ok_or(Alert::DecodeError)?;
        let (number, compression) = reader.u16().zip(reader.u8()).ok_or(Alert::DecodeError)?;
        let suite = self.suites().find(|suite| suite.number() == number).ok_or(Alert::IllegalParameter)?;
        if compression != 0 {
            return Err(Alert::IllegalParameter);
        }
        let extended_master_secret = self.extensions(reader)?;
        Ok(Agreed { suite, extended_master_secret, leaf: None, ephemeral: None, asked: None })
    }

    /// RFC 8446 §4.1.3, §4.1.4: somebody has taken DTLS 1.3 out of our ClientHello, or the server changes its mind.
    fn refuse_downgrade(&self) -> Result<(), Alert> {
        let Some(newer) = &self.newer else { return Ok(()) };
        let is_marked = self.randoms.server.last_chunk::<8>().is_some_and(|end| DOWNGRADES.contains(&end));
        if is_marked || newer.is_retried() { Err(Alert::IllegalParameter) } else { Ok(()) }
    }

    /// Reads the extensions after the compression method. Returns whether `extended_master_secret` is among them.
    pub(super) fn extensions(&mut self, mut reader: Reader<'_>) -> Result<bool, Alert> {
        let mut seen = Vec::new();
        if reader.is_empty() {
            return Ok(false);
        }
        let mut extensions = Reader(reader.vector16().filter(|_| reader.is_empty()).ok_or(Alert::DecodeError)?);
        while !extensions.is_empty() {
            let number = extensions.u16().ok_or(Alert::DecodeError)?;
            let body = extensions.vector16().ok_or(Alert::DecodeError)?;
            // RFC 5246 §7.4.1.4: nothing that was not asked for, and nothing twice.
            if !self.has_asked_for(number) {
                return Err(Alert::UnsupportedExtension);
            }
            if seen.contains(&number) {
                return Err(Alert::IllegalParameter);
            }
            match number {
                // RFC 5746 §3.4: in a first handshake it is empty.
                extension::RENEGOTIATION_INFO if body != [0] => return Err(Alert::HandshakeFailure),
                // RFC 7627 §5.1, RFC 6066 §3: they say all by being there.
                extension::EXTENDED_MASTER_SECRET | extension::SERVER_NAME if !body.is_empty() => {
                    return Err(Alert::DecodeError);
                }
                extension::EC_POINT_FORMATS => check_point_formats(body)?,
                extension::CONNECTION_ID => self.identifiers = Some(self.identifiers(body)?),
                extension::RECORD_SIZE_LIMIT => self.limit = Some(RecordLimit::parse(body)?),
                _ => {}
            }
            seen.push(number);
        }
        Ok(seen.contains(&extension::EXTENDED_MASTER_SECRET))
    }

    fn has_asked_for(&self, number: u16) -> bool {
        match number {
            extension::EXTENDED_MASTER_SECRET | extension::RENEGOTIATION_INFO | extension::RECORD_SIZE_LIMIT => true,
            extension::SUPPORTED_GROUPS | extension::EC_POINT_FORMATS => self.has_curves(),
            // Not SIGNATURE_ALGORITHMS: RFC 5246 §7.4.1.4.1 has no server send it.
            extension::SERVER_NAME => self.config.server.is_some(),
            extension::CONNECTION_ID => self.ours.is_some(),
            _ => false,
        }
    }

    /// RFC 9146 §3.
    fn identifiers(&self, body: &[u8]) -> Result<Box<Identifiers>, Alert> {
        let mut reader = Reader(body);
        let theirs = reader.vector8().filter(|_| reader.is_empty()).ok_or(Alert::DecodeError)?;
        let ours = self.ours.ok_or(Alert::UnsupportedExtension)?;
        if theirs.len() > OTHERS_MAX {
            return Err(Alert::IllegalParameter);
        }
        Ok(Box::new(Identifiers { ours, theirs: theirs.into() }))
    }
}

/// RFC 8422 §5.1.2: uncompressed has to be there.
fn check_point_formats(body: &[u8]) -> Result<(), Alert> {
    let mut reader = Reader(body);
    let formats = reader.vector8().filter(|_| reader.is_empty()).ok_or(Alert::DecodeError)?;
    if formats.contains(&0) { Ok(()) } else { Err(Alert::IllegalParameter) }
}
