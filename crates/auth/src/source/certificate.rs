//! X.509 client certificates: the mapping of their names to users. The handshake has verified chain, dates and
//! revocation.
//!
//! ```toml
//! [[certificate]]                     # the first that fits counts
//! sha256 = "9f86d0…"                  # or: common_name, dns, email, uri, xmpp_address, each with one * at most
//! user = "alice"                      # left out: the certificate's own name
//! groups = ["operators"]
//! refuse = false
//! ```
//!
//! A certificate that no entry fits belongs to the user of its common name, else of its first subject alternative name.
//! For an address of e-mail or XMPP that is the whole address, or what is before the `@` of an `id-on-xmppAddr`.

use std::{path::Path, sync::Arc};

use data_encoding::HEXLOWER_PERMISSIVE;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Credential, Grant, Source, SourceKind, Verified, vouched};
use crate::{
    principal::Principal,
    private_file,
    problem::{Problems, Review},
    refused::Refused,
    users::{Users, checked_name, checked_user},
};

/// The names of a client certificate whose chain a handshake verified.
#[derive(Debug, Clone, Copy)]
pub struct CertificateIdentity<'a> {
    /// The digest of the certificate in DER.
    pub sha256: &'a [u8; 32],
    /// The subject's common name.
    pub common_name: Option<&'a str>,
    /// `dNSName`s.
    pub dns: &'a [Box<str>],
    /// `rfc822Name`s.
    pub emails: &'a [Box<str>],
    /// `uniformResourceIdentifier`s.
    pub uris: &'a [Box<str>],
    /// `id-on-xmppAddr` (RFC 6120 §13.7.1.4).
    pub xmpp_addresses: &'a [Box<str>],
    /// The domain whose addresses are our users'; "" when there is none.
    pub realm: &'a str,
}

impl<'a> CertificateIdentity<'a> {
    /// The name it has without any mapping.
    fn own_name(&self) -> Option<&'a str> {
        let ours =
            |jid: &'a str| jid.split_once('@').filter(|(_, domain)| *domain == self.realm).map(|(local, _)| local);
        let address = || self.xmpp_addresses.iter().find_map(|jid| ours(jid));
        let alternative = |names: &'a [Box<str>]| names.first().map(|name| &**name);
        self.common_name
            .filter(|name| !name.is_empty())
            .or_else(|| alternative(self.dns))
            .or_else(|| alternative(self.emails))
            .or_else(|| alternative(self.uris))
            .or_else(address)
    }
}

/// The entries of a certificates file.
#[derive(Debug, Clone, Default)]
pub struct CertificateRules {
    entries: Vec<Entry>,
    /// Only users of the users file are let in.
    pub users_only: bool,
}

#[derive(Debug, Clone)]
struct Entry {
    fits: Fits,
    user: Option<Box<str>>,
    groups: Vec<Arc<str>>,
    refuse: bool,
}

#[derive(Debug, Clone)]
enum Fits {
    Sha256([u8; 32]),
    CommonName(Glob),
    Dns(Glob),
    Email(Glob),
    Uri(Glob),
    XmppAddress(Glob),
}

/// Text with at most one `*`, which stands for any text.
#[derive(Debug, Clone)]
struct Glob {
    before: Box<str>,
    after: Option<Box<str>>,
}

impl Glob {
    fn parse(text: &str) -> Option<Self> {
        match text.split_once('*') {
            None => Some(Self { before: text.into(), after: None }),
            Some((_, after)) if after.contains('*') => None,
            Some((before, after)) => Some(Self { before: before.into(), after: Some(after.into()) }),
        }
    }

    fn fits(&self, name: &str) -> bool {
        match &self.after {
            None => *name == *self.before,
            Some(after) => name.strip_prefix(&*self.before).is_some_and(|rest| rest.ends_with(&**after)),
        }
    }

    /// As DNS compares: without regard to case.
    fn fits_host(&self, name: &str) -> bool {
        let lower = |text: &str| text.to_ascii_lowercase().into_boxed_str();
        let folded = Self { before: lower(&self.before), after: self.after.as_deref().map(lower) };
        folded.fits(&lower(name))
    }
}

impl Fits {
    /// The kind of name that it looks at, if it fits a certificate that has `name` as its own.
    fn own_name(&self, name: &str) -> Option<&'static str> {
        let (kind, fits) = match self {
            Self::Sha256(_) => return None,
            Self::CommonName(glob) => ("common_name", glob.fits(name)),
            Self::Dns(glob) => ("dns", glob.fits_host(name)),
            Self::Email(glob) => ("email", glob.fits(name)),
            Self::Uri(glob) => ("uri", glob.fits(name)),
            // Only addresses of our domain are names, without it.
            Self::XmppAddress(_) => return None,
        };
        fits.then_some(kind)
    }
}

impl Entry {
    fn fits(&self, certificate: &CertificateIdentity<'_>) -> bool {
        let any = |glob: &Glob, names: &[Box<str>]| names.iter().any(|name| glob.fits(name));
        match &self.fits {
            Fits::Sha256(digest) => digest == certificate.sha256,
            Fits::CommonName(glob) => certificate.common_name.is_some_and(|name| glob.fits(name)),
            Fits::Dns(glob) => certificate.dns.iter().any(|name| glob.fits_host(name)),
            Fits::Email(glob) => any(glob, certificate.emails),
            Fits::Uri(glob) => any(glob, certificate.uris),
            Fits::XmppAddress(glob) => any(glob, certificate.xmpp_addresses),
        }
    }
}

impl CertificateRules {
    /// Reads a certificates file; one that does not exist maps nothing.
    ///
    /// # Errors
    /// Everything that is wrong with it, with its lines.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        match private_file::read(path) {
            Ok(Some(text)) => Self::parse(path, &text),
            Ok(None) => Ok(Self::default()),
            Err(error) => Err(Problems::of_file(path, format!("cannot be read: {error}"))),
        }
    }

    /// Reads the text of a certificates file; `path` is only named in problems.
    ///
    /// # Errors
    /// Everything that is wrong with it, with its lines.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Problems> {
        let mut review = Review::new(path, text);
        let table = review.parse();
        let mut entries = Vec::new();
        for (key, value) in &table {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("certificate", DeValue::Array(list)) => {
                    entries.extend(list.iter().filter_map(|entry| read_entry(&mut review, entry)));
                }
                ("certificate", _) => review.report(value.span(), "write [[certificate]], with two brackets"),
                (other, _) => review.report(key.span(), format!("unknown key {other:?}; known: [[certificate]]")),
            }
        }
        review.problems.unless_any(Self { entries, users_only: false })
    }

    /// The sets of groups that entries give to certificates of a user: those that name the user, and those that name
    /// none and fit a certificate by the user's name. Each set once, in the order of the entries.
    pub(crate) fn groups_of(&self, user: &str) -> Vec<&[Arc<str>]> {
        let (mut kinds, mut found): (Vec<&str>, Vec<&[Arc<str>]>) = (Vec::new(), Vec::new());
        for entry in &self.entries {
            // Of the entries that look at names of one kind, the first that fits counts.
            let kind = entry.fits.own_name(user).filter(|kind| !kinds.contains(kind));
            kinds.extend(kind);
            let is_of_user = entry.user.as_deref().map_or(kind.is_some(), |mapped| mapped == user);
            if is_of_user && !entry.refuse && !found.contains(&&*entry.groups) {
                found.push(&entry.groups);
            }
        }
        if found.iter().all(|groups| groups.is_empty()) { Vec::new() } else { found }
    }

    fn judge(&self, certificate: &CertificateIdentity<'_>, users: &Users) -> Result<Principal, Refused> {
        let entry = self.entries.iter().find(|entry| entry.fits(certificate));
        if entry.is_some_and(|entry| entry.refuse) {
            return Err(Refused::Credentials);
        }
        let mapped = entry.and_then(|entry| entry.user.as_deref());
        let name = mapped.or_else(|| certificate.own_name()).ok_or(Refused::Credentials)?;
        let groups = entry.map(|entry| entry.groups.clone()).unwrap_or_default();
        let principal = vouched(users, SourceKind::Certificate, name, Grant { groups, variables: None })?;
        if self.admits(&principal, users) { Ok(principal) } else { Err(Refused::Credentials) }
    }
}

impl Source for CertificateRules {
    fn kind(&self) -> SourceKind {
        SourceKind::Certificate
    }

    fn judge(&self, credential: &Credential<'_>, users: &Users) -> Option<Result<Verified, Refused>> {
        match credential {
            Credential::Certificate(certificate) => Some(self.judge(certificate, users).map(Verified::from)),
            Credential::Psk { .. } | Credential::Oscore(_) | Credential::Token { .. } => None,
        }
    }

    fn admits(&self, principal: &Principal, users: &Users) -> bool {
        !self.users_only || users.get(&principal.name).is_some()
    }
}

const KEYS: &str = "sha256, common_name, dns, email, uri, xmpp_address, user, groups, refuse";

fn read_entry(review: &mut Review<'_>, entry: &Spanned<DeValue<'_>>) -> Option<Entry> {
    let Some(table) = entry.get_ref().as_table() else {
        review.report(entry.span(), "expected a table");
        return None;
    };
    let mut found = None;
    let mut read = Entry { fits: Fits::Sha256([0; 32]), user: None, groups: Vec::new(), refuse: false };
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "user" => read.user = user(review, "user", value).map(Into::into),
            "groups" => read.groups = groups(review, value),
            "refuse" => match value.get_ref().as_bool() {
                Some(refuse) => read.refuse = refuse,
                None => review.report(value.span(), "refuse: expected true or false"),
            },
            kind => match read_fits(review, kind, key.span(), value) {
                Some(_) if found.is_some() => review.report(key.span(), "one entry looks at one name only"),
                Some(fits) => found = Some(fits),
                None => {}
            },
        }
    }
    if found.is_none() && !names_something(table) {
        let expected = "say which: sha256, common_name, dns, email, uri or xmpp_address = \"…\"";
        review.report(entry.span(), expected);
    }
    found.map(|fits| Entry { fits, ..read })
}

fn names_something(table: &DeTable<'_>) -> bool {
    ["sha256", "common_name", "dns", "email", "uri", "xmpp_address"].iter().any(|key| table.contains_key(*key))
}

fn read_fits(
    review: &mut Review<'_>,
    kind: &str,
    key: std::ops::Range<usize>,
    value: &Spanned<DeValue<'_>>,
) -> Option<Fits> {
    let make: fn(Glob) -> Fits = match kind {
        "sha256" => {
            let digits: Option<String> =
                value.get_ref().as_str().map(|text| text.chars().filter(|c| *c != ':').collect());
            let digest = digits
                .and_then(|digits| HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok())
                .and_then(|bytes| bytes.try_into().ok());
            if digest.is_none() {
                review.report(value.span(), "sha256: expected 64 hexadecimal digits");
            }
            return digest.map(Fits::Sha256);
        }
        "common_name" => Fits::CommonName,
        "dns" => Fits::Dns,
        "email" => Fits::Email,
        "uri" => Fits::Uri,
        "xmpp_address" => Fits::XmppAddress,
        other => {
            review.report(key, format!("unknown key {other:?}; known: {KEYS}"));
            return None;
        }
    };
    let glob = value.get_ref().as_str().filter(|text| !text.is_empty()).and_then(Glob::parse);
    if glob.is_none() {
        review.report(value.span(), format!("{kind}: expected a name with one * at most"));
    }
    glob.map(make)
}

/// A user's name; reported when it cannot be one.
pub(super) fn user(review: &mut Review<'_>, key: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
    let name = name(review, key, value)?;
    let user = checked_user(&name);
    if let Err(error) = &user {
        review.report(value.span(), format!("{key}: {error}"));
    }
    user.ok()
}

/// The name of a user or group; reported when it cannot be one.
fn name(review: &mut Review<'_>, key: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
    let name = value.get_ref().as_str().and_then(|name| checked_name(name).ok());
    if name.is_none() {
        review.report(value.span(), format!("{key}: expected a name of 1 to 255 bytes without control characters"));
    }
    name
}

fn groups(review: &mut Review<'_>, value: &Spanned<DeValue<'_>>) -> Vec<Arc<str>> {
    let Some(list) = value.get_ref().as_array() else {
        review.report(value.span(), "groups: expected a list of strings");
        return Vec::new();
    };
    list.iter().filter_map(|group| name(review, "groups", group).map(Arc::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: [u8; 32] = [0xab; 32];

    fn certificate<'a>(common_name: &'a str, dns: &'a [Box<str>]) -> CertificateIdentity<'a> {
        let common_name = Some(common_name).filter(|name| !name.is_empty());
        CertificateIdentity {
            sha256: &DIGEST,
            common_name,
            dns,
            emails: &[],
            uris: &[],
            xmpp_addresses: &[],
            realm: "localhost",
        }
    }

    fn judge(rules: &str, certificate: &CertificateIdentity<'_>) -> Result<Principal, Refused> {
        CertificateRules::parse(Path::new("certificates.toml"), rules).unwrap().judge(certificate, &Users::default())
    }

    #[test]
    fn without_rules_the_common_name_is_the_user_else_the_first_alternative() {
        assert_eq!(&*judge("", &certificate("sensor-1", &[])).unwrap().name, "sensor-1");
        assert_eq!(&*judge("", &certificate("", &["a.example".into()])).unwrap().name, "a.example");
        let addressed = CertificateIdentity { xmpp_addresses: &["eve@elsewhere".into()], ..certificate("", &[]) };
        assert_eq!(judge("", &addressed), Err(Refused::Credentials));
        let addressed = CertificateIdentity { xmpp_addresses: &["juliet@localhost".into()], ..addressed };
        assert_eq!(&*judge("", &addressed).unwrap().name, "juliet");
        for nameless in ["", "anonymous", "a\u{7}b"] {
            assert_eq!(judge("", &certificate(nameless, &[])), Err(Refused::Credentials), "{nameless:?}");
        }
    }

    #[test]
    fn the_first_entry_that_fits_counts() {
        let rules = format!(
            "[[certificate]]\nsha256 = \"{}\"\nuser = \"alice\"\ngroups = [\"operators\"]\n\
             [[certificate]]\ncommon_name = \"*\"\nrefuse = true\n",
            "AB:".repeat(31) + "ab"
        );
        let alice = judge(&rules, &certificate("x", &[])).unwrap();
        assert_eq!((&*alice.name, &*alice.groups[0], alice.source), ("alice", "operators", SourceKind::Certificate));
        let other = CertificateIdentity { sha256: &[1; 32], ..certificate("x", &[]) };
        assert_eq!(judge(&rules, &other), Err(Refused::Credentials));
        let hosts = "[[certificate]]\ndns = \"*.Plant.example\"\ngroups = [\"plant\"]\n";
        let names = ["pump.plant.EXAMPLE".into()];
        let pump = judge(hosts, &certificate("", &names)).unwrap();
        assert_eq!((&*pump.name, pump.groups.len()), ("pump.plant.EXAMPLE", 1));
    }

    #[test]
    fn a_disabled_user_is_refused_and_an_unknown_one_where_only_users_may() {
        let text = "[users.alice]\ngroups = [\"a\"]\n[users.bob]\ndisabled = true\n";
        let users = Users::parse(Path::new("users.toml"), text).unwrap();
        let mut rules = CertificateRules::default();
        assert_eq!(&*rules.judge(&certificate("alice", &[]), &users).unwrap().groups[0], "a");
        assert_eq!(rules.judge(&certificate("bob", &[]), &users), Err(Refused::Credentials));
        assert!(rules.judge(&certificate("carol", &[]), &users).is_ok());
        rules.users_only = true;
        assert_eq!(rules.judge(&certificate("carol", &[]), &users), Err(Refused::Credentials));
        assert!(rules.judge(&certificate("alice", &[]), &users).is_ok());
    }

    #[test]
    fn all_problems_are_reported_with_their_lines() {
        let text = "[[certificate]]\nsha256 = \"zz\"\nuser = \"\"\n[[certificate]]\nuser = \"a\"\n[certificates]\n\
                    [[certificate]]\ndns = \"*.*\"\ncolour = 1\nrefuse = 1\ngroups = 1\n";
        let problems = CertificateRules::parse(Path::new("certificates.toml"), text).unwrap_err();
        let mut lines: Vec<usize> = problems.0.iter().map(|problem| problem.line).collect();
        lines.sort_unstable();
        assert_eq!(lines, [2, 3, 4, 6, 8, 9, 10, 11], "{problems}");
    }
}
