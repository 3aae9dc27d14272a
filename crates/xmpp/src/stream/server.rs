//! The server's end of a stream: from the first byte to a bound resource, and the rules that hold afterwards.
//!
//! | state | awaits | leads to |
//! |---|---|---|
//! | `AwaitingHeader` | a stream header | `Negotiating`, or `AwaitingBind` once authenticated |
//! | `Negotiating` | `<starttls/>` or `<auth/>` | `AwaitingTls`, `Authenticating` |
//! | `AwaitingTls` | the shell's [`ServerStream::tls_established`] | `AwaitingHeader` |
//! | `Authenticating` | `<response/>` and the shell's verdict | `AwaitingHeader`, `Negotiating` |
//! | `AwaitingBind` | a bind request | `Bound` |
//! | `Bound` | stanzas | – |
//! | `Closed` | nothing | – |

use super::header;
use super::management::{Managed, StreamManagement};
use super::sasl::{self, SaslCondition};
use crate::element::Element;
use crate::error::{StanzaCondition, StanzaError, StreamCondition, StreamError};
use crate::framer::{Frame, Framer};
use crate::iq::{Answer, IqHead, IqKind};
use crate::jid::Jid;
use crate::limits::Limits;
use crate::ns;
use crate::parse::{self, Scope};
use crate::writer::Writer;
use std::sync::Arc;
use std::time::Duration;

/// What all streams of a door share.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The domain served.
    pub domain: Jid,
    /// The bounds.
    pub limits: Limits,
    /// From accept to a bound resource, however often the peer shows signs of life.
    pub login_timeout: Duration,
}

/// How STARTTLS stands on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartTls {
    /// TLS is there already, or there is no certificate.
    Unavailable,
    /// The client may.
    Offered,
    /// The client must: no mechanism is offered before.
    Required,
}

/// What a connection offers at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// STARTTLS.
    pub starttls: StartTls,
    /// SASL mechanisms, the best first.
    pub mechanisms: Vec<&'static str>,
}

/// A request for a resource (RFC 6120 §7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindRequest {
    /// The id of the IQ.
    pub id: Box<str>,
    /// The resource wished for.
    pub resource: Option<Box<str>>,
}

/// What happened.
#[derive(Debug, PartialEq)]
pub enum ServerEvent<'b> {
    /// `<proceed/>` is in the output. Send it, throw away what else was read (RFC 6120 §5.4.3.3), do the handshake,
    /// call [`ServerStream::tls_established`].
    StartTls,
    /// A mechanism begins; answer with `challenge`, `succeed` or `fail`.
    Authenticate {
        /// One of those offered.
        mechanism: &'static str,
        /// The initial response.
        initial: Option<Vec<u8>>,
    },
    /// The exchange goes on; answer with `challenge`, `succeed` or `fail`.
    Response(Vec<u8>),
    /// The client gave up the exchange; it was told so.
    Aborted,
    /// Answer with [`ServerStream::bound`] or [`ServerStream::bind_refused`].
    Bind(BindRequest),
    /// An IQ, a message or a presence, with a `from` that is the sender's.
    Stanza(Element<'b>),
    /// The client ended the stream; the end of ours is in the output.
    Ended,
    /// The stream failed; the error and the end of the stream are in the output.
    Failed(StreamError),
}

#[derive(Debug, PartialEq)]
enum State {
    AwaitingHeader,
    Negotiating,
    AwaitingTls,
    Authenticating,
    AwaitingBind,
    Bound,
    Closed,
}

/// One connection's stream, server's end.
#[derive(Debug)]
pub struct ServerStream {
    config: Arc<ServerConfig>,
    state: State,
    framer: Framer,
    scope: Scope,
    /// What is offered before authentication; given up afterwards.
    offer: Option<Box<Offer>>,
    /// Bare once authenticated, full once bound.
    jid: Option<Jid>,
    management: StreamManagement,
    attempts: u32,
    header_sent: bool,
    seed: u64,
    deadline: Duration,
}

impl ServerStream {
    /// A stream at its beginning. `seed` is random: the ids of the streams come from it (RFC 6120 §4.7.3). `now` counts
    /// from any origin.
    #[must_use]
    pub fn new(config: Arc<ServerConfig>, offer: Offer, seed: u64, now: Duration) -> Self {
        let framer = Framer::new(&config.limits);
        let deadline = now + config.login_timeout;
        Self {
            config,
            state: State::AwaitingHeader,
            framer,
            scope: Scope::default(),
            offer: Some(Box::new(offer)),
            jid: None,
            management: StreamManagement::default(),
            attempts: 0,
            header_sent: false,
            seed,
            deadline,
        }
    }

    /// The client's address: bare once authenticated, full once bound.
    #[must_use]
    pub const fn jid(&self) -> Option<&Jid> {
        self.jid.as_ref()
    }

    /// Whether a resource is bound.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.state == State::Bound
    }

    /// Whether nothing more will come or go.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// The acknowledgement counters.
    #[must_use]
    pub const fn management(&self) -> &StreamManagement {
        &self.management
    }

    /// When login must be complete; none once it is.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        (!matches!(self.state, State::Bound | State::Closed)).then_some(self.deadline)
    }

    /// Time has passed: the deadline may have.
    pub fn handle_timeout(&mut self, now: Duration, out: &mut Vec<u8>) {
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.fail(StreamError::new(StreamCondition::ConnectionTimeout, "login took too long"), out);
        }
    }

    /// Takes what came in: how many bytes to drop from the front of the buffer, and what happened. No event means that
    /// more bytes are needed, unless the stream is closed now.
    pub fn handle<'b>(&mut self, input: &'b [u8], out: &mut Vec<u8>) -> (usize, Option<ServerEvent<'b>>) {
        let mut used = 0;
        while !matches!(self.state, State::Closed | State::AwaitingTls) {
            let rest = input.get(used..).unwrap_or_default();
            let framed = match self.framer.next(rest) {
                Ok(framed) => framed,
                Err(error) => return (input.len(), Some(self.failed(error, out))),
            };
            used += framed.used;
            let Some(frame) = framed.frame else { return (used, None) };
            match self.handle_frame(frame, out) {
                Ok(Some(event)) => return (used, Some(event)),
                Ok(None) => {}
                Err(error) => return (input.len(), Some(self.failed(error, out))),
            }
        }
        (input.len(), None)
    }

    fn handle_frame<'b>(
        &mut self,
        frame: Frame<'b>,
        out: &mut Vec<u8>,
    ) -> Result<Option<ServerEvent<'b>>, StreamError> {
        match frame {
            Frame::Header(bytes) => self.handle_header(bytes, out).map(|()| None),
            Frame::Stanza(bytes) => {
                let element = parse::stanza(bytes, &self.scope, &self.config.limits)?;
                self.handle_element(element, out)
            }
            Frame::End => {
                self.close(out);
                Ok(Some(ServerEvent::Ended))
            }
        }
    }

    fn handle_header(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), StreamError> {
        let (element, scope) = parse::header(bytes, &self.config.limits)?;
        self.scope = scope;
        self.write_header(out);
        header::check_version(&element)?;
        // RFC 6120 §4.9.3.6; a missing `to` is forgiven, there is one domain.
        if let Some(to) = element.attr("to")
            && Jid::parse(to).as_ref() != Ok(&self.config.domain)
        {
            return Err(StreamError::new(StreamCondition::HostUnknown, ""));
        }
        self.write_features(out);
        self.state = if self.jid.is_some() { State::AwaitingBind } else { State::Negotiating };
        Ok(())
    }

    fn write_header(&mut self, out: &mut Vec<u8>) {
        self.seed = next_seed(self.seed);
        let id = format!("{:016x}", self.seed);
        header::write(out, Some(self.config.domain.as_str()), None, Some(&id));
        self.header_sent = true;
    }

    /// RFC 6120 §4.3.2
    fn write_features(&self, out: &mut Vec<u8>) {
        let mut w = Writer::new(out);
        w.start("stream:features");
        if self.jid.is_some() {
            w.start_ns("bind", ns::BIND).end("bind");
            w.start_ns("session", ns::SESSION).empty("optional").end("session");
            w.start_ns("sm", ns::SM).end("sm");
        } else if let Some(offer) = &self.offer {
            match offer.starttls {
                StartTls::Unavailable => {}
                StartTls::Offered => {
                    w.start_ns("starttls", ns::TLS).end("starttls");
                }
                StartTls::Required => {
                    w.start_ns("starttls", ns::TLS).empty("required").end("starttls");
                }
            }
            if offer.starttls != StartTls::Required && !offer.mechanisms.is_empty() {
                w.start_ns("mechanisms", ns::SASL);
                for mechanism in &offer.mechanisms {
                    w.leaf("mechanism", mechanism);
                }
                w.end("mechanisms");
            }
        }
        w.end("stream:features");
    }

    fn handle_element<'b>(
        &mut self,
        element: Element<'b>,
        out: &mut Vec<u8>,
    ) -> Result<Option<ServerEvent<'b>>, StreamError> {
        match self.state {
            State::Negotiating => self.negotiate(&element, out),
            State::Authenticating => self.handle_exchange(&element, out),
            State::AwaitingBind => self.handle_bind(&element, out),
            State::Bound => self.handle_bound(element, out),
            State::AwaitingHeader | State::AwaitingTls | State::Closed => {
                Err(StreamError::new(StreamCondition::BadFormat, "a stanza without a stream"))
            }
        }
    }

    fn negotiate<'b>(
        &mut self,
        element: &Element<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<ServerEvent<'b>>, StreamError> {
        let starttls = self.offer.as_ref().map_or(StartTls::Unavailable, |offer| offer.starttls);
        if element.is(ns::TLS, "starttls") {
            if starttls == StartTls::Unavailable {
                // RFC 6120 §5.4.2.2: a failure ends the stream.
                Writer::new(out).start_ns("failure", ns::TLS).end("failure");
                self.close(out);
                return Ok(Some(ServerEvent::Ended));
            }
            Writer::new(out).start_ns("proceed", ns::TLS).end("proceed");
            self.state = State::AwaitingTls;
            return Ok(Some(ServerEvent::StartTls));
        }
        if element.is(ns::SASL, "auth") {
            return self.handle_auth(element, starttls, out);
        }
        if element.is(ns::SASL, "abort") {
            self.fail_attempt(SaslCondition::Aborted, out)?;
            return Ok(None);
        }
        // RFC 6120 §4.9.3.12
        Err(StreamError::new(StreamCondition::NotAuthorized, "log in first"))
    }

    fn handle_auth<'b>(
        &mut self,
        element: &Element<'_>,
        starttls: StartTls,
        out: &mut Vec<u8>,
    ) -> Result<Option<ServerEvent<'b>>, StreamError> {
        let wanted = element.attr("mechanism").unwrap_or_default();
        let offered = self.offer.as_ref().and_then(|o| o.mechanisms.iter().copied().find(|m| *m == wanted));
        let verdict = match (starttls, offered, sasl::decode(element)) {
            // RFC 6120 §6.5.4
            (StartTls::Required, ..) => Err(SaslCondition::EncryptionRequired),
            (_, None, _) => Err(SaslCondition::InvalidMechanism),
            (_, Some(_), Err(condition)) => Err(condition),
            (_, Some(mechanism), Ok(initial)) => Ok((mechanism, initial)),
        };
        match verdict {
            Ok((mechanism, initial)) => {
                self.state = State::Authenticating;
                Ok(Some(ServerEvent::Authenticate { mechanism, initial }))
            }
            Err(condition) => self.fail_attempt(condition, out).map(|()| None),
        }
    }

    fn handle_exchange<'b>(
        &mut self,
        element: &Element<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<ServerEvent<'b>>, StreamError> {
        if element.is(ns::SASL, "abort") {
            self.fail_attempt(SaslCondition::Aborted, out)?;
            return Ok(Some(ServerEvent::Aborted));
        }
        if !element.is(ns::SASL, "response") {
            return Err(StreamError::new(StreamCondition::NotAuthorized, "log in first"));
        }
        match sasl::decode(element) {
            Ok(data) => Ok(Some(ServerEvent::Response(data.unwrap_or_default()))),
            Err(condition) => {
                self.fail_attempt(condition, out)?;
                Ok(Some(ServerEvent::Aborted))
            }
        }
    }

    fn handle_bind<'b>(
        &mut self,
        element: &Element<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<ServerEvent<'b>>, StreamError> {
        // RFC 6120 §7.1: nothing else before a resource is bound.
        let unbound = StreamError::new(StreamCondition::NotAuthorized, "bind a resource first");
        if element.namespace == ns::SM {
            Writer::new(out).start_ns("failed", ns::SM).start_ns("unexpected-request", ns::STANZA_ERRORS);
            out.extend_from_slice(b"/></failed>");
            return Ok(None);
        }
        let Some(bind) = element.child(ns::BIND, "bind").filter(|_| element.is(ns::CLIENT, "iq")) else {
            return Err(unbound);
        };
        let Ok(IqHead { kind: IqKind::Set, id, .. }) = IqHead::of(element) else { return Err(unbound) };
        let resource = bind.child(ns::BIND, "resource").map(Element::text);
        let resource = resource.filter(|text| !text.is_empty()).map(Into::into);
        Ok(Some(ServerEvent::Bind(BindRequest { id: id.into(), resource })))
    }

    fn handle_bound<'b>(
        &mut self,
        element: Element<'b>,
        out: &mut Vec<u8>,
    ) -> Result<Option<ServerEvent<'b>>, StreamError> {
        if element.namespace == ns::SM {
            return match self.management.handle(&element, out)? {
                Managed::Done => Ok(None),
                Managed::Unknown => Err(StreamError::new(StreamCondition::UnsupportedStanzaType, "")),
            };
        }
        let stanza = element.namespace == ns::CLIENT && matches!(element.name, "iq" | "message" | "presence");
        if !stanza {
            return Err(StreamError::new(StreamCondition::UnsupportedStanzaType, ""));
        }
        self.check_from(&element)?;
        self.management.handled_one();
        Ok(Some(ServerEvent::Stanza(element)))
    }

    /// RFC 6120 §8.1.2.1: a `from` may be left out, or be the sender's bare or full address.
    fn check_from(&self, element: &Element<'_>) -> Result<(), StreamError> {
        let Some(from) = element.attr("from") else { return Ok(()) };
        let own = self.jid.as_ref().zip(Jid::parse(from).ok());
        match own {
            Some((own, from)) if from == *own || from.as_str() == own.bare_str() => Ok(()),
            Some(_) | None => Err(StreamError::new(StreamCondition::InvalidFrom, "")),
        }
    }

    /// TLS is there: the stream begins anew with this offer.
    pub fn tls_established(&mut self, offer: Offer) {
        self.offer = Some(Box::new(offer));
        self.restart();
    }

    /// Sends the mechanism's next message.
    pub fn challenge(&self, data: &[u8], out: &mut Vec<u8>) {
        sasl::write(out, "challenge", None, Some(data).filter(|d| !d.is_empty()));
    }

    /// The client is who it says: `jid` is its bare address.
    pub fn succeed(&mut self, jid: Jid, data: Option<&[u8]>, out: &mut Vec<u8>) {
        sasl::write(out, "success", None, data);
        self.jid = Some(jid);
        self.offer = None;
        self.framer.set_frame_bytes_max(self.config.limits.stanza_bytes_max);
        self.restart();
    }

    /// It is not. After too many attempts the stream is closed.
    pub fn refuse(&mut self, condition: SaslCondition, out: &mut Vec<u8>) {
        if let Err(error) = self.fail_attempt(condition, out) {
            self.fail(error, out);
        }
    }

    fn fail_attempt(&mut self, condition: SaslCondition, out: &mut Vec<u8>) -> Result<(), StreamError> {
        condition.write(out);
        self.state = State::Negotiating;
        self.attempts += 1;
        if self.attempts < self.config.limits.sasl_attempts_max {
            return Ok(());
        }
        Err(StreamError::new(StreamCondition::PolicyViolation, "too many attempts to log in"))
    }

    fn restart(&mut self) {
        self.framer.restart();
        self.header_sent = false;
        self.state = State::AwaitingHeader;
    }

    /// The resource is bound (RFC 6120 §7.6).
    pub fn bound(&mut self, request: &BindRequest, full: Jid, out: &mut Vec<u8>) {
        let mut w = Writer::new(out);
        w.start("iq").attr("type", "result").attr("id", &request.id);
        w.start_ns("bind", ns::BIND).leaf("jid", full.as_str()).end("bind").end("iq");
        self.jid = Some(full);
        self.state = State::Bound;
    }

    /// The resource is not bound (RFC 6120 §7.6.2); the client may try again.
    pub fn bind_refused(&self, request: &BindRequest, condition: StanzaCondition, out: &mut Vec<u8>) {
        let to = self.jid.as_ref().map(Jid::as_str).unwrap_or_default();
        Answer { id: &request.id, from: None, to }.error(out, &StanzaError::new(condition));
    }

    /// So many stanzas were written; asks for an acknowledgement when it is time.
    pub fn sent(&mut self, stanzas: u32, out: &mut Vec<u8>) {
        self.management.sent(stanzas, out);
    }

    /// Ends the stream with an error.
    pub fn fail(&mut self, error: StreamError, out: &mut Vec<u8>) {
        if self.state == State::Closed {
            return;
        }
        // RFC 6120 §4.9.1.1: an error needs a stream around it.
        if !self.header_sent {
            self.write_header(out);
        }
        error.write(out);
        self.close(out);
    }

    fn failed<'b>(&mut self, error: StreamError, out: &mut Vec<u8>) -> ServerEvent<'b> {
        self.fail(error, out);
        ServerEvent::Failed(error)
    }

    /// Ends the stream in peace (RFC 6120 §4.4).
    pub fn close(&mut self, out: &mut Vec<u8>) {
        if self.state != State::Closed && self.header_sent {
            out.extend_from_slice(b"</stream:stream>");
        }
        self.state = State::Closed;
    }
}

/// One step of `SplitMix64`: each id differs and shows nothing of the seed that matters.
fn next_seed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
