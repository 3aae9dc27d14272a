//! Links to other brokers that lead nowhere else, and gateways that nobody reaches.

use std::fs;

use crate::support::{Gateway, run};

#[test]
fn a_gateway_without_listeners_needs_a_link_and_says_that_nobody_reaches_it() {
    let home = tempfile::tempdir().expect("a directory");
    let (file, data) = (home.path().join("fogmux.toml"), home.path().join("data"));
    let closed = "[listeners.defaults]\nenabled = false\n";
    fs::write(&file, closed).expect("written");
    let [named, at] = [&file, &data].map(|path| path.to_str().expect("a plain path"));
    for (words, code) in [(&["check", named, "--data", at][..], 78), (&["doctor", "--config", named, "--data", at], 78)]
    {
        let done = run(words);
        assert_eq!(done.code, code, "{words:?}: {}{}", done.stdout, done.stderr);
        assert!(done.stdout.contains("no listener is enabled and there is no link"), "{}", done.stdout);
    }
    assert_eq!(run(&["serve", "-c", named, "--data", at]).code, 78);
    // Nobody listens at that port.
    let link = "[links.north]\nurl = \"mqtt://127.0.0.1:9\"\nout = [{ filter = \"#\" }]\n";
    fs::write(&file, format!("{closed}{link}")).expect("written");
    let said = "listeners: none is enabled";
    let done = run(&["check", named, "--data", at]);
    assert!(done.code == 0 && done.stdout.contains(said), "{}{}", done.stdout, done.stderr);
    let gateway = Gateway::start_at(&data, &["-c", named]);
    gateway.wait_for_log(said);
    assert!(run(&["doctor", "--config", named, "--data", at]).stdout.contains(said));
    assert_eq!(gateway.stop(), 0);
}
