//! Keys that sign tokens: read from a JSON Web Key Set (RFC 7517, RFC 7518 §6, RFC 8037) or from PEM. A key has one
//! algorithm, and verifies under no other: a public key is never taken for a secret (RFC 8725 §2.1).

use std::{
    hash::{BuildHasher as _, RandomState},
    path::Path,
    sync::LazyLock,
};

use base64::{
    Engine as _,
    engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD},
};
use ring::{hmac, signature};
use serde_json::{Map, Value};

use crate::problem::Problems;

/// RFC 7515 §2: without padding, and without bits that say nothing, so that one token has one form.
pub(super) const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::RequireNone),
);

/// RFC 7518 §3.2: a key as long as the hash at least. §3.3: 2048 bits at least.
const SECRET_BYTES_MIN: usize = 32;
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
/// Keys of one set; more are ignored.
const KEYS_MAX: usize = 256;

/// The algorithms we verify (RFC 7518 §3.1, RFC 8037 §3.1). `none` is not one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Hs256,
    Rs256,
    Es256,
    EdDsa,
}

impl Algorithm {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "HS256" => Some(Self::Hs256),
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            // RFC 9864 gives EdDSA over this curve a name of its own.
            "EdDSA" | "Ed25519" => Some(Self::EdDsa),
            _ => None,
        }
    }
}

/// A key, and by which name tokens refer to it.
pub(super) struct Key {
    id: Option<Box<str>>,
    material: Material,
    /// Tells the key from every other, within this process.
    stamp: u64,
}

enum Material {
    Secret(Box<hmac::Key>),
    Rsa { n: Box<[u8]>, e: Box<[u8]> },
    P256(Box<[u8]>),
    Ed25519(Box<[u8]>),
}

impl Key {
    /// The stamp is made under a key of this process, so that it says nothing about a secret.
    fn new(id: Option<Box<str>>, material: Material) -> Self {
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let stamp = match &material {
            Material::Secret(key) => HASHER.hash_one(hmac::sign(key, b"stamp").as_ref()),
            Material::Rsa { n, e } => HASHER.hash_one((n, e)),
            Material::P256(point) | Material::Ed25519(point) => HASHER.hash_one(point),
        };
        Self { id, material, stamp }
    }

    pub(super) const fn stamp(&self) -> u64 {
        self.stamp
    }

    pub(super) const fn algorithm(&self) -> Algorithm {
        match self.material {
            Material::Secret(_) => Algorithm::Hs256,
            Material::Rsa { .. } => Algorithm::Rs256,
            Material::P256(_) => Algorithm::Es256,
            Material::Ed25519(_) => Algorithm::EdDsa,
        }
    }

    /// Whether a token that names its key so may mean this one. A key without a name may be any.
    pub(super) fn may_be(&self, named: Option<&str>) -> bool {
        match (&self.id, named) {
            (Some(id), Some(named)) => **id == *named,
            (None, Some(_)) | (_, None) => true,
        }
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let public = |algorithm, key| signature::UnparsedPublicKey::new(algorithm, key).verify(message, signature);
        let verified = match &self.material {
            Material::Secret(key) => hmac::verify(key, message, signature),
            Material::Rsa { n, e } => signature::RsaPublicKeyComponents { n: &**n, e: &**e }.verify(
                &signature::RSA_PKCS1_2048_8192_SHA256,
                message,
                signature,
            ),
            Material::P256(point) => public(&signature::ECDSA_P256_SHA256_FIXED, point),
            Material::Ed25519(point) => public(&signature::ED25519, point),
        };
        verified.is_ok()
    }
}

/// The usable keys of a JSON Web Key Set. Keys of other kinds and for other uses are passed over (RFC 7517 §5).
pub(super) fn read_set(path: &Path, text: &[u8]) -> Result<Vec<Key>, Problems> {
    let problem = |message: &str| Problems::of_file(path, message);
    let set: Map<String, Value> =
        serde_json::from_slice(text).map_err(|_| problem("not a JSON Web Key Set: no JSON object"))?;
    let list = set.get("keys").and_then(Value::as_array);
    let list = list.ok_or_else(|| problem("not a JSON Web Key Set: no array \"keys\""))?;
    let keys: Vec<Key> = list.iter().take(KEYS_MAX).filter_map(Value::as_object).filter_map(read_jwk).collect();
    if keys.is_empty() {
        return Err(problem(
            "no usable key: RSA from 2048 bits, EC on P-256, OKP on Ed25519, or oct from 256 bits, for use \"sig\"",
        ));
    }
    Ok(keys)
}

fn read_jwk(jwk: &Map<String, Value>) -> Option<Key> {
    let text = |name: &str| jwk.get(name).and_then(Value::as_str);
    let bytes = |name: &str| text(name).and_then(|value| BASE64URL.decode(value).ok());
    let for_signatures = jwk.get("use").is_none_or(|usage| usage.as_str() == Some("sig"));
    let may_verify = jwk.get("key_ops").is_none_or(|operations| {
        operations.as_array().is_some_and(|list| list.iter().any(|operation| operation.as_str() == Some("verify")))
    });
    let material = match (text("kty")?, text("crv")) {
        ("oct", _) => secret(&bytes("k")?)?,
        ("RSA", _) => rsa(bytes("n")?, bytes("e")?)?,
        ("EC", Some("P-256")) => {
            let (x, y) = (bytes("x")?, bytes("y")?);
            p256([&[4], &*x, &*y].concat()).filter(|_| x.len() == 32)?
        }
        ("OKP", Some("Ed25519")) => ed25519(bytes("x")?)?,
        _ => return None,
    };
    let key = Key::new(text("kid").map(Into::into), material);
    let same_algorithm = jwk
        .get("alg")
        .is_none_or(|alg| alg.as_str().and_then(Algorithm::named).is_some_and(|named| named == key.algorithm()));
    (for_signatures && may_verify && same_algorithm).then_some(key)
}

fn secret(bytes: &[u8]) -> Option<Material> {
    let long_enough = bytes.len() >= SECRET_BYTES_MIN;
    long_enough.then(|| Material::Secret(Box::new(hmac::Key::new(hmac::HMAC_SHA256, bytes))))
}

fn rsa(n: Vec<u8>, e: Vec<u8>) -> Option<Material> {
    // ring takes numbers without leading zeros.
    let trimmed = |number: Vec<u8>| -> Box<[u8]> { number.into_iter().skip_while(|byte| *byte == 0).collect() };
    let (n, e) = (trimmed(n), trimmed(e));
    (MODULUS_BYTES.contains(&n.len()) && !e.is_empty()).then_some(Material::Rsa { n, e })
}

fn p256(point: Vec<u8>) -> Option<Material> {
    (point.len() == 65 && point.first() == Some(&4)).then(|| Material::P256(point.into()))
}

fn ed25519(point: Vec<u8>) -> Option<Material> {
    (point.len() == 32).then(|| Material::Ed25519(point.into()))
}

/// One key from a file: a public key in PEM (SubjectPublicKeyInfo, RFC 7468 §13), or else the text of a secret.
pub(super) fn read_one(path: &Path, text: &[u8]) -> Result<Key, Problems> {
    let problem = |message: &str| Problems::of_file(path, message);
    let material = if text.windows(11).any(|window| window == b"-----BEGIN ") {
        let der = std::str::from_utf8(text).ok().and_then(public_key_der);
        let der = der.ok_or_else(|| problem("expected one PUBLIC KEY in PEM (openssl pkey -pubout writes it)"))?;
        spki(&der).ok_or_else(|| problem("expected RSA from 2048 bits, EC on P-256 or Ed25519"))?
    } else {
        let line = text.trim_ascii_end();
        secret(line).ok_or_else(|| problem("a secret for HS256 has 32 bytes at least (RFC 7518 §3.2)"))?
    };
    Ok(Key::new(None, material))
}

fn public_key_der(text: &str) -> Option<Vec<u8>> {
    let (_, after) = text.split_once("-----BEGIN PUBLIC KEY-----")?;
    let (body, rest) = after.split_once("-----END PUBLIC KEY-----")?;
    if rest.contains("-----BEGIN ") {
        return None;
    }
    let body: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    STANDARD.decode(body).ok()
}

/// rsaEncryption (RFC 8017 A.1), id-ecPublicKey with secp256r1 (RFC 5480 §2.1.1), id-Ed25519 (RFC 8410 §3).
const RSA_OID: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC_OID: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256_OID: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const ED25519_OID: &[u8] = &[0x2b, 0x65, 0x70];

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;

/// A SubjectPublicKeyInfo (RFC 5280 §4.1.2.7).
fn spki(der: &[u8]) -> Option<Material> {
    let (info, end) = element(der, SEQUENCE)?;
    let (algorithm, rest) = element(info, SEQUENCE)?;
    let (bits, after) = element(rest, BIT_STRING)?;
    let (oid, parameters) = element(algorithm, OBJECT_IDENTIFIER)?;
    let (unused, key) = bits.split_first()?;
    if !end.is_empty() || !after.is_empty() || *unused != 0 {
        return None;
    }
    match oid {
        RSA_OID => {
            let (numbers, _) = element(key, SEQUENCE)?;
            let (n, rest) = element(numbers, INTEGER)?;
            let (e, _) = element(rest, INTEGER)?;
            rsa(n.to_vec(), e.to_vec())
        }
        EC_OID => {
            element(parameters, OBJECT_IDENTIFIER).filter(|(curve, _)| *curve == P256_OID).and(p256(key.to_vec()))
        }
        ED25519_OID => ed25519(key.to_vec()),
        _ => None,
    }
}

/// The contents of a DER element with this tag at the front, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match *first {
        short @ 0..=0x7f => (usize::from(short), rest),
        0x81 => rest.split_first().map(|(length, rest)| (usize::from(*length), rest))?,
        0x82 => rest.split_first_chunk::<2>().map(|(length, rest)| (usize::from(u16::from_be_bytes(*length)), rest))?,
        _ => return None,
    };
    (*found == tag).then(|| rest.split_at_checked(length)).flatten()
}
