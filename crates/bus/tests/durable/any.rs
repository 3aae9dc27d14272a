//! Any record.

use std::{num::NonZeroU16, sync::Arc};

use bytes::Bytes;
use fogmux_bus::{
    Clearing, Door, Meaning, Properties, Qos, SessionKey, Subscription, Topic,
    durable::{Manner, Record, RecordId, Sequence, SessionRecord, StoredMessage, Vouched, Wanted},
};
use proptest::{collection::vec, option, prelude::*, sample::select};

fn shared() -> impl Strategy<Value = Arc<str>> {
    ".{0,12}".prop_map(Arc::from)
}

fn id() -> impl Strategy<Value = RecordId> {
    any::<u64>().prop_map(RecordId)
}

fn properties() -> impl Strategy<Value = Arc<Properties>> {
    let user = vec((".{0,12}", ".{0,12}"), 0..4);
    (any::<bool>(), option::of(".*"), option::of(vec(any::<u8>(), 0..40)), user, option::of(".{0,12}")).prop_map(
        |(utf8, reply_to, correlation, user, item_id)| {
            Arc::new(Properties {
                utf8,
                reply_to: reply_to.map(String::into_boxed_str),
                correlation: correlation.map(Bytes::from),
                user: user.into_iter().map(|(n, v)| (n.into_boxed_str(), v.into_boxed_str())).collect(),
                item_id: item_id.map(String::into_boxed_str),
            })
        },
    )
}

fn meaning() -> impl Strategy<Value = Meaning> {
    let cleared = [Clearing::Cleared, Clearing::Retracted, Clearing::Purged, Clearing::Deleted, Clearing::Unannounced];
    let all: Vec<_> = cleared.map(Meaning::Clearing).into_iter().chain([Meaning::Value, Meaning::Event]).collect();
    select(all)
}

/// Any message.
pub(crate) fn message() -> impl Strategy<Value = StoredMessage> {
    let doors = vec![None, Some(Door::Mqtt), Some(Door::Coap), Some(Door::Http), Some(Door::Xmpp)];
    let names = (shared(), shared(), option::of(shared()), select(doors));
    let times = (any::<u64>(), option::of(any::<u64>()));
    ("[a-z/]{1,20}", vec(any::<u8>(), 0..300), 0_u8..3, meaning(), names, times, option::of(properties())).prop_map(
        |(topic, payload, qos, meaning, (principal, client, content_type, door), (ingest, expires), properties)| {
            StoredMessage {
                topic: Topic::new(&topic).unwrap(),
                payload: Bytes::from(payload),
                qos: Qos::from_u8(qos).unwrap(),
                meaning,
                content_type,
                expires_unix_ms: expires,
                properties,
                ingest_unix_ms: ingest,
                principal,
                client,
                door,
            }
        },
    )
}

fn session() -> impl Strategy<Value = SessionRecord> {
    let times = (option::of(any::<u32>()), any::<u64>(), any::<bool>(), option::of(any::<u64>()));
    let vouched = option::of((shared(), vec(shared(), 0..4)));
    (option::of(id()), shared(), shared(), vouched, times).prop_map(
        |(first, key, principal, vouched, (expiry_s, unsent, marked, away))| {
            let (key, unsent) = (SessionKey(key), Sequence(unsent));
            let vouched = vouched.map(|(source, groups)| Vouched { source, groups: groups.into() });
            SessionRecord { first, key, principal, vouched, expiry_s, unsent, marked, away_since_unix_ms: away }
        },
    )
}

fn subscription() -> impl Strategy<Value = Record> {
    let name = prop_oneof!["[a-z]{1,5}(/[a-z+]){0,4}", "\\$share/[a-z]{1,5}/[a-z]{1,5}/#"];
    let wanted = (0_u8..3, any::<bool>(), any::<bool>(), option::of(any::<u32>()));
    (id(), name, wanted).prop_map(|(session, name, (qos, no_local, retain_as_published, id))| {
        let wanted = Wanted { max_qos: Qos::from_u8(qos).unwrap(), no_local, retain_as_published, id };
        Record::Subscription(session, Subscription::parse(&name).unwrap(), wanted)
    })
}

fn delivery() -> impl Strategy<Value = Record> {
    let manner = (1_u8..3, any::<bool>(), any::<u32>(), vec(any::<u32>(), 0..4));
    (id(), id(), any::<u64>(), manner).prop_map(|(session, message, sequence, (qos, retain, share, ids))| {
        let manner = Manner { qos: Qos::from_u8(qos).unwrap(), retain, share, ids: ids.into_iter().collect() };
        Record::Delivery { session, message, sequence: Sequence(sequence), manner }
    })
}

/// Any record.
pub(crate) fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        session().prop_map(Record::Session),
        subscription(),
        message().prop_map(Record::Message),
        delivery(),
        (id(), any::<u64>()).prop_map(|(session, number)| Record::Released(session, Sequence(number))),
        (id(), any::<NonZeroU16>()).prop_map(|(session, packet_id)| Record::Received(session, packet_id)),
        (id(), any::<u32>(), message()).prop_map(|(session, delay, will)| Record::Will(session, delay, will)),
    ]
}
