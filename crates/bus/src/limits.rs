//! Limits on what a peer can make the bus hold, and sizes of portions of work.

/// Longest topic in bytes: what an MQTT UTF-8 string can carry ([MQTT-4.7.3-3]).
pub const TOPIC_BYTES_MAX: usize = 65_535;
/// Longest filter in bytes, as for topics.
pub const FILTER_BYTES_MAX: usize = 65_535;
/// Most levels in a topic or filter. A node of the tree costs some hundred bytes and a level one byte of input: this
/// keeps 65 535 slashes from becoming megabytes. Mosquitto refuses more than 200 as well.
pub const LEVELS_MAX: usize = 200;

/// Longest topic whose routes are cached, in bytes; longer ones are matched anew each time.
pub(crate) const CACHED_TOPIC_BYTES_MAX: usize = 1024;
/// Bytes of keys and entries, roughly, above which a worker's route cache is emptied.
pub(crate) const ROUTE_CACHE_BYTES_MAX: usize = 4 << 20;
/// Deliveries after which a publisher lets others of its worker have their turn, whatever is left of its input: about a
/// millisecond, as to a mailbox without a connection one takes some 50 nanoseconds. A message is never divided.
pub const DELIVERIES_PER_TURN: u64 = 16_384;
/// The work of a delivery that has a record in the store of sessions, in deliveries.
pub(crate) const STORED_WORK: u64 = 16;
/// Deliveries staged before a batch is flushed, whatever is left of it.
pub(crate) const STAGED_MAX: usize = 16_384;
/// The same while they have records in the store of sessions.
pub(crate) const STORED_STAGED_MAX: usize = 1024;
/// Retained publications that are kept and delivered together: few runs of different topics are longer, and their
/// routes are not known before they are kept.
pub(crate) const RUN_MAX: usize = 64;
/// Deliveries after which a publisher of retained messages lets other publishers of its topics go first: a few
/// microseconds.
pub(crate) const DELIVERED_UNDER_LOCK: u64 = 256;
/// Members of a shared subscription that are asked whether they are ready for a message.
pub(crate) const CANDIDATES_MAX: usize = 64;
/// Members of a shared subscription, summed over topics, of which is remembered that they may read while messages are
/// handed on.
pub(crate) const READERS_MAX: usize = 1 << 16;
/// Messages of a shared subscription that are handed on before the members are asked again whether they are ready.
pub(crate) const HANDED_ON_TOGETHER: usize = 64;
/// Owners that a worker wakes before its runtime polls its sockets again. A task that writes one frame takes some six
/// microseconds, so that other connections wait for less than half a millisecond; polling the sockets costs one.
pub(crate) const WAKES_PER_TURN: usize = 64;
/// Subscribers of a topic from which on each worker has its own copies of the messages. A copy costs what some ten
/// subscribers pay when two workers count references to the same message.
pub(crate) const COPIED_FROM: usize = 32;
/// Largest payload that such a copy does not share, in bytes.
pub(crate) const COPIED_BYTES_MAX: usize = 512;
/// Destinations of outdated routes that a worker drops in one sweep: each may be the last reference to a subscriber.
pub(crate) const SWEPT_MAX: usize = 4096;
/// Retained entries looked at in one pull, whether they match or not: bounds the time for which the lock is held, and
/// for which a filter that matches nothing keeps a worker from its other connections. About 50 microseconds.
pub(crate) const RETAINED_SCAN_MAX: usize = 1024;
