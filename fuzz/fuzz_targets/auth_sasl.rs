//! SASL messages, one a line: the first byte chooses mechanism and channel, each line is what the peer says next.
//! Nobody gets in without the password.
#![no_main]

use std::sync::Arc;

use fogmux_auth::{
    AnonymousPolicy, Authority, Rules, SourceSet, TokenSettings, Tokens, Users,
    sasl::{Context, Exchange, SaslChannel, Step},
};
use libfuzzer_sys::fuzz_target;

const MECHANISMS: [&str; 8] = [
    "SCRAM-SHA-256",
    "SCRAM-SHA-1",
    "PLAIN",
    "ANONYMOUS",
    "SCRAM-SHA-256-PLUS",
    "SCRAM-SHA-1-PLUS",
    "OAUTHBEARER",
    "EXTERNAL",
];
const KEYS: &[u8] = br#"{"keys":[{"kty":"OKP","kid":"o","alg":"EdDSA","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else { return };
    let tokens = Tokens::with_key_set(TokenSettings::default(), KEYS).expect("keys");
    let rules = Rules::new(Users::default(), None, AnonymousPolicy::Never).with_tokens(tokens);
    let authority = Arc::new(Authority::new(rules));
    let mechanism = MECHANISMS[usize::from(first) % MECHANISMS.len()];
    let bound = first & 0x40 != 0;
    let channel = SaslChannel {
        secure: first & 0x80 != 0,
        exporter: bound.then_some([3; 32]),
        end_point: bound.then(|| [4; 32].into()),
        certificate: None,
    };
    let context = Context {
        channel,
        anonymous: false,
        realm: Some("d".into()),
        sources: SourceSet::ALL,
        now_unix_s: 4_000_000_000,
    };
    let mut lines = rest.split(|&byte| byte == b'\n');
    let (mut exchange, mut step) = Exchange::start(&authority, context, mechanism, lines.next());
    for line in lines.take(8) {
        // A password check takes argon2's time and is tested elsewhere.
        assert!(!matches!(step, Step::Done { .. }), "nobody is a user here");
        step = exchange.respond(line);
    }
    assert!(!matches!(step, Step::Done { .. }), "nobody is a user here");
});
