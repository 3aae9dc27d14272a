//! Addresses (RFC 7622), pragmatically.
//!
//! Local parts and domains are folded to lower case and compared so; what PRECIS would forbid in them by category is
//! reduced to: white space, control characters and `"&'/:<>@`. Unicode normalisation is not applied, so two spellings
//! of one accent are two users. Resources keep their case and may hold anything but control characters.

use std::fmt;
use std::sync::Arc;

/// RFC 7622 §3.2–3.4: each part holds 1 to 1023 bytes.
const PART_BYTES_MAX: usize = 1023;

/// An address that obeys the rules above, in its normal form. Cloning shares the text.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Jid {
    text: Arc<str>,
    /// Where the domain begins; 0 without a local part.
    domain: u16,
    /// Where the `/` is, or the length without a resource.
    slash: u16,
}

/// A violation of the address format (RFC 7622).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JidError {
    /// A part is there, but empty.
    #[error("an empty part")]
    Empty,
    /// A part has more than 1023 bytes.
    #[error("a part over 1023 bytes")]
    TooLong,
    /// A character that the part may not have.
    #[error("a forbidden character")]
    Forbidden,
}

impl Jid {
    /// Reads `[local@]domain[/resource]`.
    ///
    /// # Errors
    /// The rule it breaks.
    pub fn parse(text: &str) -> Result<Self, JidError> {
        // RFC 7622 §3.1: the resource begins at the first `/`, the domain after the first `@` before it.
        let (bare, resource) = text.split_once('/').map_or((text, None), |(bare, resource)| (bare, Some(resource)));
        let (local, domain) = bare.split_once('@').map_or((None, bare), |(local, domain)| (Some(local), domain));
        Self::from_parts(local, domain, resource)
    }

    /// Puts an address together.
    ///
    /// # Errors
    /// The rule that a part breaks.
    pub fn from_parts(local: Option<&str>, domain: &str, resource: Option<&str>) -> Result<Self, JidError> {
        let mut text = String::new();
        if let Some(local) = local {
            text.push_str(&local_part(local)?);
            text.push('@');
        }
        let domain_at = index(text.len())?;
        text.push_str(&domain_part(domain)?);
        let slash = index(text.len())?;
        if let Some(resource) = resource {
            text.push('/');
            text.push_str(bounded(resource)?);
            if resource.chars().any(char::is_control) {
                return Err(JidError::Forbidden);
            }
        }
        Ok(Self { text: text.into(), domain: domain_at, slash })
    }

    /// The whole address.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The localpart, before the `@`.
    #[must_use]
    pub fn local(&self) -> Option<&str> {
        self.text.get(..usize::from(self.domain).checked_sub(1)?)
    }

    /// The domainpart.
    #[must_use]
    pub fn domain(&self) -> &str {
        self.text.get(self.domain.into()..self.slash.into()).unwrap_or_default()
    }

    /// The resourcepart, after the `/`.
    #[must_use]
    pub fn resource(&self) -> Option<&str> {
        self.text.get(usize::from(self.slash) + 1..)
    }

    /// The address without its resource, as text.
    #[must_use]
    pub fn bare_str(&self) -> &str {
        self.text.get(..self.slash.into()).unwrap_or_default()
    }

    /// Whether there is no resource.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        usize::from(self.slash) == self.text.len()
    }

    /// The address without its resource.
    #[must_use]
    pub fn bare(&self) -> Self {
        if self.is_bare() {
            return self.clone();
        }
        Self { text: self.bare_str().into(), domain: self.domain, slash: self.slash }
    }

    /// The address with this resource.
    ///
    /// # Errors
    /// The rule that the resource breaks.
    pub fn with_resource(&self, resource: &str) -> Result<Self, JidError> {
        Self::from_parts(self.local(), self.domain(), Some(resource))
    }
}

impl fmt::Debug for Jid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Jid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn index(at: usize) -> Result<u16, JidError> {
    u16::try_from(at).map_err(|_| JidError::TooLong)
}

fn bounded(part: &str) -> Result<&str, JidError> {
    match part.len() {
        0 => Err(JidError::Empty),
        1..=PART_BYTES_MAX => Ok(part),
        _ => Err(JidError::TooLong),
    }
}

fn folded(part: &str) -> String {
    if part.is_ascii() { part.to_ascii_lowercase() } else { part.to_lowercase() }
}

/// RFC 7622 §3.3
fn local_part(local: &str) -> Result<String, JidError> {
    // Folding may lengthen, so it is measured after.
    let local = folded(bounded(local)?);
    let forbidden = |c: char| c.is_control() || c.is_whitespace() || "\"&'/:<>@".contains(c);
    if local.chars().any(forbidden) {
        return Err(JidError::Forbidden);
    }
    bounded(&local)?;
    Ok(local)
}

/// RFC 7622 §3.2: a trailing dot does not count.
fn domain_part(domain: &str) -> Result<String, JidError> {
    let domain = folded(bounded(domain.strip_suffix('.').unwrap_or(domain))?);
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c) || (!c.is_ascii() && c.is_alphanumeric());
    if !domain.chars().all(allowed) {
        return Err(JidError::Forbidden);
    }
    bounded(&domain)?;
    Ok(domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_and_folded() {
        let jid = Jid::parse("Ada@Example.ORG./Home/1@x").unwrap();
        assert_eq!(jid.as_str(), "ada@example.org/Home/1@x");
        assert_eq!((jid.local(), jid.domain(), jid.resource()), (Some("ada"), "example.org", Some("Home/1@x")));
        assert_eq!(jid.bare().as_str(), "ada@example.org");
        assert!(jid.bare().is_bare() && !jid.is_bare());
        let domain = Jid::parse("localhost").unwrap();
        assert_eq!((domain.local(), domain.resource(), domain.bare_str()), (None, None, "localhost"));
    }

    #[test]
    fn bad_addresses_are_refused() {
        let long = "a".repeat(1024);
        let cases = [
            ("", JidError::Empty),
            ("@d", JidError::Empty),
            ("a@", JidError::Empty),
            ("a@d/", JidError::Empty),
            ("/r", JidError::Empty),
            ("a b@d", JidError::Forbidden),
            ("a<b@d", JidError::Forbidden),
            ("a@d@e", JidError::Forbidden),
            ("a@d/x\u{7}", JidError::Forbidden),
            (long.as_str(), JidError::TooLong),
        ];
        for (text, error) in cases {
            assert_eq!(Jid::parse(text), Err(error), "{text}");
        }
    }
}
