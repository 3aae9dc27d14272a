//! Credentials of requests, and the answers to those without the right.

use std::{
    path::Path,
    sync::LazyLock,
    time::{SystemTime, UNIX_EPOCH},
};

use fogmux_auth::{Acl, AnonymousPolicy, SourceKind, SourceSet, TokenSettings, Tokens, Users};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::*;
use crate::channels::certified;

const ACL: &str = r#"
[[allow]]
user = "alice"
both = ["open/#"]
"#;
const SECRET: &[u8] = b"a secret that is long enough for HS256";
/// "a secret that is long enough for HS256" in base64url.
const SECRET_BASE64: &str = "YSBzZWNyZXQgdGhhdCBpcyBsb25nIGVub3VnaCBmb3IgSFMyNTY";
/// alice:wonderland, bob:builder and alice:wrong.
const ALICE: &str = "authorization: Basic YWxpY2U6d29uZGVybGFuZA==";
const BOB: &str = "authorization: Basic Ym9iOmJ1aWxkZXI=";
const WRONG: &str = "authorization: Basic YWxpY2U6d3Jvbmc=";

fn base64url(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

fn rules() -> Rules {
    static USERS: LazyLock<Users> = LazyLock::new(|| {
        let mut users = Users::default();
        users.set_password("alice", b"wonderland").unwrap();
        users.set_password("bob", b"builder").unwrap();
        users
    });
    let settings = TokenSettings { leeway: Duration::ZERO, ..TokenSettings::default() };
    let keys = format!(r#"{{"keys":[{{"kty":"oct","k":"{SECRET_BASE64}"}}]}}"#);
    Rules::new(USERS.clone(), Some(Acl::parse(Path::new("acl.toml"), ACL).unwrap()), AnonymousPolicy::Never)
        .with_tokens(Tokens::with_key_set(settings, keys.as_bytes()).unwrap())
}

fn bearer(user: &str, seconds: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = format!(r#"{{"sub":"{user}","exp":{}}}"#, now.saturating_add_signed(seconds));
    let signed = format!("{}.{}", base64url(br#"{"alg":"HS256"}"#), base64url(claims.as_bytes()));
    let mac = Hmac::<Sha256>::new_from_slice(SECRET).unwrap().chain_update(&signed).finalize().into_bytes();
    format!("authorization: Bearer {signed}.{}", base64url(&mac))
}

fn peer() -> Peer {
    Peer::plain(([127, 0, 0, 1], 9).into(), false)
}

fn with_certificate(name: &str) -> Peer {
    peer().over(certified(name, u64::MAX))
}

impl House {
    async fn ask_as(&self, peer: Peer, request: &str) -> Response {
        self.connect_as(peer).ask(request).await
    }
}

impl Response {
    fn all(&self, name: &str) -> Vec<&str> {
        self.head.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).collect()
    }
}

#[test]
fn every_credential_is_the_same_alice() {
    run_under(HttpConfig::default(), rules(), async |house| {
        let (token, bobs) = (bearer("alice", 600), bearer("bob", 600));
        let put = |header: &str| format!("PUT /topics/open/x|{header}||v");
        assert!(matches!(house.ask_as(peer(), &put(ALICE)).await.status(), 201 | 204));
        assert_eq!(house.ask_as(peer(), &put(&token)).await.status(), 204);
        assert_eq!(house.ask_as(with_certificate("alice"), &put("x: y")).await.status(), 204);
        assert_eq!(house.ask_as(with_certificate("alice"), &put(ALICE)).await.status(), 204);
        assert_eq!(house.ask_as(with_certificate("alice"), &put(&bobs)).await.status(), 401, "who shows two");
        assert_eq!(house.ask_as(with_certificate("alice"), &put(BOB)).await.status(), 401);
        let forbidden = house.ask_as(peer(), &put(BOB)).await;
        assert_eq!(forbidden.status(), 403);
        assert!(forbidden.text().contains("no rule allows it"), "{forbidden:?}");
        let secret = house.ask_as(peer(), &format!("PUT /topics/secret|{ALICE}||v")).await;
        assert_eq!(secret.status(), 403);
        let twice = house.ask_as(peer(), &put(&format!("{ALICE}|{token}"))).await;
        assert_eq!(twice.status(), 400, "one Authorization");
        // A connection is not bound to whoever asked first.
        let mut proxy = house.connect_as(peer());
        for _ in 0..2 {
            assert_eq!(proxy.ask(&put(ALICE)).await.status(), 204);
            assert_eq!(proxy.ask(&put(BOB)).await.status(), 403);
            assert_eq!(proxy.ask(&put("x: y")).await.status(), 401);
        }
    });
}

#[test]
fn rfc9110_s11_6_1_challenges_are_those_of_the_listener() {
    run_under(HttpConfig::default(), rules(), async |house| {
        let basic = "Basic realm=\"fogmux\", charset=\"UTF-8\"";
        let ask = async |sources: SourceSet, header: &str| {
            let peer = Peer { sources, ..peer() };
            let answer = house.ask_as(peer, &format!("GET /topics/open/x|{header}")).await;
            let challenges = answer.all("www-authenticate").join(" ");
            (answer.status(), challenges)
        };
        let both = format!("{basic} Bearer realm=\"fogmux\"");
        assert_eq!(ask(SourceSet::ALL, "x: y").await, (401, both.clone()));
        assert_eq!(ask(SourceSet::ALL, WRONG).await, (401, both));
        let invalid = format!("{basic} Bearer realm=\"fogmux\", error=\"invalid_token\"");
        assert_eq!(ask(SourceSet::ALL, &bearer("alice", -1)).await, (401, invalid));
        let passwords = SourceSet::NONE.with(SourceKind::Password);
        assert_eq!(ask(passwords, &bearer("alice", 60)).await, (401, basic.to_owned()));
        let tokens = SourceSet::NONE.with(SourceKind::Token);
        assert_eq!(ask(tokens, ALICE).await, (401, "Bearer realm=\"fogmux\"".to_owned()));
        let certificates = SourceSet::NONE.with(SourceKind::Certificate);
        assert_eq!(ask(certificates, "x: y").await, (403, String::new()), "nothing that a request could show");
        let unknown = "authorization: Negotiate x";
        assert_eq!(ask(certificates, unknown).await, (403, String::new()), "a 401 has a challenge");
        assert_eq!(ask(passwords, unknown).await, (401, basic.to_owned()));
        let far = Peer::plain(([192, 0, 2, 1], 9).into(), false);
        assert_eq!(house.ask_as(far, &format!("GET /topics/open/x|{ALICE}")).await.status(), 403, "in plain text");
        assert!(house.ctx.shared.last_refusals.all().iter().any(|line| line.refusal.is_login_for("sent without TLS")));
    });
}

#[test]
fn who_guesses_waits() {
    run_under(HttpConfig::default(), rules(), async |house| {
        let mut client = house.connect_as(peer());
        let mut last = client.ask(&format!("GET /topics/open/x|{WRONG}")).await;
        for _ in 0..12 {
            last = client.ask(&format!("GET /topics/open/x|{WRONG}")).await;
        }
        assert_eq!((last.status(), last.header("retry-after").is_some()), (429, true));
        assert_eq!(client.ask(&format!("GET /topics/open/x|{BOB}")).await.status(), 403, "another name does not");
    });
}

fn from_afar() -> Peer {
    Peer { address: ([192, 0, 2, 1], 9).into(), secure: true, ..peer() }
}

#[test]
fn what_is_proven_and_refused_is_no_guess() {
    run_under(HttpConfig::default(), rules(), async |house| {
        let get = |token: &str| format!("GET /topics/open/x|{token}");
        let mut nobodys = with_certificate("anonymous");
        nobodys.address = from_afar().address;
        for _ in 0..15 {
            assert_eq!(house.ask_as(from_afar(), &get(&bearer("alice", -9))).await.status(), 401, "expired");
            assert_eq!(house.ask_as(nobodys.clone(), "GET /topics/open/x|x: y").await.status(), 403);
        }
        assert_ne!(house.ask_as(from_afar(), &get(ALICE)).await.status(), 429);
        // A signature that is wrong may be a guess.
        for _ in 0..12 {
            let _ = house.ask_as(from_afar(), &get(&format!("{}A", bearer("alice", 9)))).await;
        }
        assert_eq!(house.ask_as(from_afar(), &get(ALICE)).await.status(), 429);
    });
}

#[test]
fn one_user_waits_whatever_the_spelling() {
    run_under(HttpConfig::default(), rules(), async |house| {
        use base64::Engine as _;
        let base64 = base64::engine::general_purpose::STANDARD;
        for soft_hyphens in 1..13 {
            let basic = base64.encode(format!("al{}ice:wrong", "\u{ad}".repeat(soft_hyphens)));
            let _ = house.ask_as(peer(), &format!("GET /topics/open/x|authorization: Basic {basic}")).await;
        }
        assert_eq!(house.ask_as(peer(), &format!("GET /topics/open/x|{ALICE}")).await.status(), 429);
    });
}

#[test]
fn a_person_has_a_session() {
    let config = HttpConfig { session_lifetime: Duration::from_secs(100), ..HttpConfig::default() };
    run_under(config, rules(), async |house| {
        let form = "content-type: application/x-www-form-urlencoded|";
        let log_in = |more: &str, body: &str| format!("POST /login|{form}{more}||{body}");
        let right = "user=alice&password=wonderland";
        assert_eq!(house.ask_as(peer(), "GET /login").await.status(), 200);
        assert_eq!(house.ask_as(peer(), &log_in("x: y", "user=alice&password=x")).await.status(), 401);
        let again = house.ask_as(peer(), &log_in("accept: text/html", "user=alice&password=x")).await;
        assert_eq!((again.status(), again.header("www-authenticate")), (403, None), "no window of the browser");
        assert!(again.text().contains("password is wrong"), "{again:?}");
        let foreign = house.ask_as(peer(), &log_in("origin: https://evil.example", right)).await;
        assert_eq!(foreign.status(), 403, "nobody logs somebody else in");
        let page = house.ask_as(peer(), &log_in("accept: text/html", right)).await;
        assert_eq!((page.status(), page.header("location")), (303, Some("/")));
        let given = house.ask_as(peer(), &log_in("x: y", right)).await;
        assert_eq!(given.status(), 204);
        let set = given.header("set-cookie").unwrap();
        assert!(set.ends_with("; Max-Age=100; Path=/; Secure; HttpOnly; SameSite=Strict"), "{set}");
        let cookie = format!("cookie: {}", set.split(';').next().unwrap());
        let put = |more: &str| format!("PUT /topics/open/x|{cookie}|{more}||v");
        assert!(matches!(house.ask_as(peer(), &put("x: y")).await.status(), 201 | 204));
        assert_eq!(house.ask_as(peer(), &put("origin: http://localhost")).await.status(), 204);
        assert_eq!(house.ask_as(peer(), &put("origin: https://evil.example")).await.status(), 403);
        assert_eq!(house.ask_as(peer(), &put("sec-fetch-site: cross-site")).await.status(), 403);
        assert_eq!(house.ask_as(with_certificate("bob"), &put("x: y")).await.status(), 401, "another's");
        assert_eq!(house.ask_as(peer(), &put("cookie: __Host-fogmux=0")).await.status(), 204, "a second cookie");

        let mut follower = house.connect_as(peer());
        follower.send(&format!("GET /subscribe?filter=open/%23|{cookie}")).await;
        follower.event().await;
        let out = house.ask_as(peer(), &format!("POST /logout|{cookie}")).await;
        assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
        follower.until(b"0\r\n\r\n").await;
        assert_eq!(house.ask_as(peer(), &put("x: y")).await.status(), 401);
    });
}

#[test]
fn what_lasts_ends_with_its_credential() {
    let config = HttpConfig { event_keep_alive: Duration::from_millis(50), ..HttpConfig::default() };
    run_under(config, rules(), async |house| {
        let mut reader = house.connect_as(peer());
        reader.send(&format!("GET /subscribe?filter=open/%23|{}", bearer("alice", 2))).await;
        reader.until(b"\r\n\r\n").await;
        reader.until(b"0\r\n\r\n").await;
        let mut reader = house.connect_as(peer());
        reader.send(&format!("GET /subscribe?filter=open/%23|{ALICE}")).await;
        reader.until(b"\r\n\r\n").await;
        let users = Users::parse(Path::new("users"), "[users.alice]\ndisabled = true\n").unwrap();
        house.ctx.authority().replace(Rules::new(users, None, AnonymousPolicy::Never));
        reader.until(b"0\r\n\r\n").await;
    });
}

async fn cookie_of_alice(house: &House) -> String {
    let log_in = "POST /login|content-type: application/x-www-form-urlencoded||user=alice&password=wonderland";
    let given = house.ask_as(peer(), log_in).await;
    format!("cookie: {}", given.header("set-cookie").unwrap().split(';').next().unwrap())
}

#[test]
fn a_cookie_is_no_more_than_the_login_it_is_of() {
    run_under(HttpConfig::default(), rules(), async |house| {
        let put = format!("PUT /topics/open/x|{}||v", cookie_of_alice(&house).await);
        let taking = |kind| Peer { sources: SourceSet::NONE.with(kind), ..peer() };
        assert_eq!(house.ask_as(taking(SourceKind::Password), &put).await.status(), 201);
        assert_eq!(house.ask_as(taking(SourceKind::Certificate), &put).await.status(), 403);
        assert_eq!(house.ask_as(taking(SourceKind::Token), &put).await.status(), 401);
        let far = Peer::plain(([192, 0, 2, 1], 9).into(), false);
        assert_eq!(house.ask_as(far, &put).await.status(), 403, "in plain text");
        assert_eq!(house.ask_as(peer(), &put).await.status(), 204, "it goes on where it began");
    });
}

#[test]
fn a_session_ends_with_its_password() {
    let config = HttpConfig { event_keep_alive: Duration::from_millis(50), ..HttpConfig::default() };
    run_under(config, rules(), async |house| {
        let cookie = cookie_of_alice(&house).await;
        let put = format!("PUT /topics/open/x|{cookie}||v");
        house.ctx.authority().replace(rules());
        assert_eq!(house.ask_as(peer(), &put).await.status(), 201, "the same password");
        let mut reader = house.connect_as(peer());
        reader.send(&format!("GET /subscribe?filter=open/%23|{cookie}")).await;
        reader.until(b"\r\n\r\n").await;
        let mut users = Users::default();
        users.set_password("alice", b"changed").unwrap();
        let acl = Acl::parse(Path::new("acl.toml"), ACL).unwrap();
        house.ctx.authority().replace(Rules::new(users, Some(acl), AnonymousPolicy::Never));
        assert_eq!(house.ask_as(peer(), &put).await.status(), 401);
        reader.until(b"0\r\n\r\n").await;
        house.ctx.authority().replace(rules());
        assert_eq!(house.ask_as(peer(), &put).await.status(), 401, "it does not come back");
    });
}

/// The lines of the audit log of this thread.
#[derive(Clone, Default)]
struct Log(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn begin(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || log.clone());
        tracing::subscriber::set_default(lines.finish())
    }

    /// The lines about streams that have ended, since the last call.
    fn ends(&self) -> Vec<String> {
        let text = String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap();
        let lines = text.lines().filter(|line| line.contains(" fogmux::audit: event stream ended "));
        lines.map(|line| line.split_once("ended ").unwrap().1.to_owned()).collect()
    }
}

#[test]
fn the_end_of_a_stream_whose_reader_loses_its_right_is_in_the_audit_log() {
    let log = Log::default();
    let _guard = log.begin();
    let config = HttpConfig { event_keep_alive: Duration::from_millis(50), ..HttpConfig::default() };
    run_under(config, rules(), async |house| {
        let open = async |credential: &str| {
            let mut reader = house.connect_as(peer());
            reader.send(&format!("GET /subscribe?filter=open/%23|{credential}")).await;
            reader.until(b"\r\n\r\n").await;
            reader
        };
        let said = |reason: &str| {
            let ends = log.ends();
            let [line] = &ends[..] else { panic!("{reason}: {ends:?}") };
            assert!(line.starts_with("peer=127.0.0.1 port=9 door=http principal=\"alice\" reason="), "{line}");
            assert!(line.contains(reason), "{line}");
        };
        let gone = |acl: &str, text: &str| {
            let users = Users::parse(Path::new("users"), text).unwrap();
            let acl = Acl::parse(Path::new("acl.toml"), acl).unwrap();
            house.ctx.authority().replace(Rules::new(users, Some(acl), AnonymousPolicy::Never));
        };

        let mut reader = open(&bearer("alice", 2)).await;
        reader.until(b"0\r\n\r\n").await;
        said("the credential has expired");

        let cookie = cookie_of_alice(&house).await;
        let mut reader = open(&cookie).await;
        house.ask_as(peer(), &format!("POST /logout|{cookie}")).await;
        reader.until(b"0\r\n\r\n").await;
        said("the session has ended");

        let mut reader = open(ALICE).await;
        gone(ACL, "[users.alice]\ndisabled = true\n");
        reader.until(b"0\r\n\r\n").await;
        said("the user was removed or disabled");

        house.ctx.authority().replace(rules());
        let upgrade = "connection: upgrade|upgrade: websocket|sec-websocket-version: 13|\
                       sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==";
        let mut reader = open(&format!("{ALICE}|{upgrade}")).await;
        let acl = Acl::parse(Path::new("acl.toml"), "[[deny]]\nuser = \"alice\"\nread = \"#\"\n").unwrap();
        house.ctx.authority().replace(Rules::new(rules().users().clone(), Some(acl), AnonymousPolicy::Never));
        // RFC 6455 §7.4.1: a close frame with 1008.
        reader.until(b"\x88\x02\x03\xf0").await;
        said("the rules do not let it read any of its filters");

        // The reader itself may leave without a line.
        house.ctx.authority().replace(rules());
        drop(open(ALICE).await);
        assert_eq!(house.ask_as(peer(), &format!("GET /topics/open/none|{ALICE}")).await.status(), 404);
        assert!(log.ends().is_empty());
    });
}

#[test]
fn a_stream_that_the_rules_end_is_a_refusal_of_its_filters() {
    use fogmux_auth::Action;

    use crate::refused::What;

    let config = HttpConfig { event_keep_alive: Duration::from_millis(50), ..HttpConfig::default() };
    run_under(config, rules(), async |house| {
        let mut reader = house.connect_as(peer());
        reader.send(&format!("GET /subscribe?filter=open/%23&filter=open/x|{ALICE}")).await;
        reader.until(b"\r\n\r\n").await;
        let refused = || house.ctx.shared.last_refusals.all();
        assert!(refused().is_empty());
        let users = rules().users().clone();
        let acl = "[[deny]]\nuser = \"alice\"\nread = \"open/#\"\n";
        let acl = Acl::parse(Path::new("acl.toml"), acl).unwrap();
        house.ctx.authority().replace(Rules::new(users, Some(acl), AnonymousPolicy::Never));
        reader.until(b"0\r\n\r\n").await;
        let mut topics: Vec<Box<str>> = Vec::new();
        for line in refused() {
            let What::Action { principal, action, topic, rule, .. } = line.refusal.what else { panic!("a login") };
            assert_eq!((&*principal, action, rule.unwrap().line()), ("alice", Action::Read, 3));
            topics.push(topic);
        }
        topics.sort();
        assert_eq!(topics, ["open/#".into(), "open/x".into()]);
    });
}
