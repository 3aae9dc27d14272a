//! The records of a link: the types of services and their instances, which hosts share, and the unique ones of each
//! instance and of the host (RFC 6763 §4, §6, §9).

use std::{net::IpAddr, time::Duration};

use fogmux_time::Timestamp;

use super::{
    Offer, Service,
    names::{Names, domain},
};
use crate::message::{CLASS_IN, Data, Kind, Record};
use crate::name::Name;

/// Lifetimes in seconds (RFC 6762 §10): of records that have a host name in them, and of others.
const HOST_TTL: u32 = 120;
const OTHER_TTL: u32 = 4500;

/// A record is not multicast again within this time (RFC 6762 §6).
const PAUSE: Duration = Duration::from_secs(1);
/// The same for the defence against a probe.
const DEFENCE_PAUSE: Duration = Duration::from_millis(250);

/// A record of ours on a link.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) record: Record,
    /// When it was multicast last.
    pub(super) multicast: Option<Timestamp>,
    /// When it is multicast, as an answer.
    pub(super) due: Option<Timestamp>,
    /// The only host that it is an answer to.
    pub(super) asker: Option<IpAddr>,
}

impl Entry {
    fn new(name: &Name, is_unique: bool, ttl: u32, data: Data) -> Self {
        let record = Record { name: name.clone(), class: CLASS_IN, flush: is_unique, ttl, data };
        Self { record, multicast: None, due: None, asker: None }
    }

    /// Whether only one host may have it.
    pub(super) const fn is_unique(&self) -> bool {
        self.record.flush
    }

    /// Whether it says which types there are; such a record is an answer only, and never announced.
    pub(super) const fn is_denial(&self) -> bool {
        matches!(self.record.data, Data::Nsec { .. })
    }

    /// Whether a record says the same.
    pub(super) fn says(&self, other: &Record) -> bool {
        self.record.class == other.class && self.record.data == other.data && self.record.name == other.name
    }

    /// The earliest time at which it may be multicast.
    pub(super) fn earliest(&self, is_defence: bool) -> Timestamp {
        let pause = if is_defence { DEFENCE_PAUSE } else { PAUSE };
        self.multicast.map_or(Timestamp::ZERO, |last| last + pause)
    }

    /// Whether everybody on the link has heard it within a quarter of its lifetime (RFC 6762 §5.4).
    pub(super) fn is_known(&self, now: Timestamp) -> bool {
        let quarter = Duration::from_secs(u64::from(self.record.ttl / 4));
        self.multicast.is_some_and(|last| now.since(last) < quarter)
    }
}

/// Makes the records of what is told on a link.
pub(super) fn of(names: &Names, offer: &Offer) -> Vec<Entry> {
    let Some(host) = names.host_name() else { return Vec::new() };
    let mut entries = Vec::new();
    for service in &offer.services {
        push_service(names, &host, service, &mut entries);
    }
    let mut kinds = Vec::new();
    for address in &offer.addresses {
        let data = match address {
            IpAddr::V4(v4) => Data::A(*v4),
            IpAddr::V6(v6) => Data::Aaaa(*v6),
        };
        kinds.push(data.kind());
        entries.push(Entry::new(&host, true, HOST_TTL, data));
    }
    entries.push(Entry::new(&host, true, HOST_TTL, Data::nsec(&host, &kinds)));
    entries
}

fn push_service(names: &Names, host: &Name, service: &Service, entries: &mut Vec<Entry>) {
    let Some(kind) = domain(&service.kind) else { return };
    let Some(all) = domain(&["_services", "_dns-sd", "_udp"]) else { return };
    let Some(instance) = kind.under(&[&names.instance(service.qualifier.as_deref())]) else { return };
    let known = entries.iter().any(|entry| matches!(&entry.record.data, Data::Ptr(name) if *name == kind));
    if !known {
        entries.push(Entry::new(&all, false, OTHER_TTL, Data::Ptr(kind.clone())));
    }
    let server = Data::Srv { priority: 0, weight: 0, port: service.port, target: host.clone() };
    let text = Data::txt(service.txt.iter().map(String::as_str));
    entries.extend([
        Entry::new(&kind, false, OTHER_TTL, Data::Ptr(instance.clone())),
        Entry::new(&instance, true, HOST_TTL, server),
        Entry::new(&instance, true, OTHER_TTL, text),
        Entry::new(&instance, true, HOST_TTL, Data::nsec(&instance, &[Kind::TXT, Kind::SRV])),
    ]);
}
