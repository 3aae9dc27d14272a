//! The documents about users, groups, rules and the log.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

use crate::percent;
use crate::problem::{Kind, Problem};

/// The path below which users are.
pub const USERS_PATH: &str = "/api/v1/users/";
/// The media type of rules, as IANA has it for TOML.
pub const RULES_CONTENT_TYPE: &str = "application/toml";
/// Groups of a user or a credential at most, in a request.
pub(super) const GROUPS_MAX: usize = 64;

/// The name that the path of a user has.
///
/// # Errors
/// It is not percent-encoded UTF-8.
pub fn user_name(path: &str) -> Result<Cow<'_, str>, Problem<'static>> {
    let encoded = path.strip_prefix(USERS_PATH).unwrap_or_default();
    let wrong = |_| Problem::new(Kind::InvalidParameter).detail("the name is not percent-encoded UTF-8");
    percent::decode(encoded).map_err(wrong)
}

/// `GET /api/v1/users`.
#[derive(Debug, Serialize)]
pub struct Users<'a> {
    /// Users in the order of their names.
    pub users: Vec<UserEntry<'a>>,
    /// Whether users and rules may be changed over the API.
    pub changeable: bool,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<&'a str>,
}

/// A user without secrets.
#[derive(Debug, Serialize)]
pub struct UserEntry<'a> {
    /// The name.
    pub user: &'a str,
    /// The groups.
    pub groups: Vec<&'a str>,
    /// Whether there is a password.
    pub password: bool,
    /// Whether there are keys for SCRAM.
    pub scram: bool,
    /// Whether the user is shut out.
    pub disabled: bool,
}

/// `GET /api/v1/groups`.
#[derive(Debug, Serialize)]
pub struct Groups<'a> {
    /// Groups in the order of their names.
    pub groups: Vec<GroupEntry<'a>>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<&'a str>,
}

/// A group that users are in, or rules name.
#[derive(Debug, Serialize)]
pub struct GroupEntry<'a> {
    /// The name.
    pub group: &'a str,
    /// Users of the users file in it.
    pub users: usize,
    /// Filters of rules that name it.
    pub filters: usize,
}

/// `GET /api/v1/rules`.
#[derive(Debug, Serialize)]
pub struct RulesDocument<'a> {
    /// The file.
    pub file: &'a str,
    /// Whether there is one.
    pub exists: bool,
    /// Whether it may be changed over the API.
    pub changeable: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
    /// Its text.
    pub text: &'a str,
}

/// Mistakes for which rules are refused, beside the members of a problem.
#[derive(Debug, Serialize)]
pub struct RulesProblems<'a> {
    /// In the order of the text.
    pub problems: Vec<RulesProblem<'a>>,
}

/// A mistake in rules.
#[derive(Debug, Serialize)]
pub struct RulesProblem<'a> {
    /// The line, counted from 1; 0 for the text as a whole.
    pub line: usize,
    /// The mistake, and what would be accepted.
    pub message: &'a str,
}

/// The body of `PUT /api/v1/rules` as JSON.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RulesText {
    /// The text of the file.
    pub text: String,
}

/// The body of `PUT /api/v1/log-level`, and its answer.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LogLevel {
    /// The filter, as `log.filter`.
    pub filter: String,
}

/// The body of `PUT /api/v1/users/<name>`. What it lacks stays as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserChange {
    /// A new password.
    #[serde(default, deserialize_with = "given")]
    pub password: Option<String>,
    /// The only groups from now on.
    #[serde(default, deserialize_with = "given")]
    pub groups: Option<Vec<String>>,
    /// Whether the user is shut out.
    #[serde(default, deserialize_with = "given")]
    pub disabled: Option<bool>,
}

/// Without the password.
impl fmt::Debug for UserChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserChange").field("groups", &self.groups).finish_non_exhaustive()
    }
}

/// A member that is there has a value: `null` is none.
pub(super) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl UserChange {
    /// Reads it.
    ///
    /// # Errors
    /// It is no JSON, has other members, or too many groups.
    pub fn parse(body: &[u8]) -> Result<Self, Problem<'static>> {
        let change: Self = read(body)?;
        if change.groups.as_ref().is_some_and(|groups| groups.len() > GROUPS_MAX) {
            return Err(Problem::new(Kind::InvalidBody).detail(format!("at most {GROUPS_MAX} groups")));
        }
        Ok(change)
    }
}

impl RulesText {
    /// Reads it.
    ///
    /// # Errors
    /// It is no JSON, or has other members.
    pub fn parse(body: &[u8]) -> Result<Self, Problem<'static>> {
        read(body)
    }
}

impl LogLevel {
    /// Reads it.
    ///
    /// # Errors
    /// It is no JSON, or has other members.
    pub fn parse(body: &[u8]) -> Result<Self, Problem<'static>> {
        read(body)
    }
}

/// The message of the parser may quote a value, which may be a password: only the place is told.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem<'static>> {
    serde_json::from_slice(body).map_err(|error| {
        let what = if error.is_data() { "a member is unknown, missing or of another type" } else { "no JSON" };
        let detail = format!("{what}, at line {}, column {}", error.line(), error.column());
        Problem::new(Kind::InvalidBody).detail(detail)
    })
}

/// The parameters of a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChangeParameters {
    /// Whether the requester gives up its own right to administer if need be.
    pub force: bool,
}

impl ChangeParameters {
    /// Reads the part of a target after `?`. A parameter that nobody knows is left alone.
    ///
    /// # Errors
    /// A value is neither `true` nor `false`, or given twice.
    pub fn parse(raw: Option<&str>) -> Result<Self, Problem<'static>> {
        let pairs = raw.unwrap_or_default().split('&');
        let mut values = pairs.filter_map(|pair| pair.strip_prefix("force=").or((pair == "force").then_some("")));
        let force = match (values.next(), values.next()) {
            (None, _) | (Some("false"), None) => false,
            (Some("true"), None) => true,
            (Some(_), _) => {
                return Err(Problem::new(Kind::InvalidParameter).detail("`force` takes true or false, once"));
            }
        };
        Ok(Self { force })
    }
}

macro_rules! json {
    ($($document:ty)*) => {
        $(impl $document {
            /// Writes it as JSON.
            #[must_use]
            pub fn to_json(&self) -> Vec<u8> {
                // Nothing in it can fail.
                serde_json::to_vec(self).unwrap_or_default()
            }
        })*
    };
}

json!(Users<'_> Groups<'_> RulesDocument<'_> RulesProblems<'_> LogLevel);

impl RulesProblems<'_> {
    /// Writes it as a problem (RFC 9457).
    #[must_use]
    pub fn to_problem(&self) -> Vec<u8> {
        let mut out = self.to_json();
        // The member goes before those of every problem.
        out.pop();
        out.push(b',');
        let count = self.problems.len();
        let first = self.problems.first().map_or_else(String::new, |one| format!("line {}: {}", one.line, one.message));
        let more = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
        Problem::new(Kind::InvalidRules).detail(first + &more).write_members(&mut out);
        out.push(b'}');
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_mistake_in_a_body_shows_no_password() {
        for body in
            [r#"{"password":["hunter2"]}"#, r#"{"hunter2":1}"#, r#"{"disabled":"hunter2"}"#, r#"{"groups":null}"#]
        {
            let problem = UserChange::parse(body.as_bytes()).unwrap_err();
            assert_eq!(problem.kind, Kind::InvalidBody);
            assert!(!format!("{problem:?}").contains("hunter2"), "{problem:?}");
        }
        let change = UserChange::parse(br#"{"password":"hunter2","groups":["a"]}"#).unwrap();
        assert!(change.password.is_some() && change.disabled.is_none());
        assert!(!format!("{change:?}").contains("hunter2"));
        let many = format!(r#"{{"groups":[{}]}}"#, vec![r#""g""#; 65].join(","));
        assert!(UserChange::parse(many.as_bytes()).is_err());
    }

    #[test]
    fn force_is_said_once_and_plainly() {
        let parse = |query| ChangeParameters::parse(Some(query)).map(|given| given.force).ok();
        assert_eq!(ChangeParameters::parse(None), Ok(ChangeParameters { force: false }));
        for (query, expected) in [
            ("", Some(false)),
            ("force=true", Some(true)),
            ("a=1&force=false", Some(false)),
            ("force", None),
            ("force=1", None),
            ("force=true&force=true", None),
            ("enforce=true", Some(false)),
        ] {
            assert_eq!(parse(query), expected, "{query}");
        }
    }

    #[test]
    fn refused_rules_are_a_problem_with_every_line() {
        let problems = vec![RulesProblem { line: 3, message: "no \"x\"" }, RulesProblem { line: 7, message: "y" }];
        let value: serde_json::Value = serde_json::from_slice(&RulesProblems { problems }.to_problem()).unwrap();
        assert_eq!((&value["status"], &value["problems"][1]["line"]), (&422.into(), &7.into()));
        assert_eq!(value["detail"], "line 3: no \"x\" (and 1 more)");
        assert!(serde_json::from_slice::<serde_json::Value>(&RulesProblems { problems: vec![] }.to_problem()).is_ok());
    }

    proptest! {
        #[test]
        fn every_name_has_a_path(name in "[^\u{0}-\u{1f}]{1,60}") {
            let mut path = String::from(USERS_PATH);
            percent::encode_path(&name, &mut path);
            prop_assert_eq!(user_name(&path).unwrap(), name);
        }
    }
}
