//! The names that a server's certificate is for.

use std::{net::IpAddr, path::Path};

use rustls::pki_types::ServerName;
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer as _};

use super::PkiError;
use crate::pem;

/// Adds a name, unless it is there already.
pub(super) fn add(names: &mut Vec<ServerName<'static>>, name: ServerName<'static>) {
    if !names.contains(&name) {
        names.push(name);
    }
}

/// The names in the certificate of a file: a new one in its place is for these as well, whoever asked for them. None
/// if there is no certificate that can be read.
pub(super) fn of_file(file: &Path) -> Vec<ServerName<'static>> {
    let chain = pem::certificates(file).unwrap_or_default();
    let Some((_, certificate)) = chain.first().and_then(|leaf| X509Certificate::from_der(leaf).ok()) else {
        return Vec::new();
    };
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let names = alternatives.iter().flat_map(|extension| &extension.value.general_names);
    names.filter_map(of_extension).collect()
}

/// Reads a DNS name or an address that a server's certificate can be for. A dot at the end, as of `fog.example.`, is
/// left out: names in certificates have none (RFC 5280 §4.2.1.6), and clients refuse one that does. A wildcard is no
/// name of one server.
///
/// # Errors
/// [`PkiError::Name`].
pub fn server_name(text: &str) -> Result<ServerName<'static>, PkiError> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let found = ServerName::try_from(name.to_owned()).ok().filter(|_| !name.ends_with('.'));
    found.ok_or_else(|| PkiError::Name(text.to_owned()))
}

/// A DNS name or an address as a name of a server. One that no client accepts is left out.
fn of_extension(name: &GeneralName<'_>) -> Option<ServerName<'static>> {
    if let GeneralName::DNSName(name) = name {
        return server_name(name).ok();
    }
    let GeneralName::IPAddress(bytes) = name else { return None };
    let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
    let address = v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok()?;
    Some(ServerName::IpAddress(address.into()))
}
