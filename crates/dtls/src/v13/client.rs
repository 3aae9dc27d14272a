//! A client's half of a handshake of DTLS 1.3 (RFC 8446 §2, RFC 9147 §5), from the ServerHello on. Each state is named
//! for the message that it awaits; the last is the acknowledgement of our Finished.

mod extensions;
mod hello;

use std::time::Duration;

use rustls::{SignatureScheme, pki_types::CertificateDer};

use self::extensions::{Chosen, asked};
pub(crate) use self::hello::{Newer, ServerHello};
use super::{
    Suite13, ack,
    certificates::{SCHEMES, certificate_body, chain, signed, verify},
    flight::{Flight, Writers},
    record::{Content, Number, Opened, Reading, Sealed, Writing},
    schedule::{self, Early, Stage, Transcript},
    server::{ACK_AFTER, EPOCH_HANDSHAKE},
    session::{EPOCH_DATA, Session, Terms},
};
use crate::{
    Alert, Channel, ChannelSuite, Platform,
    client::ClientConfig,
    limit::RecordLimit,
    prf::Side,
    reassembly::{Message, Reassembly},
    wire::{Cid, OTHERS_MAX, Reader, message, put_message, put_vector16},
};

/// Bytes of a server's messages that are not finished.
const MESSAGES_MAX: usize = 32 << 10;

/// The outcome of a record.
pub(crate) enum ClientStep {
    /// More is awaited.
    Waiting,
    /// The server has our Finished.
    Done(Box<Session>, Box<Channel>),
    /// It has failed. The server is told, if it has not told us.
    Failed(Alert),
}

/// The client's state from before the ServerHello.
pub(crate) struct Greeted<'a> {
    pub(crate) config: ClientConfig,
    pub(crate) platform: Platform,
    pub(crate) newer: Newer,
    pub(crate) random: [u8; 32],
    /// The ClientHello that the ServerHello answers.
    pub(crate) hello: &'a [u8],
    pub(crate) ours: Option<Cid>,
    /// Of our next message and of the server's.
    pub(crate) next_out: u16,
    pub(crate) next_in: u16,
}

pub(crate) struct ClientHandshake {
    config: ClientConfig,
    platform: Platform,
    random: [u8; 32],
    state: State,
    suite: Suite13,
    transcript: Transcript,
    stage: Stage,
    by_psk: bool,
    reassembly: Reassembly,
    flight: Flight,
    read: Reading,
    write: Writing,
    data: Option<(Reading, Writing)>,
    terms: Terms,
    received: Vec<Number>,
    ack_at: Option<Duration>,
}

/// The message that comes next.
enum State {
    EncryptedExtensions,
    /// Or a CertificateRequest before it.
    Certificate(Asked),
    CertificateVerify(Asked, Leaf),
    Finished(Asked, Option<Leaf>),
    Acknowledgement(Option<Leaf>),
    Over,
}

/// The schemes that a CertificateRequest takes; nothing where there was none.
type Asked = Option<Vec<SignatureScheme>>;
type Leaf = CertificateDer<'static>;

impl ClientHandshake {
    /// Takes in the ServerHello (RFC 8446 §4.1.3).
    pub(crate) fn begin(greeted: Greeted<'_>, answer: &ServerHello<'_>) -> Result<Self, Alert> {
        let Greeted { config, platform, mut newer, random, hello, ours, next_out, next_in } = greeted;
        let suite = newer.suite(&config, answer)?;
        let mut transcript = newer.transcript();
        transcript.add(message::CLIENT_HELLO, hello);
        transcript.add(message::SERVER_HELLO, answer.body());
        let chosen = Chosen::parse(answer, ours.is_some())?;
        let by_psk = chosen.psk;
        let early = newer.early.take().filter(|_| by_psk);
        if by_psk && early.is_none() {
            return Err(Alert::UnsupportedExtension);
        }
        let agreed = match (chosen.share, newer.share.take()) {
            (Some((group, point)), Some((ours, key))) if group == ours.number() => Some(key.agree(point)?),
            // None was sent.
            (Some(_), None) => return Err(Alert::UnsupportedExtension),
            (Some(_), Some(_)) => return Err(Alert::IllegalParameter),
            (None, _) if by_psk => None,
            // §9.2: without a pre-shared key there is nothing else that a secret could come from.
            (None, _) => return Err(Alert::MissingExtension),
        };
        let stage = early.unwrap_or_else(|| Early::new(None)).handshake(agreed.as_ref().map(|agreed| &agreed[..]));
        let at_server_hello = transcript.hash();
        let traffic = |side| stage.traffic(side, &at_server_hello);
        let (aead, theirs) = (suite.aead(), chosen.identifier);
        // The server takes it as agreed on, and we cannot say it.
        if theirs.is_some_and(|cid| cid.len() > OTHERS_MAX) {
            return Err(Alert::IllegalParameter);
        }
        let mut write = Writing::new(aead, traffic(Side::Client), EPOCH_HANDSHAKE);
        // RFC 8449 §4: the server's limit comes with EncryptedExtensions. What has to be said before, alerts and
        // acknowledgements, keeps to every limit there may be.
        write.limit_to(RecordLimit::MIN);
        let this = Self {
            read: Reading::new(aead, traffic(Side::Server), EPOCH_HANDSHAKE),
            write,
            state: State::EncryptedExtensions,
            terms: Terms {
                side: Side::Client,
                aead,
                // RFC 9147 §9: where the server has answered nothing there are no identifiers at all.
                ours: ours.filter(|_| theirs.is_some()),
                theirs: theirs.unwrap_or_default().into(),
                next_in,
                next_out,
            },
            reassembly: Reassembly::new(next_in, MESSAGES_MAX),
            flight: Flight::new(Vec::new(), 0),
            data: None,
            received: Vec::new(),
            ack_at: None,
            config,
            platform,
            random,
            suite,
            transcript,
            stage,
            by_psk,
        };
        this.log("CLIENT_HANDSHAKE_TRAFFIC_SECRET", &this.stage.traffic(Side::Client, &at_server_hello));
        this.log("SERVER_HANDSHAKE_TRAFFIC_SECRET", &this.stage.traffic(Side::Server, &at_server_hello));
        Ok(this)
    }

    /// When it wants [`ClientHandshake::resend`].
    pub(crate) fn again_at(&self) -> Option<Duration> {
        self.flight.again_at().into_iter().chain(self.ack_at).min()
    }

    /// Does what is due: acknowledges a flight that came in part, or sends ours again.
    pub(crate) fn resend(&mut self, now: Duration, send: &mut dyn FnMut(&[u8])) {
        if self.ack_at.is_some_and(|at| at <= now) {
            self.ack_at = None;
            let mut out = Vec::new();
            ack::put(&mut self.write, &self.terms.theirs, &self.received, &mut out);
            if !out.is_empty() {
                send(&out);
            }
        }
        if self.flight.again_at().is_some_and(|at| at <= now) {
            self.flight.slow_down();
            self.send(now, send);
        }
    }

    fn send(&mut self, now: Duration, send: &mut dyn FnMut(&[u8])) {
        let Self { flight, write, terms, .. } = self;
        // Nothing of it is in the clear.
        flight.send(now, &mut Writers { plain: &mut 0, sealed: write, cid: &terms.theirs }, send);
    }

    /// Takes in a record.
    pub(crate) fn handle(&mut self, now: Duration, record: &Sealed<'_>, send: &mut dyn FnMut(&[u8])) -> ClientStep {
        if !record.is_for(self.terms.ours.as_ref()) {
            return ClientStep::Waiting;
        }
        let mut plain = Vec::new();
        let opened = self.read.open(record, &mut plain);
        let opened = opened.or_else(|| self.data.as_mut().and_then(|(read, _)| read.open(record, &mut plain)));
        let Some(Opened { content, number, .. }) = opened else { return ClientStep::Waiting };
        match self.handle_inner(now, content, number, &plain, send) {
            Ok(step) => step,
            Err(alert) => self.refuse(alert, send),
        }
    }

    fn handle_inner(
        &mut self,
        now: Duration,
        content: Content,
        number: Number,
        plain: &[u8],
        send: &mut dyn FnMut(&[u8]),
    ) -> Result<ClientStep, Alert> {
        match content {
            Content::Handshake if number.epoch == EPOCH_HANDSHAKE => {
                self.note(now, number);
                self.messages(now, plain, send).map(|()| ClientStep::Waiting)
            }
            Content::Ack => {
                ack::numbers(plain)?.for_each(|number| self.flight.acknowledge(number));
                if self.flight.has_arrived() { self.finish() } else { Ok(ClientStep::Waiting) }
            }
            Content::Alert => Alert::of_record(plain).map(|(_, alert)| ClientStep::Failed(alert)),
            // Data has keys of its own (RFC 9147 §6.1).
            Content::ApplicationData if number.epoch == EPOCH_HANDSHAKE => Err(Alert::UnexpectedMessage),
            Content::Unknown => Err(Alert::UnexpectedMessage),
            // Data that a server sends before it has our Finished is dropped and not acknowledged.
            Content::Handshake | Content::ApplicationData => Ok(ClientStep::Waiting),
        }
    }

    /// Remembers a record for the acknowledgement of a flight that does not come whole (RFC 9147 §7.1).
    fn note(&mut self, now: Duration, number: Number) {
        if self.received.len() < ack::NUMBERS_MAX {
            self.received.push(number);
        }
        if !matches!(self.state, State::Acknowledgement(_)) {
            self.ack_at.get_or_insert(now + ACK_AFTER);
        }
    }

    fn refuse(&mut self, alert: Alert, send: &mut dyn FnMut(&[u8])) -> ClientStep {
        let mut out = Vec::new();
        if self.write.seal(&self.terms.theirs, Content::Alert, &alert.bytes(), &mut out).is_some() {
            send(&out);
        }
        self.state = State::Over;
        ClientStep::Failed(alert)
    }

    /// Deals with messages as long as there are any.
    fn messages(&mut self, now: Duration, payload: &[u8], send: &mut dyn FnMut(&[u8])) -> Result<(), Alert> {
        self.reassembly.push_all(payload)?;
        while let Some(message) = self.reassembly.pop() {
            self.terms.next_in = message.sequence.wrapping_add(1);
            if self.handle_message(&message)? {
                self.ack_at = None;
                self.send(now, send);
            }
        }
        Ok(())
    }

    /// Whether our flight is to be sent now.
    fn handle_message(&mut self, message: &Message) -> Result<bool, Alert> {
        let body = &message.body;
        self.state = match (std::mem::replace(&mut self.state, State::Over), message.kind) {
            (State::EncryptedExtensions, message::ENCRYPTED_EXTENSIONS) => {
                let limit = self.encrypted_extensions(body)?;
                self.write.limit_to(limit.unwrap_or(RecordLimit::V13));
                if self.by_psk { State::Finished(None, None) } else { State::Certificate(None) }
            }
            (State::Certificate(None), message::CERTIFICATE_REQUEST) => State::Certificate(Some(asked(body)?)),
            (State::Certificate(asked), message::CERTIFICATE) => {
                let chain = chain(body)?;
                State::CertificateVerify(asked, hello::verified_leaf(&self.config, &self.platform, chain)?)
            }
            (State::CertificateVerify(asked, leaf), message::CERTIFICATE_VERIFY) => {
                let mut reader = Reader(body);
                let scheme = reader.u16().ok_or(Alert::DecodeError)?;
                let signature = reader.vector16().filter(|_| reader.is_empty()).ok_or(Alert::DecodeError)?;
                verify(&leaf, scheme, &signed(Side::Server, &self.transcript.hash()), signature)?;
                State::Finished(asked, Some(leaf))
            }
            (State::Finished(asked, leaf), message::FINISHED) => {
                let expected = schedule::finished(self.read.secret(), &self.transcript.hash());
                if !bool::from(subtle::ConstantTimeEq::ct_eq(&expected[..], body)) {
                    return Err(Alert::DecryptError);
                }
                self.transcript.add(message.kind, body);
                self.answer(asked)?;
                self.state = State::Acknowledgement(leaf);
                return Ok(true);
            }
            (_, _) => return Err(Alert::UnexpectedMessage),
        };
        self.transcript.add(message.kind, body);
        Ok(false)
    }

    /// Makes our flight, and the keys of data (RFC 8446 §7.1).
    fn answer(&mut self, asked: Asked) -> Result<(), Alert> {
        let (master, at_finished, aead) = (self.stage.master(), self.transcript.hash(), self.suite.aead());
        let traffic = |side| master.traffic(side, &at_finished);
        self.log("CLIENT_TRAFFIC_SECRET_0", &traffic(Side::Client));
        self.log("SERVER_TRAFFIC_SECRET_0", &traffic(Side::Server));
        let read = Reading::new(aead, traffic(Side::Server), EPOCH_DATA);
        let mut write = Writing::new(aead, traffic(Side::Client), EPOCH_DATA);
        write.limit_to(self.write.limit());
        self.data = Some((read, write));
        let mut messages = Vec::with_capacity(64);
        if let Some(schemes) = asked {
            let key = self.config.certified_key.clone();
            let able = key.and_then(|key| key.key.choose_scheme(&schemes).map(|signer| (key, signer)));
            let chain = able.as_ref().map_or(&[][..], |(key, _)| &key.cert);
            self.put(&mut messages, message::CERTIFICATE, &certificate_body(chain));
            if let Some((_, signer)) = able {
                let signature = signer.sign(&signed(Side::Client, &self.transcript.hash()));
                let mut body = u16::from(signer.scheme()).to_be_bytes().to_vec();
                put_vector16(&mut body, &signature.map_err(|_| Alert::InternalError)?);
                self.put(&mut messages, message::CERTIFICATE_VERIFY, &body);
            }
        }
        let finished = schedule::finished(self.write.secret(), &self.transcript.hash());
        self.put(&mut messages, message::FINISHED, &finished);
        self.flight = Flight::new(messages, self.write.content_max());
        Ok(())
    }

    fn put(&mut self, messages: &mut Vec<u8>, kind: u8, body: &[u8]) {
        put_message(messages, kind, self.terms.next_out, body);
        self.terms.next_out = self.terms.next_out.wrapping_add(1);
        self.transcript.add(kind, body);
    }

    /// All of our flight has arrived.
    fn finish(&mut self) -> Result<ClientStep, Alert> {
        let State::Acknowledgement(certificate) = std::mem::replace(&mut self.state, State::Over) else {
            return Err(Alert::InternalError);
        };
        let keys = self.data.take().ok_or(Alert::InternalError)?;
        let session = Session::new(&self.terms, keys, &mut self.read);
        let channel = Channel { suite: ChannelSuite::V13(self.suite), certificate, psk: None };
        Ok(ClientStep::Done(Box::new(session), Box::new(channel)))
    }

    fn log(&self, label: &str, secret: &schedule::Secret) {
        if let Some(log) = &self.config.key_log {
            log.log(label, &self.random, secret.as_ref());
        }
    }
}
