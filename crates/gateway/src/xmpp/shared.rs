//! The state that the workers of the XMPP door share.

use std::sync::Arc;

use fogmux_bus::Bus;
use fogmux_xmpp::{Jid, Limits, ServerConfig};

use super::{
    accounts::{Accounts, FollowsMax},
    config::XmppConfig,
    kept::Records,
    nodes::{Nodes, NodesMax},
};
use crate::{
    metrics::{Counted, Counts},
    shares::Table,
    unfinished::{REST, Unfinished},
};

/// The state that the workers of the XMPP door share: configuration and registries. Connections find it in
/// [`XmppContext`](super::context::XmppContext).
#[derive(Debug)]
pub struct XmppDoor {
    /// The configuration.
    pub config: XmppConfig,
    pub(super) server: Arc<ServerConfig>,
    /// The address of the publish-subscribe service.
    pub(super) service: Jid,
    pub(super) nodes: Arc<Nodes>,
    pub(super) accounts: Accounts,
    pub(super) unfinished: Arc<Unfinished>,
}

impl XmppDoor {
    /// Creates the door. An invalid domain, which the configuration's reader refuses, becomes `localhost`.
    #[must_use]
    pub fn new(config: XmppConfig) -> Self {
        let address = |text: &str| Jid::from_parts(None, text, None);
        let domain = address(&config.domain).or_else(|_| address("localhost"));
        let service = domain.as_ref().map_or(Err(fogmux_xmpp::JidError::Empty), |d| address(&format!("pubsub.{d}")));
        let (Ok(domain), Ok(service)) = (domain, service) else { unreachable!("localhost is a domain") };
        let records = Records::new(config.store.clone());
        let limits = Limits { stanza_bytes_max: config.stanza_bytes_max, ..Limits::default() };
        let nodes_max = NodesMax { count: config.nodes_max, bytes: config.nodes_bytes_max };
        let follows_max =
            FollowsMax { per_account: config.subscriptions_per_account_max, bytes: config.subscriptions_bytes_max };
        let nodes = Arc::new(Nodes::new(nodes_max, records.clone(), &domain));
        Self {
            server: Arc::new(ServerConfig { domain, limits, login_timeout: config.login_timeout }),
            service,
            nodes,
            accounts: Accounts::new(follows_max, records),
            unfinished: Unfinished::new(
                Table::XmppStanzas,
                // A stanza of the largest size fits in any case, in a buffer that doubles, and so does an answer.
                config.open_stanzas_bytes_max.max(config.stanza_bytes_max.saturating_mul(2)),
                REST,
            ),
            config,
        }
    }

    /// Undoes the changes of nodes and subscriptions that the store has not kept.
    pub(super) fn undo(&self, bus: &Bus) {
        if self.nodes.undo() {
            bus.invalidate();
        }
        self.accounts.undo(bus);
    }

    /// Warns of what was stored before its bound was there, or was lower: it stays, and nothing is added to it.
    pub(super) fn warn_of_excess(&self, bus: &Bus) {
        let config = &self.config;
        for (key, used, max) in [
            ("xmpp.nodes_max", self.nodes.len(), config.nodes_max),
            ("xmpp.nodes_bytes_max", self.nodes.bytes(), config.nodes_bytes_max),
            ("xmpp.subscriptions_bytes_max", self.accounts.weights().bytes(), config.subscriptions_bytes_max),
        ] {
            if used > bus.room(max).left(0) {
                tracing::warn!(key, used, max, "more is stored than this limit allows; it stays, and more is refused");
            }
        }
    }

    /// The domain of the users.
    #[must_use]
    pub fn realm(&self) -> &str {
        self.server.domain.as_str()
    }
}

impl Counted for XmppDoor {
    fn counts(&self) -> Counts {
        let unfinished = self.unfinished.bytes();
        let (nodes, nodes_bytes) = (self.nodes.len(), self.nodes.bytes());
        let (most_nodes, most_nodes_bytes) = self.nodes.largest();
        let weights = self.accounts.weights();
        let (follows_bytes, most_follows_bytes) = (weights.bytes(), weights.largest());
        drop(weights);
        Counts {
            unfinished_bytes: unfinished,
            kept_bytes: nodes_bytes + follows_bytes,
            gauges: vec![
                (
                    "xmpp_unfinished_bytes",
                    "Bytes of unfinished XMPP stanzas, and of XMPP output that clients do not take",
                    unfinished,
                ),
                ("xmpp_nodes", "Nodes of XMPP with a configuration or affiliations of their own", nodes),
                ("xmpp_nodes_bytes", "Bytes that these nodes take in memory", nodes_bytes),
                ("xmpp_subscriptions_bytes", "Bytes of subscriptions over XMPP, connected or not", follows_bytes),
            ],
            largest: vec![
                ("nodes", most_nodes),
                ("nodes_bytes", most_nodes_bytes),
                ("xmpp_subscriptions_bytes", most_follows_bytes),
            ],
            ..Counts::default()
        }
    }
}
