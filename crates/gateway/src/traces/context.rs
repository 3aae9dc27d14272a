//! The context of a trace (W3C Trace Context, level 1, §3.2) in the user properties of a message.

use std::sync::Arc;

use fogmux_bus::Properties;

use super::{
    identifiers::{SpanId, TraceId},
    state::bounded,
};

/// The names of header fields and user properties; those of user properties are in lower case.
pub(crate) const PARENT: &str = "traceparent";
pub(crate) const STATE: &str = "tracestate";

/// The length of version 00.
const LENGTH: usize = 55;
/// The only flag of version 00 (§3.2.2.5.1).
const SAMPLED: u8 = 1;

/// A span, as those are told who make its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) trace: TraceId,
    pub(crate) span: SpanId,
    pub(crate) sampled: bool,
}

impl Context {
    /// Parses a `traceparent`; one that is not valid is none. A later version is read as far as it has the fields of
    /// version 00 (§4.3).
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let dashes = [2, 35, 52];
        if dashes.iter().any(|place| bytes.get(*place) != Some(&b'-')) {
            return None;
        }
        let version: [u8; 1] = number(bytes.get(..2)?)?;
        let rest_is_valid = match version {
            [0] => bytes.len() == LENGTH,
            [0xff] => false,
            [_] => bytes.get(LENGTH).is_none_or(|byte| *byte == b'-'),
        };
        let trace = number(bytes.get(3..35)?)?;
        let span = number(bytes.get(36..52)?)?;
        let [flags] = number(bytes.get(53..LENGTH)?)?;
        let is_valid = rest_is_valid && trace != [0; 16] && span != [0; 8];
        is_valid.then_some(Self { trace: TraceId(trace), span: SpanId(span), sampled: flags & SAMPLED != 0 })
    }

    /// The context of a message: that of its one `traceparent`. Of several none is valid, as of header fields.
    pub(crate) fn of(properties: &Properties) -> Option<Self> {
        let mut named = values(properties, PARENT);
        let first = named.next()?;
        named.next().is_none().then(|| Self::parse(first)).flatten()
    }

    /// As a `traceparent` of version 00.
    pub(crate) fn to_text(self) -> Box<str> {
        let flags = if self.sampled { SAMPLED } else { 0 };
        format!("00-{}-{}-{flags:02x}", self.trace, self.span).into()
    }

    /// The properties of a message whose children have this as their parent: `traceparent` is where it was or comes
    /// last, and everything else is as it was. A `tracestate` beside no valid parent belongs to no trace, and goes
    /// (§3.2.1: the trace is restarted).
    pub(super) fn put_into(self, before: Option<&Properties>) -> Arc<Properties> {
        let is_continued = before.is_some_and(|before| Self::of(before).is_some());
        let mut properties = before.cloned().unwrap_or_default();
        let mut own = Some(self.to_text());
        properties.user.retain_mut(|(name, value)| match &**name {
            PARENT => own.take().map(|own| *value = own).is_some(),
            STATE => is_continued,
            _ => true,
        });
        properties.user.extend(own.map(|own| (PARENT.into(), own)));
        Arc::new(properties)
    }
}

/// The `tracestate` of a message, within its bounds; empty if there is none, or none that is valid.
pub(super) fn state(properties: &Properties) -> Box<str> {
    bounded(values(properties, STATE)).unwrap_or_default()
}

fn values<'p>(properties: &'p Properties, name: &'static str) -> impl Iterator<Item = &'p str> {
    properties.user.iter().filter(move |(of, _)| **of == *name).map(|(_, value)| &**value)
}

/// Digits of lower-case hexadecimal, two for each byte.
fn number<const BYTES: usize>(digits: &[u8]) -> Option<[u8; BYTES]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let mut bytes = [0; BYTES];
    if pairs.len() != BYTES {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn properties(user: &[(&str, &str)]) -> Properties {
        let user = user.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Properties { user, ..Properties::default() }
    }

    #[test]
    fn a_valid_context_is_read_and_written() {
        let context = Context::parse(VALID).unwrap();
        assert_eq!(context.trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.span.to_string(), "b7ad6b7169203331");
        assert!(context.sampled);
        assert_eq!(&*context.to_text(), VALID);
        let not_sampled = Context::parse(&VALID.replace("-01", "-00")).unwrap();
        assert_eq!(&*not_sampled.to_text(), VALID.replace("-01", "-00"));
        // Flags that version 00 does not define are not sent on.
        assert_eq!(&*Context::parse(&VALID.replace("-01", "-ff")).unwrap().to_text(), VALID);
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        for later in ["01", "cc", "fe"] {
            let text = later.to_owned() + &VALID[2..];
            for rest in ["", "-", "-what-the-future-brings"] {
                let context = Context::parse(&(text.clone() + rest)).unwrap();
                assert_eq!(&*context.to_text(), VALID);
            }
            assert_eq!(Context::parse(&(text + ".")), None);
        }
    }

    #[test]
    fn what_is_not_valid_is_none() {
        let parts = |version: &str, trace: &str, span: &str, flags: &str| format!("{version}-{trace}-{span}-{flags}");
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        for text in [
            String::new(),
            "00".into(),
            parts("ff", trace, span, "01"),
            parts("FF", trace, span, "01"),
            parts("0x", trace, span, "01"),
            parts("00", &"0".repeat(32), span, "01"),
            parts("00", trace, &"0".repeat(16), "01"),
            parts("00", &trace.to_uppercase(), span, "01"),
            parts("00", &format!("{}.", &trace[1..]), span, "01"),
            parts("00", &trace[1..], span, "01"),
            parts("00", trace, &span[1..], "01"),
            parts("00", trace, span, "1"),
            parts("00", trace, span, "0g"),
            parts("00", trace, span, "+1"),
            format!("{VALID}-"),
            format!("{VALID} "),
            format!(" {VALID}"),
            format!("{VALID}00"),
            VALID.replace('-', "_"),
            VALID.replace("00-", "0\u{e9}-"),
        ] {
            assert_eq!(Context::parse(&text), None, "{text:?}");
        }
    }

    #[test]
    fn only_the_value_of_traceparent_changes() {
        let child = Context { span: SpanId([7; 8]), ..Context::parse(VALID).unwrap() };
        let own = &*child.to_text();
        let put = |user: &[(&str, &str)]| {
            let put = child.put_into(Some(&properties(user)));
            put.user.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(
            put(&[("a", "1"), (PARENT, VALID), ("a", "2"), (STATE, "x=1"), ("Traceparent", "3")]),
            ["a=1", &format!("{PARENT}={own}"), "a=2", "tracestate=x=1", "Traceparent=3"]
        );
        assert_eq!(put(&[("a", "1")]), ["a=1", &format!("{PARENT}={own}")]);
        // A context that is not valid is none, and its state is of no trace.
        assert_eq!(put(&[(PARENT, "x"), ("a", "1"), (STATE, "x=1")]), [&format!("{PARENT}={own}"), "a=1"]);
        assert_eq!(put(&[(PARENT, VALID), ("a", "1"), (PARENT, VALID)]), [&format!("{PARENT}={own}"), "a=1"]);
        assert_eq!(child.put_into(None).user, [(PARENT.into(), own.into())]);
        assert_eq!(Context::of(&child.put_into(None)), Some(child));
        let reply = Properties { utf8: true, reply_to: Some("r".into()), ..Properties::default() };
        let put = child.put_into(Some(&reply));
        assert_eq!((put.utf8, put.reply_to.as_deref(), put.user.len()), (true, Some("r"), 1));
    }

    #[test]
    fn of_several_contexts_none_is_valid() {
        assert_eq!(Context::of(&properties(&[(PARENT, VALID), (PARENT, VALID)])), None);
        assert_eq!(Context::of(&properties(&[("TRACEPARENT", VALID)])), None);
        assert!(Context::of(&properties(&[("a", "b"), (PARENT, VALID)])).is_some());
    }

    #[test]
    fn several_states_are_one() {
        assert_eq!(&*state(&properties(&[(STATE, "a=1,b=2"), ("x", "y"), (STATE, "c=3")])), "a=1,b=2,c=3");
        assert_eq!(&*state(&properties(&[(STATE, "a=1"), (STATE, "=")])), "");
        assert_eq!(&*state(&properties(&[])), "");
    }
}
