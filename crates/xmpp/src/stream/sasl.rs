//! SASL as XMPP frames it (RFC 6120 §6): base64 in elements. What the bytes mean is not known here.

use crate::element::Element;
use crate::ns;
use crate::writer::Writer;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Why an authentication failed (RFC 6120 §6.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaslCondition {
    /// The client gave up (§6.5.1).
    Aborted,
    /// The account must not be used now (§6.5.2).
    AccountDisabled,
    /// The password is too old (§6.5.3).
    CredentialsExpired,
    /// Only over TLS (§6.5.4).
    EncryptionRequired,
    /// Not base64 (§6.5.5).
    IncorrectEncoding,
    /// May not act as that identity (§6.5.6).
    InvalidAuthzid,
    /// Not offered (§6.5.7).
    InvalidMechanism,
    /// Against the mechanism's grammar (§6.5.8).
    MalformedRequest,
    /// Too weak for this account (§6.5.9).
    MechanismTooWeak,
    /// Wrong credentials (§6.5.10).
    NotAuthorized,
    /// Try again later (§6.5.11).
    TemporaryAuthFailure,
}

impl SaslCondition {
    /// The name of the condition's element.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Aborted => "aborted",
            Self::AccountDisabled => "account-disabled",
            Self::CredentialsExpired => "credentials-expired",
            Self::EncryptionRequired => "encryption-required",
            Self::IncorrectEncoding => "incorrect-encoding",
            Self::InvalidAuthzid => "invalid-authzid",
            Self::InvalidMechanism => "invalid-mechanism",
            Self::MalformedRequest => "malformed-request",
            Self::MechanismTooWeak => "mechanism-too-weak",
            Self::NotAuthorized => "not-authorized",
            Self::TemporaryAuthFailure => "temporary-auth-failure",
        }
    }

    pub(super) fn write(self, out: &mut Vec<u8>) {
        let mut w = Writer::new(out);
        w.start_ns("failure", ns::SASL).empty(self.as_str()).end("failure");
    }
}

/// The bytes in an element: none when it is empty, an empty message for `=` (RFC 6120 §6.4.2). Anything outside of the
/// alphabet is refused, white space too (§13.9.1).
pub(super) fn decode(element: &Element<'_>) -> Result<Option<Vec<u8>>, SaslCondition> {
    match element.text().as_ref() {
        "" => Ok(None),
        "=" => Ok(Some(Vec::new())),
        text => STANDARD.decode(text).map(Some).map_err(|_| SaslCondition::IncorrectEncoding),
    }
}

/// Appends `<name>base64</name>`; data that is there but empty is `=`.
pub(super) fn write(out: &mut Vec<u8>, name: &str, mechanism: Option<&str>, data: Option<&[u8]>) {
    let mut w = Writer::new(out);
    w.start_ns(name, ns::SASL).attr_opt("mechanism", mechanism);
    match data {
        Some([]) => {
            w.text("=");
        }
        Some(data) => {
            w.text(&STANDARD.encode(data));
        }
        None => {}
    }
    w.end(name);
}
