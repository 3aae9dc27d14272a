//! A certificate for clients that ask for one of its names (SNI, RFC 6066 §3), beside the server's own for all others.
//!
//! A public authority signs the names that it has validated and no others. Clients on the LAN, which use an address or
//! another name and trust the gateway's authority, keep the certificate that they know.

use std::{
    fmt, fs, io,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use crate::{
    certificate::{Certificate, ServerIdentity, read},
    channel::ClientCertificate,
    dates::Dates,
    error::TlsError,
};

/// A certificate with its names.
#[derive(Clone)]
pub struct Named {
    certificate: Arc<Certificate>,
    names: Arc<[Box<str>]>,
}

impl Named {
    /// Reads a file that has the private key and the chain, leaf first, so that one rename replaces both.
    ///
    /// # Errors
    /// [`TlsError`], with the file.
    pub fn read(file: &Path) -> Result<Self, TlsError> {
        let certificate = read(file, file)?;
        let parsed = ClientCertificate::parse(certificate.leaf());
        let names = parsed.map(|parsed| parsed.dns.into()).map_err(|error| {
            let why = error.to_string();
            TlsError::File { file: file.into(), why }
        })?;
        Ok(Self { certificate, names })
    }

    /// Its DNS names.
    #[must_use]
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// When it is valid.
    #[must_use]
    pub fn dates(&self) -> Option<&Dates> {
        self.certificate.dates().first()
    }

    /// The certificate itself, in DER.
    #[must_use]
    pub fn leaf(&self) -> &[u8] {
        self.certificate.leaf()
    }

    pub(crate) fn chain_dates(&self) -> &[Dates] {
        self.certificate.dates()
    }

    fn is_for(&self, name: &str) -> bool {
        self.names.iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Named").field("names", &self.names).finish_non_exhaustive()
    }
}

/// The file of such a certificate, which need not exist yet. Clones are the same.
#[derive(Clone)]
pub(crate) struct ByName(Arc<NamedFile>);

struct NamedFile {
    file: Box<Path>,
    named: RwLock<Option<Named>>,
}

impl ByName {
    /// Reads the file. One that cannot be used counts as none: the server's own certificate is there.
    pub(crate) fn open(file: &Path) -> Self {
        let this = Self(Arc::new(NamedFile { file: file.into(), named: RwLock::default() }));
        // The next reload, of which a start makes one, says why.
        let _ = this.reload();
        this
    }

    /// Reads the file again; one that is gone changes nothing.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        match fs::symlink_metadata(&self.0.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Ok(_) | Err(_) => {}
        }
        let fresh = Named::read(&self.0.file)?;
        *self.0.named.write().unwrap_or_else(PoisonError::into_inner) = Some(fresh);
        Ok(())
    }

    /// As [`reload`](Self::reload), where an error must not keep other certificates from being read.
    pub(crate) fn reload_or_say(&self) {
        if let Err(error) = self.reload() {
            tracing::error!("{error}; it is not used, and clients are shown the one of before, or the server's own");
        }
    }

    pub(crate) fn file(&self) -> &Path {
        &self.0.file
    }

    pub(crate) fn named(&self) -> Option<Named> {
        self.0.named.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The certificates of a listener: by the name that the client asks for.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) own: ServerIdentity,
    pub(crate) by_name: Option<ByName>,
}

impl Served {
    /// The certificate for a client that asks for this name, if it asks for any.
    pub(crate) fn certificate(&self, name: Option<&str>) -> Arc<Certificate> {
        let named = self.by_name.as_ref().and_then(ByName::named);
        let asked = named.filter(|named| name.is_some_and(|name| named.is_for(name)));
        asked.map_or_else(|| self.own.loaded(), |named| named.certificate)
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.certificate(hello.server_name()).certified())
    }
}

impl fmt::Debug for ByName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ByName").field(&self.0.file).finish()
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").field("own", &self.own).field("by_name", &self.by_name).finish()
    }
}
