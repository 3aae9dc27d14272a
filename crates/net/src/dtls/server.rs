//! The server's half of one handshake (RFC 6347 §4.2, RFC 5246 §7.3), from a ClientHello whose cookie was good.
//!
//! Each state is named for the message it awaits. What a handshake needs – transcript, certificates, the flight that
//! may have to go out again – goes with it when it is over.

use std::{net::IpAddr, sync::Arc, time::Duration};

use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::{
    pki_types::{CertificateDer, UnixTime},
    server::danger::ClientCertVerifier,
    sign::{CertifiedKey, Signer},
};

use super::{
    Alert, Credentials, Suite,
    exchange::{self, Ephemeral, Group},
    flight::Flight,
    hello::{ClientHello, Verified, extension},
    prf::{self, MasterSecret, Randoms, Side},
    protection::{Protection, Window},
    reassembly::{Message, Reassembly},
    session::{EPOCH, FINISHED, Identifiers, Session},
    suite::Exchange,
    wire::{self, Cid, ContentType, DTLS_1_2, Fragment, OTHERS_MAX, Reader, Record, message},
};
use crate::{
    channel::{Channel, ClientCertificate},
    clients::Cut,
};

/// Bytes of handshake messages of one client that are not finished: its certificates.
const MESSAGES_MAX: usize = 16 << 10;
/// RFC 4279 §5.3: identities of 128 bytes must be possible; longer ones are nobody's.
const IDENTITY_MAX: usize = 255;
/// Bytes of a protected record that overtook the ClientKeyExchange. A Finished has 61 at most.
const EARLY_MAX: usize = 128;
/// Bytes of names of authorities in a CertificateRequest; more would not help a device to choose.
const AUTHORITIES_MAX: usize = 1024;

/// RFC 8446 §4.1.3: the end of the random number of a server that would speak 1.3, so that a client that would as well
/// knows that somebody between them has changed its ClientHello.
const DOWNGRADE: &[u8; 8] = b"DOWNGRD\x01";

/// What a record has led to.
pub(super) enum Step {
    /// More is awaited.
    Waiting,
    /// It is done.
    Done(Made),
    /// It has failed.
    Failed(Alert),
    /// The client came too early after attempts that failed: nothing is said, and nothing is counted against it.
    TooEarly,
}

/// What a handshake has made.
pub(super) struct Made {
    pub(super) session: Box<Session>,
    pub(super) channel: Channel,
    /// Where there is one, the session ends with the client's certificate.
    pub(super) cut: Option<Cut>,
}

pub(super) struct Handshake {
    state: State,
    suite: Suite,
    randoms: Randoms,
    extended_master_secret: bool,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    from: IpAddr,
    /// Length of the ClientHello, with which the transcript begins.
    hello_len: usize,
    transcript: Vec<u8>,
    reassembly: Reassembly,
    flight: Flight,
    message_sequence: u16,
    record_sequence: u64,
    window: Window,
    early: Option<Vec<u8>>,
    identifiers: Option<Box<Identifiers>>,
    identity: Option<Box<[u8]>>,
    too_early: bool,
    began: Duration,
}

/// What is awaited.
enum State {
    Certificate(Ephemeral),
    ClientKeyExchange { ephemeral: Option<Ephemeral>, chain: Chain },
    CertificateVerify { secrets: Secrets, chain: Chain },
    Finished { secrets: Secrets, chain: Chain },
    Over,
}

/// A client's certificate and those it came with; empty when it has none.
type Chain = Vec<CertificateDer<'static>>;

struct Secrets {
    master: MasterSecret,
    read: Protection,
    write: Protection,
}

/// What was found in common with a client.
enum Chosen {
    Psk(Suite),
    Certificate { suite: Suite, group: Group, key: Arc<CertifiedKey>, signer: Box<dyn Signer> },
}

impl Handshake {
    /// Answers a ClientHello; [`Handshake::send`] has the answer. `ours` is handed out when the client wants one.
    pub(super) fn begin(
        credentials: &dyn Credentials,
        suites: &[Suite],
        speaks_newer: bool,
        ours: Option<Cid>,
        now: Duration,
        from: IpAddr,
        verified: &Verified<'_>,
    ) -> Result<Self, Alert> {
        let hello = &verified.hello;
        let chosen = choose(credentials, suites, hello).ok_or(Alert::HandshakeFailure)?;
        let mut randoms = Randoms { client: hello.random, server: [0; 32] };
        SystemRandom::new().fill(&mut randoms.server).map_err(|_| Alert::InternalError)?;
        if speaks_newer {
            randoms.server.iter_mut().rev().zip(DOWNGRADE.iter().rev()).for_each(|(to, from)| *to = *from);
        }
        // RFC 9146 §3: who cannot have what it wants in its records has no identifiers at all.
        let theirs = hello.connection_id.filter(|cid| cid.len() <= OTHERS_MAX);
        let identifiers = ours.zip(theirs).map(|(ours, theirs)| Box::new(Identifiers { ours, theirs: theirs.into() }));
        let ours = identifiers.as_ref().map(|identifiers| &identifiers.ours);
        let mut answer = Answer { messages: Vec::with_capacity(128), sequence: verified.message_sequence };
        let (suite, ephemeral, verifier) = match chosen {
            Chosen::Psk(suite) => {
                answer.server_hello(suite, &randoms, hello, ours);
                (suite, None, None)
            }
            Chosen::Certificate { suite, group, key, signer } => {
                let ephemeral = Ephemeral::generate(group)?;
                let verifier = credentials.client_verifier().filter(|verifier| verifier.offer_client_auth());
                answer.server_hello(suite, &randoms, hello, ours);
                answer.certificate(&key.cert);
                answer.server_key_exchange(&randoms, group, &ephemeral, signer.as_ref())?;
                if let Some(verifier) = &verifier {
                    answer.certificate_request(verifier.as_ref());
                }
                (suite, Some(ephemeral), verifier)
            }
        };
        answer.put(message::SERVER_HELLO_DONE, &[]);
        let mut transcript = verified.message.to_vec();
        transcript.extend_from_slice(&answer.messages);
        let state = match ephemeral {
            Some(ephemeral) if verifier.is_some() => State::Certificate(ephemeral),
            ephemeral => State::ClientKeyExchange { ephemeral, chain: Chain::new() },
        };
        Ok(Self {
            state,
            suite,
            randoms,
            extended_master_secret: hello.extended_master_secret,
            verifier,
            from,
            hello_len: verified.message.len(),
            transcript,
            reassembly: Reassembly::new(verified.message_sequence.wrapping_add(1), MESSAGES_MAX),
            flight: Flight::new(answer.messages),
            message_sequence: answer.sequence,
            record_sequence: verified.record_sequence,
            window: Window::default(),
            early: None,
            identifiers,
            identity: None,
            too_early: false,
            began: now,
        })
    }

    /// Sends the flight, for the first time or again.
    pub(super) fn send(&mut self, now: Duration, send: &mut dyn FnMut(&[u8])) {
        self.flight.send(now, &mut self.record_sequence, send);
    }

    /// Nothing came in time.
    pub(super) fn resend(&mut self, now: Duration, send: &mut dyn FnMut(&[u8])) {
        self.flight.slow_down();
        self.send(now, send);
    }

    /// When it wants [`Handshake::resend`].
    pub(super) const fn again_at(&self) -> Option<Duration> {
        self.flight.again_at()
    }

    pub(super) const fn began(&self) -> Duration {
        self.began
    }

    /// The identifier that it hands out.
    pub(super) fn identifier(&self) -> Option<&Cid> {
        self.identifiers.as_ref().map(|identifiers| &identifiers.ours)
    }

    /// The identity that the client has named, right or wrong.
    pub(super) fn take_identity(&mut self) -> Option<Box<[u8]>> {
        self.identity.take()
    }

    /// Appends the alert with which a handshake fails, in the clear: keys are in use only once it is done.
    pub(super) fn put_alert(&mut self, alert: Alert, out: &mut Vec<u8>) {
        wire::put_record(out, ContentType::Alert, DTLS_1_2, wire::number(0, self.record_sequence), &alert.bytes());
        self.record_sequence += 1;
    }

    /// Whether this is the ClientHello that began it, once more. Nobody else knows its cookie.
    pub(super) fn is_repeated(&self, verified: &Verified<'_>) -> bool {
        self.transcript.get(..self.hello_len) == Some(verified.message)
    }

    pub(super) fn handle(&mut self, credentials: &dyn Credentials, record: &Record<'_>) -> Step {
        match (record.content, record.epoch) {
            (ContentType::Handshake, 0) => {
                self.fragments(0, record.payload);
                self.advance(credentials)
            }
            (ContentType::Handshake | ContentType::Identified, EPOCH) if record.cid == self.identifier() => {
                self.handle_protected(credentials, record)
            }
            // ChangeCipherSpec says nothing that the epoch does not say. An alert in the clear may be anybody's. Data
            // before Finished is nobody's.
            (ContentType::ChangeCipherSpec | ContentType::Alert | ContentType::ApplicationData, _)
            | (ContentType::Handshake | ContentType::Identified, _) => Step::Waiting,
        }
    }

    fn handle_protected(&mut self, credentials: &dyn Credentials, record: &Record<'_>) -> Step {
        let read = match &mut self.state {
            State::Finished { secrets, .. } | State::CertificateVerify { secrets, .. } => &mut secrets.read,
            State::Certificate(_) | State::ClientKeyExchange { .. } | State::Over => {
                // It has overtaken what makes its key.
                if self.early.is_none() && record.payload.len() <= EARLY_MAX {
                    let mut early = Vec::with_capacity(wire::RECORD_HEADER + wire::CID + record.payload.len());
                    record.put(&mut early);
                    self.early = Some(early);
                }
                return Step::Waiting;
            }
        };
        if !self.window.may_accept(record.sequence) {
            return Step::Waiting;
        }
        // Many handshakes may have waited here while others failed: each is judged only if one more attempt is allowed.
        if self.identity.as_ref().is_some_and(|identity| credentials.must_wait(self.from, identity)) {
            return Step::TooEarly;
        }
        let mut plain = Vec::new();
        let Some(content) = read.open(record, &mut plain) else {
            // Another key than ours, mostly. Whoever is able to forge this could as well have forged what came before.
            if let Some(identity) = &self.identity {
                credentials.wrong_key(self.from, identity);
            }
            return Step::Failed(Alert::DecryptError);
        };
        self.window.note(record.sequence);
        if content != ContentType::Handshake {
            return Step::Waiting;
        }
        self.fragments(EPOCH, &plain);
        self.advance(credentials)
    }

    fn fragments(&mut self, epoch: u16, mut payload: &[u8]) {
        while let Some((fragment, rest)) = Fragment::split(payload) {
            payload = rest;
            self.reassembly.push(epoch, &fragment);
        }
    }

    /// Deals with messages as long as there are any.
    fn advance(&mut self, credentials: &dyn Credentials) -> Step {
        while let Some(message) = self.reassembly.pop() {
            match self.handle_message(credentials, &message) {
                Ok(Some(made)) => return Step::Done(made),
                Ok(None) => {}
                Err(_) if self.too_early => return Step::TooEarly,
                Err(alert) => return Step::Failed(alert),
            }
        }
        let ready = matches!(self.state, State::Finished { .. });
        match self.early.take_if(|_| ready) {
            Some(early) => match Record::split(&early) {
                Some((record, _)) => self.handle_protected(credentials, &record),
                None => Step::Waiting,
            },
            None => Step::Waiting,
        }
    }

    fn handle_message(&mut self, credentials: &dyn Credentials, message: &Message) -> Result<Option<Made>, Alert> {
        // RFC 6347 §4.1: Finished is the first message under the new keys, the others are in the clear.
        if (message.kind == message::FINISHED) != (message.epoch == EPOCH) {
            return Err(Alert::UnexpectedMessage);
        }
        self.state = match (std::mem::replace(&mut self.state, State::Over), message.kind) {
            (State::Certificate(ephemeral), message::CERTIFICATE) => {
                let chain = self.verified_chain(&message.body)?;
                message.put(&mut self.transcript);
                State::ClientKeyExchange { ephemeral: Some(ephemeral), chain }
            }
            (State::ClientKeyExchange { ephemeral, chain }, message::CLIENT_KEY_EXCHANGE) => {
                let premaster = self.premaster(credentials, ephemeral, &message.body)?;
                message.put(&mut self.transcript);
                let secrets = self.secrets(&premaster);
                if chain.is_empty() {
                    State::Finished { secrets, chain }
                } else {
                    State::CertificateVerify { secrets, chain }
                }
            }
            (State::CertificateVerify { secrets, chain }, message::CERTIFICATE_VERIFY) => {
                let mut reader = Reader(&message.body);
                let scheme = reader.u16().ok_or(Alert::DecodeError)?;
                let signature = reader.vector16().filter(|_| reader.is_empty()).ok_or(Alert::DecodeError)?;
                let leaf = chain.first().ok_or(Alert::InternalError)?;
                exchange::verify(leaf, scheme, &self.transcript, signature)?;
                message.put(&mut self.transcript);
                State::Finished { secrets, chain }
            }
            (State::Finished { secrets, chain }, message::FINISHED) => {
                let cut = credentials.watch(&chain);
                return self.finish(secrets, chain.first(), message).map(|made| Some(Made { cut, ..made }));
            }
            (_, _) => return Err(Alert::UnexpectedMessage),
        };
        Ok(None)
    }

    /// The client's certificate and its chain when they hold; nothing when it has none and need not.
    fn verified_chain(&self, body: &[u8]) -> Result<Chain, Alert> {
        let verifier = self.verifier.as_ref().ok_or(Alert::UnexpectedMessage)?;
        let chain = exchange::chain(body).ok_or(Alert::DecodeError)?;
        match chain.split_first() {
            None if verifier.client_auth_mandatory() => Err(Alert::HandshakeFailure),
            None => Ok(chain),
            Some((leaf, intermediates)) => {
                let verified = verifier.verify_client_cert(leaf, intermediates, UnixTime::now());
                verified.map(|_| chain).map_err(|error| exchange::alert_of(&error))
            }
        }
    }

    fn premaster(
        &mut self,
        credentials: &dyn Credentials,
        ephemeral: Option<Ephemeral>,
        body: &[u8],
    ) -> Result<zeroize::Zeroizing<Vec<u8>>, Alert> {
        let mut reader = Reader(body);
        match ephemeral {
            Some(ephemeral) => {
                let point = reader.vector8().filter(|_| reader.is_empty()).ok_or(Alert::DecodeError)?;
                ephemeral.agree(point)
            }
            None => {
                let identity = reader.vector16().filter(|_| reader.is_empty()).ok_or(Alert::DecodeError)?;
                if identity.len() > IDENTITY_MAX {
                    return Err(Alert::IllegalParameter);
                }
                if credentials.must_wait(self.from, identity) {
                    self.too_early = true;
                    return Err(Alert::InternalError);
                }
                self.identity = Some(identity.into());
                let key = credentials.psk(self.from, identity);
                match key.filter(|key| !key.is_empty()) {
                    Some(key) => Ok(prf::psk_premaster(&key)),
                    // RFC 4279 §2 allows it: to whom we do not know it looks as if the key were wrong.
                    None => {
                        let mut nobody = [0; 16];
                        SystemRandom::new().fill(&mut nobody).map_err(|_| Alert::InternalError)?;
                        Ok(prf::psk_premaster(&nobody))
                    }
                }
            }
        }
    }

    fn secrets(&self, premaster: &[u8]) -> Secrets {
        let session_hash = self.extended_master_secret.then_some(self.transcript.as_slice());
        let master = prf::master_secret(premaster, &self.randoms, session_hash);
        let (read, write) = prf::keys(self.suite, &master, &self.randoms);
        Secrets { master, read, write }
    }

    fn finish(
        &mut self,
        secrets: Secrets,
        leaf: Option<&CertificateDer<'static>>,
        theirs: &Message,
    ) -> Result<Made, Alert> {
        let expected = prf::verify_data(&secrets.master, Side::Client, &self.transcript);
        if !bool::from(subtle::ConstantTimeEq::ct_eq(&expected[..], &theirs.body)) {
            return Err(Alert::DecryptError);
        }
        theirs.put(&mut self.transcript);
        let ours = prf::verify_data(&secrets.master, Side::Server, &self.transcript);
        let mut finished = Vec::with_capacity(FINISHED);
        wire::put_message(&mut finished, message::FINISHED, self.message_sequence, &ours);
        let finished = <[u8; FINISHED]>::try_from(finished).map_err(|_| Alert::InternalError)?;
        let mut session = Box::new(Session::new(secrets.read, secrets.write, self.window, 0));
        session.keep_last_flight(finished, self.record_sequence);
        session.identify(self.identifiers.take());
        let certificate = leaf.map(|leaf| ClientCertificate::parse(leaf)).transpose();
        let channel = Channel {
            protocol: "DTLSv1.2",
            cipher: self.suite.name().into(),
            certificate: certificate.map_err(|_| Alert::BadCertificate)?.map(Arc::new),
            psk_identity: self.identity.take(),
            exporter: None,
            end_point: None,
        };
        Ok(Made { session, channel, cut: None })
    }
}

/// The first of our suites that the client offers and that we have what it takes for.
fn choose(credentials: &dyn Credentials, suites: &[Suite], hello: &ClientHello<'_>) -> Option<Chosen> {
    let offered = |suite: &&Suite| Reader(hello.suites).numbers().any(|number| number == suite.number());
    let mut key = None;
    for suite in suites.iter().filter(offered).copied() {
        match suite.exchange() {
            Exchange::Psk if credentials.has_psk() => return Some(Chosen::Psk(suite)),
            Exchange::Psk => {}
            Exchange::EcdheEcdsa | Exchange::EcdheRsa => {
                let key = key.get_or_insert_with(|| credentials.certified_key());
                let Some(certified) = key.as_ref().filter(|key| exchange_of(key) == Some(suite.exchange())) else {
                    continue;
                };
                let signer = certified.key.choose_scheme(&exchange::schemes(hello.schemes));
                if let (Some(signer), Some(group)) = (signer, Group::choose(hello.groups)) {
                    return Some(Chosen::Certificate { suite, group, key: Arc::clone(certified), signer });
                }
            }
        }
    }
    None
}

/// The key exchange that goes with a certificate.
fn exchange_of(key: &CertifiedKey) -> Option<Exchange> {
    let algorithm = key.key.algorithm();
    if algorithm == rustls::SignatureAlgorithm::ECDSA {
        Some(Exchange::EcdheEcdsa)
    } else if algorithm == rustls::SignatureAlgorithm::RSA {
        Some(Exchange::EcdheRsa)
    } else {
        None
    }
}

/// The flight that answers a ClientHello.
struct Answer {
    messages: Vec<u8>,
    sequence: u16,
}

impl Answer {
    fn put(&mut self, kind: u8, body: &[u8]) {
        wire::put_message(&mut self.messages, kind, self.sequence, body);
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// RFC 5246 §7.4.1.3. The session has no name: it is not resumed.
    fn server_hello(&mut self, suite: Suite, randoms: &Randoms, hello: &ClientHello<'_>, cid: Option<&Cid>) {
        let mut body = DTLS_1_2.to_be_bytes().to_vec();
        body.extend_from_slice(&randoms.server);
        wire::put_vector8(&mut body, &[]);
        body.extend_from_slice(&suite.number().to_be_bytes());
        body.push(0);
        let mut extensions = Vec::new();
        if hello.renegotiation_info {
            wire::put_extension(&mut extensions, extension::RENEGOTIATION_INFO, &[0]);
        }
        if hello.extended_master_secret {
            wire::put_extension(&mut extensions, extension::EXTENDED_MASTER_SECRET, &[]);
        }
        if hello.point_formats && suite.exchange() != Exchange::Psk {
            // RFC 8422 §5.2: uncompressed.
            wire::put_extension(&mut extensions, extension::EC_POINT_FORMATS, &[1, 0]);
        }
        if let Some(cid) = cid {
            let mut vector = Vec::with_capacity(1 + cid.len());
            wire::put_vector8(&mut vector, cid);
            wire::put_extension(&mut extensions, extension::CONNECTION_ID, &vector);
        }
        if !extensions.is_empty() {
            wire::put_vector16(&mut body, &extensions);
        }
        self.put(message::SERVER_HELLO, &body);
    }

    fn certificate(&mut self, chain: &[CertificateDer<'_>]) {
        let body = certificate_body(chain);
        self.put(message::CERTIFICATE, &body);
    }

    /// RFC 8422 §5.4.
    fn server_key_exchange(
        &mut self,
        randoms: &Randoms,
        group: Group,
        ephemeral: &Ephemeral,
        signer: &dyn Signer,
    ) -> Result<(), Alert> {
        let mut signed = [randoms.client, randoms.server].concat();
        // named_curve
        signed.push(3);
        signed.extend_from_slice(&group.number().to_be_bytes());
        wire::put_vector8(&mut signed, ephemeral.public.as_ref());
        let signature = signer.sign(&signed).map_err(|_| Alert::InternalError)?;
        let mut body = signed.split_off(64);
        body.extend_from_slice(&u16::from(signer.scheme()).to_be_bytes());
        wire::put_vector16(&mut body, &signature);
        self.put(message::SERVER_KEY_EXCHANGE, &body);
        Ok(())
    }

    /// RFC 5246 §7.4.4.
    fn certificate_request(&mut self, verifier: &dyn ClientCertVerifier) {
        // ecdsa_sign (RFC 8422 §5.5), rsa_sign
        let mut body = vec![2, 64, 1];
        let schemes: Vec<u8> = exchange::SCHEMES.iter().flat_map(|scheme| u16::from(*scheme).to_be_bytes()).collect();
        wire::put_vector16(&mut body, &schemes);
        let mut authorities = Vec::new();
        for name in verifier.root_hint_subjects() {
            if authorities.len() + name.as_ref().len() <= AUTHORITIES_MAX {
                wire::put_vector16(&mut authorities, name.as_ref());
            }
        }
        wire::put_vector16(&mut body, &authorities);
        self.put(message::CERTIFICATE_REQUEST, &body);
    }
}

/// RFC 5246 §7.4.2.
pub(super) fn certificate_body(chain: &[CertificateDer<'_>]) -> Vec<u8> {
    let mut list = Vec::new();
    chain.iter().for_each(|certificate| wire::put_vector24(&mut list, certificate));
    let mut body = Vec::with_capacity(3 + list.len());
    wire::put_vector24(&mut body, &list);
    body
}
