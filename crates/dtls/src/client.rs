//! A client: one association, without I/O.

mod handshake;

use std::{sync::Arc, time::Duration};

use rustls::{KeyLog, client::danger::ServerCertVerifier, pki_types::ServerName, sign::CertifiedKey};
use zeroize::Zeroizing;

use self::handshake::{Handshake, Step};
use super::{
    Alert, Channel, Platform, Suite,
    session::Session,
    wire::{ContentType, Fragment, Record, message},
};

/// What a client has and whom it believes.
#[derive(Clone)]
pub struct ClientConfig {
    /// Suites to offer, best first; those for which there is nothing here are left out.
    pub suites: Vec<Suite>,
    /// A pre-shared key.
    pub psk: Option<Psk>,
    /// A certificate of its own, for servers that ask.
    pub certified_key: Option<Arc<CertifiedKey>>,
    /// Who checks the server's certificate, and the name it is checked for.
    pub server: Option<(Arc<dyn ServerCertVerifier>, ServerName<'static>)>,
    /// Who is told the secret of the session.
    pub key_log: Option<Arc<dyn KeyLog>>,
}

/// A pre-shared key and whose it is.
#[derive(Clone)]
pub struct Psk {
    /// The identity that is told to the server.
    pub identity: Box<[u8]>,
    /// The key.
    pub key: Zeroizing<Vec<u8>>,
}

impl ClientConfig {
    /// With a pre-shared key.
    #[must_use]
    pub fn psk(identity: &[u8], key: &[u8]) -> Self {
        let psk = Some(Psk { identity: identity.into(), key: Zeroizing::new(key.to_vec()) });
        Self { suites: Suite::ALL.to_vec(), psk, certified_key: None, server: None, key_log: None }
    }

    /// With certificates.
    #[must_use]
    pub fn certificates(verifier: Arc<dyn ServerCertVerifier>, name: ServerName<'static>) -> Self {
        let server = Some((verifier, name));
        Self { suites: Suite::ALL.to_vec(), psk: None, certified_key: None, server, key_log: None }
    }
}

/// What a datagram has led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The session is there.
    Established(Box<Channel>),
    /// Data of one record.
    Data(Vec<u8>),
    /// The session or the handshake is over.
    Ended(Alert),
}

/// What one record of a session says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// The data that was appended.
    Data,
    /// Nothing that counts: forged, repeated, or no data.
    Nothing,
    /// The session is over.
    Ended(Alert),
}

/// One association of a client.
pub struct Client {
    state: State,
}

enum State {
    Handshake(Box<Handshake>),
    /// With the handshake's last flight as long as the server may ask for it again.
    Established(Box<Session>),
    Over,
}

impl Client {
    /// Begins, and sends the first ClientHello.
    ///
    /// # Errors
    /// No random numbers, or nothing to offer.
    pub fn start(
        config: ClientConfig,
        platform: Platform,
        now: Duration,
        send: &mut dyn FnMut(&[u8]),
    ) -> Result<Self, Alert> {
        let mut handshake = Box::new(Handshake::new(config, platform)?);
        handshake.send(now, send);
        Ok(Self { state: State::Handshake(handshake) })
    }

    /// Takes in a datagram.
    pub fn handle(&mut self, now: Duration, datagram: &[u8], send: &mut dyn FnMut(&[u8])) -> Vec<ClientEvent> {
        let mut events = Vec::new();
        let mut rest = datagram;
        while let Some((record, after)) = Record::split(rest) {
            rest = after;
            self.handle_record(now, &record, &mut events, send);
        }
        events
    }

    fn handle_record(
        &mut self,
        now: Duration,
        record: &Record<'_>,
        events: &mut Vec<ClientEvent>,
        send: &mut dyn FnMut(&[u8]),
    ) {
        match &mut self.state {
            State::Handshake(handshake) => match handshake.handle(now, record, send) {
                Step::Waiting => {}
                Step::Done(session, channel) => {
                    self.state = State::Established(session);
                    events.push(ClientEvent::Established(channel));
                }
                Step::Failed(alert) => {
                    self.state = State::Over;
                    events.push(ClientEvent::Ended(alert));
                }
            },
            State::Established(session) => {
                let mut plain = Vec::new();
                match opened(session, record, &mut plain, send) {
                    Opened::Data => events.push(ClientEvent::Data(plain)),
                    Opened::Nothing => {}
                    Opened::Ended(alert) => {
                        self.state = State::Over;
                        events.push(ClientEvent::Ended(alert));
                    }
                }
            }
            State::Over => {}
        }
    }

    /// Takes the first record off a datagram and appends what it holds to `plain`, so that who receives much allocates
    /// nothing. `None` when there is no record any more, or no session: its handshake is [`Client::handle`]'s.
    pub fn open(&mut self, datagram: &mut &[u8], plain: &mut Vec<u8>, send: &mut dyn FnMut(&[u8])) -> Option<Opened> {
        let State::Established(session) = &mut self.state else { return None };
        let (record, rest) = Record::split(datagram)?;
        *datagram = rest;
        let what = opened(session, &record, plain, send);
        if let Opened::Ended(_) = what {
            self.state = State::Over;
        }
        Some(what)
    }

    /// Appends a record that holds `data`, for who sends it himself; `false` when there is no session.
    pub fn seal(&mut self, data: &[u8], out: &mut Vec<u8>) -> bool {
        let State::Established(session) = &mut self.state else { return false };
        session.seal(ContentType::ApplicationData, data, out).is_some()
    }

    /// Sends data; `false` when there is no session.
    pub fn send(&mut self, data: &[u8], send: &mut dyn FnMut(&[u8])) -> bool {
        let State::Established(session) = &mut self.state else { return false };
        let mut record = Vec::new();
        let sealed = session.seal(ContentType::ApplicationData, data, &mut record).is_some();
        if sealed {
            send(&record);
        }
        sealed
    }

    /// Says goodbye.
    pub fn close(&mut self, send: &mut dyn FnMut(&[u8])) {
        if let State::Established(session) = &mut self.state {
            let mut record = Vec::new();
            session.put_alert(Alert::CloseNotify, &mut record);
            send(&record);
        }
        self.state = State::Over;
    }

    /// When [`Client::handle_timeout`] has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Duration> {
        match &self.state {
            State::Handshake(handshake) => handshake.again_at(),
            State::Established(_) | State::Over => None,
        }
    }

    /// Sends again what was not answered.
    pub fn handle_timeout(&mut self, now: Duration, send: &mut dyn FnMut(&[u8])) {
        if let State::Handshake(handshake) = &mut self.state
            && handshake.again_at().is_some_and(|at| at <= now)
        {
            handshake.resend(now, send);
        }
    }

    /// Whether the session is there.
    #[must_use]
    pub const fn is_established(&self) -> bool {
        matches!(self.state, State::Established(_))
    }
}

/// Takes in a record; data, and nothing else, stays in `plain`.
fn opened(session: &mut Session, record: &Record<'_>, plain: &mut Vec<u8>, send: &mut dyn FnMut(&[u8])) -> Opened {
    let start = plain.len();
    let Some(content) = session.open(record, plain) else { return Opened::Nothing };
    let held = plain.get(start..).unwrap_or_default();
    let what = match content {
        ContentType::ApplicationData => return Opened::Data,
        ContentType::Alert => match *held {
            [level, alert] if level == 2 || alert == Alert::CloseNotify.byte() => Opened::Ended(Alert::parse(alert)),
            _ => Opened::Nothing,
        },
        ContentType::Handshake => {
            refuse_hello_request(session, held, send);
            Opened::Nothing
        }
        ContentType::ChangeCipherSpec | ContentType::Identified => Opened::Nothing,
    };
    plain.truncate(start);
    what
}

/// RFC 5246 §7.4.1.1: a HelloRequest may be answered with `no_renegotiation`.
fn refuse_hello_request(session: &mut Session, plain: &[u8], send: &mut dyn FnMut(&[u8])) {
    if Fragment::split(plain).is_some_and(|(fragment, _)| fragment.kind == message::HELLO_REQUEST) {
        let mut record = Vec::new();
        session.put_alert(Alert::NoRenegotiation, &mut record);
        send(&record);
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("established", &self.is_established()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Psk {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Psk").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ClientConfig {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientConfig").field("suites", &self.suites).finish_non_exhaustive()
    }
}
