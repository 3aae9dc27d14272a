//! Logins by tokens.

use fogmux_auth::{LogIn, TokenSettings, Tokens, sasl::Bearer};

use super::*;

fn with_tokens() -> Arc<Authority> {
    // RFC 7515 appendix A.1: its HS256 key, and a token of joe's as there, but of 2027.
    let keys = br#"{"keys":[{"kty":"oct","k":
        "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}]}"#;
    let settings = TokenSettings { user_claim: "iss".into(), ..TokenSettings::default() };
    let tokens = Tokens::with_key_set(settings, keys).unwrap();
    Arc::new(Authority::new(Rules::new(USERS.clone(), None, AnonymousPolicy::Loopback).with_tokens(tokens)))
}

const JOE: &str = concat!(
    "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9",
    ".eyJpc3MiOiJqb2UiLCJleHAiOjE4MDA4MTkzODB9",
    ".gpxS8IbfZH9R1434dB-UKm13HWNZhrK3n5bg6NfX_60"
);

const IN_TIME: u64 = 1_800_819_379;

#[test]
fn a_token_logs_in_by_oauthbearer_and_in_place_of_a_password() {
    let authority = with_tokens();
    let context = |now_unix_s| Context { sources: authority.offered(SourceSet::ALL), now_unix_s, ..tls() };
    let start =
        |mechanism: &str, message: &[u8], now: u64| Exchange::start(&authority, context(now), mechanism, Some(message));
    let (_, step) = start("OAUTHBEARER", &Bearer::encode(JOE, "localhost", 5222), IN_TIME);
    let Step::Done { principal, expires_unix_s, .. } = step else { panic!("{step:?}") };
    assert_eq!((&*principal.name, expires_unix_s), ("joe", Some(1_800_819_440)));
    // RFC 7628 §3.2: told why, kissed goodbye.
    let (mut exchange, step) = start("OAUTHBEARER", &Bearer::encode(JOE, "localhost", 5222), IN_TIME + 61);
    assert!(matches!(&step, Step::Challenge(json) if json == br#"{"status":"invalid_token"}"#), "{step:?}");
    assert!(matches!(exchange.respond(Bearer::KISS), Step::Refused(Refused::Barred)));
    let (mut exchange, step) =
        start("OAUTHBEARER", format!("n,a=eve,\x01auth=Bearer {JOE}\x01\x01").as_bytes(), IN_TIME);
    assert!(matches!(step, Step::Challenge(_)));
    assert!(matches!(exchange.respond(Bearer::KISS), Step::Refused(Refused::Identity)));

    let plain = |user: &str| start("PLAIN", &Plain::encode(user, JOE), IN_TIME).1;
    assert!(matches!(plain("joe"), Step::Done { principal, .. } if &*principal.name == "joe"));
    assert!(matches!(plain("eve"), Step::Refused(Refused::Identity)));
    let log_in = |sources, user: &str| authority.log_in(sources, user, JOE.as_bytes(), IN_TIME);
    assert!(matches!(log_in(SourceSet::ALL, ""), LogIn::Known(Ok(_))));
    let without = SourceSet::ALL.without(SourceKind::Token);
    assert!(matches!(log_in(without, "joe"), LogIn::Check(_)), "only a strange password then");
    assert!(matches!(log_in(SourceSet::NONE, "joe"), LogIn::Known(Err(Refused::Mechanism))));
    assert!(!self::authority().offered(SourceSet::ALL).contains(SourceKind::Token), "without keys none");
}
