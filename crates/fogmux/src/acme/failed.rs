//! Why an attempt failed, in words for the log and `doctor`.

use std::fmt::Display;
use std::path::Path;

use instant_acme::{Error, Problem};

use super::state::Failure;

/// The longest reason that is kept, in characters: a server writes what it likes.
const REASON_CHARS_MAX: usize = 400;
/// The prefix of the types of problems (RFC 8555 §6.7).
const PREFIX: &str = "urn:ietf:params:acme:error:";
/// The server does not like what was signed with the key of an external account (RFC 8555 §7.3.4): a request for an
/// account has nothing else that these could be about.
const REFUSALS: [&str; 4] = ["unauthorized", "malformed", "badSignatureAlgorithm", "badPublicKey"];
/// The account is not one of the server's.
const NO_ACCOUNT: &str = "accountDoesNotExist";

/// A failed attempt.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) reason: String,
    /// The type of the server's problem without its prefix, or one of [`Failure`]'s; `None` if there is none.
    pub(super) problem: Option<String>,
}

impl Failed {
    /// One of this side.
    pub(super) fn new(reason: impl AsRef<str>) -> Self {
        Self { reason: plain(reason.as_ref()), problem: None }
    }

    /// A name that the server could not validate.
    pub(super) fn validation(domain: &str, problem: &Problem) -> Self {
        let Self { reason, problem } = Self::from_problem(problem);
        Self { reason: plain(&format!("{domain} could not be validated: {reason}")), problem }
    }

    /// A file that has no usable key of the external account.
    pub(super) fn key_file(file: &Path, why: impl Display) -> Self {
        let problem = Some(Failure::KEY_FILE.to_owned());
        Self { reason: plain(&format!("{}: {why}", file.display())), problem }
    }

    /// An account that the server does not give; `external` is the identifier that was shown, if one was.
    pub(super) fn account(error: Error, external: Option<&str>) -> Self {
        let failed = Self::from(error);
        let is_refusal = failed.problem.as_deref().is_some_and(|problem| REFUSALS.contains(&problem));
        let Some(external) = external.filter(|_| is_refusal) else { return failed };
        let reason = plain(&format!("the external account {external:?} is refused: {}", failed.reason));
        Self { reason, problem: Some(Failure::EXTERNAL_ACCOUNT.to_owned()) }
    }

    /// Whether the server does not know the account.
    pub(super) fn is_of_account(&self) -> bool {
        self.problem.as_deref() == Some(NO_ACCOUNT)
    }

    fn from_problem(problem: &Problem) -> Self {
        let said = problem.to_string();
        let kind = problem.r#type.as_deref().map(|kind| kind.strip_prefix(PREFIX).unwrap_or(kind));
        Self { reason: plain(said.strip_prefix("API error: ").unwrap_or(&said)), problem: kind.map(plain) }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        if let Error::Api(problem) = &error { Self::from_problem(problem) } else { Self::new(error.to_string()) }
    }
}

/// One line of bounded length.
fn plain(text: &str) -> String {
    text.chars().take(REASON_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_writes_is_one_line_of_bounded_length() {
        let problem = |detail: &str| Problem {
            r#type: Some("urn:ietf:params:acme:error:rateLimited".into()),
            detail: Some(detail.to_owned()),
            status: Some(429),
            subproblems: Vec::new(),
        };
        let failed = Failed::from(Error::Api(problem("too many\n\u{1b}[2Jorders")));
        assert_eq!(failed.problem.as_deref(), Some("rateLimited"));
        assert_eq!(failed.reason, "too many  [2Jorders (urn:ietf:params:acme:error:rateLimited)");
        assert_eq!(Failed::from(Error::Api(problem(&"x".repeat(10_000)))).reason.len(), REASON_CHARS_MAX);
        assert!(Failed::validation("fog.example", &problem("no")).reason.starts_with("fog.example could not be"));
    }

    #[test]
    fn an_account_is_refused_because_of_the_external_one_if_one_was_shown() {
        let of = |kind: &str, external| {
            let detail = Some("no".to_owned());
            let problem =
                Problem { r#type: Some(format!("{PREFIX}{kind}")), detail, status: None, subproblems: vec![] };
            let failed = Failed::account(Error::Api(problem), external);
            (failed.reason.starts_with("the external account \"kid\" is refused: no"), failed.problem.unwrap())
        };
        for kind in REFUSALS {
            assert_eq!(of(kind, Some("kid")), (true, Failure::EXTERNAL_ACCOUNT.to_owned()), "{kind}");
            assert_eq!(of(kind, None), (false, kind.to_owned()));
        }
        for kind in ["rateLimited", "invalidContact", "externalAccountRequired", "serverInternal"] {
            assert_eq!(of(kind, Some("kid")), (false, kind.to_owned()));
        }
    }
}
