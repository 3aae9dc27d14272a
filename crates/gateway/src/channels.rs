//! Channels of handshakes, for tests that make none.

use std::sync::Arc;

use fogmux_net::{Channel, ClientCertificate};

/// TLS 1.3 without a certificate, with an exporter.
pub(crate) fn channel() -> Channel {
    Channel {
        protocol: "TLSv1.3",
        cipher: "TLS_AES_128_GCM_SHA256".into(),
        certificate: None,
        psk: None,
        exporter: Some(Box::new([7; 32])),
        end_point: None,
    }
}

/// The same with a certificate that names somebody, until that many seconds since 1970.
pub(crate) fn certified(name: &str, not_after_unix_s: u64) -> Arc<Channel> {
    let certificate = ClientCertificate {
        der: [].into(),
        common_name: Some(name.into()),
        dns: Vec::new(),
        emails: Vec::new(),
        uris: Vec::new(),
        xmpp_addresses: Vec::new(),
        issuer: "CN=us".into(),
        serial: "01".into(),
        sha256: [0; 32],
        not_after_unix_s,
    };
    Arc::new(Channel { certificate: Some(Arc::new(certificate)), ..channel() })
}
