//! Trust in client certificates: those of configured authorities that are not revoked.
//!
//! One [`ClientTrust`] serves every listener and every stack, so that a certificate that is revoked is revoked
//! everywhere. The list's file is looked at (not read) before every verification, and read when it has changed: a
//! revocation holds from the next handshake on. A list that cannot be used never admits a certificate: at the start it
//! is an error, later the list before stays in force. Resumed sessions are verified like new ones. On request,
//! connections that are open when their certificate is revoked are cut ([`ClientTrust::cut_revoked`]).

mod cause;
mod cut;
pub(crate) mod hints;
mod keys;
mod lists;
pub(crate) mod refused;
mod stamp;
mod verifier;

use std::{
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use rustls::{
    CertificateError, DistinguishedName, Error, RootCertStore,
    pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

pub use self::cut::Cut;
use self::cut::CutState;
use self::hints::Hints;
pub use self::lists::RevocationList;
pub use self::refused::{NOT_YET_VALID, RefusedCertificate};
pub use self::stamp::Stamp;
use self::verifier::Verifier;
use crate::{dates::Dates, error::TlsError, pem, profile::KeyKind, provider::provider};

/// Authorities, what they have revoked, and the connections that depend on it. Clones are the same.
#[derive(Clone)]
pub struct ClientTrust(Arc<Inner>);

struct Inner {
    authorities: Box<Path>,
    revocations: Box<Path>,
    expiry: ListExpiry,
    /// When the log said last that a list has expired.
    said: Mutex<Option<SystemTime>>,
    current: RwLock<Current>,
    /// Grows when `current` has been replaced.
    version: AtomicU64,
    /// The last attempt to read the lists, if it has failed since they were read.
    failed: Mutex<Option<Failed>>,
    /// Connections to be cut when their certificate is revoked.
    open: Mutex<Vec<Weak<CutState>>>,
}

/// The treatment of client certificates when the revocation list of their authority is past its `nextUpdate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListExpiry {
    /// They are judged by it all the same, and the log says so once a day.
    #[default]
    Warn,
    /// They are refused.
    Refuse,
}

/// How often the log says that a list has expired.
const SAID_EVERY: Duration = Duration::from_secs(24 * 3600);

/// The contents of the files when they were last read.
struct Current {
    verifier: Arc<dyn ClientCertVerifier>,
    stamp: Stamp,
    /// The revocation lists; empty if there is no file.
    lists: Vec<CertificateRevocationListDer<'static>>,
    /// When the first of the lists is to be followed by another (`nextUpdate`, RFC 5280 §5.1.2.5).
    next_update: Option<SystemTime>,
    /// How many of the lists are of one of the authorities.
    own: usize,
    /// The names of the authorities.
    names: Arc<[DistinguishedName]>,
    /// When the authorities' certificates are valid.
    dates: Box<[Dates]>,
}

/// An attempt to read the lists that has failed.
struct Failed {
    stamp: Stamp,
    at: Instant,
    why: String,
}

/// The time between two attempts to read lists that have not changed since the first failed: a handshake must not cost
/// a read of the file, and a disk or a process without a free descriptor fails only for a while.
const TRIED_EVERY: Duration = Duration::from_secs(1);

/// The fault of a file of revocation lists.
const FOREIGN: &str = "no revocation list in it is of an authority that client certificates are verified against";

impl ClientTrust {
    /// Trusts the authorities in a PEM file, except for certificates in the PEM file of revocation lists, which need
    /// not exist yet. If no list in it is of one of the authorities, certificates that no list covers are refused.
    ///
    /// # Errors
    /// [`TlsError`], with the file: one that cannot be read, is empty, or has something else in it than lists.
    pub fn load(authorities: &Path, revocations: &Path) -> Result<Self, TlsError> {
        Self::load_with(authorities, revocations, ListExpiry::Warn)
    }

    /// The same, with a policy for lists that have expired.
    ///
    /// # Errors
    /// [`TlsError`], with the file.
    pub fn load_with(authorities: &Path, revocations: &Path, expiry: ListExpiry) -> Result<Self, TlsError> {
        let stamp = Stamp::of(revocations);
        let current = Current::new([authorities, revocations], expiry, lists::read(revocations)?, stamp)?;
        if current.is_foreign() {
            tracing::error!(file = %revocations.display(), "{FOREIGN}: certificates that no list covers are refused");
        }
        Ok(Self(Arc::new(Inner {
            authorities: authorities.into(),
            revocations: revocations.into(),
            expiry,
            said: Mutex::default(),
            current: RwLock::new(current),
            version: AtomicU64::new(0),
            failed: Mutex::default(),
            open: Mutex::default(),
        })))
    }

    /// Checks that a file has revocation lists; their authorities do not matter.
    ///
    /// # Errors
    /// [`TlsError`], with the file.
    pub fn check_lists(revocations: &Path) -> Result<(), TlsError> {
        lists::read(revocations).map(drop)
    }

    /// Reads both files again. If the revocation list is gone, the last one stays in force: removing it must not admit
    /// revoked certificates, nor keep a renewed authority from being read.
    ///
    /// # Errors
    /// [`TlsError`] as at the start, and if the lists are of other authorities; everything stays as it was.
    pub fn reload(&self) -> Result<(), TlsError> {
        let stamp = Stamp::of(&self.0.revocations);
        let mut lists = lists::read(&self.0.revocations)?;
        if lists.is_empty() {
            lists.clone_from(&self.current().lists);
            if !lists.is_empty() {
                let file = self.0.revocations.display();
                tracing::warn!(%file, "the revocation list is gone; the one before stays in force");
            }
        }
        let fresh = Current::new(self.files(), self.0.expiry, lists, stamp)?;
        let was_foreign = self.current().is_foreign();
        if fresh.is_foreign() && !was_foreign {
            return Err(failed(&self.0.revocations, FOREIGN));
        }
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        self.0.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The files it depends on.
    #[must_use]
    pub fn files(&self) -> [&Path; 2] {
        [&self.0.authorities, &self.0.revocations]
    }

    /// Verifies a client's certificate with the chain it sent, at this moment, and that its key is of an accepted kind.
    ///
    /// # Errors
    /// The reason, as rustls names it; [`CertificateError::ApplicationVerificationFailure`] for the kind of key.
    pub fn verify(&self, leaf: &CertificateDer<'_>, intermediates: &[CertificateDer<'_>]) -> Result<(), Error> {
        let verifier = self.verifier();
        let verified = verifier.verify_client_cert(leaf, intermediates, UnixTime::now());
        verified.map_err(|error| cause::of(&*verifier, (leaf, intermediates), error))?;
        if keys::is_accepted(leaf) {
            Ok(())
        } else {
            Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    /// A number that grows when authorities and lists are read again, which happens here if the list's file has
    /// changed. A certificate that was verified after one question and before another is good at the other if the
    /// answers are the same; otherwise it has to be verified once more.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.look_for_lists();
        self.0.version.load(Ordering::Acquire)
    }

    /// The names of the authorities, for certificate requests.
    pub(crate) fn authorities(&self) -> Arc<[DistinguishedName]> {
        Arc::clone(&self.current().names)
    }

    /// A verifier for rustls.
    pub(crate) fn for_rustls(&self, mandatory: bool, key: Option<KeyKind>) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Verifier {
            hints: Hints::new(self.authorities()),
            trust: self.clone(),
            mandatory,
            key,
            provider: provider(),
        })
    }

    /// By the newest list that can be read.
    fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        self.look_for_lists();
        self.look_at_lists();
        Arc::clone(&self.current().verifier)
    }

    /// Reads the lists again if their file has changed.
    fn look_for_lists(&self) {
        let stamp = Stamp::of(&self.0.revocations);
        let is_other = self.current().stamp != stamp;
        if is_other && self.is_worth_a_try(stamp) {
            self.refresh(stamp);
        }
    }

    fn current(&self) -> RwLockReadGuard<'_, Current> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs that a revocation list has expired, once a day.
    pub fn look_at_lists(&self) {
        let next = self.current().next_update;
        if next.is_some_and(|next| next < SystemTime::now()) {
            self.say_expired();
        }
    }

    /// The revocation lists in use, in the order of their file.
    #[must_use]
    pub fn revocation_lists(&self) -> Vec<RevocationList> {
        self.current().lists.iter().filter_map(|list| RevocationList::parse(list)).collect()
    }

    /// When the authorities' certificates are valid, in the order of their file.
    pub(crate) fn dates(&self) -> Vec<Dates> {
        self.current().dates.to_vec()
    }

    #[cold]
    fn say_expired(&self) {
        let now = SystemTime::now();
        let mut said = self.0.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_some_and(|said| now.duration_since(said).is_ok_and(|since| since < SAID_EVERY)) {
            return;
        }
        *said = Some(now);
        let file = self.0.revocations.display();
        match self.0.expiry {
            ListExpiry::Warn => tracing::warn!(%file, "the revocation list has expired; it is still in use"),
            ListExpiry::Refuse => {
                tracing::error!(%file, "the revocation list has expired: its certificates are refused")
            }
        }
    }

    #[cold]
    fn is_worth_a_try(&self, stamp: Stamp) -> bool {
        let failed = self.0.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.as_ref().is_none_or(|failed| failed.stamp != stamp || failed.at.elapsed() >= TRIED_EVERY)
    }

    fn refresh(&self, stamp: Stamp) {
        let done = self.reload();
        let mut failed = self.0.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match done {
            Ok(()) => {
                *failed = None;
                tracing::info!(file = %self.0.revocations.display(), "revocation list read again");
            }
            Err(error) => {
                // Revoked certificates stay revoked.
                let why = error.to_string();
                if failed.as_ref().is_none_or(|failed| failed.why != why || failed.stamp != stamp) {
                    tracing::error!(%error, "the revocation list cannot be used; the one before stays in force");
                }
                *failed = Some(Failed { stamp, at: Instant::now(), why });
            }
        }
    }

    /// To be asked by a connection with this certificate whether it may go on.
    #[must_use]
    pub fn watch(&self, chain: &[CertificateDer<'_>]) -> Cut {
        let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        let state = Arc::new(CutState::new(chain));
        let mut open = self.open();
        // Those that are gone are swept out whenever the list would grow.
        if open.len() == open.capacity() {
            open.retain(|watched| watched.strong_count() > 0);
        }
        open.push(Arc::downgrade(&state));
        Cut::of(state)
    }

    /// Cuts the connections whose certificate has been revoked; gives how many.
    pub fn cut_revoked(&self) -> usize {
        let open: Vec<_> = self.open().iter().filter_map(Weak::upgrade).collect();
        let revoked = |state: &&Arc<CutState>| match state.chain().split_first() {
            Some((leaf, rest)) => {
                self.verify(leaf, rest) == Err(Error::InvalidCertificate(CertificateError::Revoked)) && !state.is_cut()
            }
            None => false,
        };
        open.iter().filter(revoked).map(|state| state.cut()).count()
    }

    fn open(&self) -> MutexGuard<'_, Vec<Weak<CutState>>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ClientTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTrust").field("authorities", &self.0.authorities).finish_non_exhaustive()
    }
}

impl Current {
    fn new(
        [authorities, revocations]: [&Path; 2],
        expiry: ListExpiry,
        lists: Vec<CertificateRevocationListDer<'static>>,
        stamp: Stamp,
    ) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        let certificates = pem::certificates(authorities)?;
        let dates = Dates::of_all(&certificates);
        for certificate in certificates {
            let added = roots.add(certificate.clone());
            added.map_err(|error| failed(authorities, pem::why_unusable(&certificate, &error)))?;
        }
        let names = roots.subjects();
        let own = lists.iter().filter(|list| lists::is_of(list, &names)).count();
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).with_crls(lists.clone());
        let builder = if lists.is_empty() || own > 0 {
            // Authorities without a list of their own are believed: not everybody keeps one.
            builder.allow_unknown_revocation_status()
        } else {
            // The lists may be of authorities below, whose certificates the clients send.
            builder.only_check_end_entity_revocation()
        };
        let builder = match expiry {
            ListExpiry::Warn => builder,
            ListExpiry::Refuse => builder.enforce_revocation_expiration(),
        };
        let verifier = builder.build().map_err(|error| failed(revocations, pem::why_unusable_list(&lists, &error)))?;
        let next_update = lists.iter().filter_map(|list| lists::next_update(list)).min();
        Ok(Self { verifier, stamp, lists, next_update, own, names: names.into(), dates })
    }

    /// Whether there are lists, but none of the authorities.
    const fn is_foreign(&self) -> bool {
        self.own == 0 && !self.lists.is_empty()
    }
}

fn failed(file: &Path, why: impl fmt::Display) -> TlsError {
    TlsError::File { file: file.into(), why: why.to_string() }
}
