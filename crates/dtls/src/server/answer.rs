//! The flight that answers a ClientHello, and what it is chosen by (RFC 5246 §7.4).

use std::sync::Arc;

use rustls::{
    pki_types::CertificateDer,
    server::danger::ClientCertVerifier,
    sign::{CertifiedKey, Signer},
};

use crate::{
    Alert, Credentials, Suite,
    exchange::{self, Ephemeral, Group},
    hello::{ClientHello, extension},
    limit::RecordLimit,
    prf::Randoms,
    suite::Exchange,
    wire::{self, Cid, DTLS_1_2, Reader, message},
};

/// Bytes of names of authorities in a CertificateRequest; more would not help a device to choose.
const AUTHORITIES_MAX: usize = 1024;

/// The parameters in common with a client.
pub(super) enum Chosen {
    Psk(Suite),
    EcdhePsk(Suite, Group),
    Certificate { suite: Suite, group: Group, key: Arc<CertifiedKey>, signer: Box<dyn Signer> },
}

/// The first of our suites that the client offers and that we have what it takes for.
pub(super) fn choose(credentials: &dyn Credentials, suites: &[Suite], hello: &ClientHello<'_>) -> Option<Chosen> {
    let offered = |suite: &&Suite| Reader(hello.suites).numbers().any(|number| number == suite.number());
    let mut key = None;
    // Without a credential it would be nobody's: only keys are left.
    let certificates = || credentials.admits_anonymous() || credentials.client_verifier().is_some();
    for suite in suites.iter().filter(offered).copied() {
        match suite.exchange() {
            Exchange::Psk if credentials.has_psk() => return Some(Chosen::Psk(suite)),
            Exchange::EcdhePsk if credentials.has_psk() => {
                if let Some(group) = Group::choose(hello.groups) {
                    return Some(Chosen::EcdhePsk(suite, group));
                }
            }
            Exchange::Psk | Exchange::EcdhePsk => {}
            Exchange::EcdheEcdsa | Exchange::EcdheRsa if !certificates() => {}
            Exchange::EcdheEcdsa | Exchange::EcdheRsa => {
                let key = key.get_or_insert_with(|| credentials.certified_key());
                let Some(certified) = key.as_ref().filter(|key| exchange_of(key) == Some(suite.exchange())) else {
                    continue;
                };
                let signer = certified.key.choose_scheme(&exchange::schemes(hello.schemes));
                if let (Some(signer), Some(group)) = (signer, Group::choose(hello.groups)) {
                    return Some(Chosen::Certificate { suite, group, key: Arc::clone(certified), signer });
                }
            }
        }
    }
    None
}

/// The key exchange that goes with a certificate.
fn exchange_of(key: &CertifiedKey) -> Option<Exchange> {
    let algorithm = key.key.algorithm();
    // RFC 8422 §5.10: Ed25519 goes with the suites of ECDSA.
    if [rustls::SignatureAlgorithm::ECDSA, rustls::SignatureAlgorithm::ED25519].contains(&algorithm) {
        Some(Exchange::EcdheEcdsa)
    } else if algorithm == rustls::SignatureAlgorithm::RSA {
        Some(Exchange::EcdheRsa)
    } else {
        None
    }
}

/// The flight that answers a ClientHello.
pub(super) struct Answer {
    pub(super) messages: Vec<u8>,
    pub(super) sequence: u16,
}

impl Answer {
    pub(super) fn put(&mut self, kind: u8, body: &[u8]) {
        wire::put_message(&mut self.messages, kind, self.sequence, body);
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// RFC 5246 §7.4.1.3. The session has no name: it is not resumed.
    pub(super) fn server_hello(&mut self, suite: Suite, randoms: &Randoms, hello: &ClientHello<'_>, cid: Option<&Cid>) {
        let mut body = DTLS_1_2.to_be_bytes().to_vec();
        body.extend_from_slice(&randoms.server);
        wire::put_vector8(&mut body, &[]);
        body.extend_from_slice(&suite.number().to_be_bytes());
        body.push(0);
        let mut extensions = Vec::new();
        if hello.renegotiation_info {
            wire::put_extension(&mut extensions, extension::RENEGOTIATION_INFO, &[0]);
        }
        if hello.extended_master_secret {
            wire::put_extension(&mut extensions, extension::EXTENDED_MASTER_SECRET, &[]);
        }
        if hello.point_formats && suite.exchange() != Exchange::Psk {
            // RFC 8422 §5.2: uncompressed.
            wire::put_extension(&mut extensions, extension::EC_POINT_FORMATS, &[1, 0]);
        }
        if let Some(cid) = cid {
            let mut vector = Vec::with_capacity(1 + cid.len());
            wire::put_vector8(&mut vector, cid);
            wire::put_extension(&mut extensions, extension::CONNECTION_ID, &vector);
        }
        if hello.record_limit.is_some() {
            RecordLimit::V12.put(&mut extensions);
        }
        if !extensions.is_empty() {
            wire::put_vector16(&mut body, &extensions);
        }
        self.put(message::SERVER_HELLO, &body);
    }

    pub(super) fn certificate(&mut self, chain: &[CertificateDer<'_>]) {
        let body = certificate_body(chain);
        self.put(message::CERTIFICATE, &body);
    }

    /// RFC 5489 §2: no hint, and nothing is signed.
    pub(super) fn server_key_exchange_psk(&mut self, group: Group, ephemeral: &Ephemeral) {
        let mut body = vec![0, 0];
        put_parameters(&mut body, group, ephemeral);
        self.put(message::SERVER_KEY_EXCHANGE, &body);
    }

    /// RFC 8422 §5.4.
    pub(super) fn server_key_exchange(
        &mut self,
        randoms: &Randoms,
        group: Group,
        ephemeral: &Ephemeral,
        signer: &dyn Signer,
    ) -> Result<(), Alert> {
        let mut signed = [randoms.client, randoms.server].concat();
        put_parameters(&mut signed, group, ephemeral);
        let signature = signer.sign(&signed).map_err(|_| Alert::InternalError)?;
        let mut body = signed.split_off(64);
        body.extend_from_slice(&u16::from(signer.scheme()).to_be_bytes());
        wire::put_vector16(&mut body, &signature);
        self.put(message::SERVER_KEY_EXCHANGE, &body);
        Ok(())
    }

    /// RFC 5246 §7.4.4.
    pub(super) fn certificate_request(&mut self, verifier: &dyn ClientCertVerifier) {
        // ecdsa_sign (RFC 8422 §5.5), rsa_sign
        let mut body = vec![2, 64, 1];
        let schemes: Vec<u8> = exchange::SCHEMES.iter().flat_map(|scheme| u16::from(*scheme).to_be_bytes()).collect();
        wire::put_vector16(&mut body, &schemes);
        let mut authorities = Vec::new();
        for name in verifier.root_hint_subjects() {
            if authorities.len() + name.as_ref().len() <= AUTHORITIES_MAX {
                wire::put_vector16(&mut authorities, name.as_ref());
            }
        }
        wire::put_vector16(&mut body, &authorities);
        self.put(message::CERTIFICATE_REQUEST, &body);
    }
}

/// RFC 8422 §5.4: a named_curve, and our point on it.
fn put_parameters(out: &mut Vec<u8>, group: Group, ephemeral: &Ephemeral) {
    out.push(3);
    out.extend_from_slice(&group.number().to_be_bytes());
    wire::put_vector8(out, ephemeral.public());
}

/// RFC 5246 §7.4.2.
pub(crate) fn certificate_body(chain: &[CertificateDer<'_>]) -> Vec<u8> {
    let mut list = Vec::new();
    chain.iter().for_each(|certificate| wire::put_vector24(&mut list, certificate));
    let mut body = Vec::with_capacity(3 + list.len());
    wire::put_vector24(&mut body, &list);
    body
}
