//! The client's certificate, and the credential of a handshake that fails.

use super::{Chain, Handshake, State};
use crate::{Alert, Refused, exchange, platform::Host};

impl Handshake {
    /// The client's certificate and its chain when they hold; nothing when it has none and need not.
    pub(super) fn verified_chain(&mut self, host: Host<'_>, body: &[u8]) -> Result<Chain, Alert> {
        let verifier = self.verifier.clone().ok_or(Alert::UnexpectedMessage)?;
        let chain = exchange::chain(body).ok_or(Alert::DecodeError)?;
        match chain.split_first() {
            // RFC 5246 §7.4.6.
            None if verifier.client_auth_mandatory() || !host.credentials.admits_anonymous() => {
                self.refuse(Refused::NoCertificate);
                Err(Alert::HandshakeFailure)
            }
            None => Ok(chain),
            Some((leaf, intermediates)) => {
                match verifier.verify_client_cert(leaf, intermediates, host.platform.unix_time()?) {
                    Ok(_) => Ok(chain),
                    Err(error) => {
                        let alert = exchange::alert_of(&error);
                        self.refuse(Refused::Certificate(leaf.clone(), error));
                        Err(alert)
                    }
                }
            }
        }
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
