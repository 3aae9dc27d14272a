//! `/api/v1` and the page at `/`: who may, what pages hold, and what hostile names become.

use std::{path::Path, sync::LazyLock};

use fogmux_auth::{Acl, AnonymousPolicy, Users};

use super::*;

/// A client of another machine, over TLS.
const REMOTE: ([u8; 4], u16) = ([192, 0, 2, 7], 9);
const ASKED: [&str; 9] = [
    "GET /api/v1/status",
    "GET /api/v1/topics",
    "GET /api/v1/listeners",
    "GET /api/v1/clients",
    "GET /api/v1/sessions",
    "GET /api/v1/users",
    "GET /api/v1/groups",
    "DELETE /api/v1/clients/1",
    "POST /api/v1/rules/test",
];

/// A user of the longest name.
static LONG: LazyLock<String> = LazyLock::new(|| "x".repeat(255));

fn basic(user: &str) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(format!("{user}:secret"));
    format!("authorization: Basic {text}")
}

fn rules(acl: Option<&str>) -> Rules {
    static USERS: LazyLock<Users> = LazyLock::new(|| {
        let mut users = Users::default();
        for user in ["admin", "ordinary", "operator", "viewer", &LONG] {
            users.set_password(user, b"secret").unwrap();
        }
        users
    });
    let acl = acl.map(|text| Acl::parse(Path::new("acl.toml"), text).unwrap());
    Rules::new(USERS.clone(), acl, AnonymousPolicy::Loopback)
}

fn remote() -> Peer {
    Peer { secure: true, ..Peer::plain(REMOTE.into(), true) }
}

fn local(anonymous: bool) -> Peer {
    Peer { secure: true, ..Peer::plain(([127, 0, 0, 1], 9).into(), anonymous) }
}

async fn status(house: &House, peer: &Peer, request: &str, header: &str) -> u16 {
    house.connect_as(peer.clone()).ask(&format!("{request}|{header}")).await.status()
}

#[test]
fn without_rules_the_administrator_and_this_machine_may() {
    run_under(HttpConfig::default(), rules(None), async |house| {
        for request in ASKED {
            let granted = if request.starts_with("GET") { 200 } else { 404 };
            let granted = if request.starts_with("POST") { 415 } else { granted };
            for (peer, header, expected) in [
                (local(true), "x: y".to_owned(), granted),
                (local(true), basic("ordinary"), granted),
                (local(false), "x: y".to_owned(), 401),
                (local(false), basic("ordinary"), 403),
                (local(true).behind(None), "x: y".to_owned(), 401),
                (local(false), basic("admin"), granted),
                (remote(), "x: y".to_owned(), 401),
                (remote(), basic("ordinary"), 403),
                (remote(), basic("admin"), granted),
            ] {
                let came = status(&house, &peer, request, &header).await;
                assert_eq!(came, expected, "{request} of {} with {header}", peer.address);
            }
        }
        let refused = house.connect_as(remote()).ask("GET /api/v1/status").await;
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
        assert!(refused.header("www-authenticate").unwrap().starts_with("Basic"), "{refused:?}");
    });
}

#[test]
fn a_rule_grants_looking_or_changing_and_never_to_anonymous_clients_elsewhere() {
    let acl = "[[allow]]\nuser = \"operator\"\nboth = \"$fogmux/admin\"\n[[allow]]\nuser = \"viewer\"\n\
               read = [\"$fogmux/admin\", \"open/#\"]\n[[allow]]\nanonymous = true\nboth = [\"$fogmux/admin\", \"#\"]\n\
               [[deny]]\nuser = \"admin\"\nboth = \"$fogmux/#\"\n[[allow]]\nuser = \"ordinary\"\nboth = [\"#\", \"$SYS/#\"]\n";
    run_under(HttpConfig::default(), rules(Some(acl)), async |house| {
        for (peer, header, read, write) in [
            (remote(), basic("operator"), 200, 404),
            (remote(), basic("viewer"), 200, 403),
            (remote(), basic("ordinary"), 403, 403),
            (remote(), basic("admin"), 403, 403),
            (remote(), "x: y".to_owned(), 401, 401),
            (local(true), "x: y".to_owned(), 200, 404),
        ] {
            assert_eq!(status(&house, &peer, "GET /api/v1/status", &header).await, read, "{header}");
            assert_eq!(status(&house, &peer, "DELETE /api/v1/clients/1", &header).await, write, "{header}");
        }
        house.publish_retained("open/x", b"1");
        house.publish_retained("secret/x", b"1");
        let seen = house.connect_as(remote()).ask(&format!("GET /api/v1/topics|{}", basic("viewer"))).await;
        assert!(seen.text().contains("open/x") && !seen.text().contains("secret/x"), "{seen:?}");
    });
}

#[test]
fn foreign_pages_change_nothing() {
    run(HttpConfig::default(), async |house| {
        for header in
            ["origin: http://evil.example", "origin: null", "sec-fetch-site: cross-site", "sec-fetch-site: same-site"]
        {
            for request in ["DELETE /api/v1/clients/1", "POST /api/v1/rules/test|content-type: application/json"] {
                assert_eq!(house.ask(&format!("{request}|{header}||{{}}")).await.status(), 403, "{request} {header}");
            }
        }
        let two = "DELETE /api/v1/clients/1|origin: http://localhost|origin: http://evil.example";
        assert_eq!(house.ask(two).await.status(), 403);
        // The types that a form of another page can send without asking first.
        for form in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
            let request = format!("POST /api/v1/rules/test|content-type: {form}||{{}}");
            assert_eq!(house.ask(&request).await.status(), 415, "{form}");
        }
        let rebound = "GET /api/v1/status HTTP/1.1|host: evil.example";
        let mut client = house.connect(true);
        client.stream.write_all(format!("{}\r\n\r\n", rebound.replace('|', "\r\n")).as_bytes()).await.unwrap();
        assert_eq!(client.receive(false).await.status(), 421);
        for (request, expected) in [
            ("POST /api/v1/status", 405),
            ("GET /api/v1/rules/test", 405),
            ("GET /api/v1/clients/1", 405),
            ("GET /api/v1/", 404),
            ("GET /api/v2/status", 404),
            ("GET /api/v1/topics?limit=0", 400),
            ("GET /api/v1/clients?after=x", 400),
            ("POST /api/v1/rules/test|content-type: application/json||{\"identity\":1}", 400),
        ] {
            assert_eq!(house.ask(request).await.status(), expected, "{request}");
        }
    });
}

/// All topics, page by page.
async fn pages(client: &mut Client, query: &str) -> Vec<String> {
    let (mut topics, mut after) = (Vec::new(), String::new());
    loop {
        let answer = client.ask(&format!("GET /api/v1/topics?{query}{after}")).await;
        assert_eq!(answer.status(), 200, "{answer:?}");
        let page: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        let entries = page["topics"].as_array().unwrap();
        topics.extend(entries.iter().map(|entry| entry["topic"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { return topics };
        after = next.bytes().fold(String::from("&after="), |text, byte| format!("{text}%{byte:02x}"));
    }
}

#[test]
fn pages_hold_each_topic_once_in_order_for_any_number() {
    for count in [0, 1, 97, 10_000] {
        run(HttpConfig::default(), async |house| {
            for number in 0..count {
                house.publish_retained(&format!("page/{number:05}"), b"1");
            }
            let expected: Vec<String> = (0..count).map(|number| format!("page/{number:05}")).collect();
            let mut client = house.connect(true);
            for query in ["limit=1000", "prefix=page/&limit=333", "prefix=pa"] {
                assert_eq!(pages(&mut client, query).await, expected, "{count} by {query}");
            }
            assert!(pages(&mut client, "prefix=pagf").await.is_empty());
        });
    }
}

#[test]
fn a_list_of_topics_names_none_that_may_not_be_read_nor_does_its_cursor() {
    let acl = "[[allow]]\nuser = \"viewer\"\nread = [\"$fogmux/admin\", \"open/#\"]\n";
    run_under(HttpConfig::default(), rules(Some(acl)), async |house| {
        let long = format!("confidential/{}", "z".repeat(3000));
        for topic in ["confidential/a", "confidential/b", "open/a", "open/b", "secret/a", "secret/b", &long] {
            house.publish_retained(topic, b"1");
        }
        let mut client = house.connect_as(remote());
        for (query, expected) in [
            ("limit=1", &["open/a", "open/b"][..]),
            ("limit=2", &["open/a", "open/b"]),
            // No page has anything that may be read.
            ("limit=1&prefix=secret/", &[]),
            ("limit=1&prefix=confidential/", &[]),
        ] {
            let (mut topics, mut after, mut sealed) = (Vec::new(), String::new(), 0);
            loop {
                let answer = client.ask(&format!("GET /api/v1/topics?{query}{after}|{}", basic("viewer"))).await;
                assert_eq!(answer.status(), 200, "{answer:?}");
                let text = answer.text();
                assert!(!text.contains("confidential") && !text.contains("secret"), "{query}: {text}");
                let page: serde_json::Value = serde_json::from_str(text).unwrap();
                let entries = page["topics"].as_array().unwrap();
                topics.extend(entries.iter().map(|entry| entry["topic"].as_str().unwrap().to_owned()));
                let Some(next) = page["next"].as_str() else { break };
                sealed += usize::from(next.starts_with('+'));
                after = format!("&after={next}");
            }
            assert_eq!(topics, expected, "{query}");
            assert!(sealed > 0, "{query}: no page ends at a name that may not be read");
        }
        let forged = format!("GET /api/v1/topics?after=%2B{}|{}", "A".repeat(1410), basic("viewer"));
        let answer = client.ask(&forged).await;
        assert_eq!(answer.status(), 400, "{answer:?}");
    });
}

#[test]
fn hostile_names_are_text_and_long_ones_do_not_end_the_list() {
    run(HttpConfig::default(), async |house| {
        let long = ["a".repeat(65_000), format!("{}b", "a".repeat(65_000))];
        let names =
            ["<img src=x onerror=alert(1)>", "\u{202e}gpj.exe", "\"\\/b", "__proto__", "\u{7f}\u{85}\u{1}", "z"];
        for name in names.into_iter().chain(long.iter().map(String::as_str)) {
            house.publish_retained(name, b"1");
        }
        let mut client = house.connect(true);
        let whole = pages(&mut client, "limit=1000").await;
        assert_eq!(whole.len(), names.len() + long.len());
        let single = pages(&mut client, "limit=1").await;
        for name in names {
            assert!(whole.iter().chain(&single).filter(|topic| **topic == name).count() == 2, "{name}");
        }
        let answer = client.ask("GET /api/v1/topics").await;
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    });
}

#[test]
fn texts_of_publishers_do_not_make_a_page_longer_than_its_bound() {
    // More than what all answers together may hold (`http.unread_bytes`), so that the list would be refused for ever.
    const TOPICS: usize = 300;
    run(HttpConfig::default(), async |house| {
        let (publisher, now) = (Publisher::internal(), house.ctx.now());
        let content_type = "\u{1}".repeat(60_000);
        for number in 0..TOPICS {
            let topic = format!("typed/{number:03}");
            let topic = TopicRef::new(&topic).unwrap();
            let unix_ms = house.ctx.unix_ms(now);
            let mut publication = Publication::new(topic, Payload::Slice(b"1"), &publisher, now, unix_ms);
            (publication.meaning, publication.content_type) = (Meaning::Value, Some(&*content_type));
            drop(house.ctx.worker.borrow_mut().publish(&mut [publication]));
        }
        let mut client = house.connect(true);
        let answer = client.ask("GET /api/v1/topics?limit=1000").await;
        assert_eq!(answer.status(), 200, "{}", answer.head);
        // One entry is on a page whatever its length: 60 000 control characters of six bytes.
        assert!(answer.body.len() < 2 * fogmux_http::api::PAGE_BYTES, "{}", answer.body.len());
        assert_eq!(pages(&mut client, "limit=1000").await.len(), TOPICS);
    });
}

#[test]
fn the_rules_are_tested_as_on_the_command_line() {
    let acl = "[[allow]]\nuser = \"viewer\"\nread = [\"open/#\"]\n[[allow]]\ngroup = \"plant\"\nread = [\"plant/#\"]\n";
    run_under(HttpConfig::default(), rules(Some(acl)), async |house| {
        for (identity, action, topic, allowed) in [
            ("viewer", "read", "open/x", true),
            ("viewer", "read", "open/#", true),
            ("viewer", "write", "open/x", false),
            ("viewer", "read", "other", false),
            ("anonymous", "read", "open/x", false),
            ("nobody", "read", "open/x", false),
            ("psk:none", "read", "open/x", false),
        ] {
            let question = serde_json::json!({"identity": identity, "action": action, "topic": topic});
            let request = format!("POST /api/v1/rules/test|content-type: application/json||{question}");
            let answer = house.ask(&request).await;
            assert_eq!(answer.status(), 200, "{answer:?}");
            let decision: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(decision["allowed"], allowed, "{question} {decision}");
            assert_eq!(decision["line"].is_number(), allowed && topic != "open/#", "{decision}");
        }
        // An identity of a token is in no file.
        for (groups, told) in [
            (&["plant"][..], "allowed by acl.toml:6: allow group plant to read plant/#"),
            (&[], "refused: no rule allows it"),
        ] {
            let question =
                serde_json::json!({"identity": "pump", "groups": groups, "action": "read", "topic": "plant/x"});
            let request = format!("POST /api/v1/rules/test|content-type: application/json||{question}");
            let decision: serde_json::Value = serde_json::from_slice(&house.ask(&request).await.body).unwrap();
            assert_eq!((&decision["text"], &decision["identity"]), (&told.into(), &"pump".into()), "{decision}");
            assert_eq!(decision.get("groups").cloned(), (!groups.is_empty()).then(|| groups.into()), "{decision}");
            assert!(decision["note"].as_str().unwrap().starts_with("\"pump\" is not a user of the file"), "{decision}");
        }
        let long = "open/".repeat(13_108);
        for (action, topic) in [
            ("write", "a/#"),
            ("read", ""),
            ("read", "open/\0"),
            ("read", "open/a+"),
            ("read", "open/#/x"),
            ("read", "open/#x"),
            ("read", &long),
        ] {
            for identity in ["viewer", "psk:none", "no\u{7}name"] {
                let question = serde_json::json!({"identity": identity, "action": action, "topic": topic});
                let request = format!("POST /api/v1/rules/test|content-type: application/json||{question}");
                let status = house.ask(&request).await.status();
                assert_eq!(status, 400, "{identity} {action} {}", topic.get(..20).unwrap_or(topic));
            }
        }
    });
}

#[test]
fn a_refusal_has_the_words_of_the_tester_whatever_their_length() {
    let filter = "level/".repeat(40);
    let acl = format!(
        "[[allow]]\nuser = \"admin\"\nboth = \"$fogmux/admin\"\n[[deny]]\nuser = \"{}\"\nread = \"{filter}#\"\n",
        *LONG
    );
    run_under(HttpConfig::default(), rules(Some(&acl)), async |house| {
        let topic = "level/".repeat(20);
        assert_eq!(status(&house, &remote(), &format!("GET /topics/{topic}x"), &basic(&LONG)).await, 403);
        assert_eq!(status(&house, &remote(), &format!("GET /topics/{filter}x"), &basic(&LONG)).await, 403);
        let ask = async |request: &str| -> serde_json::Value {
            let answer = house.connect_as(remote()).ask(request).await;
            serde_json::from_slice(&answer.body).unwrap()
        };
        let kept = ask(&format!("GET /api/v1/refusals|{}", basic("admin"))).await;
        let entries = kept["refusals"].as_array().unwrap();
        assert_eq!(entries.len(), 2, "{kept}");
        for entry in entries {
            let action = &entry["action"];
            assert_eq!(action["identity"], LONG.as_str());
            let topic = if action["topic_cut"] == true { format!("{filter}x") } else { format!("{topic}x") };
            let question = serde_json::json!({"identity": *LONG, "action": "read", "topic": topic, "door": "http"});
            let header = format!("content-type: application/json|{}", basic("admin"));
            let told = ask(&format!("POST /api/v1/rules/test|{header}||{question}")).await;
            assert_eq!((&told["text"], &told["identity"]), (&entry["reason"], &action["identity"]));
        }
        assert!(entries.iter().any(|entry| entry["reason"].as_str().unwrap().len() > 400), "{kept}");
    });
}

#[test]
fn a_reader_of_events_is_disconnected_and_does_not_resume() {
    run(HttpConfig::default(), async |house| {
        let mut reader = house.connect(true);
        reader.send("GET /subscribe?filter=x").await;
        reader.until(b"\r\n\r\n").await;
        let listed = house.ask("GET /api/v1/clients").await;
        let page: serde_json::Value = serde_json::from_slice(&listed.body).unwrap();
        let id = page["clients"][0]["id"].as_u64().unwrap();
        assert_eq!(page["clients"][0]["door"], "http");
        assert_eq!(house.ask(&format!("DELETE /api/v1/clients/{id}")).await.status(), 204);
        while reader.more().await {}
        assert_eq!(house.ask("GET /api/v1/clients").await.text(), "{\"clients\":[]}");
        assert_eq!(house.ctx.bus().subscriptions(), 0);
        assert_eq!(house.ask(&format!("DELETE /api/v1/clients/{id}")).await.status(), 404);
    });
}

#[test]
fn the_page_is_for_browsers_and_loads_nothing_from_elsewhere() {
    run(HttpConfig::default(), async |house| {
        let plain = house.ask("GET /").await;
        assert!(plain.header("content-type").unwrap().starts_with("text/plain"), "{plain:?}");
        let page = house.ask("GET /|accept: text/html,*/*;q=0.8").await;
        assert!(page.header("content-type").unwrap().starts_with("text/html"), "{page:?}");
        assert_eq!((page.header("vary"), page.header("cache-control")), (Some("accept"), Some("no-cache")));
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        let head = house.ask("HEAD /|accept: text/html").await;
        assert_eq!(head.header("content-length"), Some(&*page.body.len().to_string()));
        // Everything that the page and its modules name is a file of the gateway.
        let mut found = 0;
        let mut files = vec!["/|accept: text/html".to_owned()];
        let mut known = files.clone();
        while let Some(file) = files.pop() {
            let answer = house.ask(&format!("GET {file}")).await;
            assert_eq!(answer.status(), 200, "{file}");
            let tag = answer.header("etag").unwrap();
            let file = if file.contains('|') { file } else { format!("{file}|x: y") };
            assert_eq!(house.ask(&format!("GET {file}|if-none-match: {tag}")).await.status(), 304, "{file}");
            let named = answer.text().split(['"', '\'']).filter(|word| word.starts_with("/dashboard/"));
            for word in named.map(str::to_owned) {
                if !known.contains(&word) {
                    known.push(word.clone());
                    files.push(word);
                }
            }
            assert!(!answer.text().contains("innerHTML"), "{file}");
            found += 1;
        }
        assert_eq!(found, 22);
        assert_eq!(house.ask("GET /dashboard/../app.js").await.status(), 404);
    });
}
