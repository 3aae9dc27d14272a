//! The client's half of a handshake (RFC 6347 §4.2): the ClientHello for both versions, and all that follows in DTLS
//! 1.2. Each state is named for what it awaits.

mod hello;
mod keys;
#[cfg(test)]
mod tests;

use std::time::Duration;

use rustls::pki_types::CertificateDer;

use self::keys::asked;
use super::ClientConfig;
use crate::{
    Alert, Channel, ChannelSuite, Platform, Suite,
    exchange::Group,
    flight::Flight,
    limit::RecordLimit,
    prf::{self, MasterSecret, Randoms, Side},
    reassembly::{Message, Reassembly},
    session::{self, EPOCH, Identifiers, Session, Told},
    suite::Exchange,
    v13::{ClientHandshake, Newer, ServerHello},
    wire::{self, Cid, ContentType, Fragment, Reader, Record, message},
};

/// The label of the master secret in a key log (draft-ietf-tls-keylogfile §2).
const CLIENT_RANDOM: &str = "CLIENT_RANDOM";

/// Bytes of a server's messages that are not finished.
const MESSAGES_MAX: usize = 32 << 10;
/// Room that ChangeCipherSpec and Finished want at the end of a flight.
const LAST_RECORDS: usize = 100;

pub(super) enum Step {
    Waiting,
    /// The server has chosen DTLS 1.3: the rest is another's.
    Newer(Box<ClientHandshake>),
    Done(Box<Session>, Box<Channel>),
    Failed(Alert),
}

pub(super) struct Handshake {
    config: ClientConfig,
    platform: Platform,
    state: State,
    randoms: Randoms,
    cookie: Vec<u8>,
    /// The last ClientHello, without its header.
    hello: Vec<u8>,
    /// The offer of DTLS 1.3.
    newer: Option<Box<Newer>>,
    /// The identifier that we ask for, and those that were agreed on.
    ours: Option<Cid>,
    identifiers: Option<Box<Identifiers>>,
    /// The limit of the server's, if it has announced one.
    limit: Option<RecordLimit>,
    transcript: Vec<u8>,
    reassembly: Reassembly,
    flight: Flight,
    message_sequence: u16,
    record_sequence: u64,
    /// A Finished that came before we had keys for it.
    early: Option<Vec<u8>>,
}

enum State {
    ServerHello,
    Certificate(Agreed),
    ServerKeyExchange(Agreed),
    ServerHelloDone(Agreed),
    Finished(Box<Sent>),
    Over,
}

/// The parameters known from the server's messages so far.
struct Agreed {
    suite: Suite,
    extended_master_secret: bool,
    leaf: Option<CertificateDer<'static>>,
    ephemeral: Option<(Group, Vec<u8>)>,
    asked: Option<Vec<rustls::SignatureScheme>>,
}

/// The state with which the server's Finished is awaited.
struct Sent {
    agreed: Agreed,
    master: MasterSecret,
    session: Session,
    finished: Vec<u8>,
}

impl Handshake {
    pub(super) fn new(config: ClientConfig, platform: Platform) -> Result<Self, Alert> {
        let mut randoms = Randoms::default();
        platform.fill(&mut randoms.client)?;
        let newer = Newer::new(&config, &platform)?.map(Box::new);
        let mut ours = config.identifiers.then_some(Cid::default());
        if let Some(cid) = &mut ours {
            platform.fill(cid)?;
        }
        let mut this = Self {
            config,
            platform,
            state: State::ServerHello,
            randoms,
            cookie: Vec::new(),
            hello: Vec::new(),
            newer,
            ours,
            identifiers: None,
            limit: None,
            transcript: Vec::new(),
            reassembly: Reassembly::new(0, MESSAGES_MAX),
            flight: Flight::default(),
            message_sequence: 0,
            record_sequence: 0,
            early: None,
        };
        if this.suites().next().is_none() && this.newer.is_none() {
            return Err(Alert::HandshakeFailure);
        }
        this.greet();
        Ok(this)
    }

    pub(super) const fn again_at(&self) -> Option<Duration> {
        self.flight.again_at()
    }

    pub(super) fn resend(&mut self, now: Duration, send: &mut dyn FnMut(&[u8])) {
        self.flight.slow_down();
        self.send(now, send);
    }

    /// Sends the flight that waits for an answer.
    pub(super) fn send(&mut self, now: Duration, send: &mut dyn FnMut(&[u8])) {
        let State::Finished(sent) = &mut self.state else {
            self.flight.send(now, &mut self.record_sequence, send);
            return;
        };
        let mut last = Vec::new();
        self.flight.cut(&mut self.record_sequence, &mut last, send);
        if last.len() + LAST_RECORDS > self.flight.datagram_max() {
            send(&last);
            last.clear();
        }
        session::put_change_cipher_spec(&mut last, &mut self.record_sequence);
        let _ = sent.session.seal(ContentType::Handshake, &sent.finished, &mut last);
        send(&last);
        self.flight.set_alarm(now);
    }

    /// RFC 9147 §5.1: a HelloVerifyRequest is of a server that speaks no DTLS 1.3.
    fn may_be_older(&self) -> bool {
        self.suites().next().is_some() && self.newer.as_ref().is_none_or(|newer| !newer.is_retried())
    }

    fn put(&mut self, messages: &mut Vec<u8>, kind: u8, body: &[u8]) {
        let start = messages.len();
        wire::put_message(messages, kind, self.message_sequence, body);
        self.transcript.extend_from_slice(messages.get(start..).unwrap_or_default());
        self.message_sequence = self.message_sequence.wrapping_add(1);
    }

    pub(super) fn handle(&mut self, now: Duration, record: &Record<'_>, send: &mut dyn FnMut(&[u8])) -> Step {
        match (record.content, record.epoch) {
            (ContentType::Handshake, 0) => self.fragments(0, record.payload),
            (ContentType::Handshake | ContentType::Identified | ContentType::Alert, EPOCH) => {
                return self.handle_protected(now, record, send);
            }
            // Before there are keys an alert can only come in the clear, and a client that goes on asking is no use.
            (ContentType::Alert, 0) => match record.payload {
                [2, alert] => return Step::Failed(Alert::parse(*alert)),
                _ => return Step::Waiting,
            },
            (ContentType::ChangeCipherSpec | ContentType::Alert | ContentType::ApplicationData, _)
            | (ContentType::Handshake | ContentType::Identified, _) => return Step::Waiting,
        }
        self.advance(now, send)
    }

    /// A record under the keys: the server's Finished, or an alert in its place.
    fn handle_protected(&mut self, now: Duration, record: &Record<'_>, send: &mut dyn FnMut(&[u8])) -> Step {
        let State::Finished(sent) = &mut self.state else {
            if record.content != ContentType::Alert {
                let mut early = Vec::new();
                record.put(&mut early);
                self.early = Some(early);
            }
            return Step::Waiting;
        };
        let mut plain = Vec::new();
        match sent.session.open(record, &mut plain) {
            Some(ContentType::Handshake) => {
                self.fragments(EPOCH, &plain);
                self.advance(now, send)
            }
            Some(ContentType::Alert) => match Told::by_alert(&plain) {
                Told::Closed => Step::Failed(Alert::CloseNotify),
                Told::Over(alert) => Step::Failed(alert),
                Told::Nothing => Step::Waiting,
                Told::Malformed(alert) => self.refuse(alert, send),
            },
            Some(ContentType::ChangeCipherSpec | ContentType::ApplicationData | ContentType::Identified) | None => {
                Step::Waiting
            }
        }
    }

    /// Gives up, and tells the server: under the keys once our ChangeCipherSpec was sent (RFC 5246 §7.1).
    fn refuse(&mut self, alert: Alert, send: &mut dyn FnMut(&[u8])) -> Step {
        let mut record = Vec::new();
        if let State::Finished(sent) = &mut self.state {
            sent.session.put_alert(alert, &mut record);
        } else {
            crate::hello::refuse(&mut record, self.record_sequence, alert);
        }
        send(&record);
        self.state = State::Over;
        Step::Failed(alert)
    }

    fn fragments(&mut self, epoch: u16, mut payload: &[u8]) {
        while let Some((fragment, rest)) = Fragment::split(payload) {
            payload = rest;
            self.reassembly.push(epoch, &fragment);
        }
    }

    fn advance(&mut self, now: Duration, send: &mut dyn FnMut(&[u8])) -> Step {
        while let Some(message) = self.reassembly.pop() {
            match self.handle_message(&message) {
                Ok(Next::Waiting) => {}
                Ok(Next::Send) => self.send(now, send),
                Ok(Next::Newer(begun)) => return Step::Newer(begun),
                Ok(Next::Done(session, channel)) => return Step::Done(session, channel),
                Err(alert) => return self.refuse(alert, send),
            }
        }
        let ready = matches!(self.state, State::Finished(_));
        match self.early.take_if(|_| ready) {
            Some(early) => match Record::split(&early) {
                Some((record, _)) => self.handle(now, &record, send),
                None => Step::Waiting,
            },
            None => Step::Waiting,
        }
    }

    fn handle_message(&mut self, message: &Message) -> Result<Next, Alert> {
        if (message.kind == message::FINISHED) != (message.epoch == EPOCH) {
            return Err(Alert::UnexpectedMessage);
        }
        // RFC 5246 §7.4.1.1: ignored in a handshake, and in no transcript.
        if message.kind == message::HELLO_REQUEST && message.body.is_empty() {
            return Ok(Next::Waiting);
        }
        // The refusal needs the keys.
        if let State::Finished(sent) = &self.state {
            self.check_last(sent, message)?;
        }
        self.state = match (std::mem::replace(&mut self.state, State::Over), message.kind) {
            (State::ServerHello, message::HELLO_VERIFY_REQUEST) if self.may_be_older() => {
                let mut reader = Reader(&message.body);
                reader.u16().ok_or(Alert::DecodeError)?;
                let cookie = reader.vector8().filter(|_| reader.is_empty());
                self.cookie = cookie.ok_or(Alert::DecodeError)?.to_vec();
                self.greet();
                self.state = State::ServerHello;
                return Ok(Next::Send);
            }
            (State::ServerHello, message::SERVER_HELLO) if self.newer.is_some() && is_newer(message) => {
                let answer = ServerHello::parse(&message.body).ok_or(Alert::DecodeError)??;
                let Some(begun) = self.newer(message.sequence, &answer)? else {
                    self.state = State::ServerHello;
                    return Ok(Next::Send);
                };
                return Ok(Next::Newer(begun));
            }
            (State::ServerHello, message::SERVER_HELLO) => {
                let agreed = self.agreed(&message.body)?;
                match agreed.suite.exchange() {
                    Exchange::Psk | Exchange::EcdhePsk => State::ServerKeyExchange(agreed),
                    Exchange::EcdheEcdsa | Exchange::EcdheRsa => State::Certificate(agreed),
                }
            }
            (State::Certificate(agreed), message::CERTIFICATE) => {
                let leaf = self.verified_leaf(&message.body)?;
                State::ServerKeyExchange(Agreed { leaf: Some(leaf), ..agreed })
            }
            (State::ServerKeyExchange(agreed), message::SERVER_KEY_EXCHANGE) => {
                let ephemeral = self.server_key(&agreed, &message.body)?;
                State::ServerHelloDone(Agreed { ephemeral, ..agreed })
            }
            (State::ServerHelloDone(agreed), message::CERTIFICATE_REQUEST)
                if agreed.leaf.is_some() && agreed.asked.is_none() =>
            {
                State::ServerHelloDone(Agreed { asked: Some(asked(&message.body)?), ..agreed })
            }
            (State::ServerHelloDone(agreed), message::SERVER_HELLO_DONE) => {
                return self.hello_done(agreed, message);
            }
            // RFC 4279 §2: without a hint there is no ServerKeyExchange.
            (State::ServerKeyExchange(agreed), message::SERVER_HELLO_DONE)
                if agreed.suite.exchange() == Exchange::Psk =>
            {
                return self.hello_done(agreed, message);
            }
            (State::Finished(sent), message::FINISHED) => return Ok(done(*sent)),
            (_, _) => return Err(Alert::UnexpectedMessage),
        };
        message.put(&mut self.transcript);
        Ok(Next::Waiting)
    }

    /// Nothing but the server's Finished may come behind ours (RFC 5246 §7.4.9).
    fn check_last(&self, sent: &Sent, message: &Message) -> Result<(), Alert> {
        if message.kind != message::FINISHED {
            return Err(Alert::UnexpectedMessage);
        }
        let expected = prf::verify_data(&sent.master, Side::Server, &self.transcript);
        let is_right = bool::from(subtle::ConstantTimeEq::ct_eq(&expected[..], &message.body));
        if is_right { Ok(()) } else { Err(Alert::DecryptError) }
    }

    fn hello_done(&mut self, agreed: Agreed, message: &Message) -> Result<Next, Alert> {
        // RFC 5246 §7.4.5.
        if !message.body.is_empty() {
            return Err(Alert::DecodeError);
        }
        message.put(&mut self.transcript);
        let sent = self.answer(agreed)?;
        self.state = State::Finished(Box::new(sent));
        Ok(Next::Send)
    }
}

fn is_newer(message: &Message) -> bool {
    ServerHello::parse(&message.body).is_some()
}

fn done(sent: Sent) -> Next {
    let Sent { agreed, session, .. } = sent;
    let suite = ChannelSuite::V12(agreed.suite);
    let channel = Channel { suite, certificate: agreed.leaf, psk: None };
    Next::Done(Box::new(session), Box::new(channel))
}

/// The next step after a message.
enum Next {
    Waiting,
    Send,
    Newer(Box<ClientHandshake>),
    Done(Box<Session>, Box<Channel>),
}
