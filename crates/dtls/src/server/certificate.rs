//! The client's certificate, and the credential of a handshake that fails.

use super::{Chain, Handshake, State};
use crate::{Alert, Refused, exchange, platform::Host, refused};

impl Handshake {
    /// The client's certificate and its chain when they hold; nothing when it has none and need not.
    pub(super) fn verified_chain(&mut self, host: Host<'_>, body: &[u8]) -> Result<Chain, Alert> {
        let verifier = self.verifier.clone().ok_or(Alert::UnexpectedMessage)?;
        let chain = exchange::chain(body).ok_or(Alert::DecodeError)?;
        // RFC 5246 §7.4.6.
        refused::check_chain(&*verifier, host, &chain, Alert::HandshakeFailure).map_err(|(alert, refused)| {
            self.refused = refused.map(Box::new);
            alert
        })?;
        Ok(chain)
    }

    /// Notes the credential for which the handshake fails.
    pub(super) fn refuse(&mut self, refused: Refused) {
        self.refused = Some(Box::new(refused));
    }

    /// The credential of a handshake that has failed: the identity that the client has named, right or wrong, or its
    /// certificate.
    pub(crate) fn take_refused(&mut self) -> Option<Refused> {
        let chain = match &self.state {
            State::CertificateVerify { chain, .. } | State::Finished { chain, .. } if self.doubt.is_some() => {
                &chain[..]
            }
            State::CertificateVerify { .. }
            | State::Finished { .. }
            | State::Certificate(_)
            | State::ClientKeyExchange { .. }
            | State::Over => &[],
        };
        let identity = self.identity.take().map(Refused::Identity);
        identity.or(self.refused.take().map(|refused| *refused)).or(chain.first().cloned().map(Refused::Unproven))
    }
}
