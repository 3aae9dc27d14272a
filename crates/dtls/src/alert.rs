//! Alerts (RFC 5246 §7.2), as far as we send them or look at them.

/// Why a handshake or a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alert {
    /// The other end is done.
    CloseNotify,
    /// A message out of turn.
    UnexpectedMessage,
    /// Nothing in common, or a certificate that is required and missing.
    HandshakeFailure,
    /// A certificate that is not what it should be.
    BadCertificate,
    /// A certificate that was revoked.
    CertificateRevoked,
    /// A certificate that is past its time, or before it.
    CertificateExpired,
    /// A certificate that nobody we know has signed.
    UnknownCa,
    /// A value that makes no sense.
    IllegalParameter,
    /// Bytes that are no message.
    DecodeError,
    /// A signature, a Finished or a first protected record that is wrong: mostly another key than ours.
    DecryptError,
    /// A version that we do not speak.
    ProtocolVersion,
    /// We have a fault of our own.
    InternalError,
    /// Handshakes inside a session are not done.
    NoRenegotiation,
    /// An extension that has to be there and is not (RFC 8446 §6.2).
    MissingExtension,
    /// An answer to an extension that was not asked for.
    UnsupportedExtension,
    /// A certificate that is required and missing, in DTLS 1.3 (RFC 8446 §6.2).
    CertificateRequired,
    /// Anything else, by its number.
    Other(u8),
}

impl Alert {
    pub(super) const fn byte(self) -> u8 {
        match self {
            Self::CloseNotify => 0,
            Self::UnexpectedMessage => 10,
            Self::HandshakeFailure => 40,
            Self::BadCertificate => 42,
            Self::CertificateRevoked => 44,
            Self::CertificateExpired => 45,
            Self::IllegalParameter => 47,
            Self::UnknownCa => 48,
            Self::DecodeError => 50,
            Self::DecryptError => 51,
            Self::ProtocolVersion => 70,
            Self::InternalError => 80,
            Self::NoRenegotiation => 100,
            Self::MissingExtension => 109,
            Self::UnsupportedExtension => 110,
            Self::CertificateRequired => 116,
            Self::Other(byte) => byte,
        }
    }

    /// Level and description of an alert under keys, in DTLS 1.3.
    ///
    /// # Errors
    /// RFC 8446 §5.4: no record is empty; §6.2: an alert of another length cannot be read.
    pub(super) const fn of_record(plain: &[u8]) -> Result<(u8, Self), Self> {
        match *plain {
            [level, alert] => Ok((level, Self::parse(alert))),
            [] => Err(Self::UnexpectedMessage),
            _ => Err(Self::DecodeError),
        }
    }

    pub(super) const fn parse(byte: u8) -> Self {
        match byte {
            0 => Self::CloseNotify,
            10 => Self::UnexpectedMessage,
            40 => Self::HandshakeFailure,
            42 => Self::BadCertificate,
            44 => Self::CertificateRevoked,
            45 => Self::CertificateExpired,
            47 => Self::IllegalParameter,
            48 => Self::UnknownCa,
            50 => Self::DecodeError,
            51 => Self::DecryptError,
            70 => Self::ProtocolVersion,
            80 => Self::InternalError,
            100 => Self::NoRenegotiation,
            109 => Self::MissingExtension,
            110 => Self::UnsupportedExtension,
            116 => Self::CertificateRequired,
            other => Self::Other(other),
        }
    }

    /// Level and description: everything but `close_notify` and `no_renegotiation` is fatal.
    pub(super) const fn bytes(self) -> [u8; 2] {
        let level = match self {
            Self::CloseNotify | Self::NoRenegotiation => 1,
            Self::UnexpectedMessage
            | Self::HandshakeFailure
            | Self::BadCertificate
            | Self::CertificateRevoked
            | Self::CertificateExpired
            | Self::UnknownCa
            | Self::IllegalParameter
            | Self::DecodeError
            | Self::DecryptError
            | Self::ProtocolVersion
            | Self::InternalError
            | Self::MissingExtension
            | Self::UnsupportedExtension
            | Self::CertificateRequired
            | Self::Other(_) => 2,
        };
        [level, self.byte()]
    }
}

impl std::fmt::Display for Alert {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self {
            Self::CloseNotify => "close_notify",
            Self::UnexpectedMessage => "unexpected_message",
            Self::HandshakeFailure => "handshake_failure",
            Self::BadCertificate => "bad_certificate",
            Self::CertificateRevoked => "certificate_revoked",
            Self::CertificateExpired => "certificate_expired",
            Self::UnknownCa => "unknown_ca",
            Self::IllegalParameter => "illegal_parameter",
            Self::DecodeError => "decode_error",
            Self::DecryptError => "decrypt_error",
            Self::ProtocolVersion => "protocol_version",
            Self::InternalError => "internal_error",
            Self::NoRenegotiation => "no_renegotiation",
            Self::MissingExtension => "missing_extension",
            Self::UnsupportedExtension => "unsupported_extension",
            Self::CertificateRequired => "certificate_required",
            Self::Other(byte) => return write!(f, "alert {byte}"),
        };
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s7_2_every_number_is_read_and_written_and_has_a_name() {
        let mut names = std::collections::HashSet::new();
        for byte in 0..=u8::MAX {
            let alert = Alert::parse(byte);
            assert_eq!(alert.byte(), byte);
            assert!(names.insert(alert.to_string()), "{alert} twice");
        }
        assert_eq!(Alert::CloseNotify.bytes(), [1, 0]);
        assert_eq!(Alert::CertificateRequired.bytes(), [2, 116]);
    }
}
