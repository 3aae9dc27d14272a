//! The state that the workers of the HTTP door share.

use std::sync::{Arc, Mutex, PoisonError};

use fogmux_http::{idempotency, session::Table};
use http::HeaderValue;
use tokio::sync::watch;

use super::{config::HttpConfig, idempotent, session, streams, unread};
use crate::{
    metrics::{Counted, Counts},
    shares,
    unfinished::{REST, Unfinished},
};

/// The state that the workers of the HTTP door share: configuration and registries. Connections find it in
/// [`HttpContext`].
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
    pub(super) idempotency: Mutex<idempotency::Store<idempotent::Kept>>,
    /// People who are logged in.
    pub(super) sessions: Mutex<Table<session::Session>>,
    /// Notifies streams and WebSockets that they have to check their permissions again.
    pub(super) second_look: watch::Sender<()>,
    pub(super) alt_svc: Option<HeaderValue>,
    /// Made when it is first asked for.
    openapi: std::sync::OnceLock<bytes::Bytes>,
}

impl HttpDoor {
    /// Creates the door.
    #[must_use]
    pub fn new(config: HttpConfig) -> Self {
        let alt_svc = config.http3_port.and_then(|port| HeaderValue::from_str(&fogmux_http::alt_svc::http3(port)).ok());
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
            alt_svc,
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

    pub(super) fn idempotency(&self) -> std::sync::MutexGuard<'_, idempotency::Store<idempotent::Kept>> {
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
