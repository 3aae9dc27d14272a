//! The resources of the API, by the rest of their paths, and the methods of each.

use super::{ReportFormat, number};

/// A resource of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// `/api/v1/status`.
    Status,
    /// `/api/v1/topics`: the retained messages, without their payloads.
    Topics,
    /// `/api/v1/listeners`.
    Listeners,
    /// `/api/v1/clients`: connections and event streams.
    Clients,
    /// `/api/v1/clients/<id>`.
    Client(u64),
    /// `/api/v1/sessions`: MQTT sessions, connected or not.
    Sessions,
    /// `/api/v1/sessions/<id>`.
    Session(u64),
    /// `/api/v1/sessions/<id>/subscriptions`.
    SessionSubscriptions(u64),
    /// `/api/v1/users`.
    Users,
    /// `/api/v1/users/<name>`: the path has the name.
    User,
    /// `/api/v1/groups`.
    Groups,
    /// `/api/v1/rules`: the file of the access rules.
    Rules,
    /// `/api/v1/log-level`: the filter of the log.
    LogLevel,
    /// `/api/v1/rules/test`: what the rules decide.
    RuleTest,
    /// `/api/v1/bench`: measurements of the traffic generator.
    Bench,
    /// `/api/v1/bench/choices`: what may be measured.
    BenchChoices,
    /// `/api/v1/bench/<id>`.
    BenchJob(u64),
    /// `/api/v1/bench/<id>/report.json` and other formats.
    BenchReport(u64, ReportFormat),
    /// `/api/v1/bench/<id>/compare/<id>`.
    BenchComparison(u64, u64),
}

impl Resource {
    /// Parses the rest of a path behind `/api/v1/`.
    #[must_use]
    pub fn parse(rest: &str) -> Option<Self> {
        match rest {
            "status" => Some(Self::Status),
            "topics" => Some(Self::Topics),
            "listeners" => Some(Self::Listeners),
            "clients" => Some(Self::Clients),
            "sessions" => Some(Self::Sessions),
            "users" => Some(Self::Users),
            "groups" => Some(Self::Groups),
            "rules" => Some(Self::Rules),
            "log-level" => Some(Self::LogLevel),
            "rules/test" => Some(Self::RuleTest),
            "bench" => Some(Self::Bench),
            "bench/choices" => Some(Self::BenchChoices),
            other => Self::parse_member(other),
        }
    }

    /// Parses the path of a member of a list.
    fn parse_member(path: &str) -> Option<Self> {
        let (list, member) = path.split_once('/')?;
        if list == "bench" {
            return Self::parse_job(member);
        }
        match (list, member.strip_suffix("/subscriptions")) {
            ("clients", None) => number(member).map(Self::Client),
            ("sessions", None) => number(member).map(Self::Session),
            ("users", None) if !member.is_empty() && !member.contains('/') => Some(Self::User),
            ("sessions", Some(of)) => number(of).map(Self::SessionSubscriptions),
            _ => None,
        }
    }

    fn parse_job(path: &str) -> Option<Self> {
        let Some((id, rest)) = path.split_once('/') else { return number(path).map(Self::BenchJob) };
        let id = number(id)?;
        match rest.strip_prefix("compare/") {
            Some(other) => number(other).map(|other| Self::BenchComparison(id, other)),
            None => ReportFormat::parse(rest).map(|format| Self::BenchReport(id, format)),
        }
    }

    /// The value of `Allow`.
    #[must_use]
    pub const fn allow(self) -> &'static str {
        match self {
            Self::Status
            | Self::Topics
            | Self::Listeners
            | Self::Clients
            | Self::Sessions
            | Self::Users
            | Self::Groups
            | Self::SessionSubscriptions(_)
            | Self::BenchChoices
            | Self::BenchReport(..)
            | Self::BenchComparison(..) => "GET, HEAD, OPTIONS",
            Self::Bench => "GET, HEAD, POST, OPTIONS",
            Self::BenchJob(_) => "GET, HEAD, DELETE, OPTIONS",
            Self::Client(_) | Self::Session(_) => "DELETE, OPTIONS",
            Self::User => "PUT, DELETE, OPTIONS",
            Self::Rules | Self::LogLevel => "GET, HEAD, PUT, OPTIONS",
            Self::RuleTest => "POST, OPTIONS",
        }
    }

    /// Whether a request of it changes something if its method is not safe; what only tests a rule does not.
    #[must_use]
    pub const fn changes(self) -> bool {
        !matches!(self, Self::RuleTest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_resource_has_one_path() {
        assert_eq!(Resource::parse("clients/17"), Some(Resource::Client(17)));
        assert_eq!(Resource::parse("users/a%2Fb"), Some(Resource::User));
        for wrong in ["users/", "users/a/b", "groups/a", "rules/", "log-level/"] {
            assert_eq!(Resource::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Resource::parse("bench/7"), Some(Resource::BenchJob(7)));
        assert_eq!(Resource::parse("bench/7/report.md"), Some(Resource::BenchReport(7, ReportFormat::Markdown)));
        assert_eq!(Resource::parse("bench/7/compare/3"), Some(Resource::BenchComparison(7, 3)));
        for wrong in ["bench/", "bench/07", "bench/7/", "bench/7/log", "bench/7/../8", "bench/7/compare/", "bench/a/b"]
        {
            assert_eq!(Resource::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Resource::parse("sessions/17"), Some(Resource::Session(17)));
        assert_eq!(Resource::parse("sessions/17/subscriptions"), Some(Resource::SessionSubscriptions(17)));
        for wrong in [
            "",
            "clients/",
            "clients/017",
            "clients/+1",
            "clients/1/",
            "status/",
            "Status",
            "sessions/",
            "sessions//subscriptions",
            "sessions/1/",
            "sessions/1/subscriptions/",
            "clients/1/subscriptions",
        ] {
            assert_eq!(Resource::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_path_is_answered(text in ".*") {
            let _ = Resource::parse(&text);
            let _ = Resource::parse(&format!("bench/{text}"));
        }
    }
}
