use std::path::Path;

use base64::Engine as _;
use proptest::prelude::*;
use ring::{
    hmac,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _},
};
use serde_json::json;

use super::{key::BASE64URL, *};

const NOW: u64 = 1_800_000_000;
const SECRET: &[u8] = b"a secret that is long enough for HS256";

fn encode(value: &Value) -> String {
    BASE64URL.encode(value.to_string())
}

fn token(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let signed = format!("{}.{}", encode(header), encode(claims));
    let signature = sign(signed.as_bytes());
    format!("{signed}.{}", BASE64URL.encode(signature))
}

fn hs256(claims: &Value) -> String {
    token(&json!({"alg": "HS256", "typ": "JWT"}), claims, |message| mac(SECRET, message))
}

fn mac(key: &[u8], message: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref().to_vec()
}

fn tokens(settings: TokenSettings) -> Tokens {
    let keys = json!({"keys": [{"kty": "oct", "k": BASE64URL.encode(SECRET)}]});
    Tokens::with_key_set(settings, keys.to_string().as_bytes()).unwrap()
}

fn verify(tokens: &Tokens, token: &str) -> Result<Verified, Refused> {
    tokens.verify(token, NOW, &Users::default())
}

#[test]
fn claims_become_a_name_groups_and_variables() {
    let settings = TokenSettings { audience: vec!["fogmux".into()], issuer: Some("us".into()), ..Default::default() };
    let claims = json!({
        "sub": "alice", "iss": "us", "aud": ["other", "fogmux"], "exp": NOW + 60, "jti": "1",
        "groups": ["plant", "line-2"], "site": "north", "cells": ["a", "b"], "level": 3, "admin": true,
    });
    let Verified { principal, expires_unix_s } = verify(&tokens(settings), &hs256(&claims)).unwrap();
    assert_eq!((&*principal.name, principal.source), ("alice", SourceKind::Token));
    assert_eq!(principal.groups.iter().map(|group| &**group).collect::<Vec<_>>(), ["line-2", "plant"]);
    assert_eq!(expires_unix_s, Some(NOW + 120));
    let variables = principal.variables.clone().unwrap();
    let named: Vec<&str> = variables.keys().map(|name| &**name).collect();
    assert_eq!(named, ["cells", "level", "site", "sub"]);
    assert_eq!(variables["cells"].len(), 2);
}

#[test]
fn rfc7519_4_1_dates_parties_and_names_must_hold() {
    let settings = TokenSettings { audience: vec!["fogmux".into()], issuer: Some("us".into()), ..Default::default() };
    let tokens = tokens(settings);
    let good = json!({"sub": "a", "iss": "us", "aud": "fogmux", "exp": NOW + 1});
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value;
        }
        verify(&tokens, &hs256(&claims)).map(|_| ())
    };
    assert_eq!(with("nbf", json!(NOW + 60)), Ok(()));
    assert_eq!(with("iat", json!(NOW + 60)), Ok(()));
    assert_eq!(with("exp", json!((NOW - 59) as f64 + 0.5)), Ok(()), "a fraction of a second is allowed (§2)");
    for (name, value) in [
        ("exp", json!(NOW - 60)),
        ("exp", json!(0)),
        ("exp", json!(-1)),
        ("exp", json!("never")),
        ("exp", Value::Null),
        ("nbf", json!(NOW + 61)),
        ("nbf", json!([])),
        ("iat", json!(NOW + 61)),
        ("iat", json!("now")),
        ("iss", json!("them")),
        ("iss", Value::Null),
        ("aud", json!("other")),
        ("aud", json!([])),
        ("aud", json!({"fogmux": 1})),
        ("aud", Value::Null),
        ("sub", Value::Null),
        ("sub", json!(7)),
        ("sub", json!("")),
        ("sub", json!("anonymous")),
        ("sub", json!("a\u{0}b")),
        ("sub", json!("al\u{ad}ice")),
        ("sub", json!("\u{ff41}lice")),
    ] {
        assert_eq!(with(name, value.clone()), Err(Refused::Barred), "{name} {value}");
    }
}

#[test]
fn an_audience_is_refused_where_none_is_ours() {
    let tokens = tokens(TokenSettings::default());
    assert!(verify(&tokens, &hs256(&json!({"sub": "a", "exp": NOW + 1}))).is_ok());
    assert!(verify(&tokens, &hs256(&json!({"sub": "a", "exp": NOW + 1, "aud": "fogmux"}))).is_err());
}

#[test]
fn rfc8725_no_other_algorithm_than_the_keys_own_is_taken() {
    let claims = json!({"sub": "admin", "exp": NOW + 60});
    let rng = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &rng).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &rng).unwrap();
    let point = pair.public_key().as_ref();
    let jwk = json!({"kty": "EC", "crv": "P-256", "kid": "1", "use": "sig", "alg": "ES256",
        "x": BASE64URL.encode(&point[1..33]), "y": BASE64URL.encode(&point[33..])});
    let set = json!({"keys": [{"kty": "EC", "crv": "P-521"}, jwk]}).to_string();
    let tokens = Tokens::with_key_set(TokenSettings::default(), set.as_bytes()).unwrap();
    let sign = |message: &[u8]| pair.sign(&rng, message).unwrap().as_ref().to_vec();
    assert!(verify(&tokens, &token(&json!({"alg": "ES256", "kid": "1"}), &claims, sign)).is_ok());
    assert!(verify(&tokens, &token(&json!({"alg": "ES256"}), &claims, sign)).is_ok());
    for header in [
        json!({"alg": "ES256", "kid": "2"}),
        json!({"alg": "ES256", "kid": 1}),
        json!({"alg": "ES256", "crit": ["exp"]}),
        json!({"alg": "ES384"}),
        json!({"alg": "none"}),
        json!({"alg": "None"}),
        json!({"alg": ["ES256"]}),
        json!({}),
    ] {
        assert!(verify(&tokens, &token(&header, &claims, sign)).is_err(), "{header}");
    }
    // The public key, which everybody has, as the secret of an HMAC.
    for secret in [point, jwk.to_string().as_bytes()] {
        let forged = token(&json!({"alg": "HS256", "kid": "1"}), &claims, |message| mac(secret, message));
        assert_eq!(verify(&tokens, &forged), Err(Refused::Credentials));
    }
    let unsigned = token(&json!({"alg": "none"}), &claims, |_| Vec::new());
    assert_eq!(verify(&tokens, &unsigned), Err(Refused::Credentials));
}

#[test]
fn rfc8037_ed25519_and_its_public_key_in_pem() {
    let rng = SystemRandom::new();
    let pair = Ed25519KeyPair::from_pkcs8(Ed25519KeyPair::generate_pkcs8(&rng).unwrap().as_ref()).unwrap();
    let spki = [&[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00], pair.public_key().as_ref()];
    let body = base64::engine::general_purpose::STANDARD.encode(spki.concat());
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n");
    let key = key::read_one(Path::new("k.pem"), pem.as_bytes()).unwrap();
    let tokens = Tokens { keys: vec![key], settings: TokenSettings::default() };
    let claims = json!({"sub": "a", "exp": NOW + 1});
    let signed = token(&json!({"alg": "EdDSA"}), &claims, |message| pair.sign(message).as_ref().to_vec());
    assert!(verify(&tokens, &signed).is_ok());
    assert!(verify(&tokens, &signed.replace('.', ".x")).is_err());
}

/// RFC 7515 appendix A.2: the key and token of the standard, which expired in 2011.
#[test]
fn rfc7515_a2_the_rs256_example() {
    let jwk = concat!(
        "{\"keys\":[{\"kty\":\"RSA\",\"n\":\"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPC",
        "JrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaS",
        "HSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGh",
        "yxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ\",\"e\":\"AQAB\"}]}",
    );
    let token = concat!(
        "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19",
        "yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt",
        "_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb",
        "1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI",
        "8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw",
    );
    let settings = TokenSettings { user_claim: "iss".into(), ..Default::default() };
    let tokens = Tokens::with_key_set(settings, jwk.as_bytes()).unwrap();
    assert_eq!(jws::verified(token, &tokens.keys).unwrap().0["iss"], "joe");
    assert_eq!(verify(&tokens, token), Err(Refused::Barred), "expired");
    assert_eq!(verify(&tokens, &token.replace("cC4", "cD4")), Err(Refused::Credentials), "a guess");
}

#[test]
fn a_clock_that_is_not_set_lets_no_token_in() {
    let tokens = tokens(TokenSettings { expiry_required: false, ..Default::default() });
    for claims in [json!({"sub": "a", "exp": NOW}), json!({"sub": "a"})] {
        for now in [0, 1_300_819_379, CLOCK_IS_SET_UNIX_S - 1] {
            assert_eq!(tokens.verify(&hs256(&claims), now, &Users::default()), Err(Refused::Barred), "{now}");
        }
        assert!(tokens.verify(&hs256(&claims), CLOCK_IS_SET_UNIX_S, &Users::default()).is_ok());
    }
}

#[test]
fn files_without_a_usable_key_are_a_problem() {
    let path = Path::new("f");
    for text in [
        "",
        "{}",
        "[]",
        r#"{"keys":[]}"#,
        r#"{"keys":[{"kty":"oct","k":"c2hvcnQ"}]}"#,
        r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA"}]}"#,
    ] {
        assert!(key::read_set(path, text.as_bytes()).is_err(), "{text}");
    }
    let encryption = json!({"keys": [{"kty": "oct", "use": "enc", "k": BASE64URL.encode(SECRET)}]}).to_string();
    assert!(key::read_set(path, encryption.as_bytes()).is_err());
    for text in ["short", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "-----BEGIN PRIVATE KEY-----"] {
        assert!(key::read_one(path, text.as_bytes()).is_err(), "{text}");
    }
    assert!(key::read_one(path, [SECRET, b"\n"].concat().as_slice()).is_ok());
    let settings = TokenSettings { jwks_file: Some("/nowhere/jwks.json".into()), ..Default::default() };
    assert!(Tokens::load(&settings).is_err());
}

#[test]
fn a_disabled_user_has_no_use_of_a_token() {
    let users = Users::parse(Path::new("u"), "[users.bob]\ndisabled = true\n[users.eve]\ngroups=[\"x\"]\n").unwrap();
    let tokens = tokens(TokenSettings::default());
    let verify = |user: &str| tokens.verify(&hs256(&json!({"sub": user, "exp": NOW + 1})), NOW, &users);
    assert_eq!(verify("bob"), Err(Refused::Barred));
    assert_eq!(&*verify("eve").unwrap().principal.groups[0], "x");
}

#[test]
fn texts_that_hold_a_token() {
    let token = hs256(&json!({"sub": "eve"}));
    let around = [
        ("", ""),
        ("Bearer ", ""),
        ("token:", ""),
        (" ", "\n"),
        ("x_", ""),
        ("", "="),
        ("", ":1"),
        ("\u{e9}", "\u{e9}"),
    ];
    for (before, behind) in around {
        assert!(holds_token(&format!("{before}{token}{behind}")), "{before:?} {behind:?}");
    }
    for text in
        ["", "ey", "eyJ", "key.of.gateway", "survey.2026.11", "eyJhbGciOiJIUzI1NiJ9", "monkey-in-the-middle-of.it"]
    {
        assert!(!holds_token(text), "{text}");
    }
    for length in [HEAD_BYTES - 1, HEAD_BYTES] {
        assert_eq!(holds_token(&format!("ey{}.b.c", "x".repeat(length - 2))), length == HEAD_BYTES, "{length}");
    }
    // As long as a client identifier may be.
    assert!(!holds_token(&"ey".repeat(32_767)) && holds_token(&format!("{}.b.c", "ey".repeat(32_765))));
}

#[test]
fn passwords_that_look_like_tokens() {
    assert!(looks_like_token(hs256(&json!({})).as_bytes()));
    for password in ["", "eyJ", "eyJ.a", "eyJ.a.b.c", "secret", "eyJ.a.b c"] {
        assert!(!looks_like_token(password.as_bytes()), "{password}");
    }
    for header in ["{\"alg\":1}", "{ \"alg\":1}", "{\r\n\"alg\":1}"] {
        let token = format!("{}.e30.AA", BASE64URL.encode(header));
        assert!(looks_like_token(token.as_bytes()), "{token}");
    }
}

#[test]
fn the_user_that_a_token_claims_is_read_from_well_formed_tokens_only() {
    let tokens = tokens(TokenSettings::default());
    let of_another_key = token(&json!({"alg": "HS256"}), &json!({"sub": "alice"}), |message| mac(b"another", message));
    assert_eq!(tokens.claimed_user(&of_another_key).as_deref(), Some("alice"));
    let unread = [
        token(&json!({"typ": "JWT"}), &json!({"sub": "alice"}), |_| Vec::new()),
        token(&json!({"alg": "HS256"}), &json!({"sub": ["alice"]}), |_| Vec::new()),
        token(&json!({"alg": "HS256"}), &json!({}), |_| Vec::new()),
        token(&json!({"alg": "HS256"}), &json!({"sub": "a".repeat(TOKEN_BYTES_MAX)}), |_| Vec::new()),
        format!("{of_another_key}!"),
        format!("{of_another_key}.e30"),
        "alice".to_owned(),
    ];
    for text in unread {
        assert_eq!(tokens.claimed_user(&text), None, "{text:.80}");
    }
}

proptest! {
    #[test]
    fn any_text_is_answered(text in "\\PC{0,60}", dotted in "[A-Za-z0-9_-]{0,30}[.][A-Za-z0-9_-]{0,30}[.][A-Za-z0-9_-]{0,40}") {
        let tokens = tokens(TokenSettings::default());
        prop_assert!(verify(&tokens, &text).is_err());
        prop_assert!(verify(&tokens, &dotted).is_err());
        prop_assert_eq!(tokens.claimed_user(&text), None);
    }

    #[test]
    fn no_changed_character_verifies(at in 0usize..200, to in "[A-Za-z0-9_-]") {
        let token = hs256(&json!({"sub": "alice", "exp": NOW + 1, "site": "north"}));
        let at = at % token.len();
        let mut changed = token.clone();
        changed.replace_range(at..=at, &to);
        if changed != token {
            prop_assert!(verify(&tokens(TokenSettings::default()), &changed).is_err());
        }
    }

    #[test]
    fn any_claims_are_answered(claim in "[a-z]{1,5}", text in "\\PC{0,20}", number in any::<f64>()) {
        let claims = json!({"sub": "a", "exp": NOW + 1, claim.clone(): [text, number], "groups": {"x": number}});
        let _ = verify(&tokens(TokenSettings::default()), &hs256(&claims));
        let _ = verify(&tokens(TokenSettings::default()), &hs256(&json!({"sub": "a", "exp": number, "nbf": number})));
    }
}
