//! `POST /api/v1/rules/test`: what the rules decide, as `fogmux acl test` says it.

use std::rc::Rc;

use bytes::Bytes;
use fogmux_auth::{Action, Door, Explained, Named, NoTopic};
use fogmux_http::{
    Kind, Problem, accept,
    api::{self, BYTES_MAX, CONTENT_TYPE, RuleAnswer, RuleQuestion},
};
use http::request::Parts;
use http_body::Body;

use super::super::{
    body::{self, Bounds},
    conn::Conn,
    identity::Identity,
    topics,
};

/// Decides. A principal that is not let in is refused everything.
pub(super) async fn test<B>(
    conn: &Rc<Conn>,
    identity: &Identity,
    parts: &Parts,
    body: B,
) -> Result<Vec<u8>, Problem<'static>>
where
    B: Body<Data = Bytes> + Unpin,
{
    let content_type = topics::content_type(&parts.headers)?.map(accept::essence);
    if !content_type.is_some_and(|given| given.eq_ignore_ascii_case(CONTENT_TYPE)) {
        return Err(Problem::new(Kind::UnsupportedMediaType).detail("a question is application/json"));
    }
    let bounds = Bounds::of(&conn.ctx.door.config, BYTES_MAX);
    let collected = body::collect(&conn.ctx, &parts.headers, body, bounds, identity.owner(conn)).await?;
    let question = RuleQuestion::parse(collected.bytes())?;
    let action = match question.action {
        api::Action::Read => Action::Read,
        api::Action::Write => Action::Write,
    };
    let no_topic = |error: NoTopic| Problem::new(Kind::InvalidTopic).detail(error.to_string());
    NoTopic::check(action, &question.topic).map_err(no_topic)?;
    let authority = conn.ctx.authority();
    let links = &conn.ctx.shared.links;
    let named = authority.named(&question.identity, &question.groups, |link| links.principal(link));
    let Named { principal, note } = match named {
        Ok(named) => named,
        Err(refused) => return Ok(refusal(&format!("refused: {refused}"))),
    };
    let client = question.client.as_deref().unwrap_or(&principal.name);
    let explained = authority.explain(&principal, client, action, door(question.door), &question.topic);
    let Explained { allowed, text, rule } = explained.map_err(no_topic)?;
    let in_file = rule.as_ref().filter(|rule| rule.line() > 0);
    Ok(RuleAnswer {
        allowed,
        text: &text,
        identity: Some(&principal.name),
        groups: principal.groups.iter().map(|group| &**group).collect(),
        note: note.as_deref(),
        rule: rule.as_ref().map(ToString::to_string),
        file: in_file.map(|rule| rule.file().display().to_string()),
        line: in_file.map(fogmux_auth::RuleRef::line),
    }
    .to_json())
}

fn refusal(text: &str) -> Vec<u8> {
    RuleAnswer { text, ..RuleAnswer::default() }.to_json()
}

const fn door(asked: Option<api::Door>) -> Door {
    match asked {
        None | Some(api::Door::Mqtt) => Door::Mqtt,
        Some(api::Door::Coap) => Door::Coap,
        Some(api::Door::Http) => Door::Http,
        Some(api::Door::Xmpp) => Door::Xmpp,
    }
}
