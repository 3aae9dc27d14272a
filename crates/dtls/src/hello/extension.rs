//! Extensions that we know (IANA registry).

use crate::Alert;

pub(crate) const SERVER_NAME: u16 = 0;
pub(crate) const SUPPORTED_GROUPS: u16 = 10;
pub(crate) const EC_POINT_FORMATS: u16 = 11;
pub(crate) const SIGNATURE_ALGORITHMS: u16 = 13;
pub(crate) const EXTENDED_MASTER_SECRET: u16 = 23;
pub(crate) const RECORD_SIZE_LIMIT: u16 = 28;
pub(crate) const PRE_SHARED_KEY: u16 = 41;
pub(crate) const SUPPORTED_VERSIONS: u16 = 43;
pub(crate) const COOKIE: u16 = 44;
pub(crate) const PSK_KEY_EXCHANGE_MODES: u16 = 45;
pub(crate) const CERTIFICATE_AUTHORITIES: u16 = 47;
pub(crate) const KEY_SHARE: u16 = 51;
pub(crate) const CONNECTION_ID: u16 = 54;
pub(crate) const RENEGOTIATION_INFO: u16 = 0xff01;

/// The alert for an extension that its message cannot have (RFC 8446 §4.2): one that we know is in the wrong place, and
/// for another we have not asked.
pub(crate) fn misplaced(number: u16) -> Alert {
    if OF_CLIENTS.contains(&number) || [SERVER_NAME, CERTIFICATE_AUTHORITIES].contains(&number) {
        Alert::IllegalParameter
    } else {
        Alert::UnsupportedExtension
    }
}

/// Those of a ClientHello that we look at.
pub(crate) const OF_CLIENTS: [u16; 12] = [
    SUPPORTED_GROUPS,
    SIGNATURE_ALGORITHMS,
    EC_POINT_FORMATS,
    EXTENDED_MASTER_SECRET,
    RENEGOTIATION_INFO,
    RECORD_SIZE_LIMIT,
    PRE_SHARED_KEY,
    SUPPORTED_VERSIONS,
    COOKIE,
    PSK_KEY_EXCHANGE_MODES,
    KEY_SHARE,
    CONNECTION_ID,
];
