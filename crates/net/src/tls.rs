//! TLS for servers: certificates that every listener uses and that can be replaced while they run, and what makes of
//! them an acceptor for a listener's [`Security`].
//!
//! rustls with ring for all that it does; what it leaves out on purpose (PSK, CCM_8, RSA key exchange) is OpenSSL's
//! business and only that of listeners that ask for it.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{ServerConfig, crypto::ring::Ticketer};

use crate::{
    acceptor::{ServerStack, TlsAcceptor},
    by_name::{ByName, Named, Served},
    certificate::{Certificate, ServerIdentity},
    challenges::Challenges,
    channel::PskSource,
    clients::ClientTrust,
    dates::Dates,
    error::TlsError,
    handshakes::Elsewhere,
    own_authority::OwnAuthority,
    pki::Rollover,
    profile::{ClientCertificates, KeyKind, Profile, Security, Stack, Version},
    provider::{provider_of, supported},
};

/// Everything that handshakes need. Clones share it, and see when it is replaced.
#[derive(Clone)]
pub struct TlsConfig {
    /// At least one; the first is for profiles that do not care.
    identities: Vec<ServerIdentity>,
    /// For clients of rustls's listeners that ask for one of its names.
    by_name: Option<ByName>,
    challenges: Challenges,
    trust: Option<ClientTrust>,
    cut_revoked: bool,
    psk: Option<Arc<dyn PskSource>>,
    elsewhere: Elsewhere,
    own_authority: Option<Arc<OwnAuthority>>,
}

/// A certificate in use, as it was read last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// Its purpose.
    pub role: Role,
    /// The file that it was read from.
    pub file: PathBuf,
    /// When it is valid.
    pub dates: Dates,
}

/// The purpose of a certificate in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The server's own.
    Server,
    /// Of an authority between the server's own and one that clients trust; a client may know another way.
    ServerChain,
    /// The server's for clients that ask for one of its names, which is renewed by itself.
    ServerByName,
    /// Of an authority that client certificates are verified against.
    ClientAuthority,
}

impl TlsConfig {
    /// Reads a chain (leaf first) and its key (PKCS #8, SEC 1 or PKCS #1) from PEM files.
    ///
    /// # Errors
    /// [`TlsError`], with the file.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        Ok(Self {
            identities: vec![ServerIdentity::load(certificate, key)?],
            by_name: None,
            challenges: Challenges::default(),
            trust: None,
            cut_revoked: false,
            psk: None,
            elsewhere: Elsewhere::default(),
            own_authority: None,
        })
    }

    /// With one more certificate, for profiles that want its kind of key.
    ///
    /// # Errors
    /// [`TlsError`], with the file.
    pub fn with_certificate(mut self, certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        self.identities.push(ServerIdentity::load(certificate, key)?);
        Ok(self)
    }

    /// With a certificate for clients that ask for one of its names, in one file with its key ([`Named::read`]), which
    /// need not exist yet.
    #[must_use]
    pub fn with_named(self, file: &Path) -> Self {
        Self { by_name: Some(ByName::open(file)), ..self }
    }

    /// The certificate for clients that ask for one of its names, once there is one.
    #[must_use]
    pub fn named(&self) -> Option<Named> {
        self.by_name.as_ref()?.named()
    }

    /// Reads the file of that certificate again.
    ///
    /// # Errors
    /// [`TlsError`]; the certificate stays as it was.
    pub fn reload_named(&self) -> Result<(), TlsError> {
        self.by_name.as_ref().map_or(Ok(()), ByName::reload)
    }

    /// The challenges of an ACME server that its acceptors answer.
    #[must_use]
    pub const fn challenges(&self) -> &Challenges {
        &self.challenges
    }

    /// Believing client certificates; with `cut_revoked`, open connections end when theirs is revoked.
    #[must_use]
    pub fn with_clients(self, trust: ClientTrust, cut_revoked: bool) -> Self {
        Self { trust: Some(trust), cut_revoked, ..self }
    }

    /// With the certificate of the gateway's own authority, for those who look at certificates.
    #[must_use]
    pub fn with_own_authority(self, file: &Path) -> Self {
        Self { own_authority: Some(Arc::new(OwnAuthority::open(file))), ..self }
    }

    /// The file of the certificate of the gateway's own authority, if there is one.
    #[must_use]
    pub fn own_authority(&self) -> Option<&Path> {
        self.own_authority.as_deref().map(OwnAuthority::file)
    }

    /// When the certificates of the gateway's own authority are valid: of two in a rollover, the one first by which the
    /// gateway's certificate is.
    #[must_use]
    pub fn own_authority_dates(&self) -> Vec<Dates> {
        self.own_authority.as_deref().map(OwnAuthority::dates).unwrap_or_default()
    }

    /// How far a rollover of the gateway's own authority is; `None` if none is under way.
    #[must_use]
    pub fn rollover(&self) -> Option<Rollover> {
        self.own_authority.as_deref()?.rollover()
    }

    /// Knowing pre-shared keys.
    #[must_use]
    pub fn with_psk(self, psk: Arc<dyn PskSource>) -> Self {
        Self { psk: Some(psk), ..self }
    }

    /// Returns the authorities whose client certificates are accepted.
    #[must_use]
    pub const fn clients(&self) -> Option<&ClientTrust> {
        self.trust.as_ref()
    }

    /// Whether open connections end when their certificate is revoked.
    #[must_use]
    pub const fn cuts_revoked(&self) -> bool {
        self.cut_revoked
    }

    /// The chain (leaf first) and the private key for a profile, for stacks that are not made here.
    ///
    /// # Errors
    /// There is none with the kind of key it is about.
    pub fn certificate(&self, profile: &'static Profile) -> Result<Arc<Certificate>, TlsError> {
        Ok(self.identity(profile)?.loaded())
    }

    /// When the server's certificate for a profile expires, in seconds since 1970; `None` if there is none.
    #[must_use]
    pub fn not_after_unix_s(&self, profile: &'static Profile) -> Option<u64> {
        Some(self.identity(profile).ok()?.loaded().dates().first()?.not_after_unix_s)
    }

    /// The files of the certificates that listeners with these settings show or verify clients against.
    #[must_use]
    pub fn files_of(&self, security: &Security) -> Vec<PathBuf> {
        let profile = security.profile;
        if !profile.is_encrypted() {
            return Vec::new();
        }
        let own = self.identity(profile).ok().filter(|_| !profile.psk);
        let by_name = self.by_name.as_ref().filter(|_| own.is_some() && takes_by_name(profile));
        let asks = security.client_certificates != ClientCertificates::No;
        let authorities = self.trust.as_ref().filter(|_| asks).map(|trust| trust.files()[0]);
        let own = own.as_ref().map(|own| own.files()[0]);
        own.into_iter().chain(by_name.map(ByName::file)).chain(authorities).map(Path::to_path_buf).collect()
    }

    /// The certificates in use: those of the server, each with its chain, and the authorities of clients.
    #[must_use]
    pub fn in_use(&self) -> Vec<InUse> {
        let mut all = Vec::new();
        for identity in &self.identities {
            let [file, _] = identity.files();
            let of_chain = identity.loaded();
            for (index, dates) in of_chain.dates().iter().enumerate() {
                let role = if index == 0 { Role::Server } else { Role::ServerChain };
                all.push(InUse { role, file: file.to_owned(), dates: dates.clone() });
            }
        }
        if let Some((by_name, named)) = self.by_name.as_ref().and_then(|by_name| Some((by_name, by_name.named()?))) {
            for (index, dates) in named.chain_dates().iter().enumerate() {
                let role = if index == 0 { Role::ServerByName } else { Role::ServerChain };
                all.push(InUse { role, file: by_name.file().to_owned(), dates: dates.clone() });
            }
        }
        if let Some(trust) = &self.trust {
            let [file, _] = trust.files();
            let authorities = trust.dates().into_iter();
            all.extend(authorities.map(|dates| InUse { role: Role::ClientAuthority, file: file.to_owned(), dates }));
        }
        all
    }

    /// The secret of an identity.
    #[must_use]
    pub fn psk(&self) -> Option<&Arc<dyn PskSource>> {
        self.psk.as_ref()
    }

    /// Reads the same files again; new handshakes use what they hold now.
    ///
    /// # Errors
    /// [`TlsError`]; everything stays as it was.
    pub fn reload(&self) -> Result<(), TlsError> {
        let fresh: Result<Vec<_>, _> = self.identities.iter().map(ServerIdentity::read).collect();
        let fresh = fresh?;
        if let Some(trust) = &self.trust {
            trust.reload()?;
        }
        if let Some(own) = &self.own_authority {
            own.reload();
        }
        for (identity, fresh) in self.identities.iter().zip(fresh) {
            identity.replace(fresh);
        }
        if let Some(by_name) = &self.by_name {
            by_name.reload_or_say();
        }
        Ok(())
    }

    /// The files that [`reload`](Self::reload) reads.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let own = self.identities.iter().flat_map(ServerIdentity::files);
        let clients = self.trust.iter().flat_map(ClientTrust::files);
        let by_name = self.by_name.iter().map(ByName::file);
        let authority = self.own_authority().filter(|file| !clients.clone().any(|one| one == *file));
        own.chain(clients).chain(by_name).chain(authority).map(Path::to_path_buf).collect()
    }

    /// Does handshakes for a TCP listener that speaks one of `alpn`; a client that offers no protocol is served as
    /// well.
    ///
    /// # Errors
    /// [`TlsError`]: something that `security` needs is not there.
    pub fn acceptor(&self, security: &Security, alpn: &[&[u8]]) -> Result<TlsAcceptor, TlsError> {
        let identity = self.identity(security.profile)?;
        let stack = match security.profile.stack {
            Stack::Rustls => ServerStack::Rustls(Arc::new(self.rustls(security, &identity, alpn, None)?)),
            #[cfg(feature = "tls-openssl")]
            Stack::OpenSsl => ServerStack::OpenSsl(Arc::new(self.openssl(security, identity.clone(), alpn)?)),
            #[cfg(not(feature = "tls-openssl"))]
            Stack::OpenSsl => return Err(TlsError::Stack(security.profile.name)),
            Stack::Plain => return Err(TlsError::Stack(security.profile.name)),
        };
        let expensive = !security.profile.psk && KeyKind::Rsa2048.is_in(identity.loaded().leaf());
        let mut acceptor = TlsAcceptor::new(stack, self.served(security.profile, identity));
        acceptor.challenges = self.challenges.clone();
        acceptor.trust.clone_from(&self.trust);
        acceptor.cut_revoked = self.cut_revoked;
        acceptor.requires_certificate = security.client_certificates == ClientCertificates::Required;
        acceptor.elsewhere = expensive.then(|| self.elsewhere.clone());
        Ok(acceptor)
    }

    /// A configuration for QUIC, which has TLS 1.3 only (RFC 9001 §4.2).
    pub(crate) fn quic_server(&self, security: &Security, alpn: &[&[u8]]) -> Result<ServerConfig, TlsError> {
        match security.profile.stack {
            Stack::Rustls => self.rustls(security, &self.identity(security.profile)?, alpn, Some(&[Version::Tls13])),
            Stack::OpenSsl | Stack::Plain => Err(TlsError::Stack(security.profile.name)),
        }
    }

    fn served(&self, profile: &'static Profile, own: ServerIdentity) -> Served {
        Served { own, by_name: self.by_name.clone().filter(|_| takes_by_name(profile)) }
    }

    fn identity(&self, profile: &'static Profile) -> Result<ServerIdentity, TlsError> {
        let fits = |identity: &&ServerIdentity| match profile.server_key {
            Some(kind) => kind.is_in(identity.loaded().leaf()),
            None => true,
        };
        let Some(kind) = profile.server_key else {
            return self.identities.iter().find(fits).cloned().ok_or(TlsError::Stack(profile.name));
        };
        self.identities.iter().find(fits).cloned().ok_or(TlsError::NoKey { profile: profile.name, kind })
    }

    /// Whether clients are asked for a certificate. If it is optional and there is no authority, they are not.
    pub(crate) fn asked(&self, security: &Security) -> Result<ClientCertificates, TlsError> {
        match (security.client_certificates, &self.trust) {
            (ClientCertificates::Required, None) => Err(TlsError::NoAuthority),
            (ClientCertificates::Optional, None) => Ok(ClientCertificates::No),
            (asked, _) => Ok(asked),
        }
    }

    fn rustls(
        &self,
        security: &Security,
        identity: &ServerIdentity,
        alpn: &[&[u8]],
        versions: Option<&[Version]>,
    ) -> Result<ServerConfig, TlsError> {
        let profile = security.profile;
        let versions = supported(versions.unwrap_or(profile.accept.versions));
        let builder = ServerConfig::builder_with_provider(provider_of(&profile.accept, None))
            .with_protocol_versions(&versions)
            .map_err(|_| TlsError::Stack(profile.name))?;
        let trust = || self.trust.as_ref().ok_or(TlsError::NoAuthority);
        let builder = match self.asked(security)? {
            ClientCertificates::No => builder.with_no_client_auth(),
            ClientCertificates::Optional => {
                builder.with_client_cert_verifier(trust()?.for_rustls(false, profile.client_key))
            }
            ClientCertificates::Required => {
                builder.with_client_cert_verifier(trust()?.for_rustls(true, profile.client_key))
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(self.served(profile, identity.clone())));
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        // Stateless tickets: a reconnect storm resumes without signatures, and an idle session costs us nothing. A
        // client's certificate travels inside, so that who resumes is who began.
        if let Ok(ticketer) = Ticketer::new() {
            config.ticketer = ticketer;
        }
        config.send_tls13_tickets = 1;
        // 0-RTT can be replayed (RFC 8446 §8): a publish would happen twice.
        config.max_early_data_size = 0;
        Ok(config)
    }

    #[cfg(feature = "tls-openssl")]
    fn openssl(
        &self,
        security: &Security,
        identity: ServerIdentity,
        alpn: &[&[u8]],
    ) -> Result<crate::openssl::Server, TlsError> {
        let security = Security { client_certificates: self.asked(security)?, ..*security };
        let psk = match (security.profile.psk, &self.psk) {
            (true, None) => return Err(TlsError::NoPsk),
            (true, Some(psk)) => Some(Arc::clone(psk)),
            (false, _) => None,
        };
        let settings = crate::openssl::Settings {
            security,
            psk,
            trust: self.trust.clone(),
            alpn: crate::openssl::wire(alpn).into(),
        };
        crate::openssl::Server::new(settings, identity)
    }
}

/// Whether listeners of a profile show the certificate by name, which has an ECDSA key: some want another.
fn takes_by_name(profile: &Profile) -> bool {
    profile.server_key.is_none_or(|kind| kind == KeyKind::EcdsaP256)
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConfig").field("identities", &self.identities).finish_non_exhaustive()
    }
}
