//! The state that the workers of the XMPP door share.

use std::sync::Arc;

use fogmux_bus::Bus;
use fogmux_xmpp::{Jid, Limits, ServerConfig};

use super::{accounts::Accounts, config::XmppConfig, kept::Records, nodes::Nodes};
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
        Self {
            server: Arc::new(ServerConfig { domain, limits, login_timeout: config.login_timeout }),
            service,
            nodes: Arc::new(Nodes::new(config.nodes_max, records.clone())),
            accounts: Accounts::new(config.subscriptions_per_account_max, records),
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

    /// The domain of the users.
    #[must_use]
    pub fn realm(&self) -> &str {
        self.server.domain.as_str()
    }
}

impl Counted for XmppDoor {
    fn counts(&self) -> Counts {
        let unfinished = self.unfinished.bytes();
        Counts {
            unfinished_bytes: unfinished,
            gauges: vec![(
                "xmpp_unfinished_bytes",
                "Bytes of unfinished XMPP stanzas, and of XMPP output that clients do not take",
                unfinished,
            )],
            ..Counts::default()
        }
    }
}
