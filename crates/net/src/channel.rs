//! The properties of a connection and its peer after a TLS, DTLS or QUIC handshake.
//!
//! The doors use this and no TLS stack. It holds only verified facts: a certificate whose chain and signature are
//! valid, a pre-shared key that the peer has proven to know.

use std::{borrow::Cow, fmt, sync::Arc};

pub use fogmux_dtls::{ProvenPsk, Psk};
use ring::digest::{SHA256, digest};
use rustls::{ProtocolVersion, ServerConnection};
use x509_parser::{
    asn1_rs::{Any, FromDer as _, Tag, TaggedExplicit},
    certificate::X509Certificate,
    extensions::{GeneralName, ParsedExtension},
};
pub use zeroize::Zeroizing;

use crate::provider::iana_name;

/// RFC 9266 §2: the label of the exporter that binds a login to its channel; its context is empty.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-Channel-Binding";
/// id-on-xmppAddr (RFC 6120 §13.7.1.4), 1.3.6.1.5.5.7.8.5 as DER has it.
const ID_ON_XMPP_ADDR: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x08, 0x05];
/// Bytes of a fingerprint that tell a certificate from others in a log.
const FINGERPRINT: usize = 8;
/// Names taken from one certificate, of each kind. More are left out: who signed it meant few.
const NAMES_MAX: usize = 32;

/// A connection that a handshake has made safe.
#[derive(Clone, PartialEq, Eq)]
pub struct Channel {
    /// `TLSv1.3`, `TLSv1.2`, `DTLSv1.3` or `DTLSv1.2`.
    pub protocol: &'static str,
    /// The cipher suite as IANA names it; empty where the stack does not tell, which is so with QUIC.
    pub cipher: Cow<'static, str>,
    /// The certificate that the peer has proved to own, if it was asked for one.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// The pre-shared key that the other end has proved to know.
    pub psk: Option<ProvenPsk>,
    /// `tls-exporter` (RFC 9266). There for TLS 1.3 only: below, it is safe only with the extended master secret
    /// (RFC 9266 §4.2), of which the stacks do not tell.
    /// In a box, for a fleet of DTLS sessions has none.
    pub exporter: Option<Box<[u8; 32]>>,
    /// `tls-server-end-point` (RFC 5929 §4.1): the hash of the server's certificate.
    pub end_point: Option<Box<[u8]>>,
}

impl Channel {
    /// Of a handshake that rustls has finished.
    pub(crate) fn of_rustls(connection: &ServerConnection) -> Result<Self, CertificateError> {
        let newest = connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        let exporter = newest.then(|| connection.export_keying_material([0; 32], EXPORTER_LABEL, Some(&[])).ok());
        let suite = connection.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite()));
        let leaf = connection.peer_certificates().and_then(<[_]>::first);
        Ok(Self {
            protocol: if newest { "TLSv1.3" } else { "TLSv1.2" },
            cipher: suite.map(|name| iana_name(&name)).unwrap_or_default().into(),
            certificate: leaf.map(|leaf| ClientCertificate::parse(leaf)).transpose()?.map(Arc::new),
            psk: None,
            exporter: exporter.flatten().map(Box::new),
            end_point: None,
        })
    }

    /// Of a handshake that our DTLS has finished.
    ///
    /// # Errors
    /// The other end's certificate cannot be read; verifiers of ours let none such in.
    pub fn of_dtls(made: &fogmux_dtls::Channel) -> Result<Self, CertificateError> {
        let certificate = made.certificate.as_ref().map(|leaf| ClientCertificate::parse(leaf));
        Ok(Self {
            protocol: made.suite.protocol(),
            cipher: made.suite.name().into(),
            certificate: certificate.transpose()?.map(Arc::new),
            psk: made.psk.clone(),
            exporter: None,
            end_point: None,
        })
    }
}

impl fmt::Debug for Channel {
    /// Without the exporter, which is a secret of the channel.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("protocol", &self.protocol)
            .field("cipher", &self.cipher)
            .field("certificate", &self.certificate)
            .field("psk_identity", &self.psk.as_ref().map(|psk| String::from_utf8_lossy(&psk.identity)))
            .finish_non_exhaustive()
    }
}

/// The names in a client's certificate. The handshake has verified the certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate in DER.
    pub der: Box<[u8]>,
    /// The subject's common name; `None` if there are several, because the choice would be ambiguous.
    pub common_name: Option<Box<str>>,
    /// DNS names.
    pub dns: Vec<Box<str>>,
    /// Mail addresses.
    pub emails: Vec<Box<str>>,
    /// URIs.
    pub uris: Vec<Box<str>>,
    /// XMPP addresses: id-on-xmppAddr (RFC 6120 §13.7.1.4).
    pub xmpp_addresses: Vec<Box<str>>,
    /// The issuer's distinguished name.
    pub issuer: Box<str>,
    /// The serial number in hexadecimal digits, two for each byte.
    pub serial: Box<str>,
    /// SHA-256 of the certificate.
    pub sha256: [u8; 32],
    /// Until when it is good, in seconds since 1970.
    pub not_after_unix_s: u64,
}

/// A certificate that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the certificate cannot be read")]
pub struct CertificateError;

impl ClientCertificate {
    /// Reads a certificate, which must have been verified if anything is to be concluded from it.
    ///
    /// # Errors
    /// It is no X.509 certificate, or there is something behind it.
    pub fn parse(der: &[u8]) -> Result<Self, CertificateError> {
        let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| CertificateError)?;
        if !rest.is_empty() {
            return Err(CertificateError);
        }
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(digest(&SHA256, der).as_ref());
        let mut read = Self {
            der: der.into(),
            common_name: common_name(&certificate),
            dns: Vec::new(),
            emails: Vec::new(),
            uris: Vec::new(),
            xmpp_addresses: Vec::new(),
            issuer: certificate.issuer().to_string().into(),
            serial: hex(certificate.raw_serial()).into(),
            sha256,
            not_after_unix_s: u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or_default(),
        };
        for extension in certificate.extensions() {
            if let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() {
                names.general_names.iter().for_each(|name| read.add(name));
            }
        }
        Ok(read)
    }

    /// The name that it claims, for a log: its common name, or the beginning of its fingerprint.
    #[must_use]
    pub fn claimed(&self) -> Box<str> {
        self.common_name.clone().unwrap_or_else(|| fingerprint(&self.sha256))
    }

    fn add(&mut self, name: &GeneralName<'_>) {
        let xmpp_address;
        let (names, name) = if let GeneralName::DNSName(name) = name {
            (&mut self.dns, *name)
        } else if let GeneralName::RFC822Name(name) = name {
            (&mut self.emails, *name)
        } else if let GeneralName::URI(name) = name {
            (&mut self.uris, *name)
        } else if let GeneralName::OtherName(kind, value) = name
            && kind.as_bytes() == ID_ON_XMPP_ADDR
            && let Some(address) = utf8_string(value)
        {
            xmpp_address = address;
            (&mut self.xmpp_addresses, xmpp_address.as_str())
        } else {
            return;
        };
        if names.len() < NAMES_MAX && is_name(name) {
            names.push(name.into());
        }
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate")
            .field("common_name", &self.common_name)
            .field("issuer", &self.issuer)
            .field("serial", &self.serial)
            .finish_non_exhaustive()
    }
}

/// Where the handshake stacks find the secret of an identity. Called within a handshake: it must not block.
pub trait PskSource: Send + Sync {
    /// The pre-shared key of `identity`, if there is such, and its mark, which goes with the channel that comes of it.
    fn secret(&self, identity: &[u8]) -> Option<Psk>;

    /// Whether a key that was looked up earlier is still that of its identity.
    fn holds(&self, psk: &ProvenPsk) -> bool {
        self.secret(&psk.identity).is_some_and(|present| present.mark == psk.mark)
    }

    /// Whether there are keys at all. A source that makes up a key for an unknown identity answers this without.
    fn has_keys(&self) -> bool {
        self.secret(&[0]).is_some()
    }
}

/// Admits attempts to prove a pre-shared key in a handshake of one peer. Called within a handshake: it must not block.
pub trait PskGuard: Send + Sync {
    /// Begins an attempt at the key of `identity`, before the key is looked up; `None` if too many attempts have
    /// failed.
    fn begin(&self, identity: &[u8]) -> Option<Box<dyn PskAttempt>>;
}

/// An attempt to prove a pre-shared key. One that is dropped without a proof has failed.
pub trait PskAttempt: Send + Sync {
    /// The peer has proven that it knows the key.
    fn proven(&self);
}

/// The name that a certificate claims, for a log: its common name, or the beginning of its fingerprint. It need not be
/// verified.
#[must_use]
pub(crate) fn claimed_by(der: &[u8]) -> Box<str> {
    let read = X509Certificate::from_der(der).ok().and_then(|(_, certificate)| common_name(&certificate));
    // A common name cannot pass for a fingerprint.
    read.filter(|name| !name.starts_with(OF_FINGERPRINT)).unwrap_or_else(|| fingerprint(digest(&SHA256, der).as_ref()))
}

const OF_FINGERPRINT: &str = "sha256:";

fn fingerprint(sha256: &[u8]) -> Box<str> {
    let beginning = sha256.get(..FINGERPRINT).unwrap_or(sha256);
    format!("{OF_FINGERPRINT}{}", hex(beginning)).into()
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // A string takes everything.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn common_name(certificate: &X509Certificate<'_>) -> Option<Box<str>> {
    let mut names = certificate.subject().iter_common_name();
    let (only, more) = (names.next()?, names.next());
    let name = only.as_str().ok().filter(|name| more.is_none() && is_name(name))?;
    Some(name.into())
}

/// Nothing that ends a string early elsewhere, or that a log would obey.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(char::is_control)
}

/// The value of an otherName: `[0] EXPLICIT UTF8String`.
fn utf8_string(value: &[u8]) -> Option<String> {
    let (rest, tagged) = TaggedExplicit::<Any<'_>, x509_parser::asn1_rs::Error, 0>::from_der(value).ok()?;
    let inner = tagged.into_inner();
    let fits = rest.is_empty() && inner.tag() == Tag::Utf8String;
    fits.then(|| std::str::from_utf8(inner.data).ok().map(str::to_owned)).flatten()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, OtherNameValue, SanType};

    use super::*;

    fn made(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn every_kind_of_name_is_found() {
        let der = made(|params| {
            params.distinguished_name.push(DnType::CommonName, "boiler");
            params.serial_number = Some(rcgen::SerialNumber::from_slice(&[0x0a, 0x01]));
            params.subject_alt_names = vec![
                SanType::DnsName("boiler.example".try_into().unwrap()),
                SanType::Rfc822Name("boiler@example.org".try_into().unwrap()),
                SanType::URI("urn:dev:mac:0024befffe804ff1".try_into().unwrap()),
                SanType::OtherName((vec![1, 3, 6, 1, 5, 5, 7, 8, 5], OtherNameValue::from("boiler@localhost"))),
                SanType::OtherName((vec![1, 3, 6, 1, 4, 1, 311, 20, 2, 3], OtherNameValue::from("somebody@else"))),
            ];
        });
        let read = ClientCertificate::parse(&der).unwrap();
        assert_eq!(read.common_name.as_deref(), Some("boiler"));
        assert_eq!(read.dns, ["boiler.example".into()]);
        assert_eq!(read.emails, ["boiler@example.org".into()]);
        assert_eq!(read.uris, ["urn:dev:mac:0024befffe804ff1".into()]);
        assert_eq!(read.xmpp_addresses, ["boiler@localhost".into()]);
        assert_eq!(&*read.serial, "0a01");
        assert_eq!(&*read.der, &*der);
    }

    #[test]
    fn names_that_could_be_taken_for_others_are_left_out() {
        let der = made(|params| {
            params.distinguished_name.push(DnType::CommonName, "admin\0.example");
            params.subject_alt_names =
                vec![SanType::OtherName((vec![1, 3, 6, 1, 5, 5, 7, 8, 5], OtherNameValue::from("admin@localhost\n")))];
        });
        let read = ClientCertificate::parse(&der).unwrap();
        assert_eq!((read.common_name, read.xmpp_addresses), (None, Vec::new()));
    }

    #[test]
    fn any_bytes_are_an_error_or_a_certificate() {
        let der = made(|params| params.distinguished_name.push(DnType::CommonName, "x"));
        for length in 0..der.len() {
            assert_eq!(ClientCertificate::parse(&der[..length]), Err(CertificateError));
        }
        for place in 0..der.len() {
            let mut other = der.clone();
            other[place] ^= 0x5a;
            let _ = ClientCertificate::parse(&other);
        }
        let mut longer = der.clone();
        longer.push(0);
        assert_eq!(ClientCertificate::parse(&longer), Err(CertificateError));
    }
}
