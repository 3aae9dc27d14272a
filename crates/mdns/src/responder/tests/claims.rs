//! Probes, announcements, conflicts and goodbyes (RFC 6762 §8 to §10).

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn s8_three_probes_then_two_announcements() {
    let said = Bench::new().said(10 * SECOND);
    let times: Vec<u128> = said.iter().map(|(at, ..)| *at).collect();
    let first = times[0];
    assert!(first <= 250, "{first}");
    assert_eq!(times, [0, 250, 500, 750, 1750].map(|after| first + after));
    for (_, to, probe) in &said[..3] {
        assert_eq!((*to, probe.flags, probe.answers.len()), (None, Flags::QUERY, 0));
        let asked: Vec<String> = probe.questions.iter().map(|question| question.name.to_string()).collect();
        assert_eq!(asked, ["pi._mqtt._tcp.local.", "pi._http._tcp.local.", "pi-host.local."]);
        assert!(probe.questions.iter().all(|question| question.kind == Kind::ANY));
        // SRV and TXT of each instance, and the address.
        assert_eq!(probe.authorities.len(), 5);
        assert!(probe.authorities.iter().all(|record| !record.flush));
    }
    for (_, to, announced) in &said[3..] {
        assert_eq!((*to, announced.flags, announced.questions.len()), (None, Flags::RESPONSE, 0));
        // With two types, and a pointer to each of them and to each instance.
        assert_eq!(announced.answers.len(), 9);
        for record in &announced.answers {
            let is_pointer = record.data.kind() == Kind::PTR;
            assert_eq!(
                (record.flush, record.ttl == 120),
                (!is_pointer, !is_pointer && record.data.kind() != Kind::TXT)
            );
        }
    }
}

#[test]
fn s8_1_nothing_is_answered_before_the_names_are_ours() {
    let mut bench = Bench::new();
    bench.run(Duration::from_millis(600));
    assert_eq!(bench.ask(&[question("_mqtt._tcp.local", Kind::PTR)]), Verdict::Heard);
    let said = bench.said(Duration::from_millis(150));
    assert!(said.iter().all(|(.., message)| !message.flags.is_response()), "{said:?}");
}

#[test]
fn s8_1_a_name_that_another_host_has_is_not_taken() {
    let mut bench = Bench::new();
    bench.run(Duration::from_millis(300));
    bench.hear(peer(99, PORT), &response(vec![theirs("PI-host.local")]));
    assert_eq!((bench.responder.instance().as_str(), bench.responder.host().as_str()), ("pi", "pi-host-2"));
    let said = bench.said(10 * SECOND);
    assert_eq!(said.len(), 5, "three probes and two announcements of the new name");
    assert!(said[0].0 >= 250);
    let service = said[4].2.answers.iter().find_map(|record| {
        let Data::Srv { target, .. } = &record.data else { return None };
        Some(target.to_string())
    });
    assert_eq!(service.as_deref(), Some("pi-host-2.local."));
    let instance = record("pi-2._x.local", 1, Data::txt([]));
    bench.hear(peer(99, PORT), &response(vec![instance]));
    assert!(bench.responder.is_established(), "another name");
}

#[test]
fn s8_2_of_two_hosts_that_probe_the_one_with_the_later_data_goes_on() {
    for (last, wins) in [(9, true), (11, false)] {
        let mut bench = Bench::new();
        bench.run(Duration::from_millis(300));
        let other = record("pi-host.local", 120, Data::A([192, 0, 2, last].into()));
        let probe = Message {
            questions: vec![question("pi-host.local", Kind::ANY)],
            authorities: vec![other],
            ..Message::default()
        };
        bench.hear(peer(last, PORT), &probe);
        let (first, _, message) = bench.said(2 * SECOND).remove(0);
        assert!(!message.flags.is_response());
        assert_eq!(first < 250, wins, "{first}");
        assert!(wins || first == 1000, "{first}");
        assert_eq!(bench.responder.host(), "pi-host");
    }
}

#[test]
fn s8_2_a_list_that_ends_first_and_a_lower_type_come_earlier() {
    let our_srv = Data::Srv { priority: 0, weight: 0, port: 1883, target: name("pi-host.local") };
    let name = "pi._mqtt._tcp.local";
    for (theirs, wins) in [
        // Ours are a TXT and an SRV.
        (vec![record(name, 120, Data::txt([]))], true),
        (vec![record(name, 120, our_srv.clone())], false),
        (vec![record(name, 120, Data::txt(["a"])), record(name, 120, our_srv)], false),
        (vec![theirs(name)], true),
    ] {
        let mut bench = Bench::new();
        bench.run(Duration::from_millis(300));
        let probe = Message { authorities: theirs.clone(), ..query(vec![question(name, Kind::ANY)], vec![]) };
        bench.hear(peer(99, PORT), &probe);
        let first = bench.said(2 * SECOND).remove(0).0;
        // A record that we have as well is no sign of another host.
        let is_ours = theirs.len() == 1 && theirs[0].data.kind() != Kind::A;
        assert_eq!(first < 250, wins || is_ours, "{theirs:?}");
    }
}

#[test]
fn our_own_messages_are_no_conflict() {
    let mut bench = Bench::new();
    let mut count = 0;
    for _ in 0..100 {
        for (_, sent) in bench.run(Duration::from_millis(50)) {
            count += 1;
            bench.responder.handle(bench.now, ETH, peer(10, PORT), &sent.bytes);
        }
    }
    assert_eq!(count, 5);
    assert_eq!((bench.responder.instance().as_str(), bench.responder.is_established()), ("pi", true));
}

#[test]
fn two_interfaces_on_one_link_are_no_conflict() {
    let wlan = LinkId { interface: 3, is_ipv4: true };
    let mut bench = Bench::new();
    bench.responder.set_link(bench.now + SECOND / 2, wlan, offer("192.0.2.20"));
    for _ in 0..100 {
        for (_, sent) in bench.run(Duration::from_millis(50)) {
            let (other, from) = if sent.link == ETH { (wlan, 10) } else { (ETH, 20) };
            bench.responder.handle(bench.now, other, peer(from, PORT), &sent.bytes);
        }
    }
    assert_eq!((bench.responder.host().as_str(), bench.responder.is_established()), ("pi-host", true));
}

#[test]
fn s9_a_conflict_later_is_probed_for_and_renames_only_if_the_other_defends() {
    let mut bench = Bench::established();
    bench.hear(peer(99, PORT), &response(vec![theirs("pi-host.local")]));
    assert_eq!(bench.responder.host(), "pi-host");
    assert_eq!(bench.said(10 * SECOND).len(), 5, "nobody defends it");
    bench.hear(peer(99, PORT), &response(vec![theirs("pi-host.local")]));
    bench.run(Duration::from_millis(600));
    bench.hear(peer(99, PORT), &response(vec![theirs("pi-host.local")]));
    bench.run(10 * SECOND);
    assert_eq!((bench.responder.host().as_str(), bench.responder.is_established()), ("pi-host-2", true));
}

#[test]
fn s9_what_is_no_conflict() {
    let mut bench = Bench::established();
    let address = Data::A([192, 0, 2, 10].into());
    for no_conflict in [
        record("pi-host.local", 0, Data::A([192, 0, 2, 99].into())),
        record("pi-host.local", 120, address),
        record("pi-host.local", 120, Data::Aaaa([1; 16].into())),
        record("_mqtt._tcp.local", 120, Data::Ptr(name("other._mqtt._tcp.local"))),
        Record { class: 3, ..theirs("pi-host.local") },
    ] {
        bench.hear(peer(99, PORT), &response(vec![no_conflict]));
        assert!(bench.responder.is_established());
    }
    // From another port than that of multicast DNS it is not heard at all (§6).
    assert_eq!(bench.hear(peer(99, 5354), &response(vec![theirs("pi-host.local")])), Verdict::Ignored);
    assert!(bench.responder.is_established());
}

#[test]
fn s8_1_many_conflicts_slow_it_down() {
    let mut bench = Bench::new();
    for _ in 0..20 {
        let taken = format!("{}.local", bench.responder.host());
        bench.hear(peer(99, PORT), &response(vec![theirs(&taken)]));
    }
    assert_eq!(bench.responder.host(), "pi-host-21");
    assert!(bench.said(60 * SECOND)[0].0 >= 5000);
}

#[test]
fn s10_1_everything_is_taken_back_at_the_end() {
    let mut bench = Bench::established();
    bench.responder.shut_down();
    let said = bench.said(SECOND);
    assert_eq!((said.len(), said[0].0, said[0].1), (1, 0, None));
    assert_eq!(said[0].2.answers.len(), 9);
    assert!(said[0].2.answers.iter().all(|record| record.ttl == 0));
    assert_eq!(bench.ask(&[question("_mqtt._tcp.local", Kind::PTR)]), Verdict::Ignored);
    // A name that was never announced is not.
    let mut bench = Bench::new();
    bench.run(Duration::from_millis(300));
    bench.responder.shut_down();
    assert!(bench.said(SECOND).is_empty());
}

#[test]
fn an_offer_that_changes_takes_back_what_is_no_longer_true() {
    let mut bench = Bench::established();
    let mut changed = offer("192.0.2.11");
    changed.services.remove(1);
    bench.responder.set_link(bench.now, ETH, changed.clone());
    let said = bench.said(10 * SECOND);
    let goodbyes = &said[0].2.answers;
    assert!(goodbyes.iter().all(|record| record.ttl == 0));
    let expected = [
        ("_services._dns-sd._udp.local.", Kind::PTR),
        ("_http._tcp.local.", Kind::PTR),
        ("pi._http._tcp.local.", Kind::SRV),
        ("pi._http._tcp.local.", Kind::TXT),
        ("pi-host.local.", Kind::A),
    ];
    assert_eq!(kinds(goodbyes), expected.map(|(name, kind)| (name.to_owned(), kind)));
    assert_eq!(said.len(), 6);
    bench.responder.set_link(bench.now, ETH, changed);
    assert!(bench.said(10 * SECOND).is_empty(), "the same again");
    // An echo of the former address is no conflict.
    bench.responder.set_link(bench.now, ETH, offer("192.0.2.12"));
    bench.hear(peer(10, PORT), &response(vec![record("pi-host.local", 120, Data::A([192, 0, 2, 11].into()))]));
    bench.run(10 * SECOND);
    assert_eq!((bench.responder.host().as_str(), bench.responder.is_established()), ("pi-host", true));
}

#[test]
fn a_link_without_services_is_silent_and_one_that_has_gone_is_forgotten() {
    let mut bench = Bench::established();
    bench.responder.set_link(bench.now, ETH, Offer::default());
    assert_eq!(bench.said(SECOND)[0].2.answers.len(), 9);
    assert_eq!(bench.responder.next_timeout(), None);
    let mut bench = Bench::established();
    bench.responder.drop_link(ETH);
    assert_eq!(bench.responder.next_timeout(), None);
    assert_eq!(bench.ask(&[question("_mqtt._tcp.local", Kind::PTR)]), Verdict::Ignored);
}

#[test]
fn many_services_are_probed_for_and_announced_in_messages_of_a_bounded_length() {
    let qualified = |number: u16| Service {
        qualifier: Some(format!("listener {number}")),
        txt: vec!["path=/".repeat(10)],
        ..service("_mqtt", number)
    };
    let mut responder = Responder::new("pi", "pi-host", 7);
    let services = (1..=40).map(qualified).collect();
    responder.set_link(START, ETH, Offer { services, ..offer("192.0.2.10") });
    let mut bench = Bench { responder, now: START };
    let said = bench.said(SECOND);
    let probed: Vec<String> =
        said.iter().flat_map(|(.., probe)| &probe.questions).map(|question| question.name.to_string()).collect();
    assert_eq!(probed.len(), 3 * 41);
    for (.., probe) in said.iter().filter(|(.., message)| !message.flags.is_response()) {
        assert!(probe.encode(1400).is_some());
        let of = |question: &Question| probe.authorities.iter().any(|record| record.name == question.name);
        assert!(probe.questions.iter().all(of), "each with its records");
    }
    assert!(
        said.iter().filter(|(.., message)| message.flags.is_response()).all(|(.., all)| all.encode(1400).is_some())
    );
}
