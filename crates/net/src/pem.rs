//! PEM files (RFC 7468) of certificates, private keys and revocation lists. An error names the file and what is wrong
//! with it in words for whoever made the file; it never quotes what may be a part of a key.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer,
    pem::{Error, PemObject},
};
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _, x509::X509Version};
use zeroize::Zeroizing;

use crate::error::TlsError;

/// The contents that a file is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Certificate,
    PrivateKey,
    RevocationList,
}

impl Wanted {
    const fn name(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::PrivateKey => "private key",
            Self::RevocationList => "revocation list",
        }
    }

    /// The command of OpenSSL that converts it.
    const fn command(self) -> &'static str {
        match self {
            Self::Certificate => "x509",
            Self::PrivateKey => "pkey",
            Self::RevocationList => "crl",
        }
    }
}

/// Returns the certificates of a file, at least one. Whether they can be used is for the TLS stack to say, whose
/// reason `why_unusable` puts into words.
///
/// # Errors
/// [`TlsError::File`].
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    list_of(file, &read(file)?, Wanted::Certificate)
}

/// Returns the private key of a file.
///
/// # Errors
/// [`TlsError::File`].
pub fn key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = read(file)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| refuse(file, explain(file, &text, Wanted::PrivateKey, &error)))
}

/// Returns the revocation lists of a file; `None` if there is no such file. A link that leads nowhere is an error, for
/// the lists may only not be mounted yet.
///
/// # Errors
/// [`TlsError::File`]; also for a file without a list.
pub(crate) fn revocation_lists(file: &Path) -> Result<Option<Vec<CertificateRevocationListDer<'static>>>, TlsError> {
    let text = match fogmux_file::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(file).is_err() => {
            return Ok(None);
        }
        Err(error) => return Err(refuse(file, error.to_string())),
    };
    list_of(file, &text, Wanted::RevocationList).map(Some)
}

fn list_of<T: PemObject>(file: &Path, text: &[u8], wanted: Wanted) -> Result<Vec<T>, TlsError> {
    let refused = |error| refuse(file, explain(file, text, wanted, &error));
    let found: Vec<T> = T::pem_slice_iter(text).collect::<Result<_, _>>().map_err(refused)?;
    if found.is_empty() { Err(refused(Error::NoItemsFound)) } else { Ok(found) }
}

fn read(file: &Path) -> Result<Zeroizing<Vec<u8>>, TlsError> {
    fogmux_file::read(file).map(Zeroizing::new).map_err(|error| refuse(file, error.to_string()))
}

fn refuse(file: &Path, why: String) -> TlsError {
    TlsError::File { file: PathBuf::from(file), why }
}

/// Says why a certificate cannot be used that a TLS stack has refused with `error`, whose words are about its code.
pub(crate) fn why_unusable(certificate: &[u8], error: &rustls::Error) -> String {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return NO_CERTIFICATE.to_owned() };
    let X509Version(version) = parsed.version();
    if parsed.version() == X509Version::V3 {
        return format!("the certificate of {} cannot be used: {error}", parsed.subject());
    }
    format!(
        "the certificate of {} is of X.509 version {}, which has no names of hosts; version 3 is needed (`openssl x509 \
         -req` makes it with -copy_extensions copy, or with -extfile)",
        parsed.subject(),
        // The numbers are one less than the names (RFC 5280 §4.1.2.1).
        version.saturating_add(1),
    )
}

/// Says why one of these revocation lists cannot be used, after a TLS stack has refused them with `error`.
pub(crate) fn why_unusable_list(lists: &[CertificateRevocationListDer<'_>], error: &dyn fmt::Display) -> String {
    for list in lists {
        let Ok((_, parsed)) = x509_parser::parse_x509_crl(list) else { return NO_LIST.to_owned() };
        // RFC 5280 §5.1.2.1, §5.2.3
        if parsed.version() != Some(X509Version::V2) || parsed.crl_number().is_none() {
            return format!(
                "the revocation list of {} is of version 1 or has no number; version 2 with a number is needed \
                 (`openssl ca -gencrl` makes it if its configuration has `crlnumber`)",
                parsed.issuer()
            );
        }
    }
    error.to_string()
}

/// The fault of a section that is labelled as a certificate and is none.
pub(crate) const NO_CERTIFICATE: &str = "what is in it is no X.509 certificate";

/// The fault of a section that is labelled as a revocation list and is none.
pub(crate) const NO_LIST: &str = "what is in it is no X.509 revocation list";

/// Says why PEM text is refused.
fn explain(file: &Path, text: &[u8], wanted: Wanted, error: &Error) -> String {
    let name = wanted.name();
    let encrypted = || {
        let file = file.display();
        format!(
            "the private key is encrypted, and nobody is here to enter its passphrase; `openssl pkey -in {file} -out \
             NEW` writes it without one"
        )
    };
    match error {
        Error::MissingSectionEnd { end_marker } => match label(end_marker) {
            Some(label) => format!("the line -----END {label}----- is missing: the file is incomplete"),
            None => "an END line is missing: the file is incomplete".to_owned(),
        },
        Error::IllegalSectionStart { .. } => "a BEGIN line does not end in five hyphens".to_owned(),
        Error::Base64Decode(_) if contains(text, b"Proc-Type: 4,ENCRYPTED") => encrypted(),
        Error::Base64Decode(_) => "what is between its BEGIN and END lines is not base64: it is damaged".to_owned(),
        Error::NoItemsFound if text.trim_ascii().is_empty() => "the file is empty".to_owned(),
        // A SEQUENCE (X.690 §8.9), which is what all of these are in DER.
        Error::NoItemsFound if text.first() == Some(&0x30) => {
            let (file, command) = (file.display(), wanted.command());
            format!("it is DER, and PEM is needed: `openssl {command} -inform DER -in {file} -out NEW`")
        }
        Error::NoItemsFound => match labels(text) {
            found if wanted == Wanted::PrivateKey && found.iter().any(|label| label == "ENCRYPTED PRIVATE KEY") => {
                encrypted()
            }
            found if found.is_empty() => format!("there is no {name} in it: no line begins with -----BEGIN"),
            found => format!("there is no {name} in it, but: {}", found.join(", ")),
        },
        Error::Io(_) | Error::SectionTooLarge | _ => error.to_string(),
    }
}

/// The labels of the sections of PEM text, each once.
fn labels(text: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let between = line.trim_ascii().strip_prefix(b"-----BEGIN ").and_then(|line| line.strip_suffix(b"-----"));
        if let Some(label) = between.and_then(label)
            && !found.contains(&label)
        {
            found.push(label);
        }
    }
    found
}

/// A label that can be shown: a broken line may have base64 where its label should be.
fn label(bytes: &[u8]) -> Option<String> {
    const LABEL_BYTES_MAX: usize = 32;
    let plain = bytes.iter().all(|byte| byte.is_ascii_uppercase() || matches!(byte, b' ' | b'0'..=b'9'));
    (plain && !bytes.is_empty() && bytes.len() <= LABEL_BYTES_MAX).then(|| String::from_utf8_lossy(bytes).into_owned())
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki;

    /// Returns the error for a file with this text, without its name.
    fn said(text: &[u8], read: fn(&Path) -> Result<(), TlsError>) -> String {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("FILE");
        fs::write(&file, text).unwrap();
        let said = read(&file).unwrap_err().to_string();
        let (named, why) = said.split_once(": ").unwrap();
        assert_eq!(named, file.to_str().unwrap(), "the file comes first");
        why.replace(named, "FILE")
    }

    #[test]
    fn each_mistake_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let made = pki::ensure(directory.path(), &[], std::time::SystemTime::now()).unwrap();
        let [certificate, key_text] = [&made.certificate, &made.key].map(|file| fs::read_to_string(file).unwrap());
        let of_certificate: fn(&Path) -> Result<(), TlsError> = |file| certificates(file).map(drop);
        let of_key: fn(&Path) -> Result<(), TlsError> = |file| key(file).map(drop);
        let of_list: fn(&Path) -> Result<(), TlsError> = |file| revocation_lists(file).map(drop);
        let der = certificates(&made.certificate).unwrap().remove(0);
        let half = &certificate[..certificate.len() / 2];
        let cases = [
            (half.as_bytes(), of_certificate, "the line -----END CERTIFICATE----- is missing: the file is incomplete"),
            (b"\n", of_certificate, "the file is empty"),
            (b"\n", of_key, "the file is empty"),
            (b"hello", of_list, "there is no revocation list in it: no line begins with -----BEGIN"),
            (key_text.as_bytes(), of_certificate, "there is no certificate in it, but: PRIVATE KEY"),
            (certificate.as_bytes(), of_key, "there is no private key in it, but: CERTIFICATE"),
            (certificate.as_bytes(), of_list, "there is no revocation list in it, but: CERTIFICATE"),
            (&der, of_certificate, "it is DER, and PEM is needed: `openssl x509 -inform DER -in FILE -out NEW`"),
        ];
        for (text, read, expected) in cases {
            assert_eq!(said(text, read), expected);
        }
        let damaged = certificate.replace('M', "*");
        assert!(said(damaged.as_bytes(), of_certificate).ends_with("is not base64: it is damaged"));
        for encrypted in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMAA=\n-----END RSA PRIVATE KEY-----\n",
        ] {
            assert!(said(encrypted.as_bytes(), of_key).starts_with("the private key is encrypted"));
        }
        assert!(certificates(&directory.path().join("none")).unwrap_err().to_string().contains("No such file"));
        assert!(revocation_lists(&directory.path().join("none")).unwrap().is_none());
    }

    #[test]
    fn no_part_of_a_key_is_quoted() {
        let secret = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEH";
        for text in [
            format!("-----BEGIN PRIVATE KEY{secret}\n"),
            format!("-----BEGIN PRIVATE KEY-----{secret}-----\n{secret}\n"),
            format!("-----BEGIN {secret}-----\n{secret}\n"),
            format!("-----BEGIN PRIVATE KEY-----\n{secret}!\n-----END PRIVATE KEY-----\n"),
        ] {
            let said = said(text.as_bytes(), |file| key(file).map(drop));
            assert!(!said.contains(&secret[..8]), "{said}");
        }
    }
}
