//! The keys of a handshake: out of a pre-shared key, a key exchange, or both.

use zeroize::Zeroizing;

use super::{Handshake, Secrets};
use crate::{Alert, exchange::Ephemeral, platform::Host, prf, wire::Reader};

/// RFC 4279 §5.3: identities of 128 bytes must be possible; longer ones are nobody's.
const IDENTITY_MAX: usize = 255;

impl Handshake {
    /// The premaster secret, by what a ClientKeyExchange says (RFC 4279 §2, RFC 5489 §2, RFC 8422 §5.7).
    pub(super) fn premaster(
        &mut self,
        host: Host<'_>,
        ephemeral: Option<Ephemeral>,
        body: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Alert> {
        let mut reader = Reader(body);
        let identity = match self.suite.is_psk() {
            true => Some(reader.vector16().ok_or(Alert::DecodeError)?),
            false => None,
        };
        let point = ephemeral.is_some().then(|| reader.vector8().ok_or(Alert::DecodeError)).transpose()?;
        if !reader.is_empty() {
            return Err(Alert::DecodeError);
        }
        let key = identity.map(|identity| self.key_of(host, identity)).transpose()?;
        let agreed = ephemeral.zip(point).map(|(ephemeral, point)| ephemeral.agree(point)).transpose()?;
        match (key, agreed) {
            (Some(key), agreed) => Ok(prf::psk_premaster(&key, agreed.as_ref().map(|agreed| &agreed[..]))),
            (None, Some(agreed)) => Ok(agreed),
            (None, None) => Err(Alert::InternalError),
        }
    }

    /// The key of the identity that the client has named.
    fn key_of(&mut self, host: Host<'_>, identity: &[u8]) -> Result<Zeroizing<Vec<u8>>, Alert> {
        if identity.len() > IDENTITY_MAX {
            return Err(Alert::IllegalParameter);
        }
        if host.credentials.must_wait(self.from, identity) {
            self.too_early = true;
            return Err(Alert::InternalError);
        }
        self.identity = Some(identity.into());
        match host.credentials.psk(self.from, identity).filter(|psk| !psk.key.is_empty()) {
            Some(psk) => {
                self.mark = psk.mark;
                Ok(psk.key)
            }
            // RFC 4279 §2 allows it: to whom we do not know it looks as if the key were wrong.
            None => {
                let mut nobody = Zeroizing::new(vec![0; 16]);
                host.platform.fill(&mut nobody)?;
                Ok(nobody)
            }
        }
    }

    pub(super) fn secrets(&self, premaster: &[u8]) -> Secrets {
        let session_hash = self.extended_master_secret.then_some(self.transcript.as_slice());
        let master = prf::master_secret(premaster, &self.randoms, session_hash);
        let (read, write) = prf::keys(self.suite, &master, &self.randoms);
        Secrets { master, read, write }
    }
}
