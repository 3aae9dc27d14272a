//! The state that the workers of the HTTP door share.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use fogmux_auth::Verified;
use fogmux_http::{
    idempotency,
    session::{Key, Table},
};
use http::{HeaderValue, StatusCode};
use tokio::sync::watch;

use super::{config::HttpConfig, cursors::Cursors, sessions::Session, streams, unread};
use crate::{
    WorkerContext,
    metrics::{Counted, Counts},
    shares,
    unfinished::{REST, Unfinished},
};

/// An answer that is given again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) status: StatusCode,
    pub(super) content_type: Option<HeaderValue>,
    pub(super) body: Bytes,
}

/// The state that the workers of the HTTP door share: configuration and registries. Connections find it in
/// [`HttpContext`](super::HttpContext).
#[derive(Debug)]
pub struct HttpDoor {
    /// The configuration.
    pub config: HttpConfig,
    pub(super) streams: streams::Registry,
    /// Unfinished uploads.
    pub(super) uploads: Arc<Unfinished>,
    /// Answers that clients have yet to take.
    pub(super) unread: Arc<Unfinished>,
    /// Bytes that several of them share.
    pub(super) unread_values: unread::Values,
    idempotency: Mutex<idempotency::Store<Kept>>,
    /// People who are logged in.
    sessions: Mutex<Table<Session>>,
    /// Notifies streams and WebSockets that they have to check their permissions again.
    pub(super) second_look: watch::Sender<()>,
    pub(super) cursors: Cursors,
    /// Made when it is first asked for.
    openapi: std::sync::OnceLock<bytes::Bytes>,
}

impl HttpDoor {
    /// Creates the door.
    #[must_use]
    pub fn new(config: HttpConfig) -> Self {
        Self {
            streams: streams::Registry::new(&config),
            uploads: Unfinished::new(
                shares::Table::HttpUploads,
                config.uploads_bytes_max.max(config.batch_bytes_max.saturating_mul(8)),
                REST,
            ),
            unread: Unfinished::new(
                shares::Table::HttpAnswers,
                config.unread_bytes_max.max(config.batch_bytes_max.max(config.payload_bytes_max).saturating_mul(8)),
                REST,
            ),
            unread_values: unread::Values::default(),
            idempotency: Mutex::new(idempotency::Store::new(config.idempotency)),
            sessions: Mutex::new(Table::new(config.sessions_max)),
            second_look: watch::Sender::new(()),
            cursors: Cursors::default(),
            openapi: std::sync::OnceLock::new(),
            config,
        }
    }

    /// The OpenAPI document of the door.
    pub(super) fn openapi(&self) -> bytes::Bytes {
        self.openapi.get_or_init(|| fogmux_http::openapi::document(env!("CARGO_PKG_VERSION")).into()).clone()
    }

    /// Completes when the rules have changed or a session has ended.
    pub(super) fn second_look(&self) -> impl Future<Output = ()> + use<> {
        let mut asked = self.second_look.subscribe();
        async move {
            // An error means that the gateway is gone altogether.
            let _ = asked.changed().await;
        }
    }

    /// People who are logged in.
    pub(super) fn sessions(&self) -> MutexGuard<'_, Table<Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the owner of a session that has not ended. It ends with the password that it began with.
    pub(super) fn find_session(&self, ctx: &WorkerContext, key: &Key) -> Option<Verified> {
        let session = self.sessions().get(Duration::from_millis(ctx.now().as_millis()), key).cloned()?;
        if session.has_same_password(&ctx.authority().rules()) {
            return Some(session.who);
        }
        self.end_session(key);
        None
    }

    /// Ends a session, and what was opened in it.
    pub(super) fn end_session(&self, key: &Key) {
        if self.sessions().end(key) {
            self.second_look.send_replace(());
        }
    }

    pub(super) fn idempotency(&self) -> MutexGuard<'_, idempotency::Store<Kept>> {
        self.idempotency.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted for HttpDoor {
    fn counts(&self) -> Counts {
        let (streams, parked) = self.streams.count();
        let (uploads, unread) = (self.uploads.bytes(), self.unread.bytes());
        let (keys, keys_bytes) = {
            let store = self.idempotency();
            (store.len(), store.bytes())
        };
        Counts {
            unfinished_bytes: uploads + unread,
            gauges: vec![
                ("http_uploads_bytes", "Bytes of unfinished HTTP uploads", uploads),
                ("http_unread_bytes", "Bytes of HTTP answers that clients have yet to take", unread),
                ("http_event_streams", "Event streams", streams),
                ("http_event_streams_parked", "Event streams that wait for their reader", parked),
                ("http_idempotency_keys", "Idempotency keys that are known", keys),
                ("http_idempotency_bytes", "Bytes that they and their answers count for", keys_bytes),
            ],
            ..Counts::default()
        }
    }
}
