//! The client's end of a stream, for the command line and the traffic generator.

use super::header;
use super::sasl;
use crate::element::Element;
use crate::error::{StreamCondition, StreamError};
use crate::framer::{Frame, Framer};
use crate::iq::{self, IqKind};
use crate::jid::Jid;
use crate::limits::Limits;
use crate::ns;
use crate::parse::{self, Scope};
use crate::writer::Writer;

/// The id of the bind request.
const BIND_ID: &str = "bind";

/// A client's choice of STARTTLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsWish {
    /// No STARTTLS, because the connection stays in plain text or uses TLS already.
    No,
    /// STARTTLS is required: the login fails if the server does not offer it.
    StartTls,
}

/// How a client logs in.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// The server's domain.
    pub domain: String,
    /// The resource wished for.
    pub resource: Option<String>,
    /// TLS.
    pub tls: TlsWish,
    /// The bounds on what the server sends.
    pub limits: Limits,
}

/// An event of a client's stream.
#[derive(Debug, PartialEq)]
pub enum ClientEvent<'b> {
    /// TLS starts: discard unread input, do the handshake, call [`ClientStream::tls_established`].
    StartTls,
    /// The server offers these; call [`ClientStream::authenticate`].
    Mechanisms(Vec<String>),
    /// The exchange goes on; call [`ClientStream::respond`].
    Challenge(Vec<u8>),
    /// The server accepts. Check its data, then call [`ClientStream::accept`].
    Success(Option<Vec<u8>>),
    /// The server refuses, with this condition.
    Refused(String),
    /// Logged in under this address.
    Bound(Jid),
    /// A stanza.
    Stanza(Element<'b>),
    /// The stream has ended; with the condition if it ended in an error.
    Ended(Option<StreamCondition>),
    /// The server broke the protocol.
    Failed(StreamError),
}

/// An event of a client's stream whose stanza is not parsed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawEvent<'b> {
    /// A stanza, from its first `<` to its last `>`: one element with balanced tags, not checked any further.
    /// [`ClientStream::handle_raw`] parses it.
    Stanza(&'b [u8]),
    /// The stream has ended.
    Ended,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    AwaitingHeader,
    AwaitingFeatures,
    AwaitingProceed,
    Authenticating,
    AwaitingBind,
    Bound,
    Closed,
}

/// One connection's stream, client's end.
#[derive(Debug)]
pub struct ClientStream {
    config: ClientConfig,
    state: State,
    framer: Framer,
    scope: Scope,
    encrypted: bool,
    authenticated: bool,
    channel_bindings: Option<Vec<String>>,
}

impl ClientStream {
    /// Opens a stream: its header is in the output.
    #[must_use]
    pub fn new(config: ClientConfig, out: &mut Vec<u8>) -> Self {
        let mut framer = Framer::new(&config.limits);
        framer.set_frame_bytes_max(config.limits.stanza_bytes_max);
        let encrypted = config.tls == TlsWish::No;
        let mut stream = Self {
            config,
            state: State::AwaitingHeader,
            framer,
            scope: Scope::default(),
            encrypted,
            authenticated: false,
            channel_bindings: None,
        };
        stream.open(out);
        stream
    }

    fn open(&mut self, out: &mut Vec<u8>) {
        self.framer.restart();
        self.state = State::AwaitingHeader;
        header::write(out, None, Some(&self.config.domain), None);
    }

    /// Takes what came in: how many bytes to drop from the front of the buffer, and what happened.
    pub fn handle<'b>(&mut self, input: &'b [u8], out: &mut Vec<u8>) -> (usize, Option<ClientEvent<'b>>) {
        let mut used = 0;
        while self.state != State::Closed {
            let rest = input.get(used..).unwrap_or_default();
            let outcome = self.framer.next(rest).and_then(|framed| {
                used += framed.used;
                let Some(frame) = framed.frame else { return Ok(None) };
                self.handle_frame(frame, out).map(Some)
            });
            match outcome {
                Ok(None) => return (used, None),
                Ok(Some(None)) => {}
                Ok(Some(Some(event))) => return (used, Some(event)),
                Err(error) => {
                    self.state = State::Closed;
                    return (input.len(), Some(ClientEvent::Failed(error)));
                }
            }
        }
        (input.len(), None)
    }

    /// In place of [`Self::handle`] once a resource is bound: the next stanza, unread, for who gets too many of a kind
    /// to build elements of each. Says how many bytes to drop, too.
    ///
    /// # Errors
    /// The server broke the protocol.
    pub fn next_raw<'b>(&mut self, input: &'b [u8]) -> Result<(usize, Option<RawEvent<'b>>), StreamError> {
        if self.state == State::Closed {
            return Ok((input.len(), None));
        }
        let framed = self.framer.next(input).inspect_err(|_| self.state = State::Closed)?;
        let event = match framed.frame {
            None => None,
            Some(Frame::Stanza(bytes)) => Some(RawEvent::Stanza(bytes)),
            Some(Frame::End) => {
                self.state = State::Closed;
                Some(RawEvent::Ended)
            }
            Some(Frame::Header(_)) => return Err(StreamError::new(StreamCondition::BadFormat, "a second header")),
        };
        Ok((framed.used, event))
    }

    /// Reads a stanza of [`Self::next_raw`].
    pub fn handle_raw<'b>(&mut self, stanza: &'b [u8], out: &mut Vec<u8>) -> Option<ClientEvent<'b>> {
        self.handle_frame(Frame::Stanza(stanza), out).unwrap_or_else(|error| {
            self.state = State::Closed;
            Some(ClientEvent::Failed(error))
        })
    }

    fn handle_frame<'b>(
        &mut self,
        frame: Frame<'b>,
        out: &mut Vec<u8>,
    ) -> Result<Option<ClientEvent<'b>>, StreamError> {
        match frame {
            Frame::Header(bytes) => {
                self.scope = parse::header(bytes, &self.config.limits)?.1;
                self.state = State::AwaitingFeatures;
                Ok(None)
            }
            Frame::Stanza(bytes) => {
                let element = parse::stanza(bytes, &self.scope, &self.config.limits)?;
                self.handle_element(element, out)
            }
            Frame::End => {
                self.state = State::Closed;
                Ok(Some(ClientEvent::Ended(None)))
            }
        }
    }

    fn handle_element<'b>(
        &mut self,
        element: Element<'b>,
        out: &mut Vec<u8>,
    ) -> Result<Option<ClientEvent<'b>>, StreamError> {
        if element.is(ns::STREAM, "error") {
            self.state = State::Closed;
            let condition = element.elements().find_map(|e| StreamCondition::from_name(e.name));
            return Ok(Some(ClientEvent::Ended(Some(condition.unwrap_or(StreamCondition::UndefinedCondition)))));
        }
        match self.state {
            State::AwaitingFeatures if element.is(ns::STREAM, "features") => self.handle_features(&element, out),
            State::AwaitingProceed if element.is(ns::TLS, "proceed") => Ok(Some(ClientEvent::StartTls)),
            State::Authenticating if element.namespace == ns::SASL => sasl_event(&element).map(Some),
            State::AwaitingBind => self.handle_bind(&element).map(Some),
            State::Bound if element.is(ns::SM, "r") => Ok(None),
            State::Bound => Ok(Some(ClientEvent::Stanza(element))),
            State::AwaitingHeader
            | State::AwaitingFeatures
            | State::AwaitingProceed
            | State::Authenticating
            | State::Closed => Err(StreamError::new(StreamCondition::UnsupportedStanzaType, "out of turn")),
        }
    }

    fn handle_features<'b>(
        &mut self,
        features: &Element<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<ClientEvent<'b>>, StreamError> {
        if self.authenticated {
            let resource = self.config.resource.as_deref();
            iq::request(out, IqKind::Set, BIND_ID, None, |w| {
                w.start_ns("bind", ns::BIND);
                if let Some(resource) = resource {
                    w.leaf("resource", resource);
                }
                w.end("bind");
            });
            self.state = State::AwaitingBind;
            return Ok(None);
        }
        if !self.encrypted {
            if features.child(ns::TLS, "starttls").is_none() {
                return Err(StreamError::new(StreamCondition::UnsupportedFeature, "no STARTTLS"));
            }
            Writer::new(out).start_ns("starttls", ns::TLS).end("starttls");
            self.state = State::AwaitingProceed;
            return Ok(None);
        }
        self.state = State::Authenticating;
        let bindings = features.child(ns::SASL_CHANNEL_BINDING, "sasl-channel-binding");
        self.channel_bindings = bindings.map(|bindings| {
            let bindings = bindings.children_named(ns::SASL_CHANNEL_BINDING, "channel-binding");
            bindings.filter_map(|binding| binding.attr("type").map(str::to_owned)).collect()
        });
        let mechanisms = features.child(ns::SASL, "mechanisms");
        let names = mechanisms.into_iter().flat_map(|m| m.children_named(ns::SASL, "mechanism"));
        Ok(Some(ClientEvent::Mechanisms(names.map(|m| m.text().into_owned()).collect())))
    }

    fn handle_bind<'b>(&mut self, element: &Element<'_>) -> Result<ClientEvent<'b>, StreamError> {
        let jid = element.child(ns::BIND, "bind").and_then(|b| b.child(ns::BIND, "jid"));
        let jid = jid.and_then(|j| Jid::parse(&j.text()).ok());
        match jid.filter(|_| element.attr("id") == Some(BIND_ID)) {
            Some(jid) => {
                self.state = State::Bound;
                Ok(ClientEvent::Bound(jid))
            }
            None => Err(StreamError::new(StreamCondition::BadFormat, "no resource was bound")),
        }
    }

    /// Whether the server takes channel bindings of this kind, as far as it says (XEP-0440).
    #[must_use]
    pub fn takes_channel_binding(&self, kind: &str) -> bool {
        self.channel_bindings.as_ref().is_none_or(|kinds| kinds.iter().any(|k| k == kind))
    }

    /// TLS is there: the stream begins anew.
    pub fn tls_established(&mut self, out: &mut Vec<u8>) {
        self.encrypted = true;
        self.open(out);
    }

    /// Begins a mechanism.
    pub fn authenticate(&self, mechanism: &str, initial: Option<&[u8]>, out: &mut Vec<u8>) {
        sasl::write(out, "auth", Some(mechanism), initial);
    }

    /// Answers a challenge.
    pub fn respond(&self, data: &[u8], out: &mut Vec<u8>) {
        sasl::write(out, "response", None, Some(data).filter(|d| !d.is_empty()));
    }

    /// The server has proven itself too: go on.
    pub fn accept(&mut self, out: &mut Vec<u8>) {
        self.authenticated = true;
        self.open(out);
    }

    /// Whether a resource is bound.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.state == State::Bound
    }

    /// Ends the stream.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        if self.state != State::Closed {
            out.extend_from_slice(b"</stream:stream>");
            self.state = State::Closed;
        }
    }
}

fn sasl_event<'b>(element: &Element<'_>) -> Result<ClientEvent<'b>, StreamError> {
    let data = sasl::decode(element);
    let data = || data.map_err(|_| StreamError::new(StreamCondition::BadFormat, "not base64"));
    match element.name {
        "challenge" => data().map(|d| ClientEvent::Challenge(d.unwrap_or_default())),
        "success" => data().map(ClientEvent::Success),
        "failure" => {
            let condition = element.elements().next().map_or("not-authorized", |e| e.name);
            Ok(ClientEvent::Refused(condition.to_owned()))
        }
        _ => Err(StreamError::new(StreamCondition::UnsupportedStanzaType, "out of turn")),
    }
}
