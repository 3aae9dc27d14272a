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
    /// `/api/v1/certificates`: certificates and revocation lists in use.
    Certificates,
    /// `/api/v1/refusals`: the last refused logins and actions.
    Refusals,
    /// `/api/v1/links`: links to other brokers.
    Links,
    /// `/api/v1/system`: the machine below the gateway.
    System,
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
    /// `/api/v1/backup`: a copy of everything that the gateway keeps.
    Backup,
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

/// The resources of one path each, below `/api/v1/`.
const PATHS: [(&str, Resource); 17] = [
    ("status", Resource::Status),
    ("topics", Resource::Topics),
    ("listeners", Resource::Listeners),
    ("certificates", Resource::Certificates),
    ("refusals", Resource::Refusals),
    ("links", Resource::Links),
    ("system", Resource::System),
    ("clients", Resource::Clients),
    ("sessions", Resource::Sessions),
    ("users", Resource::Users),
    ("groups", Resource::Groups),
    ("rules", Resource::Rules),
    ("log-level", Resource::LogLevel),
    ("rules/test", Resource::RuleTest),
    ("backup", Resource::Backup),
    ("bench", Resource::Bench),
    ("bench/choices", Resource::BenchChoices),
];

/// Makes a resource of the numbers in its path.
type Make = fn(u64, u64) -> Resource;

/// The resources below lists: `{id}` and `{other}` are numbers, and `{name}` is what is not empty.
const MEMBERS: [(&str, Make); 9] = [
    ("clients/{id}", |id, _| Resource::Client(id)),
    ("sessions/{id}", |id, _| Resource::Session(id)),
    ("sessions/{id}/subscriptions", |id, _| Resource::SessionSubscriptions(id)),
    ("users/{name}", |_, _| Resource::User),
    ("bench/{id}", |id, _| Resource::BenchJob(id)),
    ("bench/{id}/report.json", |id, _| Resource::BenchReport(id, ReportFormat::Json)),
    ("bench/{id}/report.md", |id, _| Resource::BenchReport(id, ReportFormat::Markdown)),
    ("bench/{id}/report.html", |id, _| Resource::BenchReport(id, ReportFormat::Html)),
    ("bench/{id}/compare/{other}", Resource::BenchComparison),
];

/// The numbers of a path that fits a pattern, 0 for those that it has not.
fn matched(pattern: &str, path: &str) -> Option<(u64, u64)> {
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    let mut numbers = (0, 0);
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(numbers),
            (Some("{id}"), Some(text)) => numbers.0 = number(text)?,
            (Some("{other}"), Some(text)) => numbers.1 = number(text)?,
            (Some("{name}"), Some(text)) if !text.is_empty() => {}
            (Some(wanted), Some(text)) if wanted == text => {}
            _ => return None,
        }
    }
}

impl Resource {
    /// Parses the rest of a path behind `/api/v1/`.
    #[must_use]
    pub fn parse(rest: &str) -> Option<Self> {
        let found = PATHS.into_iter().find_map(|(path, resource)| (path == rest).then_some(resource));
        found.or_else(|| {
            let mut members = MEMBERS.into_iter();
            members.find_map(|(pattern, make)| matched(pattern, rest).map(|(id, other)| make(id, other)))
        })
    }

    /// Every path with its resource, as the API's description writes paths.
    #[cfg(test)]
    pub(crate) fn every() -> impl Iterator<Item = (&'static str, Self)> {
        PATHS.into_iter().chain(MEMBERS.into_iter().map(|(pattern, make)| (pattern, make(1, 2))))
    }

    /// The value of `Allow`.
    #[must_use]
    pub const fn allow(self) -> &'static str {
        match self {
            Self::Status
            | Self::Topics
            | Self::Listeners
            | Self::Certificates
            | Self::Refusals
            | Self::Links
            | Self::System
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
            Self::RuleTest | Self::Backup => "POST, OPTIONS",
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
