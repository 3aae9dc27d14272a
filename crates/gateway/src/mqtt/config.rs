//! Configuration of the MQTT door: every bound on what a client can make the gateway hold.

use std::{sync::Arc, time::Duration};

use fogmux_bus::durable::SessionStore;

/// Configuration of the MQTT door. Every field has a default.
#[derive(Clone, Debug)]
pub struct MqttConfig {
    /// The store of sessions that outlive their connection; `None`: they end with the process.
    pub store: Option<Arc<dyn SessionStore>>,
    /// Time from the connection to an accepted CONNECT.
    pub login_deadline: Duration,
    /// Largest CONNECT, in bytes; its sender is not authenticated yet.
    pub connect_bytes_max: usize,
    /// Bytes of all logins under way; those of 2 KiB and less do not count. Beyond, the oldest of the host
    /// that has most ends.
    pub logins_bytes_max: usize,
    /// Longest client identifier, in bytes.
    pub client_id_bytes_max: usize,
    /// Whether user names and passwords are taken over connections without TLS from other machines.
    pub password_without_tls: bool,
    /// Whether a user name without a password is a credential: a token, or a name with an empty password.
    pub user_without_password: bool,
    /// Largest packet a client may send, in bytes.
    pub packet_bytes_max: u32,
    /// Bytes of unfinished packets of all clients together; those of 2 KiB and less do not count. Beyond, one of the
    /// principal that has most ends.
    pub unfinished_bytes_max: usize,
    /// Unacknowledged QoS 1 and 2 messages a client may have (Receive Maximum).
    pub receive_maximum: u16,
    /// Highest topic alias a client may use.
    pub topic_alias_maximum: u16,
    /// Bytes of all topics behind a client's aliases.
    pub alias_bytes_max: usize,
    /// Longest keep alive in seconds; version 5 clients that want longer or none are told this. Zero: any.
    pub keep_alive_max: u16,
    /// Unacknowledged QoS 1 and 2 messages on their way to a client, whatever it allows.
    pub max_inflight: u16,
    /// Bytes of unacknowledged messages on their way to a client, above which no further one is sent.
    pub inflight_bytes_max: usize,
    /// Highest topic alias used towards a client, whatever it allows.
    pub outgoing_alias_maximum: u16,
    /// Encoded bytes that wait for a client to read before messages are queued instead.
    pub out_bytes_max: usize,
    /// Messages queued for a client.
    pub queue_messages_max: usize,
    /// Bytes of messages queued for a client.
    pub queue_bytes_max: usize,
    /// Bytes of messages queued for a client that is away which stay in memory. The others are read back from the store
    /// when they are sent.
    pub queue_memory_bytes_max: usize,
    /// Messages that a client may be sent of a longer queue before the store knows of more of them; doubled each time.
    /// As many count as sent after `kill -9`, sent or not.
    pub mark_messages: u64,
    /// Bytes of all mailboxes of the gateway above which a client gets a sixteenth of `out_bytes_max` and
    /// `queue_bytes_max`, and half as much again above which it gets hardly anything. To be set below the bus's
    /// watermark, above which publishers are paused.
    pub tight_bytes: usize,
    /// Longest time a session outlives its connection, in seconds; `u32::MAX` for ever.
    pub session_expiry_max: u32,
    /// Sessions, with and without a connection.
    pub sessions_max: usize,
    /// Subscriptions of one client.
    pub subscriptions_max: usize,
    /// Their bytes; each level of a filter counts some two hundred.
    pub subscriptions_bytes_max: usize,
    /// Bytes of the wills of all clients together, whether these are connected or their will waits for its delay;
    /// beyond, wills of more than a kilobyte are refused.
    pub wills_bytes_max: usize,
    /// The owner of the sessions that client identifiers name.
    pub client_identifiers: ClientIdentifiers,
    /// The policy for a connected client whose queue of QoS 1 and 2 messages is full.
    pub slow_subscriber: SlowSubscriber,
    /// A client that reads nothing of its output for so long is disconnected.
    pub stall_max: Duration,
    /// A connection whose peer acknowledges no TCP segment for so long ends. Clients with a longer keep alive get one
    /// and a half times that, up to a quarter of an hour.
    pub unacknowledged_max: Duration,
    /// How often `$SYS` is published; zero: never.
    pub sys_interval: Duration,
}

/// The owner of the sessions that client identifiers name. MQTT has a server check that a client is authorised to use
/// its identifier, which gives access to the session (MQTT 5.0 §5.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientIdentifiers {
    /// Each principal has identifiers of its own: two of them that use one have a session each ([MQTT-3.1.3-2]), and no
    /// connection of one ends one of the other ([MQTT-3.1.4-3]).
    PerPrincipal,
    /// There is one session of a name. While nobody is connected to it, it gives way to another principal.
    Shared,
}

/// The policy for a connected client whose queue of QoS 1 and 2 messages is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowSubscriber {
    /// It is disconnected; its session, if it continues, keeps the newest messages.
    Disconnect,
    /// It stays connected and loses the oldest messages.
    DropOldest,
}

impl Default for MqttConfig {
    fn default() -> Self {
        Self {
            store: None,
            login_deadline: Duration::from_secs(10),
            connect_bytes_max: 64 << 10,
            logins_bytes_max: 16 << 20,
            client_id_bytes_max: 256,
            password_without_tls: false,
            user_without_password: false,
            // A payload of 1 MiB with the longest topic and as many properties.
            packet_bytes_max: (1 << 20) + (128 << 10),
            unfinished_bytes_max: 32 << 20,
            receive_maximum: 1024,
            topic_alias_maximum: 16,
            alias_bytes_max: 8 << 10,
            keep_alive_max: 0,
            max_inflight: 1024,
            inflight_bytes_max: 1 << 20,
            outgoing_alias_maximum: 16,
            out_bytes_max: 256 << 10,
            queue_messages_max: 100_000,
            queue_bytes_max: 16 << 20,
            queue_memory_bytes_max: 64 << 10,
            mark_messages: 64,
            tight_bytes: 48 << 20,
            session_expiry_max: 24 * 3600,
            sessions_max: 100_000,
            subscriptions_max: 10_000,
            subscriptions_bytes_max: 16 << 20,
            wills_bytes_max: 16 << 20,
            client_identifiers: ClientIdentifiers::PerPrincipal,
            slow_subscriber: SlowSubscriber::Disconnect,
            stall_max: Duration::from_secs(60),
            unacknowledged_max: Duration::from_secs(60),
            // Mosquitto's.
            sys_interval: Duration::from_secs(10),
        }
    }
}
