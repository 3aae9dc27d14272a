//! Answers (RFC 6762 §5 to §7, RFC 6763 §9, §12).

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn pointer() -> Record {
    record("_mqtt._tcp.local", 4500, Data::Ptr(name("pi._mqtt._tcp.local")))
}

#[test]
fn a_browser_gets_the_instance_and_all_that_it_asks_next() {
    let mut bench = Bench::established();
    assert_eq!(bench.ask(&[question("_MQTT._tcp.local", Kind::PTR)]), Verdict::Answered);
    let said = bench.said(SECOND);
    let [(delay, None, answer)] = &said[..] else { panic!("{said:?}") };
    assert!((20..=120).contains(delay), "{delay}: others share the name");
    assert_eq!(answer.answers, [pointer()]);
    let expected =
        [("pi._mqtt._tcp.local.", Kind::SRV), ("pi._mqtt._tcp.local.", Kind::TXT), ("pi-host.local.", Kind::A)];
    assert_eq!(kinds(&answer.additionals), expected.map(|(name, kind)| (name.to_owned(), kind)));
    assert!(answer.additionals.iter().all(|record| record.flush));
}

#[test]
fn s9_the_types_of_services_are_enumerated() {
    let mut bench = Bench::established();
    bench.ask(&[question("_services._dns-sd._udp.local", Kind::PTR)]);
    let said = bench.said(SECOND);
    let types: Vec<&Data> = said[0].2.answers.iter().map(|record| &record.data).collect();
    assert_eq!(types, [&Data::Ptr(name("_mqtt._tcp.local")), &Data::Ptr(name("_http._tcp.local"))]);
}

#[test]
fn s6_unique_records_are_answered_at_once() {
    let mut bench = Bench::established();
    bench.ask(&[question("pi-host.local", Kind::A), question("pi._mqtt._tcp.local", Kind::ANY)]);
    let said = bench.said(SECOND);
    assert_eq!((said.len(), said[0].0), (1, 0));
    assert_eq!(said[0].2.answers.len(), 3);
}

#[test]
fn what_is_not_ours_is_not_answered() {
    let mut bench = Bench::established();
    let chaos = Question { class: 3, ..question("pi-host.local", Kind::A) };
    for asked in [
        question("_ipp._tcp.local", Kind::PTR),
        question("other._mqtt._tcp.local", Kind::SRV),
        question("local", Kind::ANY),
        question("_mqtt._tcp.local", Kind::SRV),
        chaos,
    ] {
        assert_eq!(bench.ask(std::slice::from_ref(&asked)), Verdict::Heard, "{asked:?}");
    }
    assert!(bench.said(SECOND).is_empty());
    // An update, and an error (§18.3, §18.11).
    for flags in [0x2800, 0x0003] {
        let questions = vec![question("pi-host.local", Kind::A)];
        let message = Message { flags: Flags(flags), questions, ..Message::default() };
        assert_eq!(bench.hear(peer(77, PORT), &message), Verdict::Ignored);
    }
}

#[test]
fn s6_1_a_type_that_a_name_has_not_is_denied() {
    let mut bench = Bench::established();
    bench.ask(&[question("pi-host.local", Kind::AAAA)]);
    let said = bench.said(SECOND);
    assert_eq!(said[0].2.answers[0].data, Data::nsec(&name("pi-host.local"), &[Kind::A]));
    assert!(said[0].2.answers[0].flush);
}

#[test]
fn s6_a_record_is_multicast_once_a_second() {
    let mut bench = Bench::established();
    let mut times = Vec::new();
    for _ in 0..100 {
        bench.ask(&[question("pi-host.local", Kind::A)]);
        times.extend(bench.run(Duration::from_millis(30)).into_iter().map(|(at, _)| at));
    }
    assert!(times.len() >= 3 && times.windows(2).all(|two| two[1] - two[0] >= SECOND), "{times:?}");
}

#[test]
fn s6_a_name_is_defended_against_a_probe_within_the_second() {
    let mut bench = Bench::established();
    bench.ask(&[question("pi-host.local", Kind::A)]);
    bench.run(Duration::from_millis(300));
    for unicast in [false, true] {
        let asked = Question { unicast, ..question("pi-host.local", Kind::ANY) };
        let probe = Message { authorities: vec![theirs("pi-host.local")], ..query(vec![asked], vec![]) };
        assert_eq!(bench.hear(peer(99, PORT), &probe), Verdict::Answered);
        let said = bench.said(SECOND);
        assert_eq!(said.iter().map(|(at, to, _)| (*at, *to)).collect::<Vec<_>>(), [(0, None)]);
    }
    assert!(bench.responder.is_established(), "a probe is no conflict");
}

#[test]
fn s7_1_known_answers_are_not_given_again() {
    for (ttl, is_known) in [(4500, true), (2250, true), (2249, false)] {
        let mut bench = Bench::established();
        let known = Record { ttl, ..pointer() };
        bench.hear(peer(77, PORT), &query(vec![question("_mqtt._tcp.local", Kind::PTR)], vec![known]));
        assert_eq!(bench.said(SECOND).is_empty(), is_known, "{ttl}");
    }
}

#[test]
fn s7_2_a_query_with_more_known_answers_to_come_is_waited_for() {
    let cut = Message {
        flags: Flags::TRUNCATED,
        ..query(vec![question("_mqtt._tcp.local", Kind::PTR), question("_http._tcp.local", Kind::PTR)], vec![])
    };
    let mut bench = Bench::established();
    bench.hear(peer(77, PORT), &cut);
    assert!(bench.said(Duration::from_millis(399)).is_empty());
    bench.hear(peer(77, PORT), &query(vec![], vec![pointer()]));
    let said = bench.said(SECOND);
    assert_eq!((said.len(), said[0].2.answers.len()), (1, 1));
    assert_eq!(said[0].2.answers[0].name, name("_http._tcp.local"));
    // The known answers of another host do not count, and none do if two have asked.
    for (from, asks_too) in [(78, None), (77, Some(79))] {
        let mut bench = Bench::established();
        bench.hear(peer(77, PORT), &cut);
        asks_too.map(|last| bench.hear(peer(last, PORT), &cut));
        bench.hear(peer(from, PORT), &query(vec![], vec![pointer()]));
        assert_eq!(bench.said(SECOND)[0].2.answers.len(), 2);
    }
}

#[test]
fn s7_4_what_another_host_has_just_answered_is_not_said_again() {
    for (ttl, is_silent) in [(4500, true), (4499, false)] {
        let mut bench = Bench::established();
        bench.ask(&[question("_mqtt._tcp.local", Kind::PTR)]);
        bench.hear(peer(99, PORT), &response(vec![Record { ttl, ..pointer() }]));
        assert_eq!(bench.said(SECOND).is_empty(), is_silent, "{ttl}");
    }
}

#[test]
fn s6_6_a_record_that_another_host_would_have_forgotten_is_said_again() {
    for (ttl, is_said) in [(0, true), (2249, true), (2250, false)] {
        let mut bench = Bench::established();
        bench.hear(peer(99, PORT), &response(vec![Record { ttl, ..pointer() }]));
        let said = bench.said(SECOND);
        assert_eq!(said.iter().any(|(.., message)| message.answers == [pointer()]), is_said, "{ttl}");
    }
}

#[test]
fn s5_4_a_unicast_answer_only_while_all_have_heard_it_lately() {
    let asked = Question { unicast: true, ..question("pi-host.local", Kind::A) };
    let mut bench = Bench::established();
    bench.ask(std::slice::from_ref(&asked));
    assert_eq!(bench.said(SECOND)[0].1, None, "not since a day");
    bench.ask(std::slice::from_ref(&asked));
    let said = bench.said(SECOND);
    assert_eq!((said.len(), said[0].0, said[0].1), (1, 0, Some(peer(77, PORT))));
    assert!(said[0].2.answers[0].flush && said[0].2.questions.is_empty());
    // A quarter of 120 seconds later.
    bench.run(30 * SECOND);
    bench.ask(&[asked]);
    assert_eq!(bench.said(SECOND)[0].1, None);
}

#[test]
fn s6_7_a_legacy_client_gets_a_plain_answer() {
    let mut bench = Bench::established();
    let asked = question("_mqtt._tcp.local", Kind::PTR);
    let verdict = bench.hear(peer(77, 40_000), &Message { id: 4711, ..query(vec![asked.clone()], vec![]) });
    assert_eq!(verdict, Verdict::Answered);
    let said = bench.said(SECOND);
    let [(0, Some(to), answer)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((*to, answer.id, &answer.questions[..]), (peer(77, 40_000), 4711, &[asked][..]));
    assert_eq!((answer.answers.len(), answer.additionals.len()), (1, 3));
    let all = answer.answers.iter().chain(&answer.additionals);
    assert!(all.clone().all(|record| record.ttl <= 10 && !record.flush), "{all:?}");
}

#[test]
fn unicast_answers_to_a_host_are_bounded() {
    let mut bench = Bench::established();
    let legacy = query(vec![question("pi-host.local", Kind::A)], vec![]);
    let ask = |bench: &mut Bench, last, port| bench.hear(peer(last, port), &legacy);
    for port in 0..30 {
        assert_eq!(ask(&mut bench, 77, 40_000 + port), Verdict::Answered);
    }
    assert_eq!(ask(&mut bench, 77, 50_000), Verdict::Limited);
    assert_eq!(ask(&mut bench, 78, 50_000), Verdict::Answered);
    assert_eq!(bench.said(10 * SECOND).len(), 31);
    assert_eq!(ask(&mut bench, 77, 50_000), Verdict::Answered);
}
