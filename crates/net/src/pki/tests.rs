//! Tests of the PKI: creation, renewal, permissions and revocation.

use super::*;

#[test]
fn revoking_at_once_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    Authority::make(directory.path(), KeyKind::EcdsaP256, at(0)).unwrap();
    std::thread::scope(|scope| {
        for serial in 0x40..0x60_u8 {
            let directory = directory.path();
            scope.spawn(move || {
                let authority = Authority::open(directory).unwrap();
                assert!(authority.revoke(&format!("{serial:02x}"), at(1)).unwrap());
            });
        }
    });
    let list = Revocations::load(&directory.path().join("crl.pem")).unwrap();
    assert_eq!((list.revoked.len(), list.number), (32, 32));
}

/// Says nothing but as root, who alone may give files away.
#[cfg(unix)]
#[test]
fn what_root_writes_belongs_to_whose_directory_it_is() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    let directory = tempfile::tempdir().unwrap();
    if chown(directory.path(), Some(54_321), Some(54_322)).is_err() {
        return;
    }
    let authority = Authority::make(directory.path(), KeyKind::EcdsaP256, at(0)).unwrap();
    authority.revoke("40", at(1)).unwrap();
    let owner = |name: &str| {
        let found = fs::metadata(directory.path().join(name)).unwrap();
        (found.uid(), found.gid())
    };
    for name in ["ca.pem", "ca.key", "crl.pem", "crl.pem.lock"] {
        assert_eq!(owner(name), (54_321, 54_322), "{name}");
    }
    chown(directory.path().join("crl.pem"), Some(54_323), Some(54_324)).unwrap();
    authority.revoke("41", at(1)).unwrap();
    assert_eq!(owner("crl.pem"), (54_323, 54_324), "of the file that is replaced");
}

fn at(days: u32) -> SystemTime {
    UNIX_EPOCH + EARLIEST + DAY * (100 + days)
}

#[test]
fn it_is_made_once_reused_and_renewed_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let make = |names: &[String], days| ensure(directory.path(), names, at(days)).unwrap();
    let read = |file: &Path| fs::read_to_string(file).unwrap();
    let first = make(&[], 0);
    assert!(first.renewed);
    let (ca, certificate) = (read(&first.ca), read(&first.certificate));
    assert!(!make(&[], 700).renewed);
    assert_eq!(read(&first.certificate), certificate);
    assert!(make(&[], 800).renewed, "20 days were left");
    assert_ne!(read(&first.certificate), certificate);
    assert_eq!(read(&first.ca), ca, "clients go on trusting the same authority");
    assert!(make(&["fog.example".into(), "192.0.2.7".into()], 800).renewed, "a new name");
    assert!(!make(&["fog.example".into()], 800).renewed);
    assert!(!make(&["not a name".into()], 800).renewed);
}

/// `fogmux pki server NAME` asks for names that the gateway, which renews the certificate, knows nothing of.
#[test]
fn names_that_were_asked_for_once_are_in_every_later_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let asked: Vec<String> = ["fog.example", "192.0.2.7", "2001:db8::7"].map(str::to_owned).into();
    ensure(directory.path(), &asked, at(0)).unwrap();
    let all = subject_names(&asked);
    for days in [800, 1_600, 2_400] {
        let renewed = ensure(directory.path(), &["other.example".into()], at(days)).unwrap();
        assert!(renewed.renewed, "{days}");
        let names = names::of_file(&renewed.certificate);
        assert!(all.iter().all(|name| names.contains(name)), "{days}: {names:?}");
        assert_eq!(names.len(), all.len() + 1, "{days}: {names:?}");
    }
}

/// RFC 5280 §4.2.1.6: a name in a certificate has no dot at its end, and clients refuse one that does.
#[test]
fn the_dot_at_the_end_of_a_name_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let made = ensure(directory.path(), &["fog.example.".into()], at(0)).unwrap();
    let name = |text: &str| ServerName::try_from(text.to_owned()).unwrap();
    assert!(names::of_file(&made.certificate).contains(&name("fog.example")));
    assert!(!ensure(directory.path(), &["fog.example".into()], at(0)).unwrap().renewed, "it is the same name");
    assert!(!ensure(directory.path(), &["192.0.2.7..".into(), "..".into()], at(0)).unwrap().renewed, "no names");

    // As an earlier version left it: it is made anew, without the dot.
    let authority = Authority::open(directory.path()).unwrap();
    let names = vec![name("raspi.")];
    let with_dot = Wanted { names, validity: SERVER_VALIDITY, ..Wanted::new(Purpose::Server, "fogmux gateway") };
    let issued = authority.issue(&with_dot, KeyKind::EcdsaP256, believable(at(0))).unwrap();
    issued.write(&made.certificate, &made.key).unwrap();
    assert!(ensure(directory.path(), &[], at(0)).unwrap().renewed);
    assert!(names::of_file(&made.certificate).contains(&name("raspi")));
    assert!(!ensure(directory.path(), &[], at(0)).unwrap().renewed);
}

/// As when the authority of another gateway was copied here under the name of this one's.
#[test]
fn a_certificate_that_clients_would_refuse_replaces_none() {
    let directory = tempfile::tempdir().unwrap();
    let made = ensure(directory.path(), &[], at(0)).unwrap();
    let (own, other) = (Authority::open(directory.path()).unwrap(), new_key(KeyKind::EcdsaP256).unwrap());
    let mut params = ca_params(&other, believable(at(0)));
    params.distinguished_name.push(DnType::CommonName, own.name());
    fs::write(&made.ca, params.self_signed(&other).unwrap().pem()).unwrap();
    let files = || [&made.certificate, &made.key].map(|file| fs::read(file).unwrap());
    let before = files();
    assert!(matches!(ensure(directory.path(), &["fog.example".into()], at(0)), Err(PkiError::Authority(_))));
    assert_eq!(files(), before);
    assert!(!made.certificate.with_added_extension("old").exists());
}

#[test]
fn a_certificate_ends_with_the_year_9999() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::make(directory.path(), KeyKind::EcdsaP256, at(0)).unwrap();
    let wanted = Wanted { validity: Duration::MAX, ..Wanted::new(Purpose::Client, "pump") };
    let file = directory.path().join("pump.pem");
    for now in [believable(at(0)), Duration::MAX] {
        let issued = authority.issue(&wanted, KeyKind::EcdsaP256, now).unwrap();
        issued.write_certificate(&file).unwrap();
        assert_eq!(dates(&file).unwrap()[0].not_after_unix_s, LATEST.as_secs());
    }
}

/// A certificate with another key is for the same gateway.
#[cfg(feature = "tls-openssl")]
#[test]
fn a_certificate_with_another_key_has_the_names_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let of_kind = |kind, names: &[String], days| ensure_server(directory.path(), kind, names, at(days)).unwrap();
    assert!(of_kind(KeyKind::Rsa2048, &[], 0).renewed);
    ensure(directory.path(), &["fog.example".into()], at(1)).unwrap();
    let again = of_kind(KeyKind::Rsa2048, &[], 2);
    assert!(again.renewed, "it lacks a name");
    let fog = ServerName::try_from("fog.example").unwrap();
    assert!(names::of_file(&again.certificate).contains(&fog));
    assert!(!of_kind(KeyKind::Rsa2048, &[], 3).renewed);
}

#[test]
fn a_wrong_clock_still_makes_a_certificate() {
    let directory = tempfile::tempdir().unwrap();
    assert!(ensure(directory.path(), &[], UNIX_EPOCH).unwrap().renewed);
    assert!(!ensure(directory.path(), &[], at(0)).unwrap().renewed);
}

#[test]
fn keys_are_private_and_half_an_authority_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let pki = ensure(directory.path(), &[], at(0)).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        for key in [&pki.key, &directory.path().join("ca.key")] {
            assert_eq!(fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
    fs::remove_file(directory.path().join("ca.key")).unwrap();
    assert!(matches!(ensure(directory.path(), &[], at(0)), Err(PkiError::Half { .. })));
    let other = tempfile::tempdir().unwrap();
    ensure(other.path(), &[], at(0)).unwrap();
    fs::copy(other.path().join("ca.key"), directory.path().join("ca.key")).unwrap();
    fs::remove_file(&pki.certificate).unwrap();
    assert!(matches!(ensure(directory.path(), &[], at(0)), Err(PkiError::Authority(_))));
}

#[test]
fn an_interrupted_creation_is_completed_by_the_next_start() {
    let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let pki = ensure(directory.path(), &[], at(0)).unwrap();
    let staged = directory.path().join("ca.pem.new");
    // Nothing but the name of the certificate is missing.
    fs::rename(&pki.ca, &staged).unwrap();
    let made = fs::read_to_string(&staged).unwrap();
    assert!(!ensure(directory.path(), &[], at(0)).unwrap().renewed, "it is the same authority");
    assert_eq!(fs::read_to_string(&pki.ca).unwrap(), made);
    // No key is there yet: an authority is made.
    ensure(other.path(), &[], at(0)).unwrap();
    fs::rename(other.path().join("ca.pem"), other.path().join("ca.pem.new")).unwrap();
    fs::rename(other.path().join("ca.key"), other.path().join("ca.key.new")).unwrap();
    assert!(ensure(other.path(), &[], at(0)).unwrap().renewed);
    // A certificate of another key, or one that is cut short, completes nothing.
    fs::remove_file(&pki.ca).unwrap();
    for text in [fs::read_to_string(other.path().join("ca.pem")).unwrap(), made[..made.len() / 2].to_owned()] {
        fs::write(&staged, text).unwrap();
        assert!(matches!(ensure(directory.path(), &[], at(0)), Err(PkiError::Half { .. })));
    }
}

/// A running gateway reads them again: at a renewal, a revocation and each look at its authority.
#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_not_waited_for() {
    use rustix::fs::{CWD, Mode, mkfifoat};
    type Read = fn(&Path) -> Result<(), PkiError>;
    let renew: Read = |directory| ensure(directory, &["new.example".to_owned()], at(0)).map(drop);
    let revoke: Read = |directory| Authority::open(directory)?.revoke("40", at(1)).map(drop);
    let all: [(&str, Read); 8] = [
        ("ca.key", renew),
        ("ca.key", |directory| Authority::for_devices(directory, at(0)).map(drop)),
        ("ca.pem", |directory| Rollover::of(directory).map(drop)),
        ("server.key", |directory| ensure(directory, &[], at(0)).map(drop)),
        ("server.key", renew),
        ("server.pem", renew),
        ("crl.pem", revoke),
        ("crl.pem", |directory| Revocations::load(&directory.join("crl.pem")).map(drop)),
    ];
    for (name, read) in all {
        let directory = tempfile::tempdir().unwrap();
        ensure(directory.path(), &[], at(0)).unwrap();
        revoke(directory.path()).unwrap();
        let file = directory.path().join(name);
        fs::remove_file(&file).unwrap();
        mkfifoat(CWD, &file, Mode::RUSR | Mode::WUSR).unwrap();
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(read(directory.path()).is_ok()));
        let is_made_anew = name.starts_with("server");
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(is_made_anew), "{name}");
    }
    // The key of a rollover that is under way.
    let directory = tempfile::tempdir().unwrap();
    ensure(directory.path(), &[], at(0)).unwrap();
    rollover::begin(directory.path(), KeyKind::EcdsaP256, at(0)).unwrap();
    let key = directory.path().join(rollover::NEXT);
    fs::remove_file(&key).unwrap();
    mkfifoat(CWD, &key, Mode::RUSR | Mode::WUSR).unwrap();
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(rollover::switch(directory.path(), at(1)).is_ok()));
    assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(false));
}
