//! Contexts over several lives of the process (RFC 8613 appendix B.1).

use super::*;

/// A data directory that came back from a backup, without the journal.
#[test]
fn b_1_a_context_without_a_record_has_no_window_and_numbers_of_its_own() {
    let data = Data::new();
    let old = parameters(1);
    data.add("one.toml", &toml::write(Some("alice"), &old));
    let mut numbers = HashSet::new();
    let one = device(1);
    for wall_clock in [since_1970, later] {
        let mut shield = Shield::new(data.open_at(wall_clock));
        let (first, mut pending) = request(&one, None);
        let (Opened::Answer(exchange), answer) = open(&mut shield, &first) else { panic!("no proof is asked for") };
        let mut sealed = Vec::new();
        exchange.seal(Timestamp::ZERO, &Message::decode(&answer).unwrap(), Role::Answer, &mut sealed).unwrap();
        let sealed = Message::decode(&sealed).unwrap();
        let option = sealed.option(OptionNumber::OSCORE).unwrap().value.to_vec();
        assert!(option.len() > 4 && numbers.insert(option), "{numbers:?}");
        pending.open(&sealed, &mut Vec::new()).unwrap();
        drop((shield, exchange));
        fs::remove_file(data.journal()).unwrap();
    }
    // A file that says that its keys are new is not believed for ever.
    let long_ago = toml::write(Some("alice"), &old).to_string() + &toml::made(1_577_836_800);
    data.add("one.toml", &long_ago);
    assert!(is_asked_for_proof(&mut Shield::new(data.open()), &one));
}

#[test]
fn b_1_a_new_context_has_no_window_when_its_journal_is_lost_or_it_comes_from_a_backup() {
    for restored in [false, true] {
        let data = Data::new();
        data.add("one.toml", &own_toml(1, "alice"));
        let one = device(1);
        let (old, _) = request(&one, None);
        assert!(matches!(open(&mut Shield::new(data.open()), &old).0, Opened::Request(_)), "it is new");
        fs::remove_file(data.journal()).unwrap();
        if restored {
            fs::remove_file(data.journal().with_extension("lock")).unwrap();
            let backup = BackedUp { unix_s: since_1970().as_secs(), below: 0 };
            note_restored(&data.journal(), backup).unwrap();
        }
        let keyring = data.open();
        let mut shield = Shield::new(Arc::clone(&keyring));
        assert!(matches!(open(&mut shield, &old).0, Opened::Answer(_)), "a recorded request is carried out again");
        // One that is made from now on is new.
        std::thread::sleep(Duration::from_millis(1100));
        data.add("two.toml", &own_toml(2, "bob"));
        data.reload(&keyring);
        assert!(matches!(open(&mut shield, &request(&device(2), None).0).0, Opened::Request(_)));
    }
}

#[test]
fn b_1_a_context_whose_line_was_lost_while_it_was_away_has_no_window() {
    let data = Data::new();
    let text = own_toml(1, "alice");
    data.add("one.toml", &text);
    assert!(is_taken(&mut Shield::new(data.open()), &device(1)));
    fs::write(data.journal(), "rubbish\n").unwrap();
    fs::remove_file(data.contexts().join("one.toml")).unwrap();
    data.add("two.toml", &own_toml(2, "bob"));
    // The journal is put in order; only afterwards the context comes back.
    drop(data.open());
    data.add("one.toml", &text);
    assert!(is_asked_for_proof(&mut Shield::new(data.open()), &device(1)));
    data.add("three.toml", &own_toml_at(3, "carol", later()));
    assert!(is_taken(&mut Shield::new(data.open_at(later)), &device(3)));
}

#[test]
fn b_1_2_after_a_power_cut_the_first_request_comes_twice_after_a_rest_once() {
    let data = Data::new();
    data.add("one.toml", &own_toml(1, "alice"));
    let one = device(1);
    let (old, _) = request(&one, None);
    let mut shield = Shield::new(data.open());
    assert!(matches!(open(&mut shield, &old).0, Opened::Request(_)));

    drop(shield);
    let keyring = data.open();
    let mut shield = Shield::new(Arc::clone(&keyring));
    let (first, mut pending) = request(&one, None);
    let (Opened::Answer(exchange), answer) = open(&mut shield, &first) else { panic!("no proof is asked for") };
    let answer = Message::decode(&answer).unwrap();
    let mut sealed = Vec::new();
    exchange.seal(Timestamp::ZERO, &answer, Role::Answer, &mut sealed).unwrap();
    let mut inner = Vec::new();
    pending.open(&Message::decode(&sealed).unwrap(), &mut inner).unwrap();
    let echo = Message::decode(&inner).unwrap().option(OptionNumber::ECHO).unwrap().value.to_vec();
    assert!(matches!(open(&mut shield, &old).0, Opened::Answer(_)));
    assert!(matches!(open(&mut shield, &request(&one, Some(&echo)).0).0, Opened::Request(_)));
    assert!(matches!(open(&mut shield, &old).0, Opened::Refused { .. }));

    drop((shield, exchange, keyring));
    // After every start.
    let mut shield = Shield::new(data.open());
    assert!(matches!(open(&mut shield, &old).0, Opened::Answer(_)));
}

/// Numbers that a life of the gateway used, cut off at any moment: the journal is all that is left.
#[test]
fn b_1_1_no_number_is_used_in_two_lives() {
    let data = Data::new();
    data.add("one.toml", &own_toml(1, "alice"));
    let (one, mut used) = (device(1), HashSet::new());
    let mut notification = Vec::new();
    Encoder::new(&mut notification, Type::NonConfirmable, Code::CONTENT, 9, &Token::new(b"t").unwrap()).payload(b"x");
    let notification = Message::decode(&notification).unwrap();
    for life in 0..12_usize {
        let keyring = data.open();
        let mut shield = Shield::new(Arc::clone(&keyring));
        let exchange = match open(&mut shield, &request(&one, None).0).0 {
            Opened::Request(exchange) | Opened::Answer(exchange) => exchange,
            Opened::Refused { text, .. } => panic!("{text}"),
        };
        for _ in 0..life * 300 {
            let mut sealed = Vec::new();
            if exchange.seal(Timestamp::ZERO, &notification, Role::Notification, &mut sealed).is_err() {
                std::thread::yield_now();
                continue;
            }
            let option = Message::decode(&sealed).unwrap().option(OptionNumber::OSCORE).unwrap().value.to_vec();
            // Without a Partial IV it is the nonce of the request, which is new each time.
            assert!(option.is_empty() || used.insert(option), "a number is used twice");
        }
        if life % 4 == 1 {
            tear(&data.journal());
        }
    }
    assert!(used.len() > 5000, "{}", used.len());
}

/// The last write of a life was cut in two.
fn tear(journal: &Path) {
    let mut bytes = fs::read(journal).unwrap();
    bytes.extend_from_slice(b"0123456789abcdef 99");
    fs::write(journal, bytes).unwrap();
}
