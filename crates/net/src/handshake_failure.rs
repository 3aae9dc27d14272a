//! Reasons of failed handshakes of TLS, QUIC and DTLS, for metrics.

use std::io;

use fogmux_dtls::{Alert, Refused};
use rustls::Error;

/// A reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// Not finished in time.
    Timeout,
    /// There were too many at once.
    GaveWay,
    /// The peer closed the connection.
    Closed,
    /// The peer refused our certificate or something else, and said so by an alert.
    Alert,
    /// Its certificate was refused, or is missing where one is required.
    Certificate,
    /// Its pre-shared key was not proven, had been tried too often, or was replaced meanwhile.
    Key,
    /// It offered no version, cipher suite or protocol that we accept.
    Incompatible,
    /// It broke the protocol, or does not speak it.
    Protocol,
}

impl HandshakeFailure {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Timeout,
        Self::GaveWay,
        Self::Closed,
        Self::Alert,
        Self::Certificate,
        Self::Key,
        Self::Incompatible,
        Self::Protocol,
    ];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::GaveWay => "gave_way",
            Self::Closed => "closed",
            Self::Alert => "alert",
            Self::Certificate => "certificate",
            Self::Key => "key",
            Self::Incompatible => "incompatible",
            Self::Protocol => "protocol",
        }
    }

    /// Of a TLS handshake that ended with this error, whose certificate was not refused.
    pub(crate) fn of_error(error: &io::Error) -> Self {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        match (tls, error.kind()) {
            (Some(Error::AlertReceived(_)), _) => Self::Alert,
            (Some(Error::PeerIncompatible(_) | Error::NoApplicationProtocol), _) => Self::Incompatible,
            (Some(_), _) => Self::Protocol,
            (None, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {
                Self::Closed
            }
            (None, _) => error.get_ref().map_or(Self::Closed, |inner| of_words(&inner.to_string())),
        }
    }

    /// Of a DTLS handshake that we ended with this alert.
    #[must_use]
    pub const fn of_dtls(alert: Alert, refused: Option<&Refused>) -> Self {
        match refused {
            Some(Refused::Identity(_) | Refused::Replaced(_)) => Self::Key,
            Some(Refused::Certificate(..) | Refused::Unproven(_) | Refused::NoCertificate) => Self::Certificate,
            None if matches!(alert, Alert::HandshakeFailure | Alert::ProtocolVersion) => Self::Incompatible,
            None => Self::Protocol,
        }
    }

    /// Of a QUIC handshake.
    pub(crate) fn of_quic(error: &quinn::ConnectionError) -> Self {
        use quinn::ConnectionError::{
            ApplicationClosed, CidsExhausted, ConnectionClosed, LocallyClosed, Reset, TimedOut, TransportError,
            VersionMismatch,
        };
        match error {
            TimedOut => Self::Timeout,
            VersionMismatch => Self::Incompatible,
            // RFC 9001 §4.8: alerts of TLS are errors from 0x100 on.
            ConnectionClosed(close) if u64::from(close.error_code) >= 0x100 => Self::Alert,
            TransportError(error) => match u64::from(error.code).checked_sub(0x100) {
                Some(HANDSHAKE_FAILURE | PROTOCOL_VERSION | NO_APPLICATION_PROTOCOL) => Self::Incompatible,
                Some(_) | None => Self::Protocol,
            },
            ConnectionClosed(_) | ApplicationClosed(_) | Reset | LocallyClosed | CidsExhausted => Self::Closed,
        }
    }
}

/// RFC 8446 §6, RFC 7301 §3.2.
const HANDSHAKE_FAILURE: u64 = 40;
const PROTOCOL_VERSION: u64 = 70;
const NO_APPLICATION_PROTOCOL: u64 = 120;

/// OpenSSL has only words: `SSL_R_NO_SHARED_CIPHER` and the like, and `SSL_R_…_ALERT_…` for what the peer says.
fn of_words(words: &str) -> HandshakeFailure {
    let has = |reasons: &[&str]| reasons.iter().any(|reason| words.contains(reason));
    if has(&["unexpected eof"]) {
        HandshakeFailure::Closed
    } else if has(&[" alert "]) {
        HandshakeFailure::Alert
    } else if has(&["no shared", "unsupported protocol", "no suitable", "version too low", "no protocols available"]) {
        HandshakeFailure::Incompatible
    } else {
        HandshakeFailure::Protocol
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_openssl_say_why() {
        for (words, reason) in [
            ("error:0A000126:SSL routines::unexpected eof while reading", HandshakeFailure::Closed),
            ("error:0A000418:SSL routines:ssl3_read_bytes:tlsv1 alert unknown ca", HandshakeFailure::Alert),
            (
                "error:0A0000C1:SSL routines:tls_post_process_client_hello:no shared cipher",
                HandshakeFailure::Incompatible,
            ),
            ("error:0A000102:SSL routines:tls_early_post:unsupported protocol", HandshakeFailure::Incompatible),
            ("error:0A00009C:SSL routines::http request", HandshakeFailure::Protocol),
        ] {
            assert_eq!(HandshakeFailure::of_error(&io::Error::other(words)), reason, "{words}");
        }
        assert_eq!(HandshakeFailure::of_error(&io::ErrorKind::ConnectionReset.into()), HandshakeFailure::Closed);
    }
}
