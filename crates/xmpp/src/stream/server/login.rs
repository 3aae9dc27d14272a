//! Logging in: STARTTLS, SASL and binding, up to a bound resource.

use super::{BindRequest, Offer, ServerEvent, ServerStream, StartTls, State};
use crate::element::Element;
use crate::error::{StanzaCondition, StanzaError, StreamCondition, StreamError};
use crate::iq::{Answer, IqHead, IqKind};
use crate::jid::Jid;
use crate::ns;
use crate::stream::sasl::{self, SaslCondition};
use crate::writer::Writer;

impl ServerStream {
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

    pub(super) fn negotiate<'b>(
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
            (StartTls::Offered, None, _) if needs_tls(wanted) => Err(SaslCondition::EncryptionRequired),
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

    pub(super) fn handle_exchange<'b>(
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

    pub(super) fn handle_bind<'b>(
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
}

/// Mechanisms that show a secret, or that are nothing without TLS.
fn needs_tls(mechanism: &str) -> bool {
    matches!(mechanism, "PLAIN" | "OAUTHBEARER" | "EXTERNAL") || mechanism.ends_with("-PLUS")
}
