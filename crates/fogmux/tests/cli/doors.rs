//! The client commands against a running gateway: every door in, every door out, with the same flags.

use crate::support::{Gateway, fogmux, run, run_with};

/// All fourteen schemes, two of them in two versions.
const SCHEMES: [(&str, &[&str]); 16] = [
    ("mqtt", &["--mqtt", "3.1.1"]),
    ("mqtt", &[]),
    ("mqtts", &[]),
    ("ws", &[]),
    ("wss", &[]),
    ("coap", &[]),
    ("coaps", &[]),
    ("coap+tcp", &[]),
    ("coaps+tcp", &[]),
    ("coap+ws", &[]),
    ("coaps+ws", &[]),
    ("http", &[]),
    ("https", &["--http", "2"]),
    ("https", &["--http", "3"]),
    ("xmpp", &[]),
    ("xmpps", &[]),
];

#[test]
fn what_is_kept_by_one_door_is_fetched_at_every_other() {
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(directory.path(), &[]);
    let ca = gateway.ca().to_owned();
    for (index, (scheme, flags)) in SCHEMES.iter().enumerate() {
        let topic = format!("kept/{index}/ä");
        let payload = format!("{{\"from\":\"{scheme}\"}}");
        let url = gateway.url(scheme, &topic);
        let content_type: &[&str] = if flags.contains(&"3.1.1") { &[] } else { &["-t", "application/json"] };
        let done = run(&[&["pub", "-r", "--ca", &ca, &url, &payload], *flags, content_type].concat());
        assert_eq!(done.code, 0, "{scheme} {flags:?}: {}", done.stderr);
        for (reader, flags) in SCHEMES {
            let url = gateway.url(reader, &topic);
            let got = run(&[&["get", "--ca", &ca, &url], flags].concat());
            assert_eq!((got.code, &got.stdout), (0, &payload), "{scheme} to {reader} {flags:?}: {}", got.stderr);
        }
    }
    assert_eq!(gateway.stop(), 0);
}

#[test]
fn a_topic_that_keeps_nothing_is_unavailable_at_every_door() {
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(directory.path(), &[]);
    for (scheme, flags) in SCHEMES {
        let url = gateway.url(scheme, "nothing/here");
        let got = run(&[&["get", "--ca", gateway.ca(), &url], flags].concat());
        assert_eq!((got.code, got.stdout.as_str()), (69, ""), "{scheme} {flags:?}: {}", got.stderr);
    }
    assert_eq!(gateway.stop(), 0);
}

#[test]
fn every_door_follows_a_filter_and_ends_after_the_count() {
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(directory.path(), &[]);
    for (index, (scheme, flags)) in SCHEMES.iter().enumerate() {
        // The retained message of the other topic says that the subscription stands.
        let kept = gateway.url("http", &format!("follow/{index}/kept"));
        assert_eq!(run(&["pub", "-r", &kept, "here"]).code, 0);
        let filter = gateway.url(scheme, &format!("follow/{index}/+"));
        let follow = [&["sub", "-n", "2", "--timeout", "30", "--ca", gateway.ca(), &filter], *flags].concat();
        let mut child = fogmux(&follow).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        let first = lines.next().unwrap().unwrap();
        assert_eq!(first, format!("follow/{index}/kept here"), "{scheme} {flags:?}");
        assert_eq!(run(&["pub", &gateway.url("http", &format!("follow/{index}/new")), "news"]).code, 0);
        assert_eq!(lines.next().unwrap().unwrap(), format!("follow/{index}/new news"), "{scheme} {flags:?}");
        assert!(child.wait().unwrap().success(), "{scheme} {flags:?}");
    }
    assert_eq!(gateway.stop(), 0);
}

#[test]
fn a_wrong_password_is_no_permission_at_every_door_that_takes_one() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    assert_eq!(run_with(&["passwd", "--data", data, "alice"], "right\n").code, 0);
    let gateway = Gateway::start(directory.path(), &[]);
    for (scheme, flags) in SCHEMES.iter().filter(|(scheme, _)| !scheme.starts_with("coap")) {
        let url = gateway.url(scheme, "t");
        for (password, code) in [("right", 0), ("wrong", 77)] {
            let done =
                run(&[&["pub", "-u", "alice", "-P", password, "--ca", gateway.ca(), &url, "x"], *flags].concat());
            assert_eq!(done.code, code, "{scheme} {flags:?} {password}: {}", done.stderr);
        }
    }
    assert_eq!(gateway.stop(), 0);
}

#[test]
fn tls_without_the_authority_is_refused_and_insecure_says_so_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(directory.path(), &[]);
    for scheme in ["mqtts", "wss", "coaps", "coaps+tcp", "coaps+ws", "https", "xmpp", "xmpps"] {
        let url = gateway.url(scheme, "t");
        let done = run(&["pub", &url, "x"]);
        assert_eq!(done.code, 69, "{scheme}");
        assert!(done.stderr.contains("--ca"), "{scheme}: {}", done.stderr);
        assert_eq!(run(&["pub", "--insecure", &url, "x"]).code, 0, "{scheme}");
    }
    assert_eq!(gateway.stop(), 0);
}

#[test]
fn the_demonstration_succeeds() {
    let done = run(&["demo", "--json", "--timeout", "30"]);
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    let table: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((table["ok"].as_bool(), table["cells"].as_array().unwrap().len()), (Some(true), 81));
}

#[test]
fn who_follows_is_told_when_the_gateway_stops() {
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(directory.path(), &[]);
    assert_eq!(run(&["pub", "-r", &gateway.url("http", "here"), "x"]).code, 0);
    // CoAP has no word for it.
    let doors = SCHEMES.iter().filter(|(scheme, _)| !scheme.starts_with("coap"));
    let followers: Vec<_> = doors
        .map(|(scheme, flags)| {
            let url = gateway.url(scheme, "#");
            let arguments = [&["sub", "--ca", gateway.ca(), &url], *flags].concat();
            let mut child = fogmux(&arguments)
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
            std::io::BufRead::read_line(&mut out, &mut line).unwrap();
            assert_eq!(line, "here x\n", "{scheme} {flags:?}");
            (scheme, flags, child, out)
        })
        .collect();
    assert_eq!(gateway.stop(), 0);
    for (scheme, flags, child, _out) in followers {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(69), "{scheme} {flags:?}: {said}");
        let farewell = ["hutting down", "ended the stream", "closed the connection"];
        assert!(farewell.iter().any(|word| said.contains(word)), "{scheme} {flags:?}: {said}");
    }
}
