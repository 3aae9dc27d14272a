//! `/api/v1/bench`: measurements that the gateway has made by the traffic generator, a process of its own.

use std::rc::Rc;

use bytes::Bytes;
use fogmux_auth::Action;
use fogmux_http::{
    Problem,
    api::{BENCH_PATH, BYTES_MAX, BenchRequest, CONTENT_TYPE, ReportFormat},
};
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, LOCATION, X_CONTENT_TYPE_OPTIONS},
    request::Parts,
};
use http_body::Body;

use super::{
    super::{conn::Conn, identity::Identity, payload::Payload, respond, state},
    changes,
};
use crate::{
    administration::{
        Answer, Command,
        bench::{BenchCommand, Submit, Submitted},
    },
    audit,
};

const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
/// A report has styles and plots of its own, and nothing that runs.
const REPORT_POLICY: HeaderValue =
    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox");

/// A document.
pub(super) async fn document(
    conn: &Conn,
    command: impl FnOnce(Answer<Vec<u8>>) -> BenchCommand,
) -> Result<Vec<u8>, Problem<'static>> {
    let asked = conn.ctx.shared.administration.ask(|answer| Command::Bench(Box::new(command(answer)))).await;
    asked.map_err(|refusal| changes::refused(&refusal))
}

/// Submits a job: 202 with its place, or the reason why not.
pub(super) async fn submit<B>(
    conn: &Rc<Conn>,
    identity: &Identity,
    parts: &Parts,
    body: B,
) -> Result<Response<Payload>, Problem<'static>>
where
    B: Body<Data = Bytes> + Unpin,
{
    let collected = changes::json(conn, identity, parts, body, BYTES_MAX).await?;
    let request = BenchRequest::parse(collected.bytes())?;
    // Until the body has come, the right may have been taken back.
    state::check_admin(conn, identity, Action::Write)?;
    let (peer, principal, anyway) = (conn.peer.clone(), identity.principal().clone(), request.anyway);
    let submit = Submit { request, by: principal.clone() };
    let note = move |done: &Submitted| audit::bench_submitted(&peer, &principal, done.id, &done.command, anyway);
    let command = |answer| Command::Bench(Box::new(BenchCommand::Submit(submit, answer)));
    let submitted = changes::carry_out(conn, command, note).await.map_err(|refusal| changes::refused(&refusal))?;
    let mut response = respond::own(CONTENT_TYPE, submitted.document);
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    *response.status_mut() = StatusCode::ACCEPTED;
    respond::set(&mut response, LOCATION, &format!("{BENCH_PATH}{}", submitted.id));
    Ok(response)
}

/// Ends a job, or removes it if it has ended: 204, as soon as its processes have gone.
pub(super) async fn end(conn: &Rc<Conn>, identity: &Identity, id: u64) -> Result<Response<Payload>, Problem<'static>> {
    let (peer, principal) = (conn.peer.clone(), identity.principal().clone());
    let by = principal.clone();
    let note = move |ended: &_| audit::bench_ended(&peer, &principal, id, *ended);
    let command = move |answer| Command::Bench(Box::new(BenchCommand::End(id, by, answer)));
    let ended = changes::carry_out(conn, command, note).await;
    ended.map_err(|refusal| changes::refused(&refusal))?;
    Ok(respond::status(StatusCode::NO_CONTENT))
}

/// A report, in the words of the generator.
pub(super) async fn report(conn: &Conn, id: u64, format: ReportFormat) -> Result<Response<Payload>, Problem<'static>> {
    let report = document(conn, |answer| BenchCommand::Report(id, format, answer)).await?;
    let mut response = respond::own(format.content_type(), report);
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    headers.insert(CONTENT_SECURITY_POLICY, REPORT_POLICY);
    let name = format!("inline; filename=\"fogmux-bench-{id}-{}\"", format.file());
    respond::set(&mut response, CONTENT_DISPOSITION, &name);
    Ok(response)
}
