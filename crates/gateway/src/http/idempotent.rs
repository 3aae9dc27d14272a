//! `Idempotency-Key` around a POST: the first is performed, the next get its answer.

use std::{
    hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState},
    rc::Rc,
    sync::LazyLock,
    time::Duration,
};

use bytes::Bytes;
use fogmux_fair::Owner;
use fogmux_http::{
    Kind, Problem,
    idempotency::{self, Scope, Ticket, Verdict},
};
use http::{HeaderName, HeaderValue, Method, Response, header::CONTENT_TYPE, request::Parts};

use super::{conn::Conn, identity::Identity, payload::Payload, respond, shared::Kept};
use crate::shares::Table;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The way to handle a request with a key.
pub(super) enum Claimed {
    Perform(Held),
    Replay(Response<Payload>),
}

/// A key while its request is performed; dropped without an answer, it is free again.
pub(super) struct Held {
    inner: Option<(Rc<Conn>, Ticket)>,
}

/// Distinct for each run: a fingerprint never leaves the process.
static FINGERPRINTS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Whether the request is performed once. It must go on without its client then: given up when it is published, it would
/// be published again.
pub(super) fn has_key(parts: &Parts) -> bool {
    parts.method == Method::POST && parts.headers.contains_key(IDEMPOTENCY_KEY)
}

/// Looks the key up, if there is one.
pub(super) fn claim(
    conn: &Rc<Conn>,
    identity: &Identity,
    parts: &Parts,
    body: &Bytes,
) -> Result<Claimed, Problem<'static>> {
    let Some(value) = parts.headers.get(IDEMPOTENCY_KEY) else { return Ok(Claimed::Perform(Held { inner: None })) };
    let key = idempotency::key(value.as_bytes())
        .ok_or(Problem::new(Kind::BadRequest).detail("Idempotency-Key is 1 to 255 visible characters"))?;
    let scope = Scope { principal: Box::from(&*identity.principal().name), key: key.into() };
    let owner = identity.owner(conn);
    let verdict = {
        let mut store = conn.ctx.door.idempotency();
        let verdict = store.begin(now(conn), &scope, &owner, fingerprint(parts, body));
        note(conn, store.take_gave_way());
        verdict
    };
    match verdict {
        Verdict::Perform(ticket) => Ok(Claimed::Perform(Held { inner: Some((Rc::clone(conn), ticket)) })),
        Verdict::Replay(kept) => Ok(Claimed::Replay(kept.response())),
        Verdict::Conflict => Err(Problem::new(Kind::IdempotencyConflict).retry_after(1)),
        Verdict::Mismatch => Err(Problem::new(Kind::IdempotencyMismatch)),
        Verdict::Full => {
            let principal = &identity.principal().name;
            conn.ctx.shared.metrics.shares.refused(Table::IdempotencyKeys, principal, conn.ctx.now());
            Err(Problem::new(Kind::Unavailable).detail("too many idempotency keys").retry_after(1))
        }
    }
}

/// Counts answers that went for those of others.
fn note(conn: &Conn, gave_way: Option<(u64, Owner)>) {
    if let Some((count, owner)) = gave_way {
        conn.ctx.shared.metrics.shares.gave_way(Table::IdempotencyKeys, &owner, count, conn.ctx.now());
    }
}

fn now(conn: &Conn) -> Duration {
    Duration::from_millis(conn.ctx.now().as_millis())
}

fn fingerprint(parts: &Parts, body: &Bytes) -> u64 {
    let mut hasher = FINGERPRINTS.build_hasher();
    parts.method.hash(&mut hasher);
    parts.uri.path().hash(&mut hasher);
    parts.uri.query().hash(&mut hasher);
    parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).hash(&mut hasher);
    body.hash(&mut hasher);
    hasher.finish()
}

impl Held {
    /// Keeps a success to be given again; after a failure the key may be used anew, since nothing was done.
    pub(super) fn finish(
        mut self,
        conn: &Conn,
        result: Result<Response<Payload>, Problem<'static>>,
    ) -> Response<Payload> {
        let response = match result {
            Ok(response) => response,
            Err(problem) => return respond::problem(&problem),
        };
        if let Some((_, ticket)) = self.inner.take() {
            let kept = Kept {
                status: response.status(),
                content_type: response.headers().get(CONTENT_TYPE).cloned(),
                body: response.body().known().unwrap_or_default(),
            };
            let bytes = kept.body.len() + size_of::<Kept>();
            let mut store = conn.ctx.door.idempotency();
            store.finish(now(conn), ticket, kept, bytes);
            note(conn, store.take_gave_way());
        }
        response
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((conn, ticket)) = self.inner.take() {
            conn.ctx.door.idempotency().abandon(ticket);
        }
    }
}

impl Kept {
    fn response(self) -> Response<Payload> {
        let mut response = Response::new(Payload::full(self.body));
        *response.status_mut() = self.status;
        if let Some(content_type) = self.content_type {
            response.headers_mut().insert(CONTENT_TYPE, content_type);
        }
        response
    }
}
