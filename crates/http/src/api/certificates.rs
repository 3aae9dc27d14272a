//! The document of `GET /api/v1/certificates`.

use serde::Serialize;

use super::Moment;

/// `GET /api/v1/certificates`.
#[derive(Debug, Serialize)]
pub struct Certificates {
    /// Those in use, as they were read last.
    pub certificates: Vec<CertificateEntry>,
    /// The revocation lists in use.
    pub revocation_lists: Vec<RevocationListEntry>,
    /// The rollover of the gateway's own authority; absent if none is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollover: Option<RolloverEntry>,
}

/// A rollover that is under way.
#[derive(Debug, Serialize)]
pub struct RolloverEntry {
    /// `begun` or `switched`.
    pub phase: &'static str,
    /// The subject of the authority that is to go.
    pub old: String,
    /// The subject of the authority that is to stay.
    pub new: String,
}

/// A certificate.
#[derive(Debug, Serialize)]
pub struct CertificateEntry {
    /// Its purpose: `server`, `chain`, `acme`, `client-authority` or `authority`.
    pub role: &'static str,
    /// Whether it is of the gateway's own authority.
    pub own_authority: bool,
    /// The file that it was read from.
    pub file: String,
    /// The subject's distinguished name.
    pub subject: String,
    /// The issuer's distinguished name.
    pub issuer: String,
    /// The first second in which it is valid.
    pub not_before: Moment,
    /// The last second.
    pub not_after: Moment,
    /// Whole days until then; negative if it has expired.
    pub days_left: i64,
    /// `good`, `month`, `week`, `early` or `expired`: as `fogmux doctor` judges it.
    pub state: &'static str,
    /// The listeners that show it, or verify clients against it.
    pub listeners: Vec<String>,
}

/// A revocation list.
#[derive(Debug, Serialize)]
pub struct RevocationListEntry {
    /// The file that it was read from.
    pub file: String,
    /// The distinguished name of the authority.
    pub issuer: String,
    /// The number of certificates that it revokes.
    pub revoked: usize,
    /// When it was issued.
    pub this_update: Moment,
    /// When it is to be followed by another; absent if it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_update: Option<Moment>,
    /// Whether that is over.
    pub expired: bool,
}

impl Certificates {
    /// Writes it as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}
