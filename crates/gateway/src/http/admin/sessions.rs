//! `/api/v1/sessions`: MQTT sessions, connected or not, their subscriptions, and the end of one.

use std::rc::Rc;

use fogmux_http::{
    Kind, Problem,
    api::{Page, SessionEntry, SessionPlace, Sessions, Subscriptions, Weight, cursor},
};
use http::{Response, StatusCode};

use super::super::{conn::Conn, identity::Identity, payload::Payload, respond};
use crate::audit;

/// One page of sessions.
pub(super) fn page(conn: &Conn, page: &Page<'_>) -> Result<Vec<u8>, Problem<'static>> {
    let (after, now) = (page.after_number()?, conn.ctx.now());
    let held = conn.ctx.upgrades.sessions.as_ref();
    let (found, mut more) = held.map(|held| held.page(after, page.limit)).unwrap_or_default();
    let mut sessions = Vec::with_capacity(found.len());
    let mut weight = Weight::default();
    for held in &found {
        if !weight.takes(&[&held.client, &held.principal]) {
            more = true;
            break;
        }
        sessions.push(SessionEntry {
            id: held.number,
            client: &held.client,
            principal: &held.principal,
            connected: held.connected,
            transient: held.transient,
            expires_seconds: held.expires.map(|at| at.since(now).as_secs()),
            subscriptions: held.subscriptions,
            queued: held.queued,
            queued_bytes: held.queued_bytes,
            inflight: held.inflight,
            inflight_bytes: held.inflight_bytes,
            stored: if held.durable { SessionPlace::Disk } else { SessionPlace::Memory },
        });
    }
    let next = sessions.last().filter(|_| more).map(|session| session.id.to_string());
    Ok(Sessions { sessions, next }.to_json())
}

/// One page of the subscriptions of a session.
pub(super) fn subscriptions(conn: &Conn, id: u64, page: &Page<'_>) -> Result<Vec<u8>, Problem<'static>> {
    let held = conn.ctx.upgrades.sessions.as_ref();
    let found = held.and_then(|held| held.subscriptions(id)).ok_or_else(none)?;
    let text = |one: &fogmux_bus::Subscription| match &one.group {
        Some(group) => format!("$share/{group}/{}", one.filter.as_str()),
        None => one.filter.as_str().to_owned(),
    };
    // Sorted here, without a lock.
    let mut all: Vec<String> = found.iter().map(text).collect();
    all.sort_unstable();
    let first = page.after.as_deref().map_or(0, |after| all.partition_point(|text| text.as_str() <= after));
    let rest = all.get(first..).unwrap_or_default();
    let mut weight = Weight::default();
    let page = rest.iter().take(page.limit).take_while(|text| weight.takes(&[text.as_str()]));
    let subscriptions: Vec<&str> = page.map(String::as_str).collect();
    let next = subscriptions.last().filter(|_| subscriptions.len() < rest.len()).map(|last| cursor(last));
    Ok(Subscriptions { subscriptions, next }.to_json())
}

/// Ends a session and forgets it: 204 when the store has forgotten it.
pub(super) async fn end(conn: &Rc<Conn>, identity: &Identity, id: u64) -> Result<Response<Payload>, Problem<'static>> {
    let held = conn.ctx.upgrades.sessions.as_ref();
    let ended = held.and_then(|held| held.end(id)).ok_or_else(none)?;
    audit::session_ended(&conn.peer, identity.principal(), &ended);
    if ended.ending.await {
        return Ok(respond::status(StatusCode::NO_CONTENT));
    }
    let detail = "the session has ended, but the store has not forgotten it: it comes back when the gateway restarts";
    Err(Problem::new(Kind::Unavailable).detail(detail))
}

fn none() -> Problem<'static> {
    Problem::new(Kind::NotFound).detail("no session has this number, or it has ended")
}
