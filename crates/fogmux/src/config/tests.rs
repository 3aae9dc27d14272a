//! Tables of configurations and of what is said about them.

use super::reader::{Findings, read_source};
use super::{Config, REFERENCE, Source, load};

/// Every problem of `text` as `line key` pairs.
fn lines_and_keys(text: &str) -> Vec<(usize, String)> {
    let problems = load(&[Source::new("f.toml", text)]).unwrap_err().0;
    problems.into_iter().map(|problem| (problem.location.map_or(0, |at| at.line), problem.key)).collect()
}

fn said(text: &str) -> Vec<String> {
    let problems = load(&[Source::new("f.toml", text)]).unwrap_err().0;
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn the_reference_says_exactly_the_built_in_defaults() {
    let config = load(&[Source::new("fogmux.toml", REFERENCE)]).unwrap();
    assert_eq!(format!("{config:#?}"), format!("{:#?}", Config::default()));
}

#[test]
fn the_reference_lists_every_key() {
    let mut findings = Findings::default();
    read_source(&Source::new("fogmux.toml", REFERENCE), &mut Config::default(), &mut findings);
    let missing: Vec<_> = findings.known.iter().filter(|key| !findings.is_set(key)).collect();
    assert!(missing.is_empty(), "config/fogmux.toml does not list {missing:?}");
}

/// The bytes that peers can make a gateway with so many workers hold at most, by the keys that the unit adds up.
#[cfg(all(feature = "mqtt", feature = "coap", feature = "http", feature = "xmpp"))]
fn bounds(config: &Config, workers: usize) -> usize {
    const PASSWORD: usize = 7 << 20;
    let Config { bus, mqtt, coap, http, xmpp, store, auth, .. } = config;
    let (mqtt, coap, http) = (&mqtt.door, &coap.door, &http.door);
    let threads = if auth.verification.threads_max == 0 { workers / 2 } else { auth.verification.threads_max };
    let coap = coap.exchange_bytes_max + coap.upload_bytes_max + coap.download_bytes_max + coap.notification_bytes_max;
    bus.memory_high_bytes
        + bus.retained_bytes_max
        + bus.subscriptions_bytes_max
        + mqtt.unfinished_bytes_max
        + mqtt.wills_bytes_max
        + mqtt.logins_bytes_max
        + workers * coap
        + http.uploads_bytes_max
        + http.unread_bytes_max
        + http.event_streams_bytes
        + http.idempotency.bytes
        + xmpp.door.open_stanzas_bytes_max
        + xmpp.door.nodes_bytes_max
        + xmpp.door.subscriptions_bytes_max
        + 2 * store.queue_bytes_max
        + threads * PASSWORD
}

#[cfg(all(feature = "mqtt", feature = "coap", feature = "http", feature = "xmpp"))]
#[test]
fn the_bounds_of_every_preset_add_up_to_what_its_documentation_says() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let said = std::fs::read_to_string(root.join("docs/operating/install.md")).unwrap();
    let presets = std::fs::read_dir(root.join("config")).unwrap();
    let names = presets.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for name in names.filter(|name| name != "fogmux.toml") {
        let text = std::fs::read_to_string(root.join("config").join(&name)).unwrap();
        let config = load(&[Source::new(&*name, &*text)]).unwrap();
        let workers = if config.workers.count == 0 { 4 } else { config.workers.count };
        let mebibytes = bounds(&config, workers) >> 20;
        let row = said.lines().find(|line| line.starts_with(&format!("| `{name}`"))).expect(&name);
        assert!(row.contains(&format!("| {mebibytes} MiB")), "{name}: {mebibytes} MiB");
        let memory = u64::try_from(mebibytes << 20).unwrap();
        assert_eq!(crate::memory_limit::warnings(&config, Some(memory)), [""; 0], "{name}");
    }
}

#[test]
fn all_problems_are_reported_at_once_with_their_lines() {
    let text = r#"
[listeners.mqtt]
adress = "127.0.0.1:1883"
enabled = "yes"

[listeners.coap]
address = "localhost:5683"

[listeners.https]
address = "127.0.0.1:1883"

[workers]
drain = 10
count = 100_000

[store]
durability = "sometimes"

[mqqt]
"#;
    let expected = [
        (3, "listeners.mqtt.adress"),
        (4, "listeners.mqtt.enabled"),
        (7, "listeners.coap.address"),
        (10, "listeners.https.address"),
        (13, "workers.drain"),
        (14, "workers.count"),
        (17, "store.durability"),
        (19, "mqqt"),
    ];
    let expected: Vec<_> = expected.into_iter().map(|(line, key)| (line, key.to_owned())).collect();
    assert_eq!(lines_and_keys(text), expected);
}

#[test]
fn a_problem_names_file_line_key_and_what_would_be_accepted() {
    let table = [
        (
            "[workers]\ndrain = 10",
            "f.toml:2: workers.drain: 10 is not accepted; accepted: a duration from \"0s\" to \"5m\"",
        ),
        (
            "[workers]\ncount = -1",
            "f.toml:2: workers.count: -1 is not accepted; accepted: a whole number from 0 to 256",
        ),
        (
            "[store]\ndurability = \"sometimes\"",
            "f.toml:2: store.durability: \"sometimes\" is not accepted; accepted: one of \"none\", \"interval\", \
             \"group\", \"always\", \"\"",
        ),
        (
            "[listeners.mqtt]\nadress = 1",
            "f.toml:2: listeners.mqtt.adress: there is no such key; accepted: perhaps \"address\"",
        ),
        ("workers = 3", "f.toml:1: workers: 3 is not accepted; accepted: a table"),
        (
            "[xmpp]\ndomain = \"Fog Node\"",
            "f.toml:2: xmpp.domain: \"Fog Node\" is not accepted; accepted: a domain name such as \"fog.example\"",
        ),
        (
            "[tls]\nkey_file = \"/nowhere/key.pem\"",
            "f.toml:2: tls.key_file: a key without its certificate; accepted: tls.certificate_file as well, or neither \
             for the gateway's own certificate",
        ),
    ];
    for (text, expected) in table {
        assert!(said(text).contains(&expected.to_owned()), "{text}\n{:#?}", said(text));
    }
}

#[test]
fn the_password_in_a_url_is_not_repeated() {
    for url in ["http://bo:s3/c@ret@192.0.2.1/login", "ftp://bo:s3/c@ret@fog.example", "bo:s3/c@ret@fog.example/login"]
    {
        let said = said(&format!("[auth.callback]\nurl = \"{url}\"\n")).concat();
        assert!(said.contains("auth.callback.url") && !said.contains("s3") && !said.contains("ret@"), "{said}");
    }
    assert!(said("[xmpp]\ndomain = \"bo@ fog\"\n").concat().contains("\"bo@ fog\""), "no password");
}

#[test]
fn an_error_of_syntax_is_told_once_a_line() {
    let unclosed = said(&format!("a = {}", "[".repeat(1000)));
    let different: std::collections::BTreeSet<_> = unclosed.iter().collect();
    assert_eq!(unclosed.len(), different.len(), "{unclosed:?}");
    assert!(unclosed.len() <= 3, "{unclosed:?}");
}

#[test]
fn ports_overlap_only_on_one_transport_and_on_addresses_that_overlap() {
    let clash = "[listeners.mqtt]\naddress = \"0.0.0.0:8080\"\nallow_plaintext = true";
    assert_eq!(lines_and_keys(clash), [(0, "listeners.http.address".to_owned())]);
    let udp = "[listeners.coap]\naddress = \"127.0.0.1:8443\"";
    assert_eq!(lines_and_keys(udp), [(0, "listeners.https.address".to_owned())]);
    for fine in [
        "[listeners.coap]\naddress = \"127.0.0.1:1883\"",
        "[listeners.mqtt]\naddress = \"127.0.0.2:8080\"",
        "[listeners.coap]\naddress = \"127.0.0.1:8443\"\n[http]\nhttp3 = false",
        "[listeners.mqtt]\naddress = \"127.0.0.1:0\"\n[listeners.http]\naddress = \"127.0.0.1:0\"",
        "[listeners.mqtt]\naddress = \"127.0.0.1:8080\"\n[listeners.http]\nenabled = false",
    ] {
        assert!(load(&[Source::new("f.toml", fine)]).is_ok(), "{fine}");
    }
}

#[test]
fn doors_do_not_open_beyond_loopback_by_accident() {
    let refused = [
        ("[listeners.mqtt]\naddress = \"0.0.0.0:1883\"", (2, "listeners.mqtt.address")),
        ("[listeners.coap]\naddress = \"[::]:5683\"", (2, "listeners.coap.address")),
        ("[listeners.http]\naddress = \"192.168.0.7:80\"", (2, "listeners.http.address")),
        ("[listeners.mqtts]\naddress = \"0.0.0.0:8883\"\nanonymous = true", (3, "listeners.mqtts.anonymous")),
    ];
    for (text, (line, key)) in refused {
        assert_eq!(lines_and_keys(text), [(line, key.to_owned())], "{text}");
    }
    let silent = load(&[Source::new("f.toml", "[listeners.mqtts]\naddress = \"0.0.0.0:8883\"")]).unwrap();
    assert!(!silent.listeners.named("mqtts").unwrap().lets_anonymous_in_everywhere());
    let asked = "[listeners.mqtt]\naddress = \"0.0.0.0:1883\"\nallow_plaintext = true\nallow_remote_anonymous = true";
    let asked = load(&[Source::new("f.toml", asked)]).unwrap();
    assert!(asked.listeners.named("mqtt").unwrap().lets_anonymous_in_everywhere());
}

#[test]
fn a_later_source_wins_key_by_key_and_problems_keep_the_order_of_the_files() {
    let first = Source::new("a.toml", "[workers]\ncount = 3\ndrain = \"1s\"");
    let second = Source::new("b.toml", "[workers]\ncount = 4");
    let config = load(&[first, second]).unwrap();
    assert_eq!((config.workers.count, config.workers.drain.as_secs()), (4, 1));

    let first = Source::new("z.toml", "[workers]\ncount = true");
    let second = Source::new("a.toml", "[workers]\ndrain = 1");
    let said: Vec<_> = load(&[first, second]).unwrap_err().0.iter().map(ToString::to_string).collect();
    assert!(said[0].starts_with("z.toml:2: workers.count"), "{said:?}");
    assert!(said[1].starts_with("a.toml:2: workers.drain"), "{said:?}");
}

#[test]
fn broken_toml_is_reported_together_with_what_could_still_be_read() {
    let said = said("[workers]\ncount = \ndrain = 3\n[log\nfilter = 7");
    assert!(said.iter().any(|line| line.starts_with("f.toml:2:")), "{said:#?}");
    assert!(said.iter().any(|line| line.contains("workers.drain")), "{said:#?}");
    assert!(said.iter().any(|line| line.starts_with("f.toml:4:")), "{said:#?}");
}

#[test]
fn the_command_line_may_leave_the_quotes_out() {
    let settings = ["listeners.mqtt.address=127.0.0.1:0", "workers.count=2", "log.filter=\"debug\""].map(str::to_owned);
    let config = load(&super::sources(None, &settings).unwrap()).unwrap();
    assert_eq!(config.listeners.named("mqtt").unwrap().addresses, ["127.0.0.1:0".parse().unwrap()]);
    assert_eq!((config.workers.count, config.log.filter.as_str()), (2, "debug"));
}

#[test]
fn files_of_conf_d_are_read_after_the_file_in_the_order_of_their_names() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("fogmux.toml");
    std::fs::create_dir(directory.path().join("conf.d")).unwrap();
    std::fs::write(&file, "[workers]\ncount = 1\ndrain = \"7s\"").unwrap();
    std::fs::write(directory.path().join("conf.d/20-b.toml"), "[workers]\ncount = 3").unwrap();
    std::fs::write(directory.path().join("conf.d/10-a.toml"), "[workers]\ncount = 2").unwrap();
    std::fs::write(directory.path().join("conf.d/99-not-this.txt"), "[workers]\ncount = 4").unwrap();
    let config = load(&super::sources(Some(&file), &[]).unwrap()).unwrap();
    assert_eq!((config.workers.count, config.workers.drain.as_secs()), (3, 7));
    for name in ["30-c.toml", "40-d.toml"] {
        std::fs::create_dir(directory.path().join("conf.d").join(name)).unwrap();
    }
    let unreadable = super::sources(Some(&file), &[]).unwrap_err().to_string();
    assert!(unreadable.contains("30-c.toml") && unreadable.contains("40-d.toml"), "all of them: {unreadable}");
}

#[test]
#[cfg(not(feature = "tls-openssl"))]
fn a_profile_that_needs_openssl_is_refused_with_the_name_of_the_feature() {
    for listener in ["mqtts", "coaps_tcp", "https", "xmpp", "xmpps"] {
        for profile in ["psk", "pki", "low"] {
            let text = format!("[listeners.{listener}]\nprofile = {profile:?}\nallow_weak = true");
            let expected = format!(
                "f.toml:2: listeners.{listener}.profile: {profile:?} needs OpenSSL, which this build does not include; \
                 accepted: another profile, or a build with the feature tls-openssl"
            );
            assert_eq!(said(&text), [expected], "{text}");
        }
    }
}

#[test]
fn dtls_needs_no_openssl_under_any_profile() {
    for profile in ["modern", "psk", "pki"] {
        let text = format!("[listeners.coaps]\nprofile = {profile:?}");
        assert!(load(&[Source::new("f.toml", &text)]).is_ok(), "{text}");
    }
}

// Its profile of pre-shared keys needs OpenSSL.
#[cfg(feature = "tls-openssl")]
#[test]
fn a_listener_of_its_own_name_has_a_kind_and_an_address() {
    let config = |text: &str| load(&[Source::new("f.toml", text)]);
    let psk =
        "[listeners.mqtts_psk]\nkind = \"mqtts\"\naddress = [\"127.0.0.1:8884\", \"[::1]:8884\"]\nprofile = \"psk\"";
    let good = config(psk).unwrap();
    let named = good.listeners.named("mqtts_psk").unwrap();
    assert_eq!((named.addresses.len(), named.tls().unwrap().profile.name), (2, "psk"));
    assert_eq!(good.listeners.named("mqtts").unwrap().tls().unwrap().profile.name, "modern");
    let refused = [
        ("[listeners.mqqt]\naddress = \"127.0.0.1:1\"", (1, "listeners.mqqt")),
        ("[listeners.x]\nkind = \"smtp\"\naddress = \"127.0.0.1:1\"", (1, "listeners.x")),
        ("[listeners.X]\nkind = \"mqtt\"\naddress = \"127.0.0.1:1\"", (1, "listeners.X")),
        ("[listeners.http3]\nkind = \"mqtt\"\naddress = \"127.0.0.1:1\"", (1, "listeners.http3")),
        ("[listeners.x]\nkind = \"mqtt\"", (2, "listeners.x.kind")),
        ("[listeners.mqtt]\nkind = \"mqtts\"", (2, "listeners.mqtt.kind")),
        ("[listeners.mqtt]\naddress = []", (2, "listeners.mqtt.address")),
        ("[listeners.mqtt]\naddress = [\"127.0.0.1:1\", \"127.0.0.1:1\"]", (2, "listeners.mqtt.address")),
        ("[listeners.mqtt]\naddress = [\"127.0.0.1:1\", \"192.0.2.1:1\"]", (2, "listeners.mqtt.address")),
    ];
    for (text, (line, key)) in refused {
        assert_eq!(lines_and_keys(text), [(line, key.to_owned())], "{text}");
    }
    // A later source speaks of a listener that an earlier one made.
    let later = Source::new("g.toml", "[listeners.mqtts_psk]\nenabled = false");
    assert!(!load(&[Source::new("f.toml", psk), later]).unwrap().listeners.named("mqtts_psk").unwrap().enabled);
}

// Its profile of pre-shared keys needs OpenSSL.
#[cfg(feature = "tls-openssl")]
#[test]
fn defaults_hold_wherever_they_are_and_a_listener_overrides_them() {
    let listener = Source::new(
        "a.toml",
        "[listeners.mqtt]\nanonymous = true\n[listeners.x]\nkind = \"coaps\"\naddress = \"127.0.0.1:1\"",
    );
    let defaults = Source::new(
        "b.toml",
        "[listeners.defaults]\nanonymous = false\nprofile = \"psk\"\ndtls_versions = [\"1.3\"]\nauth = [\"psk\"]",
    );
    let config = load(&[listener, defaults]).unwrap();
    let (mqtt, x) = (config.listeners.named("mqtt").unwrap(), config.listeners.named("x").unwrap());
    assert!(mqtt.anonymous && !x.anonymous && !config.listeners.named("xmpp").unwrap().anonymous);
    let tls = x.tls().unwrap();
    assert_eq!((tls.profile.name, tls.dtls_versions.map(<[_]>::len)), ("psk", Some(1)));
    assert_eq!(config.listeners.named("mqtts").unwrap().tls().unwrap().dtls_versions, None);
    assert_eq!(lines_and_keys("[listeners.defaults]\naddress = \"127.0.0.1:1\"")[0].1, "listeners.defaults.address");
}

#[test]
fn both_families_have_one_port_unless_one_socket_takes_both() {
    let fine = "[listeners.mqtts]\naddress = [\"0.0.0.0:8883\", \"[::]:8883\"]";
    assert!(load(&[Source::new("f.toml", fine)]).is_ok());
    let twice = format!("{fine}\ndual_stack = true");
    assert_eq!(lines_and_keys(&twice), [(2, "listeners.mqtts.address".to_owned())]);
}

#[test]
fn only_oscore_alone_replaces_encryption_beyond_loopback() {
    let with = |auth: &str| format!("[listeners.coap]\naddress = \"0.0.0.0:5683\"\nauth = {auth}");
    assert!(load(&[Source::new("f.toml", with("[\"oscore\"]"))]).is_ok());
    let key = [(2, "listeners.coap.address".to_owned())];
    for auth in ["[]", "[\"oscore\", \"psk\"]", "[\"oscore\"]\nallow_remote_anonymous = true"] {
        assert_eq!(lines_and_keys(&with(auth)), key, "{auth}");
    }
    let http = "[listeners.http]\naddress = \"0.0.0.0:8080\"\nauth = [\"oscore\"]";
    assert_eq!(lines_and_keys(http), [(2, "listeners.http.address".to_owned())]);
}

#[test]
fn a_reload_opens_no_half_of_a_dual_stack_address_that_the_file_has_not() {
    let remote = "anonymous = true\nallow_remote_anonymous = true\n";
    let text = |more: &str| format!("[listeners.mqtts]\naddress = \"[::]:8883\"\n{more}");
    let read = |more: &str| load(&[Source::new("f.toml", text(more))]).unwrap().listeners;
    let reloaded = |before: &str, after: &str| {
        let mut listeners = read(before);
        listeners.take_over(&read(after));
        let own = listeners.named("mqtts").unwrap();
        (own.anonymous, own.allow_remote_anonymous)
    };
    let closed = "dual_stack = true\nanonymous = false\n";
    assert_eq!(reloaded(closed, &format!("dual_stack = true\n{remote}")), (true, true));
    assert_eq!(reloaded(closed, remote), (false, false), "0.0.0.0 is open and not in the new file");
    // A listener that has moved is closed by what the new file says of it.
    let moved = "address = \"127.0.0.1:8883\"\n";
    let mut listeners = read(remote);
    let new = load(&[Source::new("f.toml", format!("[listeners.mqtts]\n{moved}"))]).unwrap();
    listeners.take_over(&new.listeners);
    assert!(!listeners.named("mqtts").unwrap().allow_remote_anonymous);
}

#[test]
fn one_link_local_address_may_be_on_two_interfaces() {
    let two =
        |a: u32, b: u32| format!("[listeners.mqtts]\naddress = [\"[fe80::1%{a}]:8883\", \"[fe80::1%{b}]:8883\"]\n");
    assert!(load(&[Source::new("f.toml", two(2, 3))]).is_ok());
    assert_eq!(lines_and_keys(&two(2, 2)), [(2, "listeners.mqtts.address".to_owned())]);
}
