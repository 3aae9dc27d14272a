//! A server's certificate and key exchange in DTLS 1.2, and the flight that answers them (RFC 5246 §7.4).

use rustls::pki_types::CertificateDer;
use zeroize::Zeroizing;

use super::{Agreed, CLIENT_RANDOM, Handshake, Sent};
use crate::{
    Alert,
    exchange::{self, Ephemeral, Group},
    flight::Flight,
    prf::{self, Side},
    protection::Window,
    server::certificate_body,
    session::Session,
    suite::Exchange,
    wire::{self, Reader, message},
};

impl Handshake {
    pub(super) fn verified_leaf(&self, body: &[u8]) -> Result<CertificateDer<'static>, Alert> {
        let (verifier, name) = self.config.server.as_ref().ok_or(Alert::UnexpectedMessage)?;
        let mut chain = exchange::chain(body).ok_or(Alert::DecodeError)?.into_iter();
        let leaf = chain.next().ok_or(Alert::BadCertificate)?;
        let intermediates: Vec<_> = chain.collect();
        verifier
            .verify_server_cert(&leaf, &intermediates, name, &[], self.platform.unix_time()?)
            .map_err(|error| exchange::alert_of(&error))?;
        Ok(leaf)
    }

    /// RFC 8422 §5.4: group and point of the server, signed with its certificate's key; behind a hint and not signed
    /// with a pre-shared key (RFC 5489 §2).
    pub(super) fn server_key(&self, agreed: &Agreed, body: &[u8]) -> Result<Option<(Group, Vec<u8>)>, Alert> {
        let mut reader = Reader(body);
        let is_psk = agreed.suite.is_psk();
        if is_psk {
            reader.vector16().ok_or(Alert::DecodeError)?;
        }
        // RFC 4279 §2: the hint is all, and we have no use for it.
        if agreed.suite.exchange() == Exchange::Psk {
            return reader.is_empty().then_some(None).ok_or(Alert::DecodeError);
        }
        let (curve_type, group) = reader.u8().zip(reader.u16()).ok_or(Alert::DecodeError)?;
        let offered = Group::parse(group).filter(|group| curve_type == 3 && self.config.groups.contains(group));
        let group = offered.ok_or(Alert::IllegalParameter)?;
        let point = reader.vector8().ok_or(Alert::DecodeError)?;
        if is_psk {
            return reader.is_empty().then(|| Some((group, point.to_vec()))).ok_or(Alert::DecodeError);
        }
        let parameters = body.get(..4 + point.len()).ok_or(Alert::DecodeError)?;
        let scheme = reader.u16().ok_or(Alert::DecodeError)?;
        let signature = reader.vector16().filter(|_| reader.is_empty()).ok_or(Alert::DecodeError)?;
        let leaf = agreed.leaf.as_ref().ok_or(Alert::InternalError)?;
        if !exchange::goes_with(scheme, agreed.suite.exchange()) {
            return Err(Alert::IllegalParameter);
        }
        let signed = [&self.randoms.client[..], &self.randoms.server, parameters].concat();
        exchange::verify(leaf, scheme, &signed, signature)?;
        Ok(Some((group, point.to_vec())))
    }

    /// Makes the last flight.
    pub(super) fn answer(&mut self, agreed: Agreed) -> Result<Sent, Alert> {
        let mut messages = Vec::new();
        let mut signer = None;
        if let Some(schemes) = &agreed.asked {
            let key = self.config.certified_key.clone();
            let able = key.and_then(|key| key.key.choose_scheme(schemes).map(|signer| (key, signer)));
            let body = certificate_body(able.as_ref().map_or(&[], |(key, _)| &key.cert));
            self.put(&mut messages, message::CERTIFICATE, &body);
            signer = able.map(|(_, signer)| signer);
        }
        let mut body = Vec::new();
        let psk = self.config.psk.as_ref().filter(|_| agreed.suite.is_psk());
        if let Some(psk) = psk {
            wire::put_vector16(&mut body, &psk.identity);
        }
        let mut shared = None;
        if let Some((group, point)) = &agreed.ephemeral {
            let ours = Ephemeral::generate(&self.platform, *group)?;
            wire::put_vector8(&mut body, ours.public());
            shared = Some(ours.agree(point)?);
        }
        let premaster = match (psk, shared) {
            (Some(psk), shared) => prf::psk_premaster(&psk.key, shared.as_ref().map(|shared| &shared[..])),
            (None, Some(shared)) => shared,
            (None, None) => return Err(Alert::UnexpectedMessage),
        };
        self.put(&mut messages, message::CLIENT_KEY_EXCHANGE, &body);
        let sent = self.sent(agreed, &premaster);
        if let Some(signer) = signer {
            let signature = signer.sign(&self.transcript).map_err(|_| Alert::InternalError)?;
            let mut body = u16::from(signer.scheme()).to_be_bytes().to_vec();
            wire::put_vector16(&mut body, &signature);
            self.put(&mut messages, message::CERTIFICATE_VERIFY, &body);
        }
        let ours = prf::verify_data(&sent.master, Side::Client, &self.transcript);
        let mut finished = Vec::new();
        self.put(&mut finished, message::FINISHED, &ours);
        self.flight = Flight::new(messages, self.limit);
        Ok(Sent { finished, ..sent })
    }

    fn sent(&mut self, agreed: Agreed, premaster: &Zeroizing<Vec<u8>>) -> Sent {
        let session_hash = agreed.extended_master_secret.then_some(self.transcript.as_slice());
        let master = prf::master_secret(premaster, &self.randoms, session_hash);
        if let Some(log) = &self.config.key_log {
            log.log(CLIENT_RANDOM, &self.randoms.client, master.as_ref());
        }
        let (write, read) = prf::keys(agreed.suite, &master, &self.randoms);
        let mut session = Session::new(read, write, Window::default(), 0);
        session.identify(self.identifiers.take());
        session.limit_to(self.limit);
        Sent { agreed, master, session, finished: Vec::new() }
    }
}

/// The schemes that a CertificateRequest takes (RFC 5246 §7.4.4).
pub(super) fn asked(body: &[u8]) -> Result<Vec<rustls::SignatureScheme>, Alert> {
    let mut reader = Reader(body);
    let (_, schemes) = reader.vector8().zip(reader.vector16()).ok_or(Alert::DecodeError)?;
    // Authorities, of which we have one certificate at most anyway.
    let is_whole = reader.vector16().is_some() && reader.is_empty() && schemes.len().is_multiple_of(2);
    is_whole.then(|| exchange::schemes(Some(schemes))).ok_or(Alert::DecodeError)
}
