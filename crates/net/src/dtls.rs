//! DTLS for listeners: their credentials, out of what all listeners share, and the platform that `fogmux-dtls` runs on.

use std::{net::IpAddr, sync::Arc};

use fogmux_dtls::{Credentials, Platform, ProvenPsk, Psk, Suite, Suite13, Watch};
use rustls::{
    pki_types::CertificateDer, server::danger::ClientCertVerifier, sign::CertifiedKey,
    time_provider::DefaultTimeProvider,
};

use crate::{
    channel::{Channel, PskSource},
    clients::ClientTrust,
    error::TlsError,
    profile::{ClientCertificates, Profile, Security, Version},
    provider::provider,
    tls::TlsConfig,
};

/// The platform of every DTLS endpoint and client of ours: ring, and the system's clock.
#[must_use]
pub fn platform() -> Platform {
    Platform { crypto: provider(), wall_clock: Arc::new(DefaultTimeProvider) }
}

/// The credentials of a DTLS listener, by its profile.
#[derive(Clone)]
pub struct ListenerCredentials {
    tls: TlsConfig,
    security: Security,
    psk: Option<Arc<dyn PskSource>>,
    /// Of what the profile takes, what DTLS 1.2 has.
    suites: Arc<[Suite]>,
    /// And what DTLS 1.3 has.
    suites_13: Arc<[Suite13]>,
    guard: Option<Arc<dyn Guard>>,
    admits_anonymous: Option<AnonymousPolicy>,
    principals: Option<Principals>,
}

/// Counts attempts at keys. Called within a handshake: it must not block.
pub trait Guard: Send + Sync {
    /// Whether somebody at that address may try the key of that identity now.
    fn may_try(&self, from: IpAddr, identity: &[u8]) -> bool;

    /// Notes that somebody at that address has tried a wrong key for that identity.
    fn failed(&self, from: IpAddr, identity: &[u8]);

    /// Takes a failure back that was somebody else's forgery.
    fn taken_back(&self, from: IpAddr, identity: &[u8]);
}

/// Whether clients without a credential may have a session now.
pub type AnonymousPolicy = Arc<dyn Fn() -> bool + Send + Sync>;

/// The name of the principal that a channel's credential belongs to, if it belongs to any.
pub type Principals = Arc<dyn Fn(&Channel) -> Option<Arc<str>> + Send + Sync>;

impl ListenerCredentials {
    /// Looks whether everything is there that the profile needs.
    ///
    /// # Errors
    /// [`TlsError`]: something is not there, or the profile has no suite of the versions that are spoken.
    pub fn new(tls: &TlsConfig, security: Security) -> Result<Self, TlsError> {
        let profile = security.profile;
        let (suites, suites_13) = Self::suites_of(&security);
        if (suites.is_empty() && suites_13.is_empty()) || !profile.is_encrypted() {
            return Err(TlsError::Stack(profile.name));
        }
        if profile.psk && tls.psk().is_none() {
            return Err(TlsError::NoPsk);
        }
        tls.certificate(profile)?;
        tls.asked(&security)?;
        Ok(Self {
            psk: tls.psk().cloned(),
            tls: tls.clone(),
            security,
            suites: suites.into(),
            suites_13: suites_13.into(),
            guard: None,
            admits_anonymous: None,
            principals: None,
        })
    }

    /// Whether DTLS has suites and versions of what a listener is to have; without any, [`new`](Self::new) fails.
    #[must_use]
    pub fn is_available(security: &Security) -> bool {
        let (suites, suites_13) = Self::suites_of(security);
        security.profile.is_encrypted() && !(suites.is_empty() && suites_13.is_empty())
    }

    fn suites_of(security: &Security) -> (Vec<Suite>, Vec<Suite13>) {
        let profile = security.profile;
        let takes = |version, name| security.dtls_versions.contains(&version) && accepts(profile, version, name);
        // Profiles name what every stack has; OpenSSL has no suites of RFC 8442.
        let older = security.dtls_versions.contains(&Version::Tls12);
        let exchanges = |at: &Suite| older && profile.psk && at.is_psk() && at.name().starts_with("TLS_ECDHE_");
        let takes_old = |at: &Suite| takes(Version::Tls12, at.name()) || exchanges(at);
        let suites = Suite::ALL.into_iter().filter(takes_old).collect();
        (suites, Suite13::ALL.into_iter().filter(|at| takes(Version::Tls13, at.name())).collect())
    }

    /// Asking `guard` before a key is looked up. Who may not try is told nothing at all.
    #[must_use]
    pub fn guarded(self, guard: Arc<dyn Guard>) -> Self {
        Self { guard: Some(guard), ..self }
    }

    /// Asking `policy` whether a client without a certificate or key may have a session. Without a policy it may.
    #[must_use]
    pub fn admitting_anonymous(self, policy: AnonymousPolicy) -> Self {
        Self { admits_anonymous: Some(policy), ..self }
    }

    /// Asking `principals` whose a session is, so that a principal with several credentials has one share.
    #[must_use]
    pub fn sharing_by(self, principals: Principals) -> Self {
        Self { principals: Some(principals), ..self }
    }

    /// Suites of DTLS 1.2, best first.
    #[must_use]
    pub fn suites(&self) -> &[Suite] {
        &self.suites
    }

    /// Suites of DTLS 1.3, best first; none where the profile is not for it.
    #[must_use]
    pub fn suites_13(&self) -> &[Suite13] {
        &self.suites_13
    }
}

fn accepts(profile: &Profile, version: Version, suite: &str) -> bool {
    let accept = &profile.accept;
    accept.versions.contains(&version) && (accept.suites.is_empty() || accept.suites.contains(&suite))
}

impl Credentials for ListenerCredentials {
    fn certified_key(&self) -> Option<Arc<CertifiedKey>> {
        // Suites of 1.3 do not say by which of the two: the profile does.
        if self.security.profile.psk {
            return None;
        }
        // It was there when the listener was made; a reload replaces it by one of its kind.
        self.tls.certificate(self.security.profile).ok().map(|certificate| certificate.certified())
    }

    fn client_verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        let required = match self.security.client_certificates {
            ClientCertificates::No => return None,
            ClientCertificates::Optional => false,
            ClientCertificates::Required => true,
        };
        self.tls.clients().map(|trust| trust.for_rustls(required, self.security.profile.client_key))
    }

    fn admits_anonymous(&self) -> bool {
        self.admits_anonymous.as_ref().is_none_or(|policy| policy())
    }

    /// Where no keys are configured nobody gets a decoy either, and a client that could do without is not led astray.
    fn has_psk(&self) -> bool {
        let taken = self.suites.iter().any(|suite| suite.is_psk()) || !self.suites_13.is_empty();
        taken && self.psk.as_ref().is_some_and(|psk| psk.has_keys())
    }

    fn must_wait(&self, from: IpAddr, identity: &[u8]) -> bool {
        self.guard.as_ref().is_some_and(|guard| !guard.may_try(from, identity))
    }

    fn wrong_key(&self, from: IpAddr, identity: &[u8]) {
        if let Some(guard) = &self.guard {
            guard.failed(from, identity);
        }
    }

    fn right_key_after_all(&self, from: IpAddr, identity: &[u8]) {
        if let Some(guard) = &self.guard {
            guard.taken_back(from, identity);
        }
    }

    fn psk(&self, _from: IpAddr, identity: &[u8]) -> Option<Psk> {
        self.psk.as_ref()?.secret(identity)
    }

    fn holds(&self, psk: &ProvenPsk) -> bool {
        self.psk.as_ref().is_some_and(|keys| keys.holds(psk))
    }

    fn trust(&self) -> u64 {
        self.tls.clients().map_or(0, ClientTrust::version)
    }

    fn principal(&self, made: &fogmux_dtls::Channel) -> Option<Arc<str>> {
        let principals = self.principals.as_ref()?;
        principals(&Channel::of_dtls(made).ok()?)
    }

    fn watch(&self, chain: &[CertificateDer<'static>]) -> Option<Watch> {
        let trust = self.tls.clients().filter(|_| self.tls.cuts_revoked() && !chain.is_empty());
        let cut = trust.map(|trust| trust.watch(chain))?;
        Some(Watch::new(move || cut.is_cut()))
    }
}

impl std::fmt::Debug for ListenerCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenerCredentials").field("security", &self.security).finish_non_exhaustive()
    }
}
