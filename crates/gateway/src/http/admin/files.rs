//! `/api/v1/rules`: the file of the access rules as a text with its comments, and another in its place.

use std::rc::Rc;

use bytes::Bytes;
use fogmux_http::{
    Kind, Problem, accept,
    api::{CONTENT_TYPE, RULES_CONTENT_TYPE, RulesDocument, RulesProblem, RulesProblems, RulesText},
    condition::{Access, Conditions, Validators, Verdict},
    problem,
};
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{ACCEPT, CACHE_CONTROL, ETAG, VARY, X_CONTENT_TYPE_OPTIONS},
    request::Parts,
};
use http_body::Body;

use super::{
    super::{conn::Conn, identity::Identity, payload::Payload, respond},
    changes,
};
use crate::{
    administration::{Command, RULES_BYTES_MAX, Refusal, RulesFile, WriteRules},
    audit,
};

/// Bytes of a body at most: as JSON, characters may be escaped.
const BODY_BYTES_MAX: usize = 2 * RULES_BYTES_MAX;
/// Mistakes that an answer names at most, and characters of each.
const MISTAKES_MAX: usize = 100;
const MISTAKE_MAX: usize = 500;

/// The text of the file, alone or in a document.
pub(super) async fn read(conn: &Rc<Conn>, headers: &HeaderMap) -> Result<Response<Payload>, Problem<'static>> {
    let file = current(conn).await?;
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let alone = accepted.any(|value| value.split(',').any(|one| accept::essence(one).trim() == RULES_CONTENT_TYPE));
    let validators = Validators { etag: file.tag(), modified_unix_ms: 0 };
    let conditions = Conditions { if_modified_since: None, ..Conditions::of(headers) };
    let mut response = match conditions.evaluate(Access::Read, Some(validators)) {
        Verdict::NotModified => respond::status(StatusCode::NOT_MODIFIED),
        Verdict::Failed => return Err(Problem::new(Kind::PreconditionFailed)),
        Verdict::Proceed if alone => respond::own(RULES_CONTENT_TYPE, file.text.clone()),
        Verdict::Proceed => document(conn, &file),
    };
    let fields = response.headers_mut();
    fields.insert(CACHE_CONTROL, respond::NO_STORE);
    fields.insert(VARY, HeaderValue::from_static("accept"));
    fields.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(tag) = respond::etag(file.tag()) {
        fields.insert(ETAG, tag);
    }
    Ok(response)
}

async fn current(conn: &Conn) -> Result<RulesFile, Problem<'static>> {
    let read = conn.ctx.shared.administration.ask(Command::ReadRules).await;
    read.map_err(|refusal| changes::refused(&refusal))
}

fn document(conn: &Conn, file: &RulesFile) -> Response<Payload> {
    let allowed = conn.ctx.shared.administration.allows_changes();
    let reason = if allowed { file.unchangeable.as_deref() } else { Some(changes::OFF) };
    let name = file.file.display().to_string();
    let (exists, text) = (file.exists, file.text.as_str());
    let document = RulesDocument { file: &name, exists, changeable: reason.is_none(), reason, text };
    respond::own(CONTENT_TYPE, document.to_json())
}

/// Replaces the file: 204 with the new tag, as soon as the rules hold. Rules with a mistake change nothing.
pub(super) async fn write<B>(
    conn: &Rc<Conn>,
    identity: &Identity,
    parts: &Parts,
    body: B,
) -> Result<Response<Payload>, Problem<'static>>
where
    B: Body<Data = Bytes> + Unpin,
{
    let by = changes::requester(conn, identity, parts)?;
    let conditions = Conditions { if_unmodified_since: None, ..Conditions::of(&parts.headers) };
    if conditions.if_match.is_none() {
        return Err(Problem::new(Kind::PreconditionRequired).detail("If-Match with the ETag of GET"));
    }
    let text = text(conn, identity, parts, body).await?;
    let before = current(conn).await?;
    let validators = Validators { etag: before.tag(), modified_unix_ms: 0 };
    if conditions.evaluate(Access::Write, Some(validators)) != Verdict::Proceed {
        return Err(changes::refused(&Refusal::Changed));
    }
    let (bytes, force) = (text.len(), by.force);
    let (peer, principal) = (conn.peer.clone(), by.principal.clone());
    let write = WriteRules { text, replaces: before.tag(), by };
    let note = move |file: &RulesFile| audit::rules_changed(&peer, &principal, &file.file, bytes, force);
    match changes::carry_out(conn, |answer| Command::WriteRules(write, answer), note).await {
        Ok(file) => {
            let mut response = respond::status(StatusCode::NO_CONTENT);
            if let Some(tag) = respond::etag(file.tag()) {
                response.headers_mut().insert(ETAG, tag);
            }
            Ok(response)
        }
        Err(Refusal::Invalid(problems)) => Ok(invalid(&problems)),
        Err(refusal) => Err(changes::refused(&refusal)),
    }
}

async fn text<B>(conn: &Rc<Conn>, identity: &Identity, parts: &Parts, body: B) -> Result<String, Problem<'static>>
where
    B: Body<Data = Bytes> + Unpin,
{
    let (json, toml) = (changes::is(parts, CONTENT_TYPE)?, changes::is(parts, RULES_CONTENT_TYPE)?);
    if !json && !toml {
        return Err(Problem::new(Kind::UnsupportedMediaType).detail("rules are application/toml or application/json"));
    }
    let collected = changes::collect(conn, identity, parts, body, BODY_BYTES_MAX).await?;
    let text = if json {
        RulesText::parse(collected.bytes())?.text
    } else {
        let text = std::str::from_utf8(collected.bytes());
        text.map_err(|_| Problem::new(Kind::InvalidBody).detail("TOML is UTF-8"))?.to_owned()
    };
    if text.len() > RULES_BYTES_MAX {
        return Err(Problem::new(Kind::ContentTooLarge).detail(format!("at most {RULES_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// 422 with the lines.
fn invalid(problems: &fogmux_auth::Problems) -> Response<Payload> {
    let cut = |text: &'_ str| text.char_indices().nth(MISTAKE_MAX).map_or(text.len(), |(end, _)| end);
    let problems = problems
        .0
        .iter()
        .take(MISTAKES_MAX)
        .map(|one| RulesProblem { line: one.line, message: one.message.get(..cut(&one.message)).unwrap_or_default() });
    let document = RulesProblems { problems: problems.collect() };
    let mut response = respond::own(problem::CONTENT_TYPE, document.to_problem());
    *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
    response
}
