//! SASL messages, one a line: the first byte chooses the mechanism, each line is what the peer says next. Nobody gets in
//! without the password.
#![no_main]

use std::sync::Arc;

use fogmux_auth::{
    AnonymousPolicy, Authority, Rules, Users,
    sasl::{Context, Exchange, Step},
};
use libfuzzer_sys::fuzz_target;

const MECHANISMS: [&str; 5] = ["SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN", "ANONYMOUS", "SCRAM-SHA-256-PLUS"];

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else { return };
    let authority = Arc::new(Authority::new(Rules::new(Users::default(), None, AnonymousPolicy::Never)));
    let mechanism = MECHANISMS[usize::from(first) % MECHANISMS.len()];
    let context = Context { tls: first & 0x80 != 0, anonymous: false, realm: Some("d".into()), binding: None };
    let mut lines = rest.split(|&byte| byte == b'\n');
    let (mut exchange, mut step) = Exchange::start(&authority, context, mechanism, lines.next());
    for line in lines.take(8) {
        // A password check takes argon2's time and is tested elsewhere.
        assert!(!matches!(step, Step::Done { .. }), "nobody is a user here");
        step = exchange.respond(line);
    }
    assert!(!matches!(step, Step::Done { .. }), "nobody is a user here");
});
