//! The administration API below `/api/v1`: its resources, parameters and JSON documents.
//!
//! Lists are given in pages. A page ends with `next` if more may follow, and `after=NEXT` asks for it. Members without
//! a value are left out; members may be added, so clients ignore those that they do not know.

mod access;
mod bench;
mod certificates;
mod documents;
mod links;
mod refusals;
mod resource;
mod sessions;
mod system;

use std::borrow::Cow;

use serde::Deserialize;

pub use access::{
    ChangeParameters, GroupEntry, Groups, LogLevel, RULES_CONTENT_TYPE, RulesDocument, RulesProblem, RulesProblems,
    RulesText, USERS_PATH, UserChange, UserEntry, Users, user_name,
};
pub use bench::{
    BENCH_PATH, Bench, BenchChoices, BenchDocument, BenchDoor, BenchJob, BenchMatrix, BenchMost, BenchPaper,
    BenchProgress, BenchRequest, BenchRun, BenchSample, BenchState, BenchTable, BenchWanted, ReportFormat,
};
pub use certificates::{CertificateEntry, Certificates, RevocationListEntry, RolloverEntry};
pub use documents::{
    Client, Clients, DoorStatus, ListenerEntry, Listeners, Memory, Messages, Moment, PairStatus, RuleAnswer, Status,
    StoreStatus, Table, TopicEntry, Topics, Visitor,
};
pub use links::{LinkDrop, LinkEntry, LinkFailure, LinkQueue, LinkWay, Links};
pub use refusals::{RefusalEntry, Refusals, RefusedAction, RefusedLogin};
pub use resource::Resource;
pub use sessions::{SessionEntry, SessionPlace, Sessions, Subscriptions};
pub use system::{System, SystemDisk, SystemMemory, SystemProcessor, Throttling};

use self::access::{GROUPS_MAX, given};
use crate::percent;
use crate::problem::{Kind, Problem};

/// The media type of the documents, and of what is posted.
pub const CONTENT_TYPE: &str = "application/json";
/// Entries of a page if the request does not say.
pub const LIMIT: usize = 100;
/// Most entries of a page.
pub const LIMIT_MAX: usize = 1000;
/// Bytes of an answer's texts at which a page ends before its limit.
pub const PAGE_BYTES: usize = 256 << 10;
/// The longest topic that a cursor holds whole, in bytes: it comes back in a request line.
pub const CURSOR_BYTES_MAX: usize = 1024;
/// Longest body of a request.
pub const BYTES_MAX: usize = 128 << 10;

/// The parameters of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<'a> {
    /// Where the previous page ended.
    pub after: Option<Cow<'a, str>>,
    /// How the topics begin.
    pub prefix: Cow<'a, str>,
    /// Most entries.
    pub limit: usize,
}

impl<'a> Page<'a> {
    /// Reads the part of a target after `?`. A parameter that nobody knows is left alone.
    ///
    /// # Errors
    /// A value is out of its range, or a parameter is given twice.
    pub fn parse(raw: Option<&'a str>) -> Result<Self, Problem<'static>> {
        let invalid = |detail: &'static str| Problem::new(Kind::InvalidParameter).detail(detail);
        let (mut after, mut prefix, mut limit) = (None, None, None);
        for pair in raw.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let place = match name {
                "after" => &mut after,
                "prefix" => &mut prefix,
                "limit" => &mut limit,
                _ => continue,
            };
            let value = percent::decode(value).map_err(|_| invalid("the query is not percent-encoded UTF-8"))?;
            if place.replace(value).is_some() {
                return Err(invalid("`after`, `prefix` and `limit` are given once at most"));
            }
        }
        let limit = match limit.as_deref().map(number) {
            None => LIMIT,
            Some(Some(limit @ 1..=1000)) => usize::try_from(limit).unwrap_or(LIMIT_MAX),
            Some(_) => return Err(invalid("`limit` takes 1 to 1000")),
        };
        Ok(Self { after, prefix: prefix.unwrap_or_default(), limit })
    }

    /// The cursor of a list of numbers. Nothing comes after a number that is too great for the list.
    ///
    /// # Errors
    /// It is none: anything but decimal digits in their only spelling.
    pub fn after_number(&self) -> Result<u64, Problem<'static>> {
        let Some(text) = self.after.as_deref() else { return Ok(0) };
        let is_decimal = text == "0" || !text.is_empty() && !text.starts_with('0');
        if is_decimal && text.bytes().all(|byte| byte.is_ascii_digit()) {
            // A number that does not fit is greater than `u64::MAX`.
            return Ok(text.parse().unwrap_or(u64::MAX));
        }
        Err(Problem::new(Kind::InvalidParameter).detail("`after` takes `next` of the page before"))
    }
}

/// The cursor of a page of topics that ends with `last`. A long name is cut: the next page begins behind all topics
/// that begin like it, because a cursor has to fit into a request line.
#[must_use]
pub fn cursor(last: &str) -> String {
    if last.len() <= CURSOR_BYTES_MAX {
        return last.to_owned();
    }
    let end = last.floor_char_boundary(CURSOR_BYTES_MAX);
    let mut cursor = last.get(..end).unwrap_or_default().to_owned();
    cursor.push(char::MAX);
    cursor
}

/// The texts of a page so far, in bytes of JSON, which control characters make six times as long.
#[derive(Debug, Default)]
pub struct Weight(usize);

impl Weight {
    /// Adds the texts of an entry, if a page has room for them. The first has room, however long it is.
    pub fn takes(&mut self, texts: &[&str]) -> bool {
        let bytes = texts.iter().map(|text| json_bytes(text)).sum::<usize>();
        if self.0 > 0 && self.0.saturating_add(bytes) > PAGE_BYTES {
            return false;
        }
        self.0 = self.0.saturating_add(bytes).max(1);
        true
    }
}

/// The length of a text in JSON (RFC 8259 §7) without its quotes.
fn json_bytes(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | 8 | b'\t' | b'\n' | 12 | b'\r' => 2,
        0..=0x1f => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum()
}

/// The body of `POST /api/v1/rules/test`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleQuestion {
    /// The name of a principal, `anonymous`, `user:NAME`, `link:NAME`, `psk:IDENTITY` or `oscore:USER`.
    pub identity: String,
    /// The groups that its credential gives.
    #[serde(default)]
    pub groups: Vec<String>,
    /// The action.
    pub action: Action,
    /// A topic, or a filter to read.
    pub topic: String,
    /// The door: MQTT if it is not said.
    #[serde(default, deserialize_with = "given")]
    pub door: Option<Door>,
    /// The client identifier: the user's name if it is not said.
    #[serde(default, deserialize_with = "given")]
    pub client: Option<String>,
}

/// An action that rules speak of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Read, or subscribe.
    Read,
    /// Publish.
    Write,
}

/// A door that rules speak of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Door {
    /// MQTT.
    Mqtt,
    /// CoAP.
    Coap,
    /// HTTP.
    Http,
    /// XMPP.
    Xmpp,
}

impl RuleQuestion {
    /// Reads it.
    ///
    /// # Errors
    /// It is no JSON, has other members, or too many groups.
    pub fn parse(body: &[u8]) -> Result<Self, Problem<'static>> {
        let invalid = |detail: String| Problem::new(Kind::InvalidBody).detail(detail);
        // The message of the parser names members, never values of ours.
        let question: Self = serde_json::from_slice(body).map_err(|error| invalid(error.to_string()))?;
        if question.groups.len() > GROUPS_MAX {
            return Err(invalid(format!("at most {GROUPS_MAX} groups")));
        }
        Ok(question)
    }
}

/// A number in its only spelling.
fn number(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_page_has_bounds() {
        assert_eq!(Page::parse(None).unwrap().limit, LIMIT);
        let page = Page::parse(Some("limit=7&prefix=a%2Fb&x=1&after=a/b%26c")).unwrap();
        assert_eq!((page.limit, &*page.prefix, page.after.as_deref()), (7, "a/b", Some("a/b&c")));
        for wrong in ["limit=0", "limit=1001", "limit=-1", "limit=07", "limit=a", "limit=1&limit=2", "after=%ff"] {
            assert_eq!(Page::parse(Some(wrong)).unwrap_err().kind, Kind::InvalidParameter, "{wrong}");
        }
    }

    #[test]
    fn a_member_of_a_question_that_is_there_has_a_value() {
        let parse = |more: &str| {
            let body = format!("{{\"identity\":\"a\",\"action\":\"read\",\"topic\":\"t\"{more}}}");
            RuleQuestion::parse(body.as_bytes())
        };
        assert!(parse("").is_ok() && parse(",\"client\":\"c\",\"door\":\"coap\",\"groups\":[\"g\"]").is_ok());
        let many = format!(",\"groups\":[{}]", vec!["\"g\""; GROUPS_MAX + 1].join(","));
        for more in [",\"client\":null", ",\"door\":null", ",\"groups\":null", ",\"x\":1", &many] {
            assert_eq!(parse(more).unwrap_err().kind, Kind::InvalidBody, "{more}");
        }
    }

    #[test]
    fn a_cursor_of_numbers_has_one_spelling() {
        for wrong in ["", "x", "00", "07", "+1", "-1", "1.0"] {
            let query = format!("after={wrong}");
            assert!(Page::parse(Some(&query)).unwrap().after_number().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_cursor_is_short_and_not_before_its_topic(topic in "\\PC{0,3000}") {
            let cursor = cursor(&topic);
            prop_assert!(cursor.len() <= CURSOR_BYTES_MAX + 4);
            prop_assert!(cursor.as_str() >= topic.as_str());
        }

        #[test]
        fn a_text_weighs_what_it_has_in_json(text: String) {
            prop_assert_eq!(json_bytes(&text) + 2, serde_json::to_string(&text).unwrap().len());
        }

        #[test]
        fn a_page_has_its_first_entry_and_no_more_than_its_bytes(lengths in prop::collection::vec(0..PAGE_BYTES, 1..20)) {
            let (mut weight, mut page) = (Weight::default(), Vec::new());
            for length in lengths {
                if !weight.takes(&[&"x".repeat(length), "y"]) {
                    break;
                }
                page.push(length + 1);
            }
            prop_assert!(page.len() == 1 || !page.is_empty() && page.iter().sum::<usize>() <= PAGE_BYTES);
        }

        // The pattern is the one of the API's description.
        #[test]
        fn any_decimal_number_is_a_cursor(text in "(0|[1-9][0-9]{0,60})") {
            let query = format!("after={text}");
            prop_assert_eq!(Page::parse(Some(&query)).unwrap().after_number(), Ok(text.parse().unwrap_or(u64::MAX)));
        }

        #[test]
        fn any_query_and_body_is_answered(text in ".*") {
            let _ = Page::parse(Some(&text));
            let _ = RuleQuestion::parse(text.as_bytes());
        }
    }
}
