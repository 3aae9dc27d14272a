//! The server's proof of identity, and the flight that carries it (RFC 8446 §4.1.3, §4.3, §4.4).

use std::{net::IpAddr, sync::Arc};

use rustls::{
    server::danger::ClientCertVerifier,
    sign::{CertifiedKey, Signer},
};
use zeroize::Zeroizing;

use super::Refusal;
use crate::{
    Alert, Platform, ProvenPsk,
    exchange::{self, Ephemeral, Group},
    hello::{ClientHello, Verified, extension},
    limit::RecordLimit,
    platform::Host,
    prf::Side,
    v13::{
        Retry,
        certificates::{SCHEMES, certificate_body, signed},
        hello::{self, share},
        schedule::{self, Early, Hash, Stage, Transcript},
    },
    wire::{self, Cid, DTLS_1_3, Reader, message},
};

/// RFC 4279 §5.3: identities of 128 bytes must be possible; longer ones are nobody's.
const IDENTITY_MAX: usize = 255;
/// Identities of one ClientHello that are looked at.
const IDENTITIES_MAX: usize = 4;
/// Bytes of names of authorities in a CertificateRequest; more would not help a device to choose.
const AUTHORITIES_MAX: usize = 1024;
/// RFC 8446 §4.2.11: bytes of the shortest binder.
const BINDER_MIN: usize = 32;
/// RFC 8446 §4.2.9.
pub(in crate::v13) const PSK_KE: u8 = 0;
pub(in crate::v13) const PSK_DHE_KE: u8 = 1;

/// The parameters in common with a client.
pub(super) enum Proof<'a> {
    /// An external key, with a key exchange unless the client wants none.
    Psk {
        early: Early,
        index: u16,
        proven: ProvenPsk,
        share: Option<Share<'a>>,
        /// Other identities that were offered, whose binders did not hold.
        refused: Identities,
    },
    Certificate {
        key: Arc<CertifiedKey>,
        signer: Box<dyn Signer>,
        share: Share<'a>,
    },
}

/// Identities of pre-shared keys.
pub(crate) type Identities = Vec<Box<[u8]>>;

/// A client's half of a key exchange.
type Share<'a> = (Group, &'a [u8]);

impl<'a> Proof<'a> {
    /// A key that the client names before a certificate: who has one would with a certificate be nobody in particular.
    pub(super) fn choose(
        host: Host<'_>,
        from: IpAddr,
        verified: &Verified<'a>,
        retry: &Retry,
    ) -> Result<Self, Refusal> {
        let hello = &verified.hello;
        let share = share_of(hello, retry)?;
        if let (true, Some(offered), Some(modes)) = (host.credentials.has_psk(), hello.psks, hello.psk_modes) {
            return psk(host, from, verified, retry, &offered, modes, share);
        }
        // Without a credential the client would be nobody's.
        if !host.credentials.admits_anonymous() && host.credentials.client_verifier().is_none() {
            return Err(Alert::HandshakeFailure.into());
        }
        let key = host.credentials.certified_key().ok_or(Alert::HandshakeFailure)?;
        // RFC 8446 §9.2.
        let schemes = hello.schemes.ok_or(Alert::MissingExtension)?;
        let offered: Vec<_> = exchange::schemes(Some(schemes)).into_iter().filter(|at| SCHEMES.contains(at)).collect();
        let signer = key.key.choose_scheme(&offered).ok_or(Alert::HandshakeFailure)?;
        let share = share.ok_or(Alert::HandshakeFailure)?;
        Ok(Self::Certificate { key, signer, share })
    }

    pub(super) const fn is_certificate(&self) -> bool {
        matches!(self, Self::Certificate { .. })
    }

    /// The key that the client has proved to have, and the identities of which it has not.
    pub(super) fn take_keys(&mut self) -> (Option<ProvenPsk>, Identities) {
        match self {
            Self::Psk { proven, refused, .. } => {
                let identity = std::mem::take(&mut proven.identity);
                (Some(ProvenPsk { identity, mark: proven.mark }), std::mem::take(refused))
            }
            Self::Certificate { .. } => (None, Identities::new()),
        }
    }
}

/// The client's share: in the group that it was asked for, if it was.
fn share_of<'a>(hello: &ClientHello<'a>, retry: &Retry) -> Result<Option<Share<'a>>, Alert> {
    let Some(shares) = hello.key_shares else { return Ok(None) };
    let found = share(shares).ok_or(Alert::DecodeError)?;
    match (retry.group, found) {
        // RFC 8446 §4.2.8: then there is one share, and it is that.
        (Some(asked), Some((group, _))) if asked != group => Err(Alert::IllegalParameter),
        (_, found) => Ok(found),
    }
}

/// Takes the first identity whose binder is made by its key. Each is tried, known or not, so that neither the answer
/// nor the time tells which of them are known, wherever they stand (RFC 8446 appendix E.6). §4.2.11 would have a server
/// look at one binder only; then a client that offers a key of its own beside another's learned whether that is known.
fn psk<'a>(
    host: Host<'_>,
    from: IpAddr,
    verified: &Verified<'_>,
    retry: &Retry,
    offered: &Psks<'_>,
    modes: &[u8],
    share: Option<Share<'a>>,
) -> Result<Proof<'a>, Refusal> {
    // §4.2.9: with a key exchange wherever the client has one.
    let share = match share {
        Some(share) if modes.contains(&PSK_DHE_KE) => Some(share),
        Some(_) | None if modes.contains(&PSK_KE) => None,
        Some(_) | None => return Err(Alert::HandshakeFailure.into()),
    };
    let offered_at_first = || (0_u16..).zip(offered.each()).take(IDENTITIES_MAX);
    if offered_at_first().any(|(_, (identity, _))| host.credentials.must_wait(from, identity)) {
        return Err(Refusal::TooEarly);
    }
    let mut transcript = after_retry(verified, retry);
    let body = body_of(verified);
    let part = body.len().checked_sub(offered.binders_len).and_then(|end| body.get(..end));
    transcript.add_part(message::CLIENT_HELLO, body.len(), part.ok_or(Alert::DecodeError)?);
    let hash = transcript.hash();
    let (mut chosen, mut refused) = (None, Vec::new());
    for (index, (identity, binder)) in offered_at_first() {
        let (early, known) = early_of(host, from, identity)?;
        let right = bool::from(subtle::ConstantTimeEq::ct_eq(&early.binder(&hash)[..], binder));
        if let (true, Some(mark), None) = (right, known, &chosen) {
            chosen = Some((early, index, ProvenPsk { identity: identity.into(), mark }));
        } else if !right {
            let identity: Box<[u8]> = identity.get(..identity.len().min(IDENTITY_MAX)).unwrap_or_default().into();
            host.credentials.wrong_key(from, &identity);
            refused.push(identity);
        }
    }
    match chosen {
        Some((early, index, proven)) => Ok(Proof::Psk { early, index, proven, share, refused }),
        None => Err(Refusal::Alert(Alert::DecryptError, refused)),
    }
}

/// The secret of an identity's key, and the key's mark if it is known. Otherwise it is that of nobody's key, so that
/// what follows takes as long.
fn early_of(host: Host<'_>, from: IpAddr, identity: &[u8]) -> Result<(Early, Option<u64>), Alert> {
    let psk = Some(identity).filter(|identity| identity.len() <= IDENTITY_MAX);
    let psk = psk.and_then(|identity| host.credentials.psk(from, identity)).filter(|psk| !psk.key.is_empty());
    let mut nobody = Zeroizing::new([0; 32]);
    host.platform.fill(nobody.as_mut())?;
    Ok((Early::new(Some(psk.as_ref().map_or(&nobody[..], |psk| &psk.key[..]))), psk.map(|psk| psk.mark)))
}

fn body_of<'a>(verified: &Verified<'a>) -> &'a [u8] {
    verified.message.get(wire::HANDSHAKE_HEADER..).unwrap_or_default()
}

/// The transcript before the second ClientHello.
fn after_retry(verified: &Verified<'_>, retry: &Retry) -> Transcript {
    let cookie = verified.hello.retry_cookie.unwrap_or_default();
    Transcript::after_retry(&retry.first, &retry.body(cookie))
}

/// The offer of a client by `pre_shared_key` (RFC 8446 §4.2.11), well formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Psks<'a> {
    identities: &'a [u8],
    binders: &'a [u8],
    /// Bytes at the end of the ClientHello that binders do not cover: themselves.
    binders_len: usize,
}

impl<'a> Psks<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, Alert> {
        let (psks, identities, binders) = Self::counted(body).ok_or(Alert::DecodeError)?;
        if identities == binders { Ok(psks) } else { Err(Alert::IllegalParameter) }
    }

    /// With the numbers of both.
    fn counted(body: &'a [u8]) -> Option<(Self, usize, usize)> {
        let mut reader = Reader(body);
        let identities = reader.vector16().filter(|list| !list.is_empty())?;
        let binders_len = reader.0.len();
        let binders = reader.vector16().filter(|list| reader.is_empty() && !list.is_empty())?;
        let (mut names, mut codes) = (Reader(identities), Reader(binders));
        let (mut names_count, mut codes_count) = (0, 0);
        while !names.is_empty() {
            names.vector16().filter(|name| !name.is_empty())?;
            names.take(4)?;
            names_count += 1;
        }
        while !codes.is_empty() {
            codes.vector8().filter(|code| code.len() >= BINDER_MIN)?;
            codes_count += 1;
        }
        Some((Self { identities, binders, binders_len }, names_count, codes_count))
    }

    /// Identities and their binders.
    fn each(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let (mut names, mut codes) = (Reader(self.identities), Reader(self.binders));
        std::iter::from_fn(move || {
            let name = names.vector16()?;
            // The age of a ticket; an external key has none.
            names.take(4)?;
            Some((name, codes.vector8()?))
        })
    }
}

/// The flight, and what follows from it.
pub(super) struct Answer {
    pub(super) messages: Vec<u8>,
    /// Of our next message.
    pub(super) sequence: u16,
    pub(super) transcript: Transcript,
    /// The transcript's hash with ServerHello.
    pub(super) at_server_hello: Hash,
    pub(super) stage: Stage,
    pub(super) master: Stage,
}

impl Answer {
    pub(super) fn make(
        platform: &Platform,
        verified: &Verified<'_>,
        retry: &Retry,
        proof: Proof<'_>,
        verifier: Option<&dyn ClientCertVerifier>,
        cid: Option<&Cid>,
    ) -> Result<Self, Alert> {
        let mut transcript = after_retry(verified, retry);
        transcript.add(message::CLIENT_HELLO, body_of(verified));
        let (share, early, psk, certificate) = match proof {
            Proof::Psk { early, index, share, .. } => (share, early, Some(index), None),
            Proof::Certificate { key, signer, share } => (Some(share), Early::new(None), None, Some((key, signer))),
        };
        let mut extensions = Vec::with_capacity(128);
        wire::put_extension(&mut extensions, extension::SUPPORTED_VERSIONS, &DTLS_1_3.to_be_bytes());
        let agreed = match share {
            Some((group, point)) => {
                let ephemeral = Ephemeral::generate(platform, group)?;
                let mut entry = group.number().to_be_bytes().to_vec();
                wire::put_vector16(&mut entry, ephemeral.public());
                wire::put_extension(&mut extensions, extension::KEY_SHARE, &entry);
                Some(ephemeral.agree(point)?)
            }
            None => None,
        };
        if let Some(cid) = cid {
            let mut vector = Vec::with_capacity(1 + cid.len());
            wire::put_vector8(&mut vector, cid);
            wire::put_extension(&mut extensions, extension::CONNECTION_ID, &vector);
        }
        if let Some(index) = psk {
            wire::put_extension(&mut extensions, extension::PRE_SHARED_KEY, &index.to_be_bytes());
        }
        let mut random = [0; 32];
        platform.fill(&mut random)?;
        let stage = early.handshake(agreed.as_ref().map(|agreed| &agreed[..]));
        let master = stage.master();
        let (messages, sequence) = (Vec::with_capacity(256), verified.message_sequence);
        let mut answer = Self { messages, sequence, transcript, at_server_hello: [0; 32], stage, master };
        answer.put(message::SERVER_HELLO, &hello::server_hello(&random, retry.suite, &extensions));
        answer.at_server_hello = answer.transcript.hash();
        answer.put(message::ENCRYPTED_EXTENSIONS, &encrypted_extensions(&verified.hello));
        if let Some((key, signer)) = certificate {
            if let Some(verifier) = verifier {
                answer.put(message::CERTIFICATE_REQUEST, &certificate_request(verifier));
            }
            answer.put(message::CERTIFICATE, &certificate_body(&key.cert));
            let signature = signer.sign(&signed(Side::Server, &answer.transcript.hash()));
            let mut body = u16::from(signer.scheme()).to_be_bytes().to_vec();
            wire::put_vector16(&mut body, &signature.map_err(|_| Alert::InternalError)?);
            answer.put(message::CERTIFICATE_VERIFY, &body);
        }
        let secret = answer.stage.traffic(Side::Server, &answer.at_server_hello);
        answer.put(message::FINISHED, &schedule::finished(&secret, &answer.transcript.hash()));
        Ok(answer)
    }

    fn put(&mut self, kind: u8, body: &[u8]) {
        wire::put_message(&mut self.messages, kind, self.sequence, body);
        self.sequence = self.sequence.wrapping_add(1);
        self.transcript.add(kind, body);
    }
}

/// RFC 8446 §4.3.1; of what a client may ask for, RFC 8449 §4 has its answer here.
fn encrypted_extensions(hello: &ClientHello<'_>) -> Vec<u8> {
    let (mut extensions, mut body) = (Vec::new(), Vec::new());
    if hello.record_limit.is_some() {
        RecordLimit::V13.put(&mut extensions);
    }
    wire::put_vector16(&mut body, &extensions);
    body
}

/// RFC 8446 §4.3.2.
fn certificate_request(verifier: &dyn ClientCertVerifier) -> Vec<u8> {
    let mut extensions = Vec::new();
    let schemes: Vec<u8> = SCHEMES.iter().flat_map(|scheme| u16::from(*scheme).to_be_bytes()).collect();
    let mut list = Vec::with_capacity(2 + schemes.len());
    wire::put_vector16(&mut list, &schemes);
    wire::put_extension(&mut extensions, extension::SIGNATURE_ALGORITHMS, &list);
    let mut authorities = Vec::new();
    for name in verifier.root_hint_subjects() {
        if authorities.len() + name.as_ref().len() <= AUTHORITIES_MAX {
            wire::put_vector16(&mut authorities, name.as_ref());
        }
    }
    if !authorities.is_empty() {
        let mut list = Vec::with_capacity(2 + authorities.len());
        wire::put_vector16(&mut list, &authorities);
        wire::put_extension(&mut extensions, extension::CERTIFICATE_AUTHORITIES, &list);
    }
    let mut body = vec![0];
    wire::put_vector16(&mut body, &extensions);
    body
}
