//! Streams: a client and the server talk until a resource is bound, and everything else that RFC 6120 §4–7 names.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use fogmux_xmpp::stream::{ClientConfig, Offer, RawEvent, SaslCondition, StartTls, TlsWish};
use fogmux_xmpp::{ClientEvent, ClientStream, Jid, Limits, ServerConfig, ServerEvent, ServerStream};
use std::sync::Arc;
use std::time::Duration;

const OPEN: &str = "<?xml version='1.0'?><stream:stream to='localhost' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>";
const AUTH: &str = "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>AGEAYg==</auth>";

fn offer(starttls: StartTls) -> Offer {
    Offer { starttls, mechanisms: vec!["SCRAM-SHA-256", "PLAIN"], channel_bindings: vec![] }
}

fn server(starttls: StartTls) -> ServerStream {
    let config = ServerConfig {
        domain: Jid::parse("localhost").unwrap(),
        limits: Limits::default(),
        login_timeout: Duration::from_secs(10),
    };
    ServerStream::new(Arc::new(config), offer(starttls), 7, Duration::ZERO)
}

/// Feeds `input` and describes events; what the server wrote is given too.
fn feed(server: &mut ServerStream, input: &str) -> (Vec<String>, String) {
    let (mut out, mut events, mut rest) = (Vec::new(), Vec::new(), input.as_bytes());
    loop {
        let (used, event) = server.handle(rest, &mut out);
        rest = &rest[used..];
        let Some(event) = event else { break };
        let stop = matches!(event, ServerEvent::StartTls);
        events.push(format!("{event:?}"));
        if stop {
            break;
        }
    }
    (events, String::from_utf8(out).unwrap())
}

fn bound() -> ServerStream {
    let mut s = server(StartTls::Unavailable);
    let mut out = Vec::new();
    assert!(feed(&mut s, OPEN).1.contains("<mechanism>PLAIN</mechanism>"));
    assert_eq!(feed(&mut s, AUTH).0, ["Authenticate { mechanism: \"PLAIN\", initial: Some([0, 97, 0, 98]) }"]);
    s.succeed(Jid::parse("a@localhost").unwrap(), None, &mut out);
    assert_eq!(out, b"<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>");
    assert!(feed(&mut s, OPEN).1.contains("<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>"));
    let bind =
        "<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>r</resource></bind></iq>";
    let (_, event) = s.handle(bind.as_bytes(), &mut out);
    let Some(ServerEvent::Bind(request)) = event else { panic!("{event:?}") };
    assert_eq!(request.resource.as_deref(), Some("r"));
    out.clear();
    s.bound(&request, Jid::parse("a@localhost/r").unwrap(), &mut out);
    assert!(String::from_utf8(out).unwrap().contains("<jid>a@localhost/r</jid>"));
    assert!(s.is_bound() && s.deadline().is_none());
    s
}

#[test]
fn client_and_server_log_in_over_starttls() {
    let mut to_server = Vec::new();
    let config =
        ClientConfig { domain: "localhost".into(), resource: None, tls: TlsWish::StartTls, limits: Limits::default() };
    let mut client = ClientStream::new(config, &mut to_server);
    let mut server = server(StartTls::Required);
    let mut to_client = Vec::new();
    let mut log = Vec::new();
    while !client.is_bound() {
        let input = std::mem::take(&mut to_server);
        let (_, event) = server.handle(&input, &mut to_client);
        match event {
            Some(ServerEvent::StartTls) => log.push("starttls".to_owned()),
            Some(ServerEvent::Authenticate { mechanism, initial }) => {
                log.push(format!("{mechanism} {initial:?}"));
                server.challenge(b"more", &mut to_client);
            }
            Some(ServerEvent::Response(data)) => {
                log.push(String::from_utf8(data).unwrap());
                server.succeed(Jid::parse("a@localhost").unwrap(), Some(b"proof"), &mut to_client);
            }
            Some(ServerEvent::Bind(request)) => {
                let full = server.jid().unwrap().with_resource("x").unwrap();
                server.bound(&request, full, &mut to_client);
            }
            other => assert!(other.is_none(), "{other:?}"),
        }
        let input = std::mem::take(&mut to_client);
        let (_, event) = client.handle(&input, &mut to_server);
        match event {
            Some(ClientEvent::StartTls) => {
                server.tls_established(offer(StartTls::Unavailable));
                client.tls_established(&mut to_server);
            }
            Some(ClientEvent::Mechanisms(names)) => {
                assert_eq!(names, ["SCRAM-SHA-256", "PLAIN"]);
                client.authenticate("SCRAM-SHA-256", Some(b""), &mut to_server);
            }
            Some(ClientEvent::Challenge(data)) => client.respond(&data, &mut to_server),
            Some(ClientEvent::Success(data)) => {
                assert_eq!(data.as_deref(), Some(&b"proof"[..]));
                client.accept(&mut to_server);
            }
            Some(ClientEvent::Bound(jid)) => assert_eq!(jid.as_str(), "a@localhost/x"),
            other => assert!(other.is_none(), "{other:?}"),
        }
    }
    assert_eq!(log, ["starttls", "SCRAM-SHA-256 Some([])", "more"]);
}

#[test]
fn s5_4_3_3_what_follows_starttls_is_thrown_away() {
    let mut s = server(StartTls::Offered);
    let (events, out) = feed(&mut s, &format!("{OPEN}<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>{AUTH}"));
    assert_eq!(events, ["StartTls"]);
    assert!(out.ends_with("<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"));
    assert_eq!(feed(&mut s, AUTH), (vec![], String::new()));
    s.tls_established(offer(StartTls::Unavailable));
    assert!(!feed(&mut s, OPEN).1.contains("starttls"));
}

#[test]
fn s6_5_failures() {
    let auth = |mechanism: &str, data: &str| AUTH.replace("PLAIN", mechanism).replace("AGEAYg==", data);
    let cases = [
        (StartTls::Required, AUTH.to_owned(), "encryption-required"),
        (StartTls::Offered, auth("GSSAPI", ""), "invalid-mechanism"),
        (StartTls::Offered, auth("EXTERNAL", "="), "encryption-required"),
        (StartTls::Unavailable, auth("EXTERNAL", "="), "invalid-mechanism"),
        (StartTls::Offered, auth("PLAIN", "?"), "incorrect-encoding"),
        (StartTls::Offered, auth("PLAIN", " AGEAYg=="), "incorrect-encoding"),
        (StartTls::Offered, auth("PLAIN", "AGEAYg"), "incorrect-encoding"),
        (StartTls::Offered, "<abort xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>".to_owned(), "aborted"),
    ];
    for (starttls, input, condition) in cases {
        let mut s = server(starttls);
        let (events, out) = feed(&mut s, &format!("{OPEN}{input}"));
        assert!(
            out.ends_with(&format!("<failure xmlns='urn:ietf:params:xml:ns:xmpp-sasl'><{condition}/></failure>")),
            "{out}"
        );
        assert!(events.is_empty());
    }
}

#[test]
fn s6_4_5_attempts_are_counted() {
    let mut s = server(StartTls::Offered);
    feed(&mut s, OPEN);
    let mut out = Vec::new();
    for _ in 0..3 {
        assert!(!s.is_closed());
        feed(&mut s, AUTH);
        out.clear();
        s.refuse(SaslCondition::NotAuthorized, &mut out);
    }
    assert!(s.is_closed());
    assert!(String::from_utf8(out).unwrap().contains("<policy-violation"));
}

#[test]
fn the_deadline_is_absolute() {
    let mut s = server(StartTls::Offered);
    assert_eq!(s.deadline(), Some(Duration::from_secs(10)));
    feed(&mut s, OPEN);
    let mut out = Vec::new();
    s.handle_timeout(Duration::from_secs(9), &mut out);
    assert!(out.is_empty());
    s.handle_timeout(Duration::from_secs(10), &mut out);
    assert!(String::from_utf8(out).unwrap().contains("<connection-timeout"));
    assert!(s.is_closed());
}

#[test]
fn s4_9_stream_errors() {
    let cases = [
        (OPEN.replace("localhost", "elsewhere"), "host-unknown"),
        (OPEN.replace(" version='1.0'>", ">"), "unsupported-version"),
        (OPEN.replace("jabber:client", "jabber:server"), "invalid-namespace"),
        (format!("{OPEN}<iq/>"), "not-authorized"),
        ("<!DOCTYPE x>".to_owned(), "restricted-xml"),
        (format!("{OPEN}<a>{}", "x".repeat(9000)), "policy-violation"),
        (format!("{OPEN}{}", "<a>".repeat(70)), "policy-violation"),
    ];
    for (input, condition) in cases {
        let mut s = server(StartTls::Offered);
        let (events, out) = feed(&mut s, &input);
        assert!(events.last().is_some_and(|e| e.starts_with("Failed")), "{condition}: {events:?}");
        assert_eq!(out.matches("<stream:stream").count(), 1, "{out}");
        assert!(
            out.contains(&format!("<stream:error><{condition} xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>")),
            "{out}"
        );
        assert!(out.ends_with("</stream:error></stream:stream>"), "{out}");
        assert_eq!(feed(&mut s, OPEN), (vec![], String::new()));
    }
}

#[test]
fn s4_7_headers_answer_who_asks_and_ids_do_not_tell_the_next() {
    let from = |from: &str| OPEN.replace("to='localhost'", &format!("to='localhost' from='{from}'"));
    let (_, out) = feed(&mut server(StartTls::Offered), &from("Ada@localhost/home"));
    assert!(out.contains(" from='localhost' to='ada@localhost' id="), "{out}");
    assert!(!feed(&mut server(StartTls::Offered), OPEN).1.contains(" to="));
    assert!(feed(&mut server(StartTls::Offered), &from("@")).1.contains("<invalid-from"));
    let id = |out: &str| out.split(" id='").nth(1).unwrap().split('\'').next().unwrap().to_owned();
    let mut ids = Vec::new();
    for seed in [1, 2] {
        let mut s = server(StartTls::Offered);
        ids.push(id(&feed(&mut s, OPEN).1));
        feed(&mut s, "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>");
        s.tls_established(offer(StartTls::Unavailable));
        s.reseed(seed);
        ids.push(id(&feed(&mut s, OPEN).1));
    }
    assert_eq!(ids[0], ids[2]);
    assert_ne!(ids[1], ids[3]);
}

#[test]
fn xep0440_channel_bindings_are_announced() {
    let mut s = server(StartTls::Offered);
    assert!(!feed(&mut s, OPEN).1.contains("sasl-cb"));
    let mechanisms = vec!["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"];
    feed(&mut s, "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>");
    s.tls_established(Offer {
        starttls: StartTls::Unavailable,
        mechanisms,
        channel_bindings: vec!["tls-exporter", "tls-server-end-point"],
    });
    let (_, out) = feed(&mut s, OPEN);
    let announced = "</mechanisms><sasl-channel-binding xmlns='urn:xmpp:sasl-cb:0'>\
        <channel-binding type='tls-exporter'/><channel-binding type='tls-server-end-point'/></sasl-channel-binding>";
    assert!(out.contains(announced), "{out}");
    let config =
        ClientConfig { domain: "localhost".into(), resource: None, tls: TlsWish::No, limits: Limits::default() };
    let mut sent = Vec::new();
    let mut client = ClientStream::new(config, &mut sent);
    assert!(matches!(client.handle(out.as_bytes(), &mut sent).1, Some(ClientEvent::Mechanisms(_))));
    assert!(client.takes_channel_binding("tls-exporter") && !client.takes_channel_binding("tls-unique"));
}

#[test]
fn s4_3_2_where_nothing_is_taken_the_stream_ends() {
    let mut s = server(StartTls::Offered);
    feed(&mut s, &format!("{OPEN}<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"));
    s.tls_established(Offer { mechanisms: vec![], ..offer(StartTls::Unavailable) });
    let (_, out) = feed(&mut s, OPEN);
    assert!(!out.contains("features") && out.contains("<not-authorized xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>"));
}

#[test]
fn s8_1_2_1_from_is_the_senders() {
    for good in ["a@localhost/r", "a@localhost", "A@LocalHost"] {
        let (events, out) = feed(&mut bound(), &format!("<message from='{good}'/>"));
        assert!(events[0].starts_with("Stanza") && out.is_empty());
    }
    for bad in ["b@localhost", "a@localhost/s", "localhost", "@", "a@localhost/r/x"] {
        let (_, out) = feed(&mut bound(), &format!("<message from='{bad}'/>"));
        assert!(out.contains("<invalid-from"), "{bad}");
    }
}

#[test]
fn after_bind() {
    assert!(feed(&mut bound(), "<foo/>").1.contains("unsupported-stanza-type"));
    assert!(feed(&mut bound(), "<iq xmlns='u'/>").1.contains("unsupported-stanza-type"));
    let (events, out) = feed(&mut bound(), " <presence/> </stream:stream>");
    assert_eq!(events.len(), 2);
    assert_eq!(out, "</stream:stream>");
    // Large stanzas only after authentication.
    assert!(
        feed(&mut bound(), &format!("<message><body>{}</body></message>", "x".repeat(100_000))).0[0]
            .starts_with("Stanza")
    );
}

#[test]
fn xep0198_counts_both_ways() {
    let mut s = bound();
    assert!(feed(&mut s, "<a xmlns='urn:xmpp:sm:3' h='0'/>").1.contains("unsupported-stanza-type"));
    let mut s = bound();
    let (_, out) = feed(
        &mut s,
        "<presence/><enable xmlns='urn:xmpp:sm:3' resume='true'/><presence/><message/><r xmlns='urn:xmpp:sm:3'/>",
    );
    assert_eq!(out, "<enabled xmlns='urn:xmpp:sm:3'/><a xmlns='urn:xmpp:sm:3' h='2'/>");
    let mut out = Vec::new();
    s.sent(63, &mut out);
    assert!(out.is_empty());
    s.sent(1, &mut out);
    assert_eq!(out, b"<r xmlns='urn:xmpp:sm:3'/>");
    assert_eq!(s.management().unacknowledged(), 64);
    feed(&mut s, "<a xmlns='urn:xmpp:sm:3' h='60'/>");
    assert_eq!(s.management().unacknowledged(), 4);
    s.sent(1024, &mut out);
    assert!(!s.management().has_room());
    assert!(feed(&mut s, "<a xmlns='urn:xmpp:sm:3' h='2000'/>").1.contains("handled-count-too-high"));
    let mut s = bound();
    assert!(feed(&mut s, "<resume xmlns='urn:xmpp:sm:3' previd='x' h='1'/>").1.contains("item-not-found"));
}

#[test]
fn xep0198_has_room_for_whoever_answers_requests_whatever_it_counts() {
    const ACK: &str = "<a xmlns='urn:xmpp:sm:3' h='0'/>";
    let enabled = || {
        let mut s = bound();
        feed(&mut s, "<enable xmlns='urn:xmpp:sm:3'/>");
        s
    };
    for burst in [1, 2, 63, 64, 65, 97, 1023, 1024, 1025, 5000] {
        let (mut s, mut asked) = (enabled(), 0);
        for _ in 0..10_000 / burst + 2 {
            let mut out = Vec::new();
            s.sent(burst, &mut out);
            asked += out.windows(2).filter(|bytes| bytes == b"<r").count();
            // Once a request is unanswered, and only then, it may have no room.
            assert!(s.management().has_room() || asked > 0, "bursts of {burst}");
            if !s.management().has_room() {
                for left in (0..asked).rev() {
                    feed(&mut s, ACK);
                    assert_eq!(s.management().has_room(), left == 0, "bursts of {burst}, {left} unanswered");
                }
                asked = 0;
            }
        }
        assert!(s.management().unacknowledged() > 10_000);
    }
    // A client that answers no request has no room.
    let mut s = enabled();
    for _ in 0..1024 {
        assert!(s.management().has_room());
        s.sent(1, &mut Vec::new());
    }
    assert!(!s.management().has_room());
}

#[test]
fn a_client_may_read_stanzas_itself_and_have_the_others_parsed() {
    let config =
        ClientConfig { domain: "localhost".into(), resource: None, tls: TlsWish::No, limits: Limits::default() };
    let mut out = Vec::new();
    let mut client = ClientStream::new(config, &mut out);
    let header = OPEN.replace("to=", "from=");
    let mut feed = |client: &mut ClientStream, text: &str| format!("{:?}", client.handle(text.as_bytes(), &mut out).1);
    let offer = "<stream:features><mechanisms xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/></stream:features>";
    assert_eq!(feed(&mut client, &format!("{header}{offer}")), "Some(Mechanisms([]))");
    assert_eq!(feed(&mut client, "<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>"), "Some(Success(None))");
    client.accept(&mut Vec::new());
    assert_eq!(feed(&mut client, &format!("{header}<stream:features/>")), "None");
    let bound = "<iq type='result' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><jid>a@localhost/x</jid></bind></iq>";
    assert!(feed(&mut client, bound).starts_with("Some(Bound"));

    let rest = "<message id='1'/> <iq id='2'><a>></a></iq><iq id='3'";
    let mut input = rest.as_bytes();
    let mut stanzas = Vec::new();
    while let (used, Some(event)) = client.next_raw(input).unwrap() {
        let RawEvent::Stanza(stanza) = event else { panic!("{event:?}") };
        stanzas.push(std::str::from_utf8(stanza).unwrap());
        input = &input[used..];
    }
    assert_eq!(stanzas, ["<message id='1'/>", "<iq id='2'><a>></a></iq>"]);
    let Some(ClientEvent::Stanza(iq)) = client.handle_raw(stanzas[1].as_bytes(), &mut Vec::new()) else { panic!() };
    assert_eq!((iq.name, iq.attr("id")), ("iq", Some("2")));
    let again = format!("{}/></stream:stream>", std::str::from_utf8(input).unwrap());
    let (used, event) = client.next_raw(again.as_bytes()).unwrap();
    assert_eq!(event, Some(RawEvent::Stanza(b"<iq id='3'/>")));
    assert_eq!(client.next_raw(&again.as_bytes()[used..]).unwrap().1, Some(RawEvent::Ended));
    assert!(!client.is_bound());
}
