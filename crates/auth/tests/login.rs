//! Logins through the authority and the SASL core.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "login/tokens.rs"]
mod tokens;

use std::{
    path::Path,
    sync::{Arc, LazyLock},
};

use fogmux_auth::{
    Acl, AnonymousPolicy, Authority, CertificateIdentity, Principal, Refused, Rules, Scratch, SourceKind, SourceSet,
    Users,
    sasl::{Context, Exchange, Plain, SaslChannel, Step, mechanisms},
    scram::{ChannelBinding, ClientBinding, ScramClient, ScramHash},
};

static USERS: LazyLock<Users> = LazyLock::new(|| {
    let mut users = Users::default();
    users.set_password("alice", b"wonderland").unwrap();
    users.set_groups("alice", &["operators"]).unwrap();
    users.set_password("binary", b"\xff\x00\x01").unwrap();
    users
});

fn authority() -> Arc<Authority> {
    Arc::new(Authority::new(Rules::new(USERS.clone(), None, AnonymousPolicy::Loopback)))
}

fn tls() -> Context {
    Context { channel: SaslChannel { secure: true, ..SaslChannel::default() }, ..Context::default() }
}

fn bound() -> Context {
    let channel = SaslChannel { exporter: Some([7; 32]), end_point: Some([8; 32].into()), ..tls().channel };
    Context { channel, ..tls() }
}

fn names(context: &Context) -> Vec<&'static str> {
    mechanisms(context).map(|mechanism| mechanism.name()).collect()
}

#[test]
fn a_password_is_verified_and_then_recalled() {
    let authority = authority();
    assert!(authority.recall("alice", b"wonderland").is_none());
    let principal = authority.password("alice", b"wonderland", &mut Scratch::new()).unwrap();
    assert_eq!((&*principal.name, principal.anonymous), ("alice", false));
    assert_eq!(&*principal.groups[0], "operators");
    assert_eq!(authority.recall("alice", b"wonderland"), Some(principal));
    for (user, password) in [("alice", &b"wonderlanD"[..]), ("alice", b""), ("nobody", b"wonderland"), ("", b"")] {
        assert_eq!(authority.password(user, password, &mut Scratch::new()), Err(Refused::Credentials), "{user}");
        assert!(authority.recall(user, password).is_none());
    }
    assert!(authority.password("binary", b"\xff\x00\x01", &mut Scratch::new()).is_ok());
}

#[test]
fn a_changed_password_is_not_recalled() {
    let authority = authority();
    authority.password("alice", b"wonderland", &mut Scratch::new()).unwrap();
    let mut users = USERS.clone();
    users.set_password("alice", b"looking-glass").unwrap();
    authority.replace(Rules::new(users, None, AnonymousPolicy::Loopback));
    assert!(authority.recall("alice", b"wonderland").is_none());
    assert_eq!(authority.password("alice", b"wonderland", &mut Scratch::new()), Err(Refused::Credentials));
    assert!(authority.password("alice", b"looking-glass", &mut Scratch::new()).is_ok());
}

#[test]
fn who_came_in_by_a_password_goes_with_it_and_by_nothing_else() {
    let authority = authority();
    let alice = authority.password("alice", b"wonderland", &mut Scratch::new()).unwrap();
    let replace = |users: Users| authority.replace(Rules::new(users, None, AnonymousPolicy::Loopback));
    let mut users = USERS.clone();
    users.set_groups("alice", &["guests"]).unwrap();
    users.set_password("bob", b"builder").unwrap();
    let file = tempfile::tempdir().unwrap();
    users.save(&file.path().join("users.toml")).unwrap();
    replace(Users::load(&file.path().join("users.toml")).unwrap());
    assert!(authority.admits(&alice), "other groups, another user, the same file read again");
    users.set_password("alice", b"wonderland").unwrap();
    replace(users.clone());
    assert!(!authority.admits(&alice), "a password that is set is another one, whatever it is");
    let alice = authority.password("alice", b"wonderland", &mut Scratch::new()).unwrap();
    assert!(authority.admits(&alice));
    let generation = authority.generation();
    authority.look_again();
    assert!(authority.generation() > generation && authority.admits(&alice));
    users.remove("alice");
    replace(users);
    assert!(!authority.admits(&alice) && authority.admits(&Principal::anonymous()));
}

/// The work of a refused login, to which its time is proportional.
fn cost_of_refusal(authority: &Authority, user: &str) -> u64 {
    let mut scratch = Scratch::new();
    assert_eq!(authority.password(user, b"wrong", &mut scratch), Err(Refused::Credentials), "{user}");
    scratch.work()
}

#[test]
fn an_unknown_user_costs_what_a_wrong_password_costs() {
    let mut users = USERS.clone();
    users.set_password("gone", b"fishing").unwrap();
    users.set_disabled("gone", true).unwrap();
    let authority = Authority::new(Rules::new(users, None, AnonymousPolicy::Loopback));
    let known = cost_of_refusal(&authority, "alice");
    // OWASP's 7 MiB in 5 passes.
    assert_eq!(known, 7 * 1024 * 5);
    for user in ["mallory", "gone", ""] {
        assert_eq!(cost_of_refusal(&authority, user), known, "{user:?}");
    }
}

#[test]
fn a_hash_from_elsewhere_costs_what_an_unknown_user_costs() {
    const MOSQUITTOS: &str =
        "$6$ep2ynmhUMT//sR7p$3bmTwYdRx5CnO/cfpldDIMaofZaN0du8dXfjYSE88ulhlNxRGdaKLMLxtPOjaTs7Ojo3gXIws5dLllnZFwRpzw==";
    let mut users = Users::default();
    users.set_hash("moved", MOSQUITTOS).unwrap();
    let authority = Authority::new(Rules::new(users, None, AnonymousPolicy::Never));
    assert_eq!(cost_of_refusal(&authority, "moved"), cost_of_refusal(&authority, "unknown"));
    assert_eq!(&*authority.password("moved", b"secret", &mut Scratch::new()).unwrap().name, "moved");
}

#[test]
fn many_logins_at_once_all_get_an_answer() {
    let authority = authority();
    let threads: Vec<_> = (0..16)
        .map(|number| {
            let authority = Arc::clone(&authority);
            std::thread::spawn(move || {
                let password: &[u8] = if number % 2 == 0 { b"wonderland" } else { b"x" };
                authority.password("alice", password, &mut Scratch::new()).is_ok()
            })
        })
        .collect();
    let answers: Vec<bool> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(answers.iter().filter(|ok| **ok).count(), 8);
}

#[test]
fn what_is_offered_depends_on_the_channel() {
    assert_eq!(names(&Context::default()), ["SCRAM-SHA-256", "SCRAM-SHA-1"]);
    assert_eq!(names(&tls()), ["SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"]);
    assert_eq!(
        names(&Context { anonymous: true, ..Context::default() }),
        ["SCRAM-SHA-256", "SCRAM-SHA-1", "ANONYMOUS"]
    );
    assert_eq!(names(&bound())[0], "SCRAM-SHA-256-PLUS");
    let external = |sources| {
        let channel = SaslChannel { certificate: Some(Principal::user("alice", [])), ..tls().channel };
        names(&Context { channel, sources, ..tls() })
    };
    assert_eq!(external(SourceSet::ALL)[0], "EXTERNAL");
    assert_eq!(external(SourceSet::ALL)[3], "OAUTHBEARER");
    assert_eq!(external(SourceSet::NONE.with(SourceKind::Certificate)), ["EXTERNAL"]);
    assert!(external(SourceSet::NONE).is_empty());
}

#[test]
fn what_is_not_offered_is_refused() {
    for mechanism in ["PLAIN", "ANONYMOUS", "SCRAM-SHA-256-PLUS", "scram-sha-256", "EXTERNAL", ""] {
        let (_, step) = Exchange::start(&authority(), Context::default(), mechanism, Some(b"\0alice\0wonderland"));
        assert!(matches!(step, Step::Refused(Refused::Mechanism)), "{mechanism}");
    }
}

fn scram(hash: ScramHash, user: &str, password: &str, initial: bool) -> Result<(), Refused> {
    let mut client = ScramClient::new(hash, user, password, "nonce").unwrap();
    let first = client.first();
    let (mut exchange, mut step) =
        Exchange::start(&authority(), Context::default(), hash.mechanism(), initial.then_some(&*first));
    if !initial {
        assert!(matches!(&step, Step::Challenge(empty) if empty.is_empty()));
        step = exchange.respond(&first);
    }
    let Step::Challenge(challenge) = step else { panic!("{step:?}") };
    match exchange.respond(&client.respond(&challenge).unwrap()) {
        Step::Done { principal, data, .. } => {
            assert_eq!(&*principal.name, user);
            client.verify(&data.unwrap()).unwrap();
            Ok(())
        }
        Step::Refused(refused) => Err(refused),
        step @ (Step::Challenge(_) | Step::Check(_) | Step::Ask { .. }) => panic!("{step:?}"),
    }
}

#[test]
fn scram_logs_in_with_and_without_an_initial_response() {
    for hash in [ScramHash::Sha1, ScramHash::Sha256] {
        assert_eq!(scram(hash, "alice", "wonderland", true), Ok(()));
        assert_eq!(scram(hash, "alice", "wonderland", false), Ok(()));
        assert_eq!(scram(hash, "alice", "wrong", true), Err(Refused::Credentials));
        assert_eq!(scram(hash, "mallory", "wonderland", true), Err(Refused::Credentials));
        assert_eq!(scram(hash, "binary", "x", true), Err(Refused::Credentials));
    }
}

#[test]
fn an_unknown_user_gets_the_same_salt_every_time_and_in_the_form_of_a_real_one() {
    let challenge = |authority: &Arc<Authority>, user: &str| {
        let first = format!("n,,n={user},r=x");
        match Exchange::start(authority, Context::default(), "SCRAM-SHA-256", Some(first.as_bytes())).1 {
            Step::Challenge(challenge) => String::from_utf8(challenge).unwrap().split_once(",s=").unwrap().1.to_owned(),
            step @ (Step::Check(_) | Step::Ask { .. } | Step::Done { .. } | Step::Refused(_)) => panic!("{step:?}"),
        }
    };
    let (one, other) = (authority(), authority());
    assert_eq!(challenge(&one, "mallory"), challenge(&other, "mallory"), "kept across restarts with the file");
    assert_ne!(challenge(&one, "mallory"), challenge(&one, "oscar"));
    assert_eq!(challenge(&one, "mallory").len(), challenge(&one, "alice").len());
    assert!(challenge(&one, "mallory").ends_with(",i=15000"));
}

#[test]
fn plain_hands_the_check_to_a_blocking_thread_and_knows_it_the_next_time() {
    let authority = authority();
    let plain = |message: &[u8]| Exchange::start(&authority, tls(), "PLAIN", Some(message)).1;
    let Step::Check(check) = plain(&Plain::encode("alice", "wonderland")) else { panic!("no check") };
    assert_eq!((check.user(), format!("{check:?}").contains("wonderland")), ("alice", false));
    assert_eq!(&*std::thread::spawn(move || check.run(&mut Scratch::new())).join().unwrap().unwrap().name, "alice");
    assert!(matches!(plain(b"alice\0alice\0wonderland"), Step::Done { data: None, .. }));
    assert!(matches!(plain(b"bob\0alice\0wonderland"), Step::Refused(Refused::Identity)));
    for malformed in [&b""[..], b"alice", b"\0alice", b"\0\0x", b"\0alice\0", b"\0a\0b\0c", b"\0\xff\0x"] {
        assert!(matches!(plain(malformed), Step::Refused(Refused::Malformed(_))), "{malformed:?}");
    }
}

#[test]
fn an_identity_at_our_realm_is_ones_own() {
    let authority = authority();
    authority.password("alice", b"wonderland", &mut Scratch::new()).unwrap();
    let context = || Context { realm: Some("localhost".into()), ..tls() };
    let start = |message: &[u8]| Exchange::start(&authority, context(), "PLAIN", Some(message)).1;
    assert!(matches!(start(b"alice@localhost\0alice\0wonderland"), Step::Done { .. }));
    assert!(matches!(start(b"alice@elsewhere\0alice\0wonderland"), Step::Refused(Refused::Identity)));
    assert!(matches!(start(b"bob@localhost\0alice\0wonderland"), Step::Refused(Refused::Identity)));
}

#[test]
fn channel_binding_is_demanded_where_chosen_and_downgrades_are_noticed() {
    let start = |mechanism: &str, first: &[u8]| Exchange::start(&authority(), bound(), mechanism, Some(first)).1;
    for kind in ["tls-exporter", "tls-server-end-point"] {
        let first = format!("p={kind},,n=alice,r=x");
        assert!(matches!(start("SCRAM-SHA-256-PLUS", first.as_bytes()), Step::Challenge(_)));
    }
    for (mechanism, first) in [
        ("SCRAM-SHA-256-PLUS", &b"n,,n=alice,r=x"[..]),
        ("SCRAM-SHA-256-PLUS", b"p=tls-unique,,n=alice,r=x"),
        ("SCRAM-SHA-256", b"y,,n=alice,r=x"),
        ("SCRAM-SHA-256", b"p=tls-exporter,,n=alice,r=x"),
    ] {
        assert!(matches!(start(mechanism, first), Step::Refused(Refused::ChannelBinding)), "{mechanism}");
    }
    assert!(matches!(start("SCRAM-SHA-256", b"n,,n=alice,r=x"), Step::Challenge(_)));
}

#[test]
fn anonymous_is_a_login_like_any_other_and_an_exchange_ends_once() {
    let context = Context { anonymous: true, ..Context::default() };
    let (mut exchange, step) = Exchange::start(&authority(), context.clone(), "ANONYMOUS", Some(b"sirhc"));
    assert!(matches!(step, Step::Done { principal, data: None, .. } if principal.anonymous));
    assert!(matches!(exchange.respond(b"again"), Step::Refused(Refused::Malformed(_))));
    let (_, step) = Exchange::start(&authority(), context.clone(), "ANONYMOUS", None);
    assert!(matches!(step, Step::Done { .. }), "without trace information there is nothing to wait for");
    let (_, step) = Exchange::start(&authority(), context, "ANONYMOUS", Some(&[b'x'; 256]));
    assert!(matches!(step, Step::Refused(Refused::Malformed(_))));
}

#[test]
fn a_user_removed_during_the_exchange_is_not_let_in() {
    let authority = authority();
    let mut client = ScramClient::new(ScramHash::Sha256, "alice", "wonderland", "nonce").unwrap();
    let (mut exchange, step) = Exchange::start(&authority, Context::default(), "SCRAM-SHA-256", Some(&client.first()));
    let Step::Challenge(challenge) = step else { panic!("{step:?}") };
    authority.replace(Rules::new(
        Users::default(),
        Some(Acl::parse(Path::new("acl.toml"), "").unwrap()),
        AnonymousPolicy::Never,
    ));
    let step = exchange.respond(&client.respond(&challenge).unwrap());
    assert!(matches!(step, Step::Refused(Refused::Credentials)));
}

#[test]
fn a_password_changed_during_the_exchange_is_not_the_one_that_was_proven() {
    let authority = authority();
    let mut client = ScramClient::new(ScramHash::Sha256, "alice", "wonderland", "nonce").unwrap();
    let (mut exchange, step) = Exchange::start(&authority, Context::default(), "SCRAM-SHA-256", Some(&client.first()));
    let Step::Challenge(challenge) = step else { panic!("{step:?}") };
    let mut users = USERS.clone();
    users.set_password("alice", b"looking-glass").unwrap();
    authority.replace(Rules::new(users, None, AnonymousPolicy::Never));
    let step = exchange.respond(&client.respond(&challenge).unwrap());
    assert!(matches!(step, Step::Refused(Refused::Credentials)));
}

#[test]
fn plus_is_bound_to_the_channel() {
    let log_in = |binding: ClientBinding, mechanism: &str| {
        let mut client = ScramClient::new(ScramHash::Sha256, "alice", "wonderland", "nonce").unwrap().bound(binding);
        let (mut exchange, step) = Exchange::start(&authority(), bound(), mechanism, Some(&client.first()));
        let challenge = match step {
            Step::Challenge(challenge) => challenge,
            Step::Refused(refused) => return Err(refused),
            step @ (Step::Check(_) | Step::Ask { .. } | Step::Done { .. }) => panic!("{step:?}"),
        };
        assert_eq!(exchange.user(), Some("alice"));
        match exchange.respond(&client.respond(&challenge).unwrap()) {
            Step::Done { data, .. } => {
                client.verify(&data.unwrap()).unwrap();
                Ok(())
            }
            Step::Refused(refused) => Err(refused),
            step @ (Step::Check(_) | Step::Ask { .. } | Step::Challenge(_)) => panic!("{step:?}"),
        }
    };
    let plus = "SCRAM-SHA-256-PLUS";
    assert_eq!(log_in(ClientBinding::Bound(ChannelBinding::exporter(&[7; 32])), plus), Ok(()));
    assert_eq!(log_in(ClientBinding::Bound(ChannelBinding::end_point(&[8; 32])), plus), Ok(()));
    // Somebody in between has another channel to us than the client has to it.
    let other = ClientBinding::Bound(ChannelBinding::exporter(&[9; 32]));
    assert_eq!(log_in(other, plus), Err(Refused::ChannelBinding));
    assert_eq!(log_in(ClientBinding::None, "SCRAM-SHA-256"), Ok(()));
    assert_eq!(log_in(ClientBinding::NotOffered, "SCRAM-SHA-256"), Err(Refused::ChannelBinding));
}

#[test]
fn external_is_whoever_the_certificate_says() {
    let authority = authority();
    let certificate = |name: Option<&str>| {
        let certificate = name.map(|name| {
            let sha256 = &[0; 32];
            let names = CertificateIdentity {
                sha256,
                common_name: Some(name),
                dns: &[],
                emails: &[],
                uris: &[],
                xmpp_addresses: &[],
                realm: "",
            };
            authority.certificate(&names).unwrap()
        });
        let channel = SaslChannel { certificate, ..tls().channel };
        Context { channel, sources: SourceSet::ALL, realm: Some("localhost".into()), ..tls() }
    };
    let start = |name, authzid: &[u8]| Exchange::start(&authority, certificate(name), "EXTERNAL", Some(authzid)).1;
    for authzid in [&b""[..], b"alice", b"alice@localhost"] {
        let step = start(Some("alice"), authzid);
        assert!(matches!(step, Step::Done { principal, .. } if &*principal.groups[0] == "operators"), "{authzid:?}");
    }
    assert!(matches!(start(Some("sensor"), b""), Step::Done { .. }), "a name beside the users file");
    assert!(matches!(start(Some("alice"), b"bob@localhost"), Step::Refused(Refused::Identity)));
    assert!(matches!(start(Some("alice"), b"\xff"), Step::Refused(Refused::Malformed(_))));
    assert!(matches!(start(None, b""), Step::Refused(Refused::Mechanism)));
}
