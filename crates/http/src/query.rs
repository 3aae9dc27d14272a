//! Query parameters: what MQTT says in a packet and HTTP has no header for.
//!
//! A `+` is a plus, as RFC 3986 §3.4 has it, because it is the single-level wildcard of filters; a space is `%20`.
//! Parameters that nobody knows are left alone, as HTTP caches and proxies expect.

use std::borrow::Cow;

use crate::percent;
use crate::problem::{Kind, Problem};

/// Most filters that one subscription may name.
pub const FILTERS_MAX: usize = 64;
/// Most user properties that one request may name.
pub const PROPERTIES_MAX: usize = 64;

/// Every parameter that the surface knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query<'a> {
    /// `qos=0|1|2`: of a publication, or the ceiling of a subscription.
    pub qos: Option<u8>,
    /// `expiry=SECONDS`: the message lives so long ([MQTT-3.3.2-5]).
    pub expiry_seconds: Option<u32>,
    /// `retain=true|false`: keep the message as the topic's latest.
    pub retain: Option<bool>,
    /// `retained=true|false`: begin a stream with the retained messages.
    pub retained: Option<bool>,
    /// `origin=true|false`: name door and publisher of each message of a stream, to administrators.
    pub origin: Option<bool>,
    /// `wait=SECONDS`: long poll.
    pub wait_seconds: Option<u32>,
    /// `filter=`, once for each.
    pub filters: Vec<Cow<'a, str>>,
    /// `since=ID`: what `Last-Event-ID` says, for clients that cannot set headers.
    pub since: Option<Cow<'a, str>>,
    /// `reply_to=TOPIC`: where an answer is expected.
    pub reply_to: Option<Cow<'a, str>>,
    /// `correlation=TEXT`: repeated in the response.
    pub correlation: Option<Cow<'a, str>>,
    /// `property.NAME=VALUE`, in order. Names may repeat.
    pub properties: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

/// The reason why a query is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A name or a value is not percent-encoded UTF-8.
    #[error("the query is not percent-encoded UTF-8")]
    Encoding,
    /// A value is out of its range.
    #[error("`{name}` takes {expected}")]
    Value {
        /// The parameter.
        name: &'static str,
        /// A description of the accepted values.
        expected: &'static str,
    },
    /// A parameter with one value is given twice.
    #[error("`{0}` is given twice")]
    Twice(&'static str),
    /// A repeatable parameter is given too often.
    #[error("`{name}` is given more than {limit} times")]
    TooMany {
        /// The parameter.
        name: &'static str,
        /// How often it may be given.
        limit: usize,
    },
}

impl Invalid {
    /// The answer to give.
    #[must_use]
    pub fn problem(self) -> Problem<'static> {
        Problem::new(Kind::InvalidParameter).detail(self.to_string())
    }
}

impl<'a> Query<'a> {
    /// Reads the part of a target after `?`.
    pub fn parse(raw: Option<&'a str>) -> Result<Self, Invalid> {
        let mut query = Self::default();
        for pair in raw.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            query.set(&decode(name)?, value)?;
        }
        Ok(query)
    }

    fn set(&mut self, name: &str, raw: &'a str) -> Result<(), Invalid> {
        match name {
            "qos" => once(&mut self.qos, "qos", number(raw, 2, "qos", "0, 1 or 2")?),
            "expiry" => once(&mut self.expiry_seconds, "expiry", number(raw, u32::MAX, "expiry", SECONDS)?),
            "wait" => once(&mut self.wait_seconds, "wait", number(raw, u32::MAX, "wait", SECONDS)?),
            "retain" => once(&mut self.retain, "retain", boolean(raw, "retain")?),
            "retained" => once(&mut self.retained, "retained", boolean(raw, "retained")?),
            "origin" => once(&mut self.origin, "origin", boolean(raw, "origin")?),
            "since" => once(&mut self.since, "since", decode(raw)?),
            "reply_to" => once(&mut self.reply_to, "reply_to", decode_topic(raw)?),
            "correlation" => once(&mut self.correlation, "correlation", decode(raw)?),
            "filter" => push(&mut self.filters, "filter", FILTERS_MAX, decode(raw)?),
            other => match other.strip_prefix("property.") {
                Some(property) => {
                    let pair = (Cow::Owned(property.to_owned()), decode(raw)?);
                    push(&mut self.properties, "property", PROPERTIES_MAX, pair)
                }
                None => Ok(()),
            },
        }
    }
}

const SECONDS: &str = "whole seconds";

fn decode(raw: &str) -> Result<Cow<'_, str>, Invalid> {
    percent::decode(raw).map_err(|_| Invalid::Encoding)
}

/// A topic: a `+` is a space, as forms and many clients encode it, since no topic contains one.
fn decode_topic(raw: &str) -> Result<Cow<'_, str>, Invalid> {
    if !raw.contains('+') {
        return decode(raw);
    }
    let spaced = raw.replace('+', "%20");
    percent::decode(&spaced).map(|topic| Cow::Owned(topic.into_owned())).map_err(|_| Invalid::Encoding)
}

fn number<T: TryFrom<u32>>(raw: &str, max: u32, name: &'static str, expected: &'static str) -> Result<T, Invalid> {
    let invalid = Invalid::Value { name, expected };
    if raw.is_empty() || !raw.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid);
    }
    let value: u32 = raw.parse().map_err(|_| invalid)?;
    if value > max {
        return Err(invalid);
    }
    T::try_from(value).map_err(|_| invalid)
}

/// `?retain` alone means yes.
fn boolean(raw: &str, name: &'static str) -> Result<bool, Invalid> {
    match raw {
        "true" | "1" | "" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(Invalid::Value { name, expected: "true or false" }),
    }
}

fn once<T>(slot: &mut Option<T>, name: &'static str, value: T) -> Result<(), Invalid> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Invalid::Twice(name)),
    }
}

fn push<T>(list: &mut Vec<T>, name: &'static str, limit: usize, value: T) -> Result<(), Invalid> {
    if list.len() >= limit {
        return Err(Invalid::TooMany { name, limit });
    }
    list.push(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_plus_stays_a_plus() {
        let query = Query::parse(Some("filter=a/+/b&filter=%2B/%23&qos=1&retained=false")).unwrap();
        assert_eq!(query.filters, ["a/+/b", "+/#"]);
        assert_eq!(query.qos, Some(1));
        assert_eq!(query.retained, Some(false));
        let query = Query::parse(Some("reply_to=a+b%2Fc%20d")).unwrap();
        assert_eq!(query.reply_to.as_deref(), Some("a b/c d"), "no topic contains one");
    }

    #[test]
    fn wrong_values_are_named() {
        let value = |raw| Query::parse(Some(raw)).unwrap_err();
        assert_eq!(value("qos=3"), Invalid::Value { name: "qos", expected: "0, 1 or 2" });
        assert_eq!(value("expiry=-1"), Invalid::Value { name: "expiry", expected: SECONDS });
        assert_eq!(value("wait=99999999999"), Invalid::Value { name: "wait", expected: SECONDS });
        assert_eq!(value("retain=maybe"), Invalid::Value { name: "retain", expected: "true or false" });
        assert_eq!(value("qos=1&qos=1"), Invalid::Twice("qos"));
        assert_eq!(value("filter=%ff"), Invalid::Encoding);
        assert!(matches!(value(&"filter=a&".repeat(65)), Invalid::TooMany { .. }));
    }

    #[test]
    fn unknown_parameters_are_left_alone() {
        assert_eq!(Query::parse(Some("_=1&&utm=x")).unwrap(), Query::default());
        assert_eq!(Query::parse(None).unwrap(), Query::default());
    }

    #[test]
    fn properties_keep_their_order() {
        let query = Query::parse(Some("property.unit=C&property.a%20b=1&property.unit=K")).unwrap();
        assert_eq!(
            query.properties,
            [("unit".into(), "C".into()), ("a b".into(), "1".into()), ("unit".into(), "K".into())]
        );
    }

    proptest! {
        #[test]
        fn any_query_is_answered(raw in ".*") {
            let _ = Query::parse(Some(&raw));
        }

        #[test]
        fn any_value_round_trips(value in any::<String>()) {
            let mut raw = String::from("filter=");
            percent::encode_query(&value, &mut raw);
            let query = Query::parse(Some(&raw)).unwrap();
            prop_assert_eq!(&query.filters, &[value]);
        }
    }
}
