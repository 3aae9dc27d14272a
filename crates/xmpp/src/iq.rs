//! Info/query stanzas (RFC 6120 §8.2.3): their head, which request is inside, and the answers around everything.

use crate::disco;
use crate::element::Element;
use crate::error::{StanzaCondition, StanzaError};
use crate::ns;
use crate::pubsub;
use crate::writer::Writer;

/// The `type` of an IQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IqKind {
    /// A question.
    Get,
    /// A command.
    Set,
    /// An answer.
    Result,
    /// A refusal.
    Error,
}

/// The attributes of an IQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IqHead<'e> {
    /// The type of the IQ.
    pub kind: IqKind,
    /// The id, repeated in the answer.
    pub id: &'e str,
    /// The recipient; `None` is the server, on behalf of the sender's account (RFC 6120 §10.3.3).
    pub to: Option<&'e str>,
}

impl<'e> IqHead<'e> {
    /// Reads the head of an `<iq/>`.
    ///
    /// # Errors
    /// `<bad-request/>` without `id` or a known `type`, or where there is not exactly one child in a request.
    pub fn of(iq: &'e Element<'_>) -> Result<Self, StanzaError> {
        let kind = match iq.attr("type") {
            Some("get") => IqKind::Get,
            Some("set") => IqKind::Set,
            Some("result") => IqKind::Result,
            Some("error") => IqKind::Error,
            Some(_) | None => return Err(StanzaError::bad_request()),
        };
        let id = iq.attr("id").ok_or(StanzaError::bad_request())?;
        if matches!(kind, IqKind::Get | IqKind::Set) && iq.elements().count() != 1 {
            return Err(StanzaError::bad_request());
        }
        Ok(Self { kind, id, to: iq.attr("to") })
    }
}

/// A request, told apart by what is in the IQ.
#[derive(Debug, Clone, PartialEq)]
pub enum Query<'e> {
    /// `<session/>`: answered with an empty result.
    Session,
    /// `<ping/>` (XEP-0199).
    Ping,
    /// The name and version of the software (XEP-0092).
    Version,
    /// The identity and features of an entity (XEP-0030 §3).
    DiscoInfo(disco::Request<'e>),
    /// The items of an entity (XEP-0030 §4).
    DiscoItems(disco::Request<'e>),
    /// The roster.
    RosterGet,
    /// A change of the roster.
    RosterSet,
    /// Publish-subscribe.
    Pubsub(pubsub::Request<'e>),
    /// An unknown request, answered with `<service-unavailable/>` (RFC 6120 §8.4).
    Unknown,
}

impl<'e> Query<'e> {
    /// Parses the request in `iq`, which must be of type `get` or `set`.
    ///
    /// # Errors
    /// The error to answer with.
    pub fn of(iq: &'e Element<'_>, kind: IqKind) -> Result<Self, StanzaError> {
        let Some(child) = iq.elements().next() else { return Err(StanzaError::bad_request()) };
        match (child.namespace.as_ref(), child.name, kind) {
            (ns::PUBSUB | ns::PUBSUB_OWNER, "pubsub", _) => pubsub::Request::of(child, kind).map(Self::Pubsub),
            (ns::SESSION, "session", IqKind::Set) => Ok(Self::Session),
            (ns::PING, "ping", IqKind::Get) => Ok(Self::Ping),
            (ns::VERSION, "query", IqKind::Get) => Ok(Self::Version),
            (ns::DISCO_INFO, "query", IqKind::Get) => disco::Request::of(child).map(Self::DiscoInfo),
            (ns::DISCO_ITEMS, "query", IqKind::Get) => disco::Request::of(child).map(Self::DiscoItems),
            (ns::ROSTER, "query", IqKind::Get) => Ok(Self::RosterGet),
            (ns::ROSTER, "query", IqKind::Set) => Ok(Self::RosterSet),
            (ns::BIND, "bind", _) => Err(StanzaError::new(StanzaCondition::NotAllowed)),
            _ => Ok(Self::Unknown),
        }
    }
}

/// The addresses and the id of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<'e> {
    /// The id of the request.
    pub id: &'e str,
    /// The recipient of the request; `None` if it had no `to`.
    pub from: Option<&'e str>,
    /// The full address of the requester.
    pub to: &'e str,
}

impl Answer<'_> {
    /// Appends an empty result.
    pub fn empty(&self, out: &mut Vec<u8>) {
        let mut w = Writer::new(out);
        self.start(&mut w, "result");
        w.end("iq");
    }

    /// Appends a result with what `body` writes.
    pub fn result(&self, out: &mut Vec<u8>, body: impl FnOnce(&mut Writer<'_>)) {
        let mut w = Writer::new(out);
        self.start(&mut w, "result");
        body(&mut w);
        w.end("iq");
    }

    /// Appends an error.
    pub fn error(&self, out: &mut Vec<u8>, error: &StanzaError) {
        let mut w = Writer::new(out);
        self.start(&mut w, "error");
        error.write(&mut w);
        w.end("iq");
    }

    fn start(&self, w: &mut Writer<'_>, kind: &str) {
        w.start("iq").attr("type", kind).attr("id", self.id).attr_opt("from", self.from).attr("to", self.to);
    }
}

/// Appends the error that takes the place of `result`, an answer that [`Answer`] wrote: to the same request, with the
/// same addresses. Anything else is appended as it is.
pub fn refuse(result: &[u8], error: &StanzaError, out: &mut Vec<u8>) {
    // Values have no `>`: it is escaped.
    let tag = result.strip_prefix(b"<iq type='result'").and_then(|rest| rest.split(|byte| *byte == b'>').next());
    let Some(tag) = tag else { return out.extend_from_slice(result) };
    out.extend_from_slice(b"<iq type='error'");
    out.extend_from_slice(tag.strip_suffix(b"/").unwrap_or(tag));
    out.push(b'>');
    error.write(&mut Writer::new(out));
    out.extend_from_slice(b"</iq>");
}

/// Appends the answer to a version request (XEP-0092).
pub fn write_version(w: &mut Writer<'_>, name: &str, version: &str) {
    w.start_ns("query", ns::VERSION).leaf("name", name).leaf("version", version).end("query");
}

/// Appends a request; `body` writes its one child.
pub fn request(out: &mut Vec<u8>, kind: IqKind, id: &str, to: Option<&str>, body: impl FnOnce(&mut Writer<'_>)) {
    let kind = match kind {
        IqKind::Get => "get",
        IqKind::Set => "set",
        IqKind::Result => "result",
        IqKind::Error => "error",
    };
    let mut w = Writer::new(out);
    w.start("iq").attr("type", kind).attr("id", id).attr_opt("to", to);
    body(&mut w);
    w.end("iq");
}

/// The condition in an error answer, with that of XEP-0060 if there is one.
#[must_use]
pub fn error_of(stanza: &Element<'_>) -> Option<StanzaError> {
    let error = stanza.child(ns::CLIENT, "error")?;
    let named = |namespace: &str| error.elements().filter(move |e| e.namespace == namespace).map(|e| e.name).collect();
    let conditions: Vec<&str> = named(ns::STANZA_ERRORS);
    let condition = conditions.iter().find_map(|name| StanzaCondition::from_name(name));
    let pubsub: Vec<&str> = named(ns::PUBSUB_ERRORS);
    let mut found = StanzaError::new(condition.unwrap_or(StanzaCondition::UndefinedCondition));
    found.pubsub = pubsub.first().and_then(|name| crate::error::PubsubCondition::from_name(name));
    found.text = error.child(ns::STANZA_ERRORS, "text").map(|t| t.text().into_owned().into());
    Some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_refused_result_is_the_error_that_would_have_been_written(
            id in "[ -~\\t\u{e4}\u{20ac}]{0,12}",
            from in proptest::option::of("[ -~]{0,12}"),
            text in "[ -~]{0,12}",
        ) {
            let answer = Answer { id: &id, from: from.as_deref(), to: "a@localhost/>'/" };
            let error = StanzaError::new(StanzaCondition::ResourceConstraint).because(text.clone());
            let (mut empty, mut full, mut expected) = (Vec::new(), Vec::new(), Vec::new());
            answer.empty(&mut empty);
            answer.result(&mut full, |w| {
                w.leaf("node", &text);
            });
            answer.error(&mut expected, &error);
            for written in [empty, full, expected.clone()] {
                let mut refused = Vec::new();
                refuse(&written, &error, &mut refused);
                prop_assert_eq!(&refused, &expected);
            }
        }
    }
}
