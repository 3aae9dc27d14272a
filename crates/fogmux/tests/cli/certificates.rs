//! Certificates that expire, and files that are no certificates: what `check` refuses, and what a running gateway says.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fogmux_net::KeyKind;
use fogmux_net::pki::{Authority, Purpose, Wanted};

use crate::support::{Done, Gateway, run};

const DAY: Duration = Duration::from_secs(86_400);

/// A certificate for localhost, its key, and a configuration that names them.
struct Files {
    directory: tempfile::TempDir,
    authority: Authority,
}

impl Files {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let authority = Authority::open_or_make(&directory.path().join("ca"), SystemTime::now()).expect("an authority");
        Self { directory, authority }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.at(name).to_str().expect("a plain path").to_owned()
    }

    /// Issues a certificate that was made so many and a half days ago and was to be valid for so many days; gives its
    /// last second.
    fn issue(&self, days_ago: u32, days: u32) -> u64 {
        let made = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970") - DAY * days_ago - DAY / 2;
        let names = vec!["localhost".try_into().expect("a name")];
        let wanted = Wanted { names, validity: DAY * days, ..Wanted::new(Purpose::Server, "gateway") };
        let issued = self.authority.issue(&wanted, KeyKind::EcdsaP256, made).expect("issued");
        for file in ["server.pem", "server.key"] {
            let _ = fs::remove_file(self.at(file));
        }
        issued.write(&self.at("server.pem"), &self.at("server.key")).expect("written");
        (made + DAY * days).as_secs()
    }

    /// Checks a configuration with the certificate, and more keys of `[tls]`.
    fn check(&self, more: &str) -> Done {
        let [certificate, key, file] = ["server.pem", "server.key", "fogmux.toml"].map(|name| self.text(name));
        let text = format!("[tls]\ncertificate_file = \"{certificate}\"\nkey_file = \"{key}\"\n{more}");
        fs::write(&file, text).expect("written");
        run(&["check", &file])
    }

    fn openssl(&self, arguments: &[&str]) {
        let output = Command::new("openssl").current_dir(self.directory.path()).args(arguments).output();
        let output = output.expect("openssl is installed");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn check_refuses_an_expired_certificate_and_warns_of_one_that_soon_does() {
    let files = Files::new();
    for (days_ago, days, code, said) in [
        (10, 100, 0, None),
        (
            10,
            30,
            0,
            Some("warning: tls.certificate_file: FILE: the certificate O=fogmux, CN=gateway expires in 19 days"),
        ),
        (10, 12, 0, Some("warning: tls.certificate_file: FILE: the certificate O=fogmux, CN=gateway expires in 1 day")),
        (10, 5, 78, Some("FILE: tls.certificate_file: the certificate O=fogmux, CN=gateway expired 5 days ago")),
    ] {
        files.issue(days_ago, days);
        let done = files.check("");
        let name = files.text("server.pem");
        assert_eq!(done.code, code, "{days}: {}{}", done.stdout, done.stderr);
        match said {
            Some(said) => assert!(done.stdout.contains(&said.replace("FILE", &name)), "{days}: {}", done.stdout),
            None => assert!(!done.stdout.contains(&name), "{}", done.stdout),
        }
    }
    // A gateway goes on with it, so a reload is not refused for it.
    let done = run(&["check", "--reload", &files.text("fogmux.toml")]);
    let said = "warning: FILE: tls.certificate_file: the certificate O=fogmux, CN=gateway expired 5 days ago";
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains(&said.replace("FILE", &files.text("server.pem"))), "{}", done.stdout);
    let json = run(&["check", "--json", &files.text("fogmux.toml")]).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json.pointer("/problems/0/file").and_then(|file| file.as_str()), Some(&*files.text("server.pem")));
}

#[test]
fn check_says_that_a_revocation_list_has_expired() {
    let files = Files::new();
    files.issue(0, 100);
    fs::write(files.at("index"), "").expect("written");
    fs::write(files.at("number"), "01\n").expect("written");
    let settings = "[ca]\ndefault_ca = a\n[a]\ndatabase = index\ndefault_md = sha256\n";
    fs::write(files.at("ca.cnf"), settings).expect("written");
    let sign = ["ca", "-gencrl", "-config", "ca.cnf", "-cert", "ca/ca.pem", "-keyfile", "ca/ca.key", "-out", "crl.pem"];
    let dates = ["-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", "20200201000000Z"];
    let sign = || files.openssl(&[&sign[..], &dates[..]].concat());
    sign();
    let trust = format!("client_ca_file = \"{}\"\ncrl_file = \"{}\"\n", files.text("ca/ca.pem"), files.text("crl.pem"));
    let done = files.check(&trust);
    assert_eq!(done.code, 78, "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("is of version 1 or has no number"), "{}", done.stdout);

    fs::write(files.at("ca.cnf"), format!("{settings}crlnumber = number\n")).expect("written");
    sign();
    for (policy, code) in [("warn", 0), ("refuse", 78)] {
        let done = files.check(&format!("{trust}crl_expiry = \"{policy}\"\n"));
        assert_eq!(done.code, code, "{}{}", done.stdout, done.stderr);
        let said =
            done.stdout.lines().find(|line| line.contains("the revocation list has expired")).unwrap_or_default();
        assert!(said.contains("tls.crl_file") && said.contains(&files.text("crl.pem")), "{}", done.stdout);
    }
}

#[test]
fn check_names_the_file_and_what_is_wrong_with_it() {
    let files = Files::new();
    files.issue(0, 100);
    let [certificate, key] = ["server.pem", "server.key"].map(|name| fs::read(files.at(name)).expect("read"));
    let curve = ["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "other.key"];
    files.openssl(&curve);
    files.openssl(&["req", "-new", "-key", "other.key", "-subj", "/CN=old", "-out", "old.csr"]);
    files.openssl(&["x509", "-req", "-in", "old.csr", "-signkey", "other.key", "-days", "90", "-out", "old.pem"]);
    files.openssl(&["pkcs8", "-topk8", "-in", "server.key", "-passout", "pass:secret", "-out", "encrypted.key"]);
    files.openssl(&["x509", "-in", "server.pem", "-outform", "DER", "-out", "server.der"]);
    files.openssl(&["genrsa", "-out", "short.key", "1024"]);
    let read = |name: &str| fs::read(files.at(name)).expect("read");
    let half = certificate.get(..certificate.len() / 2).expect("half").to_vec();
    let cases = [
        ("half of it", half, key.clone(), "tls.certificate_file", "-----END CERTIFICATE----- is missing"),
        ("version 1", read("old.pem"), read("other.key"), "tls.certificate_file", "X.509 version 1"),
        ("DER", read("server.der"), key.clone(), "tls.certificate_file", "it is DER, and PEM is needed"),
        ("swapped", key.clone(), certificate.clone(), "tls.certificate_file", "but: PRIVATE KEY"),
        ("empty", Vec::new(), key.clone(), "tls.certificate_file", "the file is empty"),
        ("another key", certificate.clone(), read("other.key"), "tls.certificate_file", "that of another certificate"),
        ("encrypted", certificate.clone(), read("encrypted.key"), "tls.key_file", "the private key is encrypted"),
        ("no key", certificate.clone(), certificate.clone(), "tls.key_file", "no private key in it, but: CERTIFICATE"),
        ("1024 bits", certificate.clone(), read("short.key"), "tls.key_file", "a kind that cannot be used"),
    ];
    for (case, certificate, key, setting, said) in cases {
        fs::write(files.at("server.pem"), certificate).expect("written");
        fs::write(files.at("server.key"), key).expect("written");
        let done = files.check("");
        assert_eq!(done.code, 78, "{case}: {}{}", done.stdout, done.stderr);
        let file = files.text(if setting == "tls.key_file" { "server.key" } else { "server.pem" });
        assert!(done.stdout.starts_with(&format!("{file}: {setting}: ")), "{case}: {}", done.stdout);
        assert!(done.stdout.contains(said), "{case}: {}", done.stdout);
        for inner in ["UnsupportedCertVersion", "KeyMismatch", "[67"] {
            assert!(!done.stdout.contains(inner), "{case}: {}", done.stdout);
        }
    }
}

#[test]
fn a_running_gateway_warns_of_its_certificate_and_shows_its_date() {
    let files = Files::new();
    let end = files.issue(10, 15);
    assert_eq!(files.check("").code, 0);
    let gateway = Gateway::start(&files.at("data"), &["-c", &files.text("fogmux.toml")]);
    let said = format!("{}: the certificate O=fogmux, CN=gateway ", files.text("server.pem"));
    gateway.wait_for_log(&format!("{said}expires in 4 days"));
    let shown = |listener: &str| not_after(gateway.address("http"), listener);
    for listener in ["mqtts", "coaps", "coaps_tcp", "https", "http3", "xmpp", "xmpps"] {
        assert_eq!(shown(listener), Some(end), "{listener}");
    }
    assert_eq!(shown("mqtt"), None);

    // One that has expired already takes its place: it is said, and shown.
    let end = files.issue(10, 8);
    gateway.wait_for_log(&format!("{said}expired 2 days ago"));
    assert_eq!(shown("https"), Some(end));
    let end = files.issue(0, 365);
    gateway.wait_for_log_times("certificates and revocations are read again", 2);
    assert_eq!(shown("https"), Some(end));
    assert_eq!(gateway.log().matches("clients do not accept it beyond its dates").count(), 2, "{}", gateway.log());
    assert_eq!(gateway.stop(), 0);
}

#[test]
fn a_running_gateway_renews_its_own_certificate() {
    let directory = tempfile::tempdir().expect("a directory");
    let gateway = Gateway::start(directory.path(), &[]);
    let pki = directory.path().join("pki");
    let authority = Authority::open(&pki).expect("the gateway's own");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let names = vec!["localhost".try_into().expect("a name")];
    let short = Wanted { names, validity: DAY * 20, ..Wanted::new(Purpose::Server, "fogmux gateway") };
    let short = authority.issue(&short, KeyKind::EcdsaP256, now).expect("issued");
    short.write(&pki.join("server.pem"), &pki.join("server.key")).expect("written");
    // As if it had run for so long.
    gateway.wait_for_log_times("certificates and revocations are read again", 2);
    gateway.wait_for_log("was missing, damaged or about to expire, and was made anew");
    let end = not_after(gateway.address("http"), "https").expect("a date");
    assert!(end > (now + DAY * 800).as_secs(), "{end}");
    let log = gateway.log();
    assert!(!log.contains("expires in"), "nobody has to do anything: {log}");
    let done = run(&["get", "--ca", gateway.ca(), &gateway.url("https", "$SYS/broker/version")]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(gateway.stop(), 0);
}

/// No verifier says so: the dates of a trust anchor are no part of a path (RFC 5280 §6.1).
#[test]
fn an_authority_that_has_expired_is_told_and_what_it_has_signed_is_accepted() {
    let files = Files::new();
    let (data, config) = (files.text("data"), files.text("fogmux.toml"));
    fs::write(&config, "").expect("written");
    assert_eq!(Gateway::start(&files.at("data"), &[]).stop(), 0);
    let pump = files.text("pump");
    assert_eq!(run(&["pki", "client", "pump", "--data", &data, "--out", &pump]).code, 0);
    // The same authority with other dates.
    let settings = "[ca]\ndefault_ca = a\n[a]\ndatabase = index\ndefault_md = sha256\nnew_certs_dir = .\nrand_serial = yes\n\
                    policy = p\nx509_extensions = v\n[p]\norganizationName = supplied\ncommonName = supplied\n[v]\n\
                    basicConstraints = critical,CA:true,pathlen:0\nkeyUsage = critical,keyCertSign,cRLSign\n";
    fs::write(files.at("ca.cnf"), settings).expect("written");
    fs::write(files.at("index"), "").expect("written");
    let [ca, key] = ["data/pki/ca.pem", "data/pki/ca.key"];
    files.openssl(&["x509", "-x509toreq", "-in", ca, "-signkey", key, "-out", "ca.csr"]);
    let sign =
        ["ca", "-selfsign", "-batch", "-notext", "-preserveDN", "-config", "ca.cnf", "-keyfile", key, "-in", "ca.csr"];
    let dates = ["-startdate", "20200101000000Z", "-enddate", "20210101000000Z", "-out", ca];
    files.openssl(&[&sign[..], &dates[..]].concat());

    let check = run(&["check", &config, "--data", &data]);
    assert_eq!(check.code, 0, "{}{}", check.stdout, check.stderr);
    let said = format!("{}: O=fogmux, CN=fogmux authority ", files.text(ca));
    let line = check.stdout.lines().find(|line| line.contains(&said)).unwrap_or_default();
    assert!(line.contains(" expired ") && line.contains("refuse the gateway"), "{}", check.stdout);
    let doctor = run(&["doctor", "--config", &config, "--data", &data]);
    assert_eq!(doctor.code, 69, "{}{}", doctor.stdout, doctor.stderr);
    assert!(
        doctor.stdout.contains(" expired ") && doctor.stdout.contains("fogmux pki rollover begin"),
        "{}",
        doctor.stdout
    );
    let gateway = Gateway::start(&files.at("data"), &["-c", &config]);
    gateway.wait_for_log("the certificate of the clients' authority O=fogmux, CN=fogmux authority ");
    gateway.wait_for_log("beyond its dates the gateway accepts what it has signed");
    let [certificate, key] = ["pem", "key"].map(|ending| format!("{pump}.{ending}"));
    let url = gateway.url("mqtts", "room/1");
    let done = run(&["pub", "--ca", gateway.ca(), "--cert", &certificate, "--key", &key, &url, "x"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(gateway.stop(), 0);
}

/// The date of a listener's certificate as Prometheus reads it.
fn not_after(http: &str, listener: &str) -> Option<u64> {
    let mut stream = TcpStream::connect(http).expect("connected");
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let name = format!("fogmux_certificate_not_after_seconds{{listener=\"{listener}\"}} ");
    answer.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok())
}
