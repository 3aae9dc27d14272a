//! `GET /api/v1/certificates`: the certificates and revocation lists in use, their dates and the listeners that show
//! them. Of a key there is nothing, not even its file.

use std::path::Path;

use fogmux_http::api::{CertificateEntry, Certificates, Moment, RevocationListEntry, RolloverEntry};
use fogmux_net::{
    InUse, Role, TlsConfig,
    pki::{self, Rollover},
    validity::{DAY_S, Validity},
};

use super::super::conn::Conn;
use crate::Shared;

/// All of them; none where no listener has a certificate.
pub(super) fn document(conn: &Conn) -> Vec<u8> {
    let shared = &conn.ctx.shared;
    let now_unix_s = conn.ctx.unix_ms(conn.ctx.now()) / 1000;
    let Some(tls) = shared.metrics.certificates.tls() else {
        return Certificates { certificates: Vec::new(), revocation_lists: Vec::new(), rollover: None }.to_json();
    };
    let entry = |one: InUse| entry(tls, shared, &one, now_unix_s);
    let mut certificates: Vec<CertificateEntry> = tls.in_use().into_iter().map(entry).collect();
    if !certificates.iter().any(|one| one.own_authority) {
        certificates.extend(own_authority(tls, now_unix_s));
    }
    let rollover = tls.rollover().map(|Rollover { phase, old, new }| RolloverEntry {
        phase: phase.name(),
        old: old.subject,
        new: new.subject,
    });
    Certificates { certificates, revocation_lists: lists(tls, now_unix_s), rollover }.to_json()
}

fn entry(tls: &TlsConfig, shared: &Shared, one: &InUse, now_unix_s: u64) -> CertificateEntry {
    let role = match one.role {
        Role::Server => "server",
        Role::ServerChain => "chain",
        Role::ServerByName => "acme",
        Role::ClientAuthority => "client-authority",
    };
    let mut listeners: Vec<String> = Vec::new();
    for (_, spot) in shared.listening.each() {
        let (listen, has_one) = (&spot.listen, spot.listen.listener.has_certificate());
        if has_one
            && tls.files_of(&listen.security).contains(&one.file)
            && !listeners.iter().any(|n| **n == *listen.name)
        {
            listeners.push(listen.name.to_string());
        }
    }
    let own_authority = tls.own_authority() == Some(&one.file);
    CertificateEntry {
        own_authority,
        listeners,
        ..dated(role, &one.file, &one.dates, Validity::of(one.role, now_unix_s, &one.dates), now_unix_s)
    }
}

/// The gateway's own authority, where clients are verified against another: its file is read, as no handshake needs it.
fn own_authority(tls: &TlsConfig, now_unix_s: u64) -> Vec<CertificateEntry> {
    let Some(file) = tls.own_authority() else { return Vec::new() };
    let dates = pki::dates(file).unwrap_or_default();
    let each = dates.iter().map(|dates| {
        let judged = Validity::at(now_unix_s, dates);
        CertificateEntry { own_authority: true, ..dated("authority", file, dates, judged, now_unix_s) }
    });
    each.collect()
}

fn dated(role: &'static str, file: &Path, dates: &pki::Dates, judged: Validity, now_unix_s: u64) -> CertificateEntry {
    let left = i128::from(dates.not_after_unix_s) - i128::from(now_unix_s);
    CertificateEntry {
        role,
        own_authority: false,
        file: file.display().to_string(),
        subject: dates.subject.clone(),
        issuer: dates.issuer.clone(),
        not_before: Moment(dates.not_before_unix_s.saturating_mul(1000)),
        not_after: Moment(dates.not_after_unix_s.saturating_mul(1000)),
        days_left: i64::try_from(left.div_euclid(i128::from(DAY_S))).unwrap_or_default(),
        state: judged.stage.name(),
        listeners: Vec::new(),
    }
}

fn lists(tls: &TlsConfig, now_unix_s: u64) -> Vec<RevocationListEntry> {
    let Some(trust) = tls.clients() else { return Vec::new() };
    let [_, file] = trust.files();
    let each = trust.revocation_lists().into_iter().map(|list| RevocationListEntry {
        file: file.display().to_string(),
        issuer: list.issuer,
        revoked: list.revoked,
        this_update: Moment(list.this_update_unix_s.saturating_mul(1000)),
        next_update: list.next_update_unix_s.map(|unix_s| Moment(unix_s.saturating_mul(1000))),
        expired: list.next_update_unix_s.is_some_and(|next| next < now_unix_s),
    });
    each.collect()
}
