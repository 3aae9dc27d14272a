//! Tests of rollovers: who is trusted in each phase, and steps that are interrupted at any operation on a file.

use std::{path::PathBuf, time::UNIX_EPOCH};

use super::*;
use crate::{
    ClientTrust,
    pki::{Purpose, Revocations, Wanted, ensure, files::interruption, inspect},
};

fn now() -> SystemTime {
    SystemTime::now()
}

/// A directory as a gateway has it, with certificates of devices in `DIR/clients`.
struct House(tempfile::TempDir);

impl House {
    /// With an authority, a certificate of the gateway and one of a device.
    fn new() -> Self {
        let house = Self(tempfile::tempdir().unwrap());
        ensure(house.at(), &["fog.example".to_owned()], now()).unwrap();
        fs::create_dir(house.at().join("clients")).unwrap();
        house.give("first");
        house
    }

    /// The same in another directory.
    fn copy(&self) -> Self {
        let other = Self(tempfile::tempdir().unwrap());
        for directory in [PathBuf::new(), "clients".into()] {
            fs::create_dir_all(other.at().join(&directory)).unwrap();
            for entry in fs::read_dir(self.at().join(&directory)).unwrap().map(Result::unwrap) {
                if entry.path().is_file() {
                    fs::copy(entry.path(), other.at().join(&directory).join(entry.file_name())).unwrap();
                }
            }
        }
        other
    }

    fn at(&self) -> &Path {
        self.0.path()
    }

    fn give(&self, name: &str) {
        let authority = Authority::for_devices(self.at(), now()).unwrap();
        let since = now().duration_since(UNIX_EPOCH).unwrap();
        let issued = authority.issue(&Wanted::new(Purpose::Client, name), KeyKind::EcdsaP256, since).unwrap();
        let file = self.at().join("clients").join(name);
        issued.write(&file.with_extension("pem"), &file.with_extension("key")).unwrap();
    }

    fn revoke(&self, name: &str) {
        let certificate = inspect(&self.at().join("clients").join(name).with_extension("pem")).unwrap();
        let all = Authority::all(self.at()).unwrap();
        let by = all.iter().find(|authority| authority.has_signed(&certificate)).unwrap();
        assert!(by.revoke(&certificate.serial, now()).unwrap());
    }

    /// Whether a gateway that starts now admits a device.
    fn admits(&self, name: &str) -> bool {
        let trust = ClientTrust::load(&self.at().join("ca.pem"), &self.at().join("crl.pem")).unwrap();
        let chain = pem::certificates(&self.at().join("clients").join(name).with_extension("pem")).unwrap();
        trust.verify(&chain[0], &[]).is_ok()
    }

    /// The authority of the certificate that a gateway shows that starts now, which may make it.
    fn shown(&self) -> String {
        let server = ensure(self.at(), &[], now()).unwrap();
        let fog = ["fog.example".try_into().unwrap()];
        let names = crate::pki::names::of_file(&server.certificate);
        assert!(fog.iter().all(|name| names.contains(name)), "{names:?}");
        inspect(&server.certificate).unwrap().issuer.into_string()
    }

    fn phase(&self) -> Option<Phase> {
        Rollover::of(self.at()).unwrap().map(|found| found.phase)
    }

    fn trusted(&self) -> Vec<String> {
        crate::pki::dates(&self.at().join("ca.pem")).unwrap().into_iter().map(|dates| dates.subject).collect()
    }
}

use crate::pem;

#[test]
fn each_phase_admits_and_shows_what_it_should() {
    let house = House::new();
    let old = house.shown();
    assert!(matches!(switch(house.at(), now()), Err(PkiError::OutOfOrder(OutOfOrder::NotBegun))));
    assert!(!finish(house.at(), now()).unwrap());
    for time in ["once", "again"] {
        let begun = begin(house.at(), KeyKind::EcdsaP256, now()).unwrap();
        assert_eq!((begun.phase, &begun.old.subject), (Phase::Begun, &old), "{time}");
        assert_eq!(house.trusted(), [begun.old.subject, begun.new.subject], "{time}");
    }
    let new = house.trusted()[1].clone();
    house.give("second");
    assert!(house.admits("first") && house.admits("second"));
    assert_eq!(house.shown(), old);
    assert_eq!(inspect(&house.at().join("clients/second.pem")).unwrap().issuer.as_ref(), new);
    assert!(matches!(finish(house.at(), now()), Err(PkiError::OutOfOrder(OutOfOrder::NotSwitched))));
    for time in ["once", "again"] {
        assert_eq!(switch(house.at(), now()).unwrap().phase, Phase::Switched, "{time}");
        assert_eq!(house.trusted(), [new.clone(), old.clone()], "{time}");
        assert_eq!(house.shown(), new, "{time}");
    }
    house.give("third");
    assert!(house.admits("first") && house.admits("second") && house.admits("third"));
    assert!(matches!(begin(house.at(), KeyKind::EcdsaP256, now()), Err(PkiError::OutOfOrder(OutOfOrder::NotFinished))));
    assert!(finish(house.at(), now()).unwrap());
    assert!(!finish(house.at(), now()).unwrap());
    assert_eq!(house.trusted(), std::slice::from_ref(&new));
    assert!(!house.admits("first") && house.admits("second") && house.admits("third"));
    for name in [NEXT, OLD] {
        assert!(!house.at().join(name).exists(), "{name}");
    }
    // And once more.
    begin(house.at(), KeyKind::EcdsaP256, now()).unwrap();
    switch(house.at(), now()).unwrap();
    assert!(finish(house.at(), now()).unwrap());
    assert!(!house.admits("second") && house.trusted() != [new]);
}

#[test]
fn revoked_certificates_stay_revoked_in_every_phase_whoever_signed_them() {
    let house = House::new();
    house.give("lost");
    house.revoke("lost");
    begin(house.at(), KeyKind::EcdsaP256, now()).unwrap();
    house.give("new");
    house.give("new-lost");
    house.give("old-lost-later");
    house.revoke("new-lost");
    let refused = |house: &House, names: &[&str]| names.iter().all(|name| !house.admits(name));
    assert!(refused(&house, &["lost", "new-lost"]) && house.admits("first") && house.admits("new"));
    switch(house.at(), now()).unwrap();
    house.revoke("old-lost-later");
    house.revoke("first");
    assert!(refused(&house, &["lost", "new-lost", "old-lost-later", "first"]) && house.admits("new"));
    assert_eq!(Revocations::load(&house.at().join("crl.pem")).unwrap().revoked.len(), 4);
    finish(house.at(), now()).unwrap();
    assert!(refused(&house, &["lost", "new-lost", "old-lost-later", "first"]) && house.admits("new"));
    assert_eq!(Revocations::load(&house.at().join("crl.pem")).unwrap().revoked.len(), 2, "those of the new authority");
}

#[test]
fn other_certificates_in_the_file_and_lists_of_others_stay() {
    let (house, other) = (House::new(), House::new());
    other.revoke("first");
    let append = |name: &str| {
        let mut text = fs::read_to_string(house.at().join(name)).unwrap_or_default();
        text += &fs::read_to_string(other.at().join(name)).unwrap();
        fs::write(house.at().join(name), text).unwrap();
    };
    append("ca.pem");
    append("crl.pem");
    let theirs = other.trusted()[0].clone();
    begin(house.at(), KeyKind::EcdsaP256, now()).unwrap();
    assert_eq!(house.trusted().len(), 3);
    switch(house.at(), now()).unwrap();
    assert!(house.admits("first"));
    finish(house.at(), now()).unwrap();
    assert_eq!((house.trusted().len(), &house.trusted()[1]), (2, &theirs));
    assert!(!house.admits("first"));
    let lists = fs::read_to_string(house.at().join("crl.pem")).unwrap();
    assert_eq!(lists.matches("BEGIN X509 CRL").count(), 2);
}

/// Does a step in copies of a directory, each interrupted one operation later, and has it gone on from each state: at
/// once, and after a gateway has started in it. `holds` is asked of the states.
fn interrupted(house: &House, step: &dyn Fn(&Path) -> Result<(), PkiError>, holds: &dyn Fn(&House)) -> usize {
    for operations in 0.. {
        for starts in [false, true] {
            let copy = house.copy();
            interruption::after(Some(operations));
            let done = step(copy.at());
            interruption::after(None);
            holds(&copy);
            if starts {
                copy.shown();
                holds(&copy);
            }
            step(copy.at()).unwrap_or_else(|error| panic!("after {operations} operations: {error}"));
            holds(&copy);
            if done.is_ok() && starts {
                return operations;
            }
        }
    }
    unreachable!("a step ends")
}

#[test]
fn a_step_that_is_interrupted_at_any_operation_is_gone_on_from() {
    for has_list in [false, true] {
        let house = House::new();
        if has_list {
            house.give("lost");
            house.revoke("lost");
        }
        let begin = |at: &Path| begin(at, KeyKind::EcdsaP256, now()).map(drop);
        let switch = |at: &Path| switch(at, now()).map(drop);
        let finish = |at: &Path| finish(at, now()).map(drop);
        let mut steps = vec![interrupted(&house, &begin, &|house| {
            assert!(house.admits("first") && (!has_list || !house.admits("lost")));
        })];
        begin(house.at()).unwrap();
        house.give("second");
        steps.push(interrupted(&house, &switch, &|house| {
            assert!(house.admits("first") && house.admits("second") && (!has_list || !house.admits("lost")));
            assert!(house.phase().is_some());
        }));
        switch(house.at()).unwrap();
        let new = house.trusted()[0].clone();
        steps.push(interrupted(&house, &finish, &|house| {
            assert!(house.admits("second") && (!has_list || !house.admits("lost")));
            assert!(house.trusted()[0] == new && house.shown() == new);
        }));
        assert!(steps.iter().all(|operations| *operations >= 4), "{steps:?}");
        // An end that was interrupted before another begins.
        let copy = house.copy();
        for operations in 0..4 {
            interruption::after(Some(operations));
            let _ = finish(copy.at());
            interruption::after(None);
        }
        finish(copy.at()).unwrap();
        begin(copy.at()).unwrap();
        assert_eq!(copy.phase(), Some(Phase::Begun));
    }
}
