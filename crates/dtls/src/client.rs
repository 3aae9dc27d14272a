//! A client: one association of DTLS 1.2 or 1.3, without I/O. One ClientHello offers both versions when both are
//! configured, and the server chooses.

mod config;
mod handshake;
mod sending;

use std::time::Duration;

pub use self::config::{ClientConfig, Psk};
use self::handshake::{Handshake, Step};
use super::{
    Alert, Channel, Platform,
    session::{self, Told},
    suite::Wear,
    v13::{self, ClientHandshake, ClientStep, Content, Heard, Sealed},
    wire::{ContentType, Fragment, Record, message},
};

/// An event of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The session is there.
    Established(Box<Channel>),
    /// Data of one record.
    Data(Vec<u8>),
    /// The session or the handshake is over.
    Ended(Alert),
}

/// The outcome of one record of a session.
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
    /// A ClientHello was sent, or the handshake is one of DTLS 1.2.
    Handshake(Box<Handshake>),
    /// The server has chosen DTLS 1.3.
    Newer(Box<ClientHandshake>),
    Established(Session),
    Over,
}

enum Session {
    V12(Box<session::Session>),
    V13(Box<v13::Session>),
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
        let (mut events, mut rest) = (Vec::new(), datagram);
        loop {
            if matches!(self.state, State::Established(_)) {
                let mut plain = Vec::new();
                match self.open(|| now, &mut rest, &mut plain, send) {
                    Some(Opened::Data) => events.push(ClientEvent::Data(plain)),
                    Some(Opened::Nothing) => {}
                    Some(Opened::Ended(alert)) => events.push(ClientEvent::Ended(alert)),
                    None => return events,
                }
            } else if v13::is_sealed(rest) {
                let Some((record, after)) = Sealed::split(rest) else { return events };
                rest = after;
                self.handle_sealed(now, &record, &mut events, send);
            } else {
                let Some((record, after)) = Record::split(rest) else { return events };
                rest = after;
                self.handle_plain(now, &record, &mut events, send);
            }
        }
    }

    /// A record of the first flights, or of DTLS 1.2.
    fn handle_plain(
        &mut self,
        now: Duration,
        record: &Record<'_>,
        events: &mut Vec<ClientEvent>,
        send: &mut dyn FnMut(&[u8]),
    ) {
        // In DTLS 1.3 nothing in the clear is believed behind the ServerHello.
        let State::Handshake(handshake) = &mut self.state else { return };
        match handshake.handle(now, record, send) {
            Step::Waiting => {}
            Step::Newer(begun) => self.state = State::Newer(begun),
            Step::Done(session, channel) => {
                self.state = State::Established(Session::V12(session));
                events.push(ClientEvent::Established(channel));
            }
            Step::Failed(alert) => self.fail(alert, events),
        }
    }

    /// A protected record of a handshake of DTLS 1.3.
    fn handle_sealed(
        &mut self,
        now: Duration,
        record: &Sealed<'_>,
        events: &mut Vec<ClientEvent>,
        send: &mut dyn FnMut(&[u8]),
    ) {
        // One that has overtaken the ServerHello comes again.
        let State::Newer(handshake) = &mut self.state else { return };
        match handshake.handle(now, record, send) {
            ClientStep::Waiting => {}
            ClientStep::Done(session, channel) => {
                self.state = State::Established(Session::V13(session));
                events.push(ClientEvent::Established(channel));
            }
            ClientStep::Failed(alert) => self.fail(alert, events),
        }
    }

    fn fail(&mut self, alert: Alert, events: &mut Vec<ClientEvent>) {
        self.state = State::Over;
        events.push(ClientEvent::Ended(alert));
    }

    /// Takes the first record off a datagram and appends what it holds to `plain`, so that who receives much allocates
    /// nothing. `None` when there is no record any more, or no session: its handshake is [`Client::handle`]'s. The time
    /// is asked for only when something is to be repeated later.
    pub fn open(
        &mut self,
        now: impl FnOnce() -> Duration,
        datagram: &mut &[u8],
        plain: &mut Vec<u8>,
        send: &mut dyn FnMut(&[u8]),
    ) -> Option<Opened> {
        let State::Established(session) = &mut self.state else { return None };
        let what = match session {
            Session::V12(session) => {
                let (record, rest) = Record::split(datagram)?;
                *datagram = rest;
                opened(session, &record, plain, send)
            }
            Session::V13(session) => {
                let (record, rest) = Sealed::split(datagram)?;
                *datagram = rest;
                opened_newer(session, now, &record, plain, send)
            }
        };
        if let Opened::Ended(_) = what {
            self.state = State::Over;
        }
        Some(what)
    }

    /// Changes the keys of what we send, and asks the server to change its own if `request`. Does nothing in DTLS 1.2
    /// and while a change is under way.
    pub fn update_keys(&mut self, now: Duration, request: bool, send: &mut dyn FnMut(&[u8])) {
        if let State::Established(Session::V13(session)) = &mut self.state {
            let mut out = Vec::new();
            session.update_keys(now, request, &mut out);
            say(&out, send);
        }
    }

    /// Says goodbye.
    pub fn close(&mut self, send: &mut dyn FnMut(&[u8])) {
        if let State::Established(session) = &mut self.state {
            let mut record = Vec::new();
            match session {
                Session::V12(session) => session.put_alert(Alert::CloseNotify, &mut record),
                Session::V13(session) => session.put_alert(Alert::CloseNotify, &mut record),
            }
            send(&record);
        }
        self.state = State::Over;
    }

    /// When [`Client::handle_timeout`] has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Duration> {
        match &self.state {
            State::Handshake(handshake) => handshake.again_at(),
            State::Newer(handshake) => handshake.again_at(),
            State::Established(Session::V13(session)) => session.again_at(),
            State::Established(Session::V12(_)) | State::Over => None,
        }
    }

    /// Sends again what was not answered.
    pub fn handle_timeout(&mut self, now: Duration, send: &mut dyn FnMut(&[u8])) {
        if self.next_timeout().is_none_or(|at| now < at) {
            return;
        }
        match &mut self.state {
            State::Handshake(handshake) => handshake.resend(now, send),
            State::Newer(handshake) => handshake.resend(now, send),
            State::Established(Session::V13(session)) => {
                let mut out = Vec::new();
                session.resend(now, &mut out);
                say(&out, send);
            }
            State::Established(Session::V12(_)) | State::Over => {}
        }
    }

    #[cfg(test)]
    pub(super) fn session_of_12(&mut self) -> Option<&mut session::Session> {
        match &mut self.state {
            State::Established(Session::V12(session)) => Some(session),
            State::Established(Session::V13(_)) | State::Handshake(_) | State::Newer(_) | State::Over => None,
        }
    }

    /// Whether the session is there.
    #[must_use]
    pub const fn is_established(&self) -> bool {
        matches!(self.state, State::Established(_))
    }
}

/// Takes in a record of DTLS 1.2; data, and nothing else, stays in `plain`.
fn opened(
    session: &mut session::Session,
    record: &Record<'_>,
    plain: &mut Vec<u8>,
    send: &mut dyn FnMut(&[u8]),
) -> Opened {
    let start = plain.len();
    let content = session.open(record, plain);
    let held = plain.get(start..).unwrap_or_default();
    let mut out = Vec::new();
    let what = match content {
        Some(ContentType::ApplicationData) => return Opened::Data,
        Some(ContentType::Alert) => match Told::by_alert(held) {
            Told::Closed => refused(session, Alert::CloseNotify, &mut out),
            Told::Over(alert) => Opened::Ended(alert),
            Told::Nothing => Opened::Nothing,
            Told::Malformed(alert) => refused(session, alert, &mut out),
        },
        Some(ContentType::Handshake) => match Fragment::split(held).map(|(fragment, _)| fragment.kind) {
            // RFC 5246 §7.4.1.1: it may be answered with this.
            Some(message::HELLO_REQUEST) => {
                session.put_alert(Alert::NoRenegotiation, &mut out);
                Opened::Nothing
            }
            // RFC 6347 §4.2.4: the server's last flight, once more.
            Some(message::FINISHED) => Opened::Nothing,
            Some(_) => refused(session, Alert::UnexpectedMessage, &mut out),
            None => refused(session, Alert::DecodeError, &mut out),
        },
        // RFC 5246 §7.1: it is not protected by what it announces, and there is no second handshake.
        Some(ContentType::ChangeCipherSpec) => refused(session, Alert::UnexpectedMessage, &mut out),
        // The keys are used up, and DTLS 1.2 has no change of keys. Data that has just come is told first.
        None if session.is_spent() => refused(session, Alert::CloseNotify, &mut out),
        Some(ContentType::Identified) | None => Opened::Nothing,
    };
    plain.truncate(start);
    say(&out, send);
    what
}

/// The session is over, and the server is told.
fn refused(session: &mut session::Session, alert: Alert, out: &mut Vec<u8>) -> Opened {
    session.put_alert(alert, out);
    Opened::Ended(alert)
}

/// The same of DTLS 1.3; messages after the handshake are dealt with.
fn opened_newer(
    session: &mut v13::Session,
    now: impl FnOnce() -> Duration,
    record: &Sealed<'_>,
    plain: &mut Vec<u8>,
    send: &mut dyn FnMut(&[u8]),
) -> Opened {
    let start = plain.len();
    let heard = session.open(record, plain);
    if heard.is_some_and(|heard| heard.content == Content::ApplicationData) && session.wear() == Wear::Fresh {
        return Opened::Data;
    }
    let (now, mut out) = (now(), Vec::new());
    let mut what = Opened::Nothing;
    if let Some(heard) = heard {
        let held = plain.get(start..).unwrap_or_default();
        match handled(session, now, heard, held, &mut out) {
            Ok(Some(alert)) => what = Opened::Ended(alert),
            Ok(None) if heard.content == Content::ApplicationData => what = Opened::Data,
            Ok(None) => {}
            Err(alert) => {
                out.clear();
                session.put_alert(alert, &mut out);
                what = Opened::Ended(alert);
            }
        }
    }
    match (session.wear(), what) {
        (Wear::Worn, Opened::Data | Opened::Nothing) => session.refresh(now, &mut out),
        // RFC 9147 §4.5.3. Data that has just come is told first.
        (Wear::Spent, Opened::Nothing) => {
            session.put_alert(Alert::CloseNotify, &mut out);
            what = Opened::Ended(Alert::CloseNotify);
        }
        (Wear::Fresh | Wear::Worn | Wear::Spent, _) => {}
    }
    if what != Opened::Data {
        plain.truncate(start);
    }
    say(&out, send);
    what
}

/// Deals with what is no data. Gives the alert with which the server has ended the session.
fn handled(
    session: &mut v13::Session,
    now: Duration,
    heard: Heard,
    held: &[u8],
    out: &mut Vec<u8>,
) -> Result<Option<Alert>, Alert> {
    match heard.content {
        Content::ApplicationData => Ok(None),
        // RFC 8446 §6: but for user_canceled, which precedes close_notify, all end it.
        Content::Alert => match Alert::of_record(held)? {
            // §6.1: answered with the same.
            (_, Alert::CloseNotify) => Err(Alert::CloseNotify),
            (_, Alert::Other(v13::USER_CANCELED)) => Ok(None),
            (_, alert) => Ok(Some(alert)),
        },
        Content::Ack => session.handle_ack(held).map(|()| None),
        Content::Handshake => session.handle_message(now, heard, held, out).map(|()| None),
        Content::Unknown => Err(Alert::UnexpectedMessage),
    }
}

fn say(out: &[u8], send: &mut dyn FnMut(&[u8])) {
    if !out.is_empty() {
        send(out);
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("established", &self.is_established()).finish_non_exhaustive()
    }
}
