//! The way back: one JSON object to one message, for batches and for clients.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::query::PROPERTIES_MAX;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A message as a line said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// The event's name on its stream.
    pub id: Option<Cow<'a, str>>,
    /// Where it was published; not validated.
    pub topic: Cow<'a, str>,
    /// Its bytes, decoded.
    pub payload: Cow<'a, [u8]>,
    /// Its MIME type.
    pub content_type: Option<Cow<'a, str>>,
    /// 0, 1 or 2.
    pub qos: Option<u8>,
    /// Whether to keep it.
    pub retain: bool,
    /// The time at which the gateway accepted it.
    pub time: Option<Cow<'a, str>>,
    /// User properties.
    pub properties: Vec<(Box<str>, Box<str>)>,
    /// The response topic.
    pub reply_to: Option<Cow<'a, str>>,
    /// The correlation data that a response repeats.
    pub correlation: Option<Vec<u8>>,
    /// The expiry interval in seconds.
    pub expiry_seconds: Option<u32>,
}

/// The reason why a line is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The line is not the expected JSON object; holds the position of the error.
    #[error("{0}")]
    Json(String),
    /// `encoding` is neither `utf8` nor `base64`.
    #[error("`encoding` is utf8 or base64")]
    Encoding,
    /// A member that must be base64 is not.
    #[error("`{0}` is not base64")]
    Base64(&'static str),
    /// A member is `null`.
    #[error("`{0}` is null; a member without a value is left out")]
    Null(&'static str),
    /// The QoS is not 0, 1 or 2.
    #[error("`qos` is 0, 1 or 2")]
    Qos,
}

/// Parses one object. Unknown members are errors, since a misspelt `retain` would lose data unnoticed.
pub fn decode(line: &[u8]) -> Result<Decoded<'_>, Malformed> {
    let raw: Raw<'_> = serde_json::from_slice(line)
        .map_err(|error| without_value(line).unwrap_or_else(|| Malformed::Json(error.to_string())))?;
    let payload = match (raw.encoding.as_deref(), raw.payload.0) {
        (None | Some("utf8"), Cow::Borrowed(text)) => Cow::Borrowed(text.as_bytes()),
        (None | Some("utf8"), Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
        (Some("base64"), text) => Cow::Owned(BASE64.decode(text.as_bytes()).map_err(|_| Malformed::Base64("payload"))?),
        (Some(_), _) => return Err(Malformed::Encoding),
    };
    let correlation = match raw.correlation {
        Some(text) => Some(BASE64.decode(text.0.as_bytes()).map_err(|_| Malformed::Base64("correlation"))?),
        None => None,
    };
    if raw.qos.is_some_and(|qos| qos > 2) {
        return Err(Malformed::Qos);
    }
    Ok(Decoded {
        id: raw.id.map(|text| text.0),
        topic: raw.topic.0,
        payload,
        content_type: raw.content_type.map(|text| text.0),
        qos: raw.qos,
        retain: raw.retain,
        time: raw.time.map(|text| text.0),
        properties: raw.properties.0,
        reply_to: raw.reply_to.map(|text| text.0),
        correlation,
        expiry_seconds: raw.expiry,
    })
}

/// The first member that is `null`, of a line that is refused: what the parser says of it names no member.
fn without_value(line: &[u8]) -> Option<Malformed> {
    struct NullVisitor;

    impl<'de> Visitor<'de> for NullVisitor {
        type Value = Option<&'static str>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut first = None;
            while let Some(Text(name)) = map.next_key()? {
                let is_null = map.next_value::<Option<IgnoredAny>>()?.is_none();
                first = first.or_else(|| MEMBERS.into_iter().find(|member| is_null && *member == name));
            }
            Ok(first)
        }
    }

    serde_json::Deserializer::from_slice(line).deserialize_map(NullVisitor).ok()?.map(Malformed::Null)
}

const MEMBERS: [&str; 12] = [
    "id",
    "topic",
    "payload",
    "encoding",
    "content_type",
    "qos",
    "retain",
    "time",
    "properties",
    "reply_to",
    "correlation",
    "expiry",
];

/// A member that is there has a value: `null` is none.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw<'a> {
    #[serde(borrow, default, deserialize_with = "given")]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    topic: Text<'a>,
    #[serde(borrow, default)]
    payload: Text<'a>,
    #[serde(borrow, default, deserialize_with = "given")]
    encoding: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "given")]
    content_type: Option<Text<'a>>,
    #[serde(default, deserialize_with = "given")]
    qos: Option<u8>,
    #[serde(default)]
    retain: bool,
    #[serde(borrow, default, deserialize_with = "given")]
    time: Option<Text<'a>>,
    #[serde(default)]
    properties: Properties,
    #[serde(borrow, default, deserialize_with = "given")]
    reply_to: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "given")]
    correlation: Option<Text<'a>>,
    #[serde(default, deserialize_with = "given")]
    expiry: Option<u32>,
}

/// A string, borrowed where it has no escape; inside an `Option` serde's own `Cow` would always own.
#[derive(Default)]
struct Text<'a>(Cow<'a, str>);

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

/// Pairs in the order of the object, duplicates kept.
#[derive(Default)]
struct Properties(Vec<(Box<str>, Box<str>)>);

impl<'de> Deserialize<'de> for Properties {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PropertiesVisitor;

        impl<'de> Visitor<'de> for PropertiesVisitor {
            type Value = Properties;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "an object of strings or arrays of strings, at most {PROPERTIES_MAX} of them")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(name) = map.next_key::<Box<str>>()? {
                    let Values(values) = map.next_value()?;
                    if pairs.len() + values.len() > PROPERTIES_MAX {
                        return Err(serde::de::Error::invalid_length(pairs.len() + values.len(), &self));
                    }
                    pairs.extend(values.into_iter().map(|value| (name.clone(), value)));
                }
                Ok(Properties(pairs))
            }
        }

        deserializer.deserialize_map(PropertiesVisitor)
    }
}

/// A string or an array of strings.
struct Values(Vec<Box<str>>);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValuesVisitor;

        impl<'de> Visitor<'de> for ValuesVisitor {
            type Value = Values;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or an array of strings")
            }

            fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
                Ok(Values(vec![value.into()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = seq.next_element()? {
                    if values.len() >= PROPERTIES_MAX {
                        return Err(serde::de::Error::invalid_length(values.len(), &self));
                    }
                    values.push(value);
                }
                Ok(Values(values))
            }
        }

        deserializer.deserialize_any(ValuesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_needs_only_a_topic() {
        let decoded = decode(br#"{"topic":"a"}"#).unwrap();
        assert_eq!((decoded.topic.as_ref(), decoded.payload.as_ref(), decoded.retain), ("a", &b""[..], false));
    }

    #[test]
    fn strings_without_escapes_are_borrowed() {
        let decoded = decode(br#"{"topic":"a","payload":"plain","content_type":"text/plain"}"#).unwrap();
        assert!(matches!(decoded.payload, Cow::Borrowed(_)));
        assert!(matches!(decoded.content_type, Some(Cow::Borrowed(_))));
    }

    #[test]
    fn a_member_that_is_there_has_a_value() {
        for name in MEMBERS {
            let topic = if name == "topic" { "" } else { "\"topic\":\"a\"," };
            let error = decode(format!("{{{topic}\"{name}\":null}}").as_bytes()).unwrap_err();
            assert_eq!(error, Malformed::Null(name));
            assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
        }
        let error = decode(br#"{"topic":"a","retian":null}"#).unwrap_err();
        assert!(error.to_string().contains("retian"), "{error}");
    }

    #[test]
    fn mistakes_are_named() {
        let error = |line: &str| decode(line.as_bytes()).unwrap_err();
        assert!(matches!(error("[]"), Malformed::Json(_)));
        assert!(error(r#"{"topic":"a","retian":true}"#).to_string().contains("retian"));
        assert_eq!(error(r#"{"topic":"a","encoding":"hex"}"#), Malformed::Encoding);
        assert_eq!(error(r#"{"topic":"a","encoding":"base64","payload":"*"}"#), Malformed::Base64("payload"));
        assert_eq!(error(r#"{"topic":"a","qos":3}"#), Malformed::Qos);
        assert!(matches!(error(r#"{"topic":"a","payload":{"t":1}}"#), Malformed::Json(_)));
        let many = format!(r#"{{"topic":"a","properties":{{"x":[{}]}}}}"#, vec!["\"\""; 65].join(","));
        assert!(matches!(error(&many), Malformed::Json(_)));
    }
}
