//! The server's half of one handshake (RFC 6347 §4.2, RFC 5246 §7.3), from a ClientHello whose cookie was good.
//!
//! Each state is named for the message it awaits. What a handshake needs – transcript, certificates, the flight that
//! may have to go out again – goes with it when it is over.

mod answer;
mod certificate;
mod doubt;
mod keys;

use std::{net::IpAddr, sync::Arc, time::Duration};

use rustls::{pki_types::CertificateDer, server::danger::ClientCertVerifier};

use super::{
    Alert, Channel, ChannelSuite, ProvenPsk, Refused, Suite, Watch,
    exchange::{self, Ephemeral},
    flight::Flight,
    hello::Verified,
    limit::RecordLimit,
    platform::Host,
    prf::{self, MasterSecret, Randoms, Side},
    protection::{Protection, Window},
    reassembly::{Message, Reassembly},
    refused::Judged,
    session::{EPOCH, FINISHED, Identifiers, Session},
    wire::{self, Cid, ContentType, DTLS_1_2, Fragment, OTHERS_MAX, Reader, Record, message},
};

pub(crate) use self::answer::certificate_body;
use self::{
    answer::{Answer, Chosen, choose},
    doubt::Doubt,
};

/// Bytes of handshake messages of one client that are not finished: its certificates.
const MESSAGES_MAX: usize = 16 << 10;
/// Bytes of a protected record that overtook the ClientKeyExchange. A Finished has 61 at most.
const EARLY_MAX: usize = 128;

/// RFC 8446 §4.1.3: the end of the random number of a server that would speak 1.3, so that a client that would as well
/// knows that somebody between them has changed its ClientHello.
const DOWNGRADE: &[u8; 8] = b"DOWNGRD\x01";

/// The outcome of a record.
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

/// The results of a finished handshake.
pub(super) struct Made {
    pub(super) session: Box<Session>,
    pub(super) channel: Channel,
    /// Where there is one, the session ends with the client's certificate.
    pub(super) watch: Option<Watch>,
}

pub(super) struct Handshake {
    state: State,
    suite: Suite,
    randoms: Randoms,
    extended_master_secret: bool,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// By what certificates were judged when it began.
    trust: u64,
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
    /// The limit of the client's, if it has announced one.
    limit: Option<RecordLimit>,
    identity: Option<Box<[u8]>>,
    /// Of the key that the identity had when it was looked up.
    mark: u64,
    refused: Option<Box<Refused>>,
    too_early: bool,
    doubt: Option<Doubt>,
    began: Duration,
}

/// The message that comes next.
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

impl Handshake {
    /// Answers a ClientHello; [`Handshake::send`] has the answer. `ours` is handed out when the client wants one.
    pub(super) fn begin(
        host: Host<'_>,
        suites: &[Suite],
        speaks_newer: bool,
        ours: Option<Cid>,
        now: Duration,
        from: IpAddr,
        verified: &Verified<'_>,
    ) -> Result<Self, Alert> {
        let hello = &verified.hello;
        let chosen = choose(host.credentials, suites, hello).ok_or(Alert::HandshakeFailure)?;
        let mut randoms = Randoms { client: hello.random, server: [0; 32] };
        host.platform.fill(&mut randoms.server)?;
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
            Chosen::EcdhePsk(suite, group) => {
                let ephemeral = Ephemeral::generate(host.platform, group)?;
                answer.server_hello(suite, &randoms, hello, ours);
                answer.server_key_exchange_psk(group, &ephemeral);
                (suite, Some(ephemeral), None)
            }
            Chosen::Certificate { suite, group, key, signer } => {
                let ephemeral = Ephemeral::generate(host.platform, group)?;
                let verifier = host.credentials.client_verifier().filter(|verifier| verifier.offer_client_auth());
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
        let trust = verifier.as_ref().map_or(0, |_| host.credentials.trust());
        Ok(Self {
            state,
            suite,
            randoms,
            extended_master_secret: hello.extended_master_secret,
            verifier,
            trust,
            from,
            hello_len: verified.message.len(),
            transcript,
            reassembly: Reassembly::new(verified.message_sequence.wrapping_add(1), MESSAGES_MAX),
            flight: Flight::new(answer.messages, hello.record_limit),
            message_sequence: answer.sequence,
            record_sequence: verified.record_sequence,
            window: Window::default(),
            early: None,
            identifiers,
            limit: hello.record_limit,
            identity: None,
            mark: 0,
            refused: None,
            too_early: false,
            doubt: None,
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

    /// Whether a protected record came that did not open.
    pub(super) const fn is_doubted(&self) -> bool {
        self.doubt.is_some()
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

    pub(super) fn handle(&mut self, now: Duration, host: Host<'_>, record: &Record<'_>) -> Step {
        match (record.content, record.epoch) {
            (ContentType::Handshake, 0) => {
                self.fragments(0, record.payload);
                self.advance(now, host)
            }
            (ContentType::Handshake | ContentType::Identified, EPOCH) if record.cid == self.identifier() => {
                self.handle_protected(now, host, record)
            }
            // ChangeCipherSpec says nothing that the epoch does not say. An alert in the clear may be anybody's. Data
            // before Finished is nobody's.
            (ContentType::ChangeCipherSpec | ContentType::Alert | ContentType::ApplicationData, _)
            | (ContentType::Handshake | ContentType::Identified, _) => Step::Waiting,
        }
    }

    fn handle_protected(&mut self, now: Duration, host: Host<'_>, record: &Record<'_>) -> Step {
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
        let identity = self.identity.as_ref().filter(|_| self.doubt.is_none());
        if identity.is_some_and(|identity| host.credentials.must_wait(self.from, identity)) {
            return Step::TooEarly;
        }
        let may_try = self.doubt.as_ref().is_none_or(Doubt::may_try);
        let mut plain = Vec::new();
        let Some(content) = may_try.then(|| read.open(record, &mut plain)).flatten() else {
            return self.doubt(now, host);
        };
        self.window.note(record.sequence);
        if let (Some(_), Some(identity)) = (self.doubt.take(), &self.identity) {
            host.credentials.right_key_after_all(self.from, identity);
        }
        if content != ContentType::Handshake {
            return Step::Waiting;
        }
        self.fragments(EPOCH, &plain);
        self.advance(now, host)
    }

    fn fragments(&mut self, epoch: u16, mut payload: &[u8]) {
        while let Some((fragment, rest)) = Fragment::split(payload) {
            payload = rest;
            self.reassembly.push(epoch, &fragment);
        }
    }

    /// Deals with messages as long as there are any.
    fn advance(&mut self, now: Duration, host: Host<'_>) -> Step {
        while let Some(message) = self.reassembly.pop() {
            match self.handle_message(host, &message) {
                Ok(Some(made)) => return Step::Done(made),
                Ok(None) => {}
                Err(_) if self.too_early => return Step::TooEarly,
                Err(alert) => return Step::Failed(alert),
            }
        }
        let ready = matches!(self.state, State::Finished { .. });
        match self.early.take_if(|_| ready) {
            Some(early) => match Record::split(&early) {
                Some((record, _)) => self.handle_protected(now, host, &record),
                None => Step::Waiting,
            },
            None => Step::Waiting,
        }
    }

    fn handle_message(&mut self, host: Host<'_>, message: &Message) -> Result<Option<Made>, Alert> {
        // RFC 6347 §4.1: Finished is the first message under the new keys, the others are in the clear.
        if (message.kind == message::FINISHED) != (message.epoch == EPOCH) {
            return Err(Alert::UnexpectedMessage);
        }
        self.state = match (std::mem::replace(&mut self.state, State::Over), message.kind) {
            (State::Certificate(ephemeral), message::CERTIFICATE) => {
                let chain = self.verified_chain(host, &message.body)?;
                message.put(&mut self.transcript);
                State::ClientKeyExchange { ephemeral: Some(ephemeral), chain }
            }
            (State::ClientKeyExchange { ephemeral, chain }, message::CLIENT_KEY_EXCHANGE) => {
                let premaster = self.premaster(host, ephemeral, &message.body)?;
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
                let verified = exchange::verify(leaf, scheme, &self.transcript, signature);
                verified.inspect_err(|_| self.refuse(Refused::Unproven(leaf.clone())))?;
                message.put(&mut self.transcript);
                State::Finished { secrets, chain }
            }
            (State::Finished { secrets, chain }, message::FINISHED) => {
                return self.finish(host, secrets, &chain, message).map(Some);
            }
            (_, _) => return Err(Alert::UnexpectedMessage),
        };
        Ok(None)
    }

    fn finish(&mut self, host: Host<'_>, secrets: Secrets, chain: &Chain, theirs: &Message) -> Result<Made, Alert> {
        let expected = prf::verify_data(&secrets.master, Side::Client, &self.transcript);
        if !bool::from(subtle::ConstantTimeEq::ct_eq(&expected[..], &theirs.body)) {
            chain.first().into_iter().for_each(|leaf| self.refuse(Refused::Unproven(leaf.clone())));
            return Err(Alert::DecryptError);
        }
        let psk = self.identity.take().map(|identity| ProvenPsk { identity, mark: self.mark });
        let watch = host.credentials.watch(chain);
        let judged = Judged { verifier: self.verifier.as_deref(), chain, psk: psk.as_ref(), trust: self.trust };
        judged.check(host).map_err(|(alert, refused)| {
            self.refused = refused.map(Box::new);
            alert
        })?;
        theirs.put(&mut self.transcript);
        let ours = prf::verify_data(&secrets.master, Side::Server, &self.transcript);
        let mut finished = Vec::with_capacity(FINISHED);
        wire::put_message(&mut finished, message::FINISHED, self.message_sequence, &ours);
        let finished = <[u8; FINISHED]>::try_from(finished).map_err(|_| Alert::InternalError)?;
        let mut session = Box::new(Session::new(secrets.read, secrets.write, self.window, 0));
        session.keep_last_flight(finished, self.record_sequence);
        session.identify(self.identifiers.take());
        session.limit_to(self.limit);
        let channel = Channel { suite: ChannelSuite::V12(self.suite), certificate: chain.first().cloned(), psk };
        Ok(Made { session, channel, watch })
    }
}
