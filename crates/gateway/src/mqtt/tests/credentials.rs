//! Credentials, and the answers to clients that are refused.

mod scram;

use std::{
    path::Path,
    sync::LazyLock,
    time::{SystemTime, UNIX_EPOCH},
};

use fogmux_auth::{
    Acl, AnonymousPolicy, Psks, SourceKind, SourceSet, TokenSettings, Tokens, Users,
    scram::{ScramClient, ScramHash},
};
use fogmux_bus::{
    Timestamp,
    durable::{MemoryStore, Recovered, RestoredDelivery, SessionStore},
};
use fogmux_mqtt::Authentication;
use fogmux_net::{Channel, ProvenPsk};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::{
    durable::{committing, lasting},
    *,
};
use crate::{
    channels::{certified, channel},
    credential,
};

const ACL: &str = r#"
[[allow]]
user = "alice"
both = ["open/#"]

[[allow]]
group = "readers"
read = ["open/#"]
"#;
const SECRET: &[u8] = b"a secret that is long enough for HS256";
/// "a secret that is long enough for HS256" in base64url.
const SECRET_BASE64: &str = "YSBzZWNyZXQgdGhhdCBpcyBsb25nIGVub3VnaCBmb3IgSFMyNTY";

fn base64url(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

fn rules(disabled: &str) -> Rules {
    ruled(Acl::parse(Path::new("acl.toml"), ACL).unwrap(), disabled)
}

fn ruled(acl: Acl, disabled: &str) -> Rules {
    static USERS: LazyLock<Users> = LazyLock::new(|| {
        let mut users = Users::default();
        users.set_password("alice", b"wonderland").unwrap();
        users.set_password("bob", b"builder").unwrap();
        users
    });
    let users = if disabled.is_empty() {
        USERS.clone()
    } else {
        Users::parse(Path::new("users"), &format!("[users.{disabled}]\ndisabled = true\n")).unwrap()
    };
    let settings = TokenSettings { leeway: Duration::ZERO, ..TokenSettings::default() };
    let keys = format!(r#"{{"keys":[{{"kty":"oct","k":"{SECRET_BASE64}"}}]}}"#);
    let psks = "[[psk]]\nidentity = \"device-1\"\nkey = \"00112233445566778899aabbccddeeff\"\nuser = \"alice\"\n";
    Rules::new(users, Some(acl), AnonymousPolicy::Never)
        .with_tokens(Tokens::with_key_set(settings, keys.as_bytes()).unwrap())
        .with_psks(Psks::parse(Path::new("psk.toml"), psks).unwrap())
}

fn token(user: &str, seconds: i64, groups: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = format!(r#"{{"sub":"{user}","exp":{},"groups":"{groups}"}}"#, now.saturating_add_signed(seconds));
    let signed = format!("{}.{}", base64url(br#"{"alg":"HS256"}"#), base64url(claims.as_bytes()));
    let mac = Hmac::<Sha256>::new_from_slice(SECRET).unwrap().chain_update(&signed).finalize().into_bytes();
    format!("{signed}.{}", base64url(&mac))
}

fn peer() -> Peer {
    Peer::plain(SocketAddr::from(([127, 0, 0, 1], 1)), false)
}

fn with_certificate(name: &str) -> Peer {
    peer().over(certified(name, u64::MAX))
}

fn shown<'a>(version: Version, user: Option<&'a str>, password: Option<&'a str>) -> Connect<'a> {
    Connect { user, password: password.map(str::as_bytes), ..connect(version, "c") }
}

impl House {
    async fn come(&self, peer: Peer, connect: &Connect<'_>) -> Result<Wire, ReasonCode> {
        self.try_connect(self.open_as(peer), connect).await
    }
}

/// A session of a user that no file names goes on with the groups of its client's last token.
#[test]
fn a_restored_session_has_the_groups_that_its_client_had() {
    let store = MemoryStore::default();
    let config = |store: &MemoryStore| MqttConfig { store: Some(Arc::new(store.clone())), ..MqttConfig::default() };
    let shows = [token("device", 3600, "readers"), token("other", 3600, "strangers")];
    run_under(config(&store), rules(""), async |house: House| {
        committing(&store, async {
            for (id, token) in ["s", "t"].into_iter().zip(&shows) {
                let mut list = PropertyBuffer::new();
                let user = Some("any");
                let connect = Connect { user, password: Some(token.as_bytes()), ..lasting(&mut list, id) };
                let mut client = house.come(peer(), &connect).await.unwrap();
                client.subscribe_with("open/#", SubscriptionOptions::qos(Qos::AtLeastOnce), Properties::NONE).await;
                client.disconnect(ReasonCode::SUCCESS).await;
            }
        })
        .await;
    });
    let store = store.crashed(usize::MAX);
    run_under(config(&store), rules(""), async |house: House| {
        committing(&store, async {
            let mut alice = house.come(peer(), &shown(Version::V5, Some("alice"), Some("wonderland"))).await.unwrap();
            assert_eq!(alice.publish(&message("open/1", b"1", Qos::AtLeastOnce)).await, ReasonCode::SUCCESS);
            // Rules that do not know the group any more.
            let acl = Acl::parse(Path::new("acl.toml"), &ACL.replace("readers", "nobody")).unwrap();
            house.ctx.authority().replace(ruled(acl, ""));
            house.ctx.bus().invalidate();
            let unread = alice.publish(&message("open/2", b"2", Qos::AtLeastOnce)).await;
            assert_eq!(unread, ReasonCode::NO_MATCHING_SUBSCRIBERS);
            house.ctx.authority().replace(rules(""));
            house.ctx.bus().invalidate();
            assert_eq!(alice.publish(&message("open/3", b"3", Qos::AtLeastOnce)).await, ReasonCode::SUCCESS);
        })
        .await;
    });
    let store = store.crashed(usize::MAX);
    let waiting = Recovered::load(&store).sessions.into_iter();
    let payload = |one: &RestoredDelivery| store.read(one.stored.message()).unwrap().payload.to_vec();
    let payloads = waiting.map(|one| one.deliveries.iter().map(payload).collect::<Vec<_>>());
    assert_eq!(payloads.collect::<Vec<_>>(), [vec![b"1".to_vec(), b"3".to_vec()], vec![]]);
}

const ALL_VERSIONS: [Version; 3] = [Version::V31, Version::V311, Version::V5];

#[test]
fn a_certificate_is_its_owner_and_nobody_else() {
    run_under(MqttConfig::default(), rules(""), async |house: House| {
        for version in ALL_VERSIONS {
            let come = async |peer: Peer, user, password| {
                let come = house.come(peer, &shown(version, user, password)).await;
                come.map(|_| ())
            };
            let alice = || with_certificate("alice");
            let wrong = Err(ReasonCode::BAD_USER_NAME_OR_PASSWORD);
            assert_eq!(come(alice(), None, None).await, Ok(()));
            assert_eq!(come(alice(), Some("alice"), None).await, Ok(()));
            assert_eq!(come(alice(), Some("bob"), None).await, wrong, "a name is a claim");
            assert_eq!(come(alice(), Some("alice"), Some("wonderland")).await, Ok(()));
            assert_eq!(come(alice(), Some("alice"), Some("wrong")).await, wrong);
            assert_eq!(come(alice(), Some("bob"), Some("builder")).await, wrong, "who shows two is the same in both");
            assert_eq!(come(peer(), Some("alice"), None).await, Err(ReasonCode::NOT_AUTHORIZED));
            let untaken = Peer { sources: SourceSet::ALL.without(SourceKind::Certificate), ..alice() };
            assert_eq!(come(untaken.clone(), None, None).await, Err(ReasonCode::NOT_AUTHORIZED));
            assert_eq!(come(untaken, Some("bob"), Some("builder")).await, Ok(()));
            let psk = |identity: &[u8]| {
                let mark = house.ctx.authority().psk_secret(identity).unwrap().mark;
                Channel { psk: Some(ProvenPsk { identity: identity.into(), mark }), ..channel() }
            };
            let mut device = house.come(peer().over(Arc::new(psk(b"device-1"))), &connect(version, "d")).await.unwrap();
            device.subscribe("open/#", Qos::AtLeastOnce).await;
            assert_eq!(
                come(peer().over(Arc::new(psk(b"device-2"))), None, None).await,
                Err(ReasonCode::NOT_AUTHORIZED)
            );
        }
    });
}

#[test]
fn a_listener_that_is_open_to_all_opens_no_other() {
    let acl = Acl::parse(Path::new("acl.toml"), ACL).unwrap();
    let everywhere = Rules::new(Users::default(), Some(acl), AnonymousPolicy::Everywhere);
    run_under(MqttConfig::default(), everywhere, async |house: House| {
        for version in ALL_VERSIONS {
            let open = Peer { anonymous: true, ..peer() };
            assert!(house.come(open, &shown(version, None, None)).await.is_ok());
            let closed = house.come(peer(), &shown(version, None, None)).await;
            assert_eq!(closed.err(), Some(ReasonCode::NOT_AUTHORIZED));
        }
    });
}

#[test]
fn a_token_in_place_of_the_password() {
    run_under(MqttConfig::default(), rules(""), async |house: House| {
        for version in ALL_VERSIONS {
            let (good, old) = (token("carol", 600, "readers"), token("carol", -5, ""));
            let mut carol = house.come(peer(), &shown(version, Some("anything"), Some(&good))).await.unwrap();
            carol.subscribe("open/x", Qos::AtLeastOnce).await;
            let refused = house.come(peer(), &shown(version, Some("carol"), Some(&old))).await.err();
            assert_eq!(refused, Some(ReasonCode::BAD_USER_NAME_OR_PASSWORD));
        }
        let short = token("carol", 2, "readers");
        let mut carol = house.come(peer(), &shown(Version::V5, None, Some(&short))).await.unwrap();
        assert_eq!(carol.disconnected().await, ReasonCode::MAXIMUM_CONNECT_TIME);
        let mut elder =
            house.come(peer(), &shown(Version::V311, Some("x"), Some(&token("carol", 1, "")))).await.unwrap();
        let mut rest = Vec::new();
        elder.stream.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty(), "3.1.1 is closed without a word");
    });
}

#[test]
fn a_user_name_alone_is_a_credential_where_the_configuration_says_so() {
    let alone = MqttConfig { user_without_password: true, ..MqttConfig::default() };
    for (config, allowed) in [(MqttConfig::default(), false), (alone, true)] {
        run_under(config, rules(""), async |house: House| {
            for version in ALL_VERSIONS {
                let come = async |peer: Peer, user: &str| {
                    house.come(peer, &shown(version, Some(user), None)).await.map(|_| ())
                };
                let (good, old) = (token("carol", 600, "readers"), token("carol", -5, ""));
                let wrong = Err(ReasonCode::BAD_USER_NAME_OR_PASSWORD);
                let refused = if allowed { wrong } else { Err(ReasonCode::NOT_AUTHORIZED) };
                assert_eq!(come(peer(), &good).await, if allowed { Ok(()) } else { refused });
                assert_eq!(come(peer(), &old).await, refused);
                assert_eq!(come(peer(), "alice").await, refused, "a name is no password");
                let far = Peer::plain(SocketAddr::from(([192, 0, 2, 1], 1)), false);
                assert_eq!(
                    come(far, &good).await,
                    Err(ReasonCode::NOT_AUTHORIZED),
                    "passwords are taken over TLS only"
                );
                let told = house.ctx.shared.last_refusals.all();
                let is_told = told.iter().any(|line| line.refusal.is_login_for("sent without TLS"));
                assert_eq!(is_told, allowed, "it is no credential otherwise");
                // Beside a certificate it is a claim, whatever it looks like.
                assert_eq!(come(with_certificate("alice"), &good).await, wrong);
                assert_eq!(come(with_certificate("alice"), "alice").await, Ok(()));
            }
        });
    }
}

#[test]
fn a_refused_publication_is_never_acknowledged() {
    run_under(MqttConfig::default(), rules(""), async |house: House| {
        let bob = |version, qos| {
            let house = &house;
            async move {
                let mut bob = house.come(peer(), &shown(version, Some("bob"), Some("builder"))).await.unwrap();
                bob.send(&message("open/x", b"", qos)).await;
                bob
            }
        };
        for version in ALL_VERSIONS {
            bob(version, Qos::AtMostOnce).await.nothing().await;
        }
        for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
            for version in [Version::V31, Version::V311] {
                let mut bob = bob(version, qos).await;
                let mut rest = Vec::new();
                bob.stream.read_to_end(&mut rest).await.unwrap();
                assert!(rest.is_empty(), "{rest:?}");
            }
            let mut modern = bob(Version::V5, qos).await;
            let reason = modern.next(|event| match event {
                Event::Published { reason, .. } => *reason,
                other => panic!("{other:?}"),
            });
            assert_eq!(reason.await, ReasonCode::NOT_AUTHORIZED);
        }
        let mut bob = house.come(peer(), &shown(Version::V5, Some("bob"), Some("builder"))).await.unwrap();
        let options = SubscriptionOptions::default();
        assert_eq!(bob.subscribe_with("open/#", options, Properties::NONE).await, ReasonCode::NOT_AUTHORIZED);
        let mut list = PropertyBuffer::new();
        list.push(Property::SessionExpiryInterval(0)).unwrap();
        let will = fogmux_mqtt::Will {
            qos: Qos::AtLeastOnce,
            retain: false,
            topic: "open/x",
            payload: b"",
            properties: Properties::NONE,
        };
        let leaving = Connect { will: Some(will), ..shown(Version::V5, Some("bob"), Some("builder")) };
        assert_eq!(house.come(peer(), &leaving).await.err(), Some(ReasonCode::NOT_AUTHORIZED));
    });
}

#[test]
fn rules_that_change_reach_open_connections() {
    run_under(MqttConfig::default(), rules(""), async |house: House| {
        let mut alice = house.come(peer(), &shown(Version::V5, Some("alice"), Some("wonderland"))).await.unwrap();
        assert_eq!(alice.publish(&message("open/x", b"", Qos::AtLeastOnce)).await, ReasonCode::NO_MATCHING_SUBSCRIBERS);
        tokio::time::pause();
        let before = tokio::time::Instant::now();
        house.ctx.authority().replace(rules("alice"));
        // Nothing is sent meanwhile, and no timer is waited for.
        assert_eq!(alice.disconnected().await, ReasonCode::NOT_AUTHORIZED);
        assert_eq!(before.elapsed(), Duration::ZERO);
    });
}

#[test]
fn who_came_in_by_a_password_that_has_changed_is_told_to_come_again() {
    run_under(MqttConfig::default(), rules(""), async |house: House| {
        let mut alice = house.come(peer(), &shown(Version::V5, Some("alice"), Some("wonderland"))).await.unwrap();
        let by_token = token("alice", 600, "");
        let again = Connect { client_id: "by-token", ..shown(Version::V5, Some("alice"), Some(&by_token)) };
        let mut by_token = house.come(peer(), &again).await.unwrap();
        house.ctx.authority().look_again();
        assert_eq!(alice.publish(&message("open/x", b"", Qos::AtLeastOnce)).await, ReasonCode::NO_MATCHING_SUBSCRIBERS);
        let mut users = Users::default();
        users.set_password("alice", b"looking-glass").unwrap();
        let keys = format!(r#"{{"keys":[{{"kty":"oct","k":"{SECRET_BASE64}"}}]}}"#);
        let tokens = Tokens::with_key_set(TokenSettings::default(), keys.as_bytes()).unwrap();
        house.ctx.authority().replace(Rules::new(users, None, AnonymousPolicy::Never).with_tokens(tokens));
        // Nothing is sent meanwhile.
        assert_eq!(alice.disconnected().await, ReasonCode::NOT_AUTHORIZED);
        let still = by_token.publish(&message("open/x", b"", Qos::AtLeastOnce)).await;
        assert_eq!(still, ReasonCode::NO_MATCHING_SUBSCRIBERS, "the token is what it was");
    });
}

#[test]
fn a_credential_ends_by_the_clock_as_it_is_now() {
    run_under(MqttConfig::default(), rules(""), async |house: House| {
        let ended = credential::unix_s() - 1;
        // As it was counted when the clock stood at 1970.
        let counted = credential::Expiry::counted(ended, Timestamp::NEVER);
        assert_eq!(counted.at(), Timestamp::NEVER);
        assert!(counted.look_again(&house.ctx).at() <= house.ctx.now());
    });
}
