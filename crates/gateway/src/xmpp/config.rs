//! How the XMPP door behaves.

use std::{sync::Arc, time::Duration};

use super::kept::NodeStore;

/// How the XMPP door behaves; every field has a default.
#[derive(Clone, Debug)]
pub struct XmppConfig {
    /// The domain clients log in to; topics are nodes of `pubsub.<domain>`.
    pub domain: String,
    /// Largest stanza after login, in bytes. A payload that is no text takes a third more than its size.
    pub stanza_bytes_max: usize,
    /// Bytes that all connections together keep of stanzas that have not ended, above 2 KiB each. Beyond, one of the
    /// account that has most ends.
    pub open_stanzas_bytes_max: usize,
    /// From accept to a bound resource.
    pub login_timeout: Duration,
    /// From the first byte of a stanza to its last.
    pub stanza_timeout: Duration,
    /// How long a client may take nothing of what there is to send.
    pub write_timeout: Duration,
    /// How long a peer's host may acknowledge nothing on the level of TCP; see
    /// [`set_user_timeout`](fogmux_net::listener::set_user_timeout).
    pub unacknowledged_max: Duration,
    /// Messages that may wait for one connection.
    pub mailbox_messages_max: usize,
    /// Bytes of the messages that may wait for one connection.
    pub mailbox_bytes_max: usize,
    /// Nodes with a configuration or affiliations of their own; topics beyond that are nodes with the defaults.
    pub nodes_max: usize,
    /// Bytes of the heap that those nodes take with their names, configurations and affiliations.
    pub nodes_bytes_max: usize,
    /// Bytes of the heap that the subscriptions of all accounts take, whether anybody is connected or not.
    pub subscriptions_bytes_max: usize,
    /// Subscriptions of one account.
    pub subscriptions_per_account_max: usize,
    /// Where nodes and subscriptions are kept; without it they end with the process.
    pub store: Option<Arc<dyn NodeStore>>,
}

impl Default for XmppConfig {
    fn default() -> Self {
        Self {
            domain: "localhost".to_owned(),
            stanza_bytes_max: 2 << 20,
            open_stanzas_bytes_max: 32 << 20,
            login_timeout: Duration::from_secs(15),
            stanza_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            unacknowledged_max: Duration::from_secs(60),
            mailbox_messages_max: 10_000,
            mailbox_bytes_max: 4 << 20,
            nodes_max: 20_000,
            nodes_bytes_max: 16 << 20,
            subscriptions_bytes_max: 16 << 20,
            subscriptions_per_account_max: 1_000,
            store: None,
        }
    }
}
