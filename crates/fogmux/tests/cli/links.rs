//! Links to other brokers that lead nowhere else, and gateways that nobody reaches.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::support::{Gateway, run};

/// As a proxy or a translation of addresses does, of which the configuration shows nothing.
#[test]
fn a_link_that_comes_back_to_its_own_gateway_is_refused() {
    let home = tempfile::tempdir().expect("a directory");
    let (file, data) = (home.path().join("fogmux.toml"), home.path().join("data"));
    let proxy = TcpListener::bind("127.0.0.1:0").expect("bound");
    let url = format!("mqtt://{}", proxy.local_addr().expect("an address"));
    let link = format!("[links.north]\nurl = \"{url}\"\nclient_id = \"site1\"\nout = [{{ filter = \"room/#\" }}]\n");
    fs::write(&file, link).expect("written");
    let gateway = Gateway::start(&data, &["-c", file.to_str().expect("a plain path")]);
    let to = gateway.address("mqtt").to_owned();
    thread::spawn(move || {
        while let Ok((near, _)) = proxy.accept() {
            let far = TcpStream::connect(&to)?;
            for (mut from, mut to) in [(near.try_clone()?, far.try_clone()?), (far, near)] {
                thread::spawn(move || io::copy(&mut from, &mut to));
            }
        }
        io::Result::Ok(())
    });
    gateway.wait_for_log("the link leads to the gateway that it is of");
    let log = gateway.log();
    assert!(log.contains("this link is down") && !log.contains("this link is up"), "{log}");
    // Another client with the identifier of the link is let in.
    let client = ["--client-id", "site1"];
    let done = run(&[&["pub"], &client[..], &[&gateway.url("mqtt", "room/1"), "x"]].concat());
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(gateway.stop(), 0);
}

#[test]
fn a_link_to_an_own_listener_is_refused_by_check_and_by_a_start() {
    let home = tempfile::tempdir().expect("a directory");
    let (file, data) = (home.path().join("fogmux.toml"), home.path().join("data"));
    fs::write(&file, "[links.north]\nurl = \"mqtt://localhost\"\nout = [{ filter = \"#\" }]\n").expect("written");
    let [file, data] = [&file, &data].map(|path| path.to_str().expect("a plain path"));
    let done = run(&["check", file, "--data", data]);
    assert!(done.code == 78 && done.stdout.contains("2: links.north.url: "), "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("listeners.mqtt"), "{}", done.stdout);
    assert_eq!(run(&["serve", "-c", file, "--data", data]).code, 78);
}

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
