//! SCRAM, our side: the first byte chooses mechanism and channel, the first line is the client's first message, the
//! second its last, in which `~` stands for the nonce that we said. Whoever does not know the password is refused
//! whatever they say, and what they say is never taken for another exchange's.
#![no_main]

use std::{
    path::Path,
    sync::{Arc, LazyLock},
};

use fogmux_auth::{
    AnonymousPolicy, Authority, Rules, SourceSet, Users,
    sasl::{Context, Exchange, SaslChannel, Step},
};
use libfuzzer_sys::fuzz_target;

const MECHANISMS: [&str; 4] = ["SCRAM-SHA-256", "SCRAM-SHA-1", "SCRAM-SHA-256-PLUS", "SCRAM-SHA-1-PLUS"];
/// Keys of a password that is nowhere in here.
const USERS: &str = r#"
[users.ann]
scram_sha_256 = "4096:c2FsdA==:yS/W21tErI/2KAvC5IOWB6o2hh7uYHuSV+VMtAZ7y7A=:HAJN9V3qwKtawWRjE6SiZRH5AaY2Zjf9rxBvlcqE26Y="
scram_sha_1 = "4096:c2FsdA==:UmqRQANMwEMAnfLv0bKP5RcSWJE=:prVpHrknW3r8TYb6MCCS9dmfB7Q="
"#;

static AUTHORITY: LazyLock<Arc<Authority>> = LazyLock::new(|| {
    let users = Users::parse(Path::new("users.toml"), USERS).expect("good users");
    Arc::new(Authority::new(Rules::new(users, None, AnonymousPolicy::Never)))
});

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else { return };
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
    let mut lines = rest.splitn(2, |&byte| byte == b'\n');
    let mechanism = MECHANISMS[usize::from(first) % MECHANISMS.len()];
    let (mut exchange, step) = Exchange::start(&AUTHORITY, context, mechanism, lines.next());
    let Step::Challenge(challenge) = step else {
        assert!(!matches!(step, Step::Done { .. }), "in by one message");
        return;
    };
    let nonce = challenge.strip_prefix(b"r=").map(|rest| rest.split(|&byte| byte == b',').next().unwrap_or_default());
    let mut last = Vec::new();
    for &byte in lines.next().unwrap_or_default() {
        match (byte, nonce) {
            (b'~', Some(nonce)) => last.extend_from_slice(nonce),
            (other, _) => last.push(other),
        }
    }
    assert!(!matches!(exchange.respond(&last), Step::Done { .. }), "in without the password");
});
