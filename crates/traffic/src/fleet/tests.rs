use super::*;

const TWO: &str = r#"
    seconds = 10
    [[group]]
    name = "meters"
    count = 8000
    door = "coap"
    topic = "f/meters/{}"
    period_seconds = 20
    [[group]]
    name = "cameras"
    count = 20
    door = "mqtt5"
    topic = "f/cameras"
    qos = 1
    payload_bytes = 2048
    consumers = 2
    period_seconds = 0.5
    arrivals = "poisson"
    start_spread_seconds = 3
"#;

fn refused(text: &str) -> String {
    Fleet::parse("f.toml", text).unwrap_err().to_string()
}

/// The second group with another line.
fn with(line: &str) -> String {
    let key = line.split_once(" =").map(|(key, _)| key.trim()).unwrap_or_default();
    let (first, second) = TWO.rsplit_once("[[group]]").unwrap();
    let rest: Vec<&str> = second.lines().filter(|line| !line.trim().starts_with(&format!("{key} ="))).collect();
    format!("{first}[[group]]\n{line}\n{}", rest.join("\n"))
}

#[test]
fn groups_are_experiments_and_the_whole_is_their_sum() {
    let fleet = Fleet::parse("f.toml", TWO).unwrap();
    let [meters, cameras] = fleet.groups() else { panic!("{fleet:?}") };
    let of = &meters.experiment;
    assert_eq!((of.publishers, of.subscribers, of.topics, of.rate), (8_000, 1, 8_000, Some(400.0)));
    assert_eq!((of.reader_door, of.follow, of.seconds), (Some(Door::Mqtt), Follow::All, 10.0));
    let of = &cameras.experiment;
    assert_eq!((of.topics, of.rate, of.follow, of.reader_door), (1, Some(40.0), Follow::Topic, None));
    assert_eq!((of.arrivals, of.start_spread_seconds), (Arrivals::Poisson, 3.0));
    let whole = fleet.whole();
    assert_eq!((whole.publishers, whole.subscribers, whole.rate, whole.payload_bytes), (8_020, 3, Some(440.0), 0));
    assert_eq!(fleet.clients(), 8_023);
}

#[test]
fn a_group_that_cannot_be_done_is_named_with_the_reason() {
    for (line, why) in [
        ("name = \"meters\"", "group \"meters\": there are two groups of that name"),
        ("name = \"a/b\"", "group \"a/b\": a name is 1 to 32"),
        ("name = \"fleet\"", "not \"fleet\""),
        ("topic = \"f/meters/7\"", "group \"cameras\": its topics \"f/meters/7\" may be those of group \"meters\""),
        ("period_seconds = 0", "group \"cameras\": period_seconds is 0; accepted: seconds above 0"),
        ("period_seconds = nan", "group \"cameras\": period_seconds is NaN"),
        ("count = 0", "group \"cameras\": count is 0; accepted: 1 or more"),
        ("start_spread_seconds = -1.0", "group \"cameras\": start_spread_seconds is -1"),
        ("payload_bytes = 3", "group \"cameras\": payloads of less than"),
        ("speed = 3", "unknown field `speed`"),
        ("door = \"amqp\"", "amqp"),
    ] {
        let found = refused(&with(line));
        assert!(found.starts_with("f.toml: ") && found.contains(why), "{line}: {found}");
    }
    let secure = |profile| format!("security = \"{profile}\"");
    assert!(refused(&with(&secure("oscore"))).contains("OSCORE is for CoAP, not for mqtt5"));
    let psk = TWO.replace("door = \"coap\"", "door = \"coap\"\nsecurity = \"psk\"");
    let mixed = psk.replace("door = \"mqtt5\"", "door = \"mqtt5\"\nsecurity = \"modern\"");
    let why = refused(&mixed);
    assert!(
        why.contains("group \"cameras\": a gateway has one listener mqtts") && why.contains("coap→mqtt psk"),
        "{why}"
    );
    assert!(refused("seconds = 1").contains("at least one [[group]]"));
    assert!(refused(&TWO.replace("seconds = 10", "seconds = 0")).contains("seconds is 0"));
    let silent = TWO.replace("door = \"coap\"", "door = \"coap\"\nsecurity = \"oscore\"");
    assert!(refused(&silent).contains("consumer_door = \"coap\""), "{}", refused(&silent));
    let secure = TWO.replace("door = \"coap\"", "door = \"coap\"\nsecurity = \"oscore\"\nconsumer_door = \"coap\"");
    assert!(Fleet::parse("f.toml", &secure).is_ok());
    let twice = secure.replace("door = \"mqtt5\"", "door = \"coap\"\nsecurity = \"oscore\"");
    assert!(refused(&twice).contains("one group with OSCORE"), "{}", refused(&twice));
}
