//! Addresses, origins and hosts of the configuration, which may be written in several ways: what is accepted is
//! compared in the form in which peers have it, and what could match nobody is refused.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use fogmux_tests::{tcp, users};

pub(crate) const CASES: &[Case] = &[
    Case { name: "spelling: an IPv4-mapped network names the proxies of IPv4", run: proxies },
    Case { name: "spelling: an origin is the one that browsers send", run: origins },
    Case { name: "spelling: what could match nobody is refused", run: refused },
];

fn proxies() -> Result<String> {
    for address in ["127.0.0.1", "127.0.0.0/8", "::ffff:127.0.0.1", "::ffff:127.0.0.0/104"] {
        let setting = format!("proxy.addresses=[\"{address}\"]");
        let gateway = Gateway::start_furnished(&[&setting], &[("users.toml", &users::file(&["dev"]))])?;
        // A request from a named proxy is never local, so nobody is anonymous.
        let status = users::http(gateway.address("http")?, "", "PUT", "/topics/t", b"x")?;
        ensure!(status == 401, "{address}: an anonymous PUT through the proxy is answered {status}");
    }
    Ok(String::new())
}

fn origins() -> Result<String> {
    for (written, sent) in [
        ("https://app.example", "https://app.example"),
        ("https://App.Example", "https://app.example"),
        ("https://app.example:443", "https://app.example"),
        ("http://app.example:80", "http://app.example"),
        ("http://app.example:8080", "http://app.example:8080"),
        ("http://[FE80:0::1]:80", "http://[fe80::1]"),
    ] {
        let mut gateway = Gateway::start(&[&format!("http.origins=[\"{written}\"]")])?;
        let http = gateway.address("http")?;
        let status = users::http_with(http, &format!("Origin: {sent}\r\n"), "PUT", "/topics/t", b"x")?;
        ensure!(status == 201, "{written}: a PUT of {sent} is answered {status}");
        let request =
            format!("GET /topics/t HTTP/1.1\r\nHost: localhost\r\nOrigin: {sent}\r\nConnection: close\r\n\r\n");
        let answer = String::from_utf8(tcp::ask(http, request.as_bytes())?)?;
        let named = format!("access-control-allow-origin: {sent}\r\n");
        ensure!(answer.to_ascii_lowercase().contains(&named), "{written}: {answer}");
        let status = users::http_with(http, "Origin: https://evil.example\r\n", "PUT", "/topics/t", b"x")?;
        ensure!(status == 403, "{written}: a PUT of a foreign page is answered {status}");
        gateway.check_alive()?;
    }
    Ok(String::new())
}

fn refused() -> Result<String> {
    let home = tempfile::tempdir()?;
    let file = home.path().join("checked.toml");
    let check = |text: &str| -> Result<(Option<i32>, String)> {
        std::fs::write(&file, text)?;
        let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
        let out = Command::new(binary).arg("check").arg(&file).output()?;
        Ok((out.status.code(), String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned()))
    };
    for (text, accepted) in [
        ("[http]\nhosts = [\"gw.lan:8080\"]", "\"fog.example\", without a port"),
        ("[http]\norigins = [\"https://app.example/\"]", "\"https://panel.example\""),
        ("[http]\norigins = [\"https://a:b:c\"]", "\"https://panel.example\""),
        ("[http]\norigins = [\"https://app.example:70000\"]", "\"https://panel.example\""),
        ("[proxy]\naddresses = [\"::ffff:10.0.0.0/8\"]", "\"192.0.2.0/24\""),
    ] {
        let (code, said) = check(text)?;
        ensure!(code == Some(78) && said.contains(accepted), "{text}: {code:?} {said}");
    }
    for text in
        ["[http]\nhosts = [\"GW.Lan\", \"[::1]\", \"10.0.0.1\"]", "[proxy]\naddresses = [\"::ffff:10.0.0.0/104\"]"]
    {
        let (code, said) = check(text)?;
        ensure!(code == Some(0), "{text}: {code:?} {said}");
    }
    Ok(String::new())
}
