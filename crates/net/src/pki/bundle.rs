//! The file of the authorities' certificates, of which there are two in a rollover. What else an operator has put into
//! it stays.

use std::path::Path;

use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use super::{
    PkiError,
    files::{Access, write},
};
use crate::{channel::ClientCertificate, dates::Dates, error::TlsError, pem};

/// The last line of a certificate (RFC 7468 §5).
const END: &str = "-----END CERTIFICATE-----";

/// Certificates with the text that is before each.
pub(super) struct Bundle {
    parts: Vec<Part>,
    /// The text behind the last.
    rest: String,
}

struct Part {
    text: String,
    name: Option<String>,
    dates: Option<Dates>,
}

impl Bundle {
    /// Reads a file.
    ///
    /// # Errors
    /// [`PkiError`]: it cannot be read, or something in it is no certificate.
    pub(super) fn read(file: &Path) -> Result<Self, PkiError> {
        // Says in words why it cannot be used.
        pem::certificates(file)?;
        let text = fogmux_file::read_to_string(file).map_err(|source| PkiError::Io { file: file.into(), source })?;
        let mut parts = Vec::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(END) {
            let (part, behind) = rest.split_at(at + END.len());
            let line = behind.find('\n').map_or(behind.len(), |end| end + 1);
            let (ending, behind) = behind.split_at(line);
            parts.push(Part::new(format!("{part}{}\n", ending.trim_end())).ok_or_else(|| none(file))?);
            rest = behind;
        }
        Ok(Self { parts, rest: rest.to_owned() })
    }

    /// Whether the authority of a name is in it.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// When the certificate of an authority is valid.
    pub(super) fn dates(&self, name: &str) -> Option<Dates> {
        self.parts.get(self.find(name)?)?.dates.clone()
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.parts.iter().position(|part| part.name.as_deref() == Some(name))
    }

    /// Puts a certificate behind that of an authority.
    pub(super) fn insert_behind(&mut self, name: &str, text: String) -> Result<(), PkiError> {
        let at = self.find(name).map_or(0, |at| at + 1);
        let part = Part::new(text).ok_or_else(|| PkiError::Generate("no certificate was made".to_owned()))?;
        self.parts.insert(at, part);
        Ok(())
    }

    /// Puts the certificate of an authority before all others; returns whether it was not there.
    pub(super) fn put_first(&mut self, name: &str) -> bool {
        let Some(at) = self.find(name).filter(|at| *at > 0) else { return false };
        let part = self.parts.remove(at);
        self.parts.insert(0, part);
        true
    }

    /// Takes the certificate of an authority out; returns whether it was there.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.find(name).map(|at| self.parts.remove(at)).is_some()
    }

    /// Writes the file whole or not at all.
    pub(super) fn write(&self, file: &Path) -> Result<(), PkiError> {
        let text: String = self.parts.iter().map(|part| part.text.as_str()).chain([self.rest.as_str()]).collect();
        write(file, &text, Access::Everybody)
    }
}

impl Part {
    fn new(text: String) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(text.as_bytes()).ok()?;
        let name = ClientCertificate::parse(&der).ok()?.common_name.map(String::from);
        Some(Self { dates: Dates::parse(&der), text, name })
    }
}

fn none(file: &Path) -> PkiError {
    TlsError::File { file: file.into(), why: pem::NO_CERTIFICATE.to_owned() }.into()
}
