//! SASL (RFC 6120 §6): which of a client's credentials goes with which mechanism that the server offers.

use std::cell::RefCell;

use fogmux_auth::sasl::{Bearer, Plain};
use fogmux_auth::scram::{ClientBinding, SaltedPassword, ScramClient, ScramClientError, ScramHash};
use fogmux_net::channel::Zeroizing;
use fogmux_xmpp::ClientEvent;

use super::session::Session;
use crate::driver::DriverError;
use crate::experiment::{Credential, Experiment};
use crate::target::Access;

/// The port in a token's message (RFC 7628 §3.1). Servers need not check it; the registered port names the service.
const PORT: u16 = 5222;

/// A credential to log in with.
#[derive(Clone)]
pub(super) enum Proof {
    /// The certificate of the handshake: EXTERNAL.
    Certificate,
    /// User and password: SCRAM, and PLAIN under TLS.
    Password(String, Zeroizing<String>),
    /// OAUTHBEARER, under TLS.
    Token(Zeroizing<String>),
    /// ANONYMOUS.
    Nobody,
}

/// Returns the credentials of an experiment's clients, the preferred one first.
pub(super) fn proofs(experiment: &Experiment, access: &Access) -> Vec<Proof> {
    let certificate = || access.certificate.as_ref().map(|_| Proof::Certificate);
    let password = || access.password.clone().map(|(user, password)| Proof::Password(user, password));
    let token = || access.token.clone().map(Proof::Token);
    match experiment.credential {
        Credential::OfProfile if experiment.security.is_secure() => {
            certificate().into_iter().chain(password()).chain([Proof::Nobody]).collect()
        }
        Credential::OfProfile => password().into_iter().chain([Proof::Nobody]).collect(),
        Credential::Anonymous => vec![Proof::Nobody],
        Credential::Password => password().into_iter().collect(),
        Credential::Certificate => certificate().into_iter().collect(),
        Credential::Token => token().into_iter().collect(),
    }
}

/// A proof and the mechanism that carries it.
enum Way<'p> {
    OneMessage(&'static str, Vec<u8>),
    Scram(ScramHash, &'p str, &'p str),
}

impl Session {
    /// Logs in by the first proof that a mechanism on offer takes, and binds the resource.
    /// `salted` is what a login before has derived.
    pub(super) async fn log_in(
        &mut self,
        proofs: &[Proof],
        secure: bool,
        salted: &RefCell<SaltedPassword>,
    ) -> Result<(), DriverError> {
        let mechanisms = |event: ClientEvent<'_>| {
            if let ClientEvent::Mechanisms(names) = event { Some(names) } else { None }
        };
        let offered = self.until(mechanisms).await?;
        let way = proofs.iter().find_map(|proof| self.way(proof, &offered, secure));
        match way {
            Some(Way::OneMessage(mechanism, message)) => {
                self.stream.authenticate(mechanism, Some(&message), &mut self.output);
                self.until(succeeded).await?;
            }
            Some(Way::Scram(hash, user, password)) => self.scram(hash, user, password, salted).await?,
            None => {
                let offered = offered.join(" ");
                return Err(DriverError::Refused(format!("no credential of ours goes with the mechanisms {offered}")));
            }
        }
        self.stream.accept(&mut self.output);
        let bound = |event: ClientEvent<'_>| {
            if let ClientEvent::Bound(jid) = event { Some(jid.as_str().into()) } else { None }
        };
        self.jid = self.until(bound).await?;
        Ok(())
    }

    /// How a proof can be shown.
    fn way<'p>(&self, proof: &'p Proof, offered: &[String], secure: bool) -> Option<Way<'p>> {
        let offers = |name: &str| offered.iter().any(|offer| offer == name);
        match proof {
            // XEP-0178 §3: the identity is the certificate's own.
            Proof::Certificate => offers("EXTERNAL").then(|| Way::OneMessage("EXTERNAL", Vec::new())),
            Proof::Password(user, password) => {
                let scram = [ScramHash::Sha256, ScramHash::Sha1].into_iter().find(|hash| offers(hash.mechanism()));
                match scram {
                    Some(hash) => Some(Way::Scram(hash, user, password)),
                    None if secure && offers("PLAIN") => Some(Way::OneMessage("PLAIN", Plain::encode(user, password))),
                    None => None,
                }
            }
            Proof::Token(token) if secure && offers("OAUTHBEARER") => {
                Some(Way::OneMessage("OAUTHBEARER", Bearer::encode(token, &self.domain, PORT)))
            }
            Proof::Token(_) => None,
            // RFC 4505 §2: the trace may be empty; sent at once it spares a challenge.
            Proof::Nobody => offers("ANONYMOUS").then(|| Way::OneMessage("ANONYMOUS", Vec::new())),
        }
    }

    /// Without channel binding, which every server with SCRAM takes: rows of different doors differ by less.
    async fn scram(
        &mut self,
        hash: ScramHash,
        user: &str,
        password: &str,
        salted: &RefCell<SaltedPassword>,
    ) -> Result<(), DriverError> {
        let nonce = getrandom::u64().and_then(|high| Ok((high, getrandom::u64()?)));
        let (high, low) = nonce.map_err(|error| DriverError::Connection(format!("no random numbers: {error}")))?;
        let refused = |error: ScramClientError| DriverError::Refused(error.to_string());
        let client = ScramClient::new(hash, user, password, &format!("{high:016x}{low:016x}")).map_err(refused)?;
        let mut client = client.bound(ClientBinding::None);
        self.stream.authenticate(hash.mechanism(), Some(&client.first()), &mut self.output);
        let challenge =
            |event: ClientEvent<'_>| if let ClientEvent::Challenge(data) = event { Some(data) } else { None };
        let server_first = self.until(challenge).await?;
        let answer = client.respond_again(&server_first, &mut salted.borrow_mut()).map_err(refused)?;
        self.stream.respond(&answer, &mut self.output);
        let proof = self.until(succeeded).await?.unwrap_or_default();
        client.verify(&proof).map_err(refused)
    }
}

fn succeeded(event: ClientEvent<'_>) -> Option<Option<Vec<u8>>> {
    if let ClientEvent::Success(data) = event { Some(data) } else { None }
}
