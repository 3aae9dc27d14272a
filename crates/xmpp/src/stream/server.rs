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

mod features;
mod login;

use super::header;
use super::management::{Managed, StreamManagement};
use crate::element::Element;
use crate::error::{StreamCondition, StreamError};
use crate::framer::{Frame, Framer};
use crate::jid::Jid;
use crate::limits::Limits;
use crate::ns;
use crate::parse::{self, Scope, Spare};
use std::sync::Arc;
use std::time::Duration;

/// The configuration that all streams of a door share.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The domain served.
    pub domain: Jid,
    /// The bounds.
    pub limits: Limits,
    /// The time from accept to a bound resource, regardless of activity of the peer.
    pub login_timeout: Duration,
}

/// How STARTTLS stands on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartTls {
    /// TLS is there already, or there is no certificate.
    Unavailable,
    /// The client may use it.
    Offered,
    /// The client must use it: no mechanism is offered before.
    Required,
}

/// The stream features that a connection offers before authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// STARTTLS.
    pub starttls: StartTls,
    /// SASL mechanisms, the best first.
    pub mechanisms: Vec<&'static str>,
    /// The channel-binding types for the `-PLUS` mechanisms among them (XEP-0440), the best first.
    pub channel_bindings: Vec<&'static str>,
}

/// A request for a resource (RFC 6120 §7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindRequest {
    /// The id of the IQ.
    pub id: Box<str>,
    /// The requested resource.
    pub resource: Option<Box<str>>,
}

/// An event of a server's stream.
#[derive(Debug, PartialEq)]
pub enum ServerEvent<'b> {
    /// `<proceed/>` is in the output. Send it, discard unread input (RFC 6120 §5.4.3.3), do the handshake, call
    /// [`ServerStream::tls_established`].
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
    /// The features offered before authentication; `None` afterwards.
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
    /// A stream at its beginning. `seed` is random: the id of the stream comes from it, and a new one is wanted for
    /// each restart ([`ServerStream::reseed`]). `now` counts from any origin.
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

    /// Random bits for the id of the next stream, which nobody may guess from the ids before it (RFC 6120 §4.7.3).
    pub fn reseed(&mut self, seed: u64) {
        self.seed = seed;
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
        self.handle_with(input, out, &mut Spare::default())
    }

    /// As [`handle`](Self::handle), in the allocations of earlier stanzas.
    pub fn handle_with<'b>(
        &mut self,
        input: &'b [u8],
        out: &mut Vec<u8>,
        spare: &mut Spare,
    ) -> (usize, Option<ServerEvent<'b>>) {
        let mut used = 0;
        while !matches!(self.state, State::Closed | State::AwaitingTls) {
            let rest = input.get(used..).unwrap_or_default();
            let framed = match self.framer.next(rest) {
                Ok(framed) => framed,
                Err(error) => return (input.len(), Some(self.failed(error, out))),
            };
            used += framed.used;
            let Some(frame) = framed.frame else { return (used, None) };
            match self.handle_frame(frame, out, spare) {
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
        spare: &mut Spare,
    ) -> Result<Option<ServerEvent<'b>>, StreamError> {
        match frame {
            Frame::Header(bytes) => self.handle_header(bytes, out).map(|()| None),
            Frame::Stanza(bytes) => {
                let element = parse::stanza_with(bytes, &self.scope, &self.config.limits, spare)?;
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
        // RFC 6120 §4.7.2: who says from whom the stream is, is answered by that name, without the resource.
        let from = element.attr("from").map(Jid::parse).transpose();
        self.write_header(from.as_ref().ok().and_then(|from| from.as_ref()).map(Jid::bare_str), out);
        header::check_version(&element)?;
        if from.is_err() {
            return Err(StreamError::new(StreamCondition::InvalidFrom, ""));
        }
        // RFC 6120 §4.9.3.6; a missing `to` is forgiven, there is one domain.
        if let Some(to) = element.attr("to")
            && Jid::parse(to).as_ref() != Ok(&self.config.domain)
        {
            return Err(StreamError::new(StreamCondition::HostUnknown, ""));
        }
        // Features without anything in them would say that all is negotiated (RFC 6120 §4.3.2).
        let dead_end = |offer: &Offer| offer.starttls == StartTls::Unavailable && offer.mechanisms.is_empty();
        if self.offer.as_deref().is_some_and(dead_end) {
            return Err(StreamError::new(StreamCondition::NotAuthorized, "no credential that is taken here"));
        }
        self.write_features(out);
        self.state = if self.jid.is_some() { State::AwaitingBind } else { State::Negotiating };
        Ok(())
    }

    fn write_header(&mut self, to: Option<&str>, out: &mut Vec<u8>) {
        self.seed = next_seed(self.seed);
        let id = format!("{:016x}", self.seed);
        header::write(out, Some(self.config.domain.as_str()), to, Some(&id));
        self.header_sent = true;
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

    fn restart(&mut self) {
        self.framer.restart();
        self.header_sent = false;
        self.state = State::AwaitingHeader;
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
            self.write_header(None, out);
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

/// One step of `SplitMix64`, so that no two ids of a stream that is not reseeded are alike.
fn next_seed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
