//! Several listeners of a kind, several addresses of a listener, and listeners that open after the start.

use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::suite::Case;
use fogmux_tests::tcp::PATIENCE;
use fogmux_tests::{coap, tcp, users};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const NAMED: Case =
    Case { name: "operation: listeners of one kind have credentials of their own", run: named };
pub(crate) const ADDRESSES: Case =
    Case { name: "operation: each address of a listener admits anonymous clients by itself", run: addresses };
pub(crate) const LATER: Case =
    Case { name: "operation: a listener whose port is taken at the start opens when it is free", run: later };
pub(crate) const DUAL: Case =
    Case { name: "operation: [::] is reached over IPv4 with dual_stack only", run: dual_stack };
pub(crate) const OSCORE: Case = Case { name: "operation: a listener for OSCORE answers nothing else", run: oscore };

const KEY: [u8; 16] = [0x5a; 16];
const IDENTITY: &str = "dev";

/// Publishes with mosquitto by version 5 at QoS 1; whether it was taken.
fn mosquitto(host: &str, port: u16, more: &[&str]) -> Result<bool> {
    let port = port.to_string();
    let mut client = Command::new("mosquitto_pub");
    client.args(["-V", "5", "-q", "1", "-h", host, "-p", &port, "-t", "a", "-m", "x"]).args(more);
    let output = client.output().context("mosquitto_pub, of the package mosquitto-clients")?;
    Ok(output.status.success() && output.stderr.is_empty())
}

fn named() -> Result<String> {
    let text = "[listeners.defaults]\nanonymous = false\n[listeners.http]\nanonymous = true\n\
                [listeners.mqtts_psk]\nkind = \"mqtts\"\naddress = \"127.0.0.1:0\"\nprofile = \"psk\"\n";
    let (users, keys) = (users::file(&["alice"]), users::key_file(IDENTITY, &KEY));
    let files = [("users.toml", &*users), ("psk.toml", &*keys)];
    let mut gateway = Gateway::start_as(Plan { configuration: Some(text), files: &files, ..Plan::default() })?;
    let made = Command::new(std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?)
        .args(["pki", "client", "alice", "--data"])
        .arg(gateway.data())
        .output()?;
    ensure!(made.status.success(), "pki client: {}", String::from_utf8_lossy(&made.stderr));
    let file = |name: &str| gateway.data().join("pki/clients").join(name).display().to_string();
    let (certificate, secret, ca) = (file("alice.pem"), file("alice.key"), gateway.ca().display().to_string());
    let hex: String = KEY.iter().map(|byte| format!("{byte:02x}")).collect();
    let by_key = ["--psk", &*hex, "--psk-identity", IDENTITY];
    let by_password = ["--cafile", &*ca, "-u", "alice", "-P", users::PASSWORD];
    let by_certificate = ["--cafile", &*ca, "--cert", &*certificate, "--key", &*secret];
    let (plain, psk) = (gateway.address("mqtts")?.port(), gateway.address("mqtts_psk")?.port());
    ensure!(plain != psk, "one port for both");
    for (what, with, own, other) in [
        ("a key", &by_key[..], psk, plain),
        ("a password", &by_password[..], plain, psk),
        ("a certificate", &by_certificate[..], plain, psk),
    ] {
        ensure!(mosquitto("localhost", own, with)?, "{what} was refused at its own listener");
        ensure!(!mosquitto("localhost", other, with)?, "{what} was taken at the other listener");
    }
    ensure!(!mosquitto("localhost", plain, &["--cafile", &ca])?, "nobody in particular was admitted");
    gateway.settle()?;
    Ok("mosquitto by a key, a password and a certificate".to_owned())
}

/// The entries of `GET /api/v1/listeners` for one name: address, and whether it is open.
fn listed(http: std::net::SocketAddr, name: &str) -> Result<Vec<(std::net::SocketAddr, bool)>> {
    let request = "GET /api/v1/listeners HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answer = tcp::ask(http, request.as_bytes())?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let document: Value = serde_json::from_str(text.split("\r\n\r\n").nth(1).context("no body")?)?;
    let entries = document.get("listeners").and_then(Value::as_array).context("no list")?;
    let of_name = entries.iter().filter(|entry| entry.get("listener").and_then(Value::as_str) == Some(name));
    of_name
        .map(|entry| {
            let address = entry.get("address").and_then(Value::as_str).context("no address")?;
            Ok((address.parse()?, entry.get("open").and_then(Value::as_bool).context("open or not")?))
        })
        .collect()
}

fn addresses() -> Result<String> {
    let with = |more: &str| {
        let list = "address = [\"127.0.0.1:0\", \"127.0.0.2:0\", \"[::1]:0\", \"0.0.0.0:0\"]";
        format!("[listeners.lan]\nkind = \"mqtt\"\n{list}\nallow_plaintext = true\n{more}")
    };
    let mut gateway = Gateway::start_configured(&with(""))?;
    let at = listed(gateway.address("http")?, "lan")?;
    ensure!(at.len() == 4 && at.iter().all(|(_, open)| *open), "{at:?}");
    let admitted = || -> Result<Vec<bool>> {
        let host = |ip: std::net::IpAddr| if ip.is_unspecified() { "127.0.0.1".to_owned() } else { ip.to_string() };
        at.iter().map(|(address, _)| mosquitto(&host(address.ip()), address.port(), &[])).collect()
    };
    let reload = |text: &str| -> Result<Vec<bool>> {
        gateway.configure(text)?;
        gateway.forget_log()?;
        gateway.signal(Signal::HUP)?;
        gateway.wait_log("are read again", PATIENCE)?;
        admitted()
    };
    let (loopback, none) = (vec![true, true, true, false], vec![false; 4]);
    let seen = admitted()?;
    ensure!(seen == loopback, "{seen:?} at {at:?}");
    // A file without the listener, one that has it elsewhere, and one with another kind open nothing.
    for (what, text, expected) in [
        ("closed", with("anonymous = false\n"), &none),
        ("opened", with(""), &loopback),
        ("without the listener", "[workers]\n".to_owned(), &none),
        ("open elsewhere", "[listeners.lan]\nkind = \"mqtt\"\naddress = \"127.0.0.3:0\"\n".to_owned(), &none),
        ("another kind", with("").replace("\"mqtt\"", "\"http\""), &none),
        ("back", with(""), &loopback),
    ] {
        let seen = reload(&text)?;
        ensure!(seen == *expected, "{what}: {seen:?} at {at:?}");
    }
    gateway.settle()?;
    Ok("127.0.0.1, 127.0.0.2, ::1, 0.0.0.0".to_owned())
}

/// A gateway on the ports that its file names, with its banner.
fn serve(home: &Path, text: &str) -> Result<(Child, Value)> {
    serve_by(Command::new(std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?), home, text)
}

/// The same by a command that has the program as its last word.
pub(super) fn serve_by(mut command: Command, home: &Path, text: &str) -> Result<(Child, Value)> {
    let file = home.join("fogmux.toml");
    std::fs::write(&file, text)?;
    let mut gateway = command
        .args(["serve", "--json", "-c"])
        .arg(file)
        .arg("--data")
        .arg(home.join("data"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(home.join("log"))?)
        .spawn()?;
    let mut line = String::new();
    BufReader::new(gateway.stdout.take().context("no output")?).read_line(&mut line)?;
    let banner = serde_json::from_str(&line).with_context(|| {
        // Without a log there is nothing more to say.
        std::fs::read_to_string(home.join("log")).unwrap_or_default()
    });
    Ok((gateway, banner?))
}

fn ready(http: std::net::SocketAddr) -> Result<String> {
    let answer = tcp::ask(http, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    ensure!(text.starts_with("HTTP/1.1 200"), "{text}");
    Ok(text.split("\r\n\r\n").nth(1).context("no body")?.to_owned())
}

fn later() -> Result<String> {
    let home = tempfile::tempdir()?;
    let (tcp_holder, udp_holder) = (TcpListener::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    let (mqtt, udp) = (tcp_holder.local_addr()?, udp_holder.local_addr()?);
    let http = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let section = |name: &str, address| format!("[listeners.{name}]\nenabled = true\naddress = \"{address}\"\n");
    let text = ["[listeners.defaults]\nenabled = false\n".to_owned()]
        .into_iter()
        .chain([section("mqtt", mqtt), section("coap", udp), section("http", http)])
        .collect::<String>();
    let (mut gateway, banner) = serve(home.path(), &text)?;
    let outcome = opens(home.path(), &banner, http, (tcp_holder, udp_holder));
    kill_process(Pid::from_child(&gateway), Signal::TERM)?;
    let status = gateway.wait()?;
    outcome?;
    ensure!(status.success(), "{status}");
    Ok("MQTT and CoAP".to_owned())
}

fn opens(
    home: &Path,
    banner: &Value,
    http: std::net::SocketAddr,
    (tcp_holder, udp_holder): (TcpListener, UdpSocket),
) -> Result<()> {
    let (mqtt, udp) = (tcp_holder.local_addr()?, udp_holder.local_addr()?);
    let open = banner.get("listeners").and_then(Value::as_object).context("listeners")?;
    ensure!(open.keys().collect::<Vec<_>>() == ["http"], "{banner}");
    let shut = banner.get("not_open").and_then(Value::as_array).context("not_open")?;
    ensure!(shut.len() == 2, "{banner}");
    let said = ready(http)?;
    for (name, address) in [("mqtt", mqtt), ("coap", udp)] {
        ensure!(said.contains(&format!("listeners.{name}: {address} is not open")), "{said}");
        ensure!(listed(http, name)? == [(address, false)], "{name} in the list of listeners");
    }
    let metric = |value: u8| -> Result<()> {
        let answer = tcp::ask(http, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let text = String::from_utf8_lossy(&answer).into_owned();
        let sample = format!("fogmux_listener_open{{listener=\"mqtt\",address=\"{mqtt}\"}} {value}");
        ensure!(text.contains(&sample), "no {sample}");
        Ok(())
    };
    metric(0)?;
    let doctor = Command::new(std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?)
        .args(["doctor", "--config"])
        .arg(home.join("fogmux.toml"))
        .arg("--data")
        .arg(home.join("data"))
        .output()?;
    let found = String::from_utf8_lossy(&doctor.stdout);
    for what in ["listener-not-open", "listener-port"] {
        ensure!(found.lines().filter(|line| line.contains(what)).count() == 2, "{what}:\n{found}");
    }
    drop((tcp_holder, udp_holder));
    let began = Instant::now();
    while ready(http)? != "ready\n" {
        ensure!(began.elapsed() < PATIENCE, "{}", ready(http)?);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    ensure!(mosquitto("127.0.0.1", mqtt.port(), &[])?, "mosquitto was refused");
    // No worker is left out: the kernel chooses one by the port of the client.
    for message in 0..16 {
        let put = coap::request(coap::CON, coap::PUT, message, &[7], "a", &[], b"x");
        let answer = coap::dotted(&coap::exchange(&coap::endpoint(udp)?, &put, &[7])?);
        ensure!(answer.starts_with("2."), "{answer}");
    }
    metric(1)?;
    let log = std::fs::read_to_string(home.join("log"))?;
    for (line, count) in [("cannot be opened; it is tried again", 2), ("this address is open now", 2)] {
        let found = log.lines().filter(|found| found.contains(line)).count();
        ensure!(found == count, "{found} times {line:?}:\n{log}");
    }
    Ok(())
}

/// A port that is free for both protocols and both families; `[::]` without IPV6_V6ONLY takes IPv4 too.
fn free_port() -> Result<u16> {
    for _ in 0..100 {
        let tcp = TcpListener::bind("[::]:0")?;
        let port = tcp.local_addr()?.port();
        if UdpSocket::bind(("::", port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no port is free for TCP and UDP")
}

/// Whether MQTT and CoAP answer at a port of an address.
fn answers(host: &str, port: u16) -> Result<[bool; 2]> {
    let address = std::net::SocketAddr::new(host.parse()?, port);
    let get = coap::request(coap::CON, coap::GET, 1, &[7], "a", &[], b"");
    // An unreachable port is told by ICMP.
    let socket = UdpSocket::bind((if address.is_ipv4() { "127.0.0.1" } else { "::1" }, 0))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect(address)?;
    let answer = coap::exchange(&socket, &get, &[7]);
    Ok([mosquitto(host, port, &[])?, answer.is_ok_and(|answer| coap::dotted(&answer).starts_with("4.04"))])
}

fn dual_stack() -> Result<String> {
    for (line, by_v4) in [("dual_stack = true\n", [true; 2]), ("", [false; 2])] {
        let (home, port) = (tempfile::tempdir()?, free_port()?);
        let http = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let open = |name: &str| {
            format!(
                "[listeners.{name}]\nenabled = true\naddress = \"[::]:{port}\"\nallow_plaintext = true\n\
                 allow_remote_anonymous = true\n{line}"
            )
        };
        let text = ["[listeners.defaults]\nenabled = false\n".to_owned(), open("mqtt"), open("coap")].concat()
            + &format!("[listeners.http]\nenabled = true\naddress = \"{http}\"\n");
        std::fs::create_dir(home.path().join("data"))?;
        std::fs::write(home.path().join("data/acl.toml"), "[[allow]]\nanonymous = true\nboth = \"a\"\n")?;
        let (mut gateway, banner) = serve(home.path(), &text)?;
        let seen = answers("127.0.0.1", port).and_then(|v4| Ok((v4, answers("::1", port)?)));
        kill_process(Pid::from_child(&gateway), Signal::TERM)?;
        ensure!(gateway.wait()?.success(), "the gateway failed");
        let seen = seen?;
        ensure!(seen == (by_v4, [true; 2]), "{line:?}: {seen:?} by IPv4 and IPv6: {banner}");
    }
    Ok("MQTT and CoAP".to_owned())
}

fn oscore() -> Result<String> {
    let home = tempfile::tempdir()?;
    let (data, device) = (home.path().join("data"), home.path().join("device.toml"));
    std::fs::create_dir(&data)?;
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    let fogmux = |arguments: &[&str]| -> Result<i32> {
        let output = Command::new(&binary).args(arguments).output()?;
        output.status.code().context("killed")
    };
    let [data_text, device_text] = [&data, &device].map(|path| path.display().to_string());
    ensure!(fogmux(&["pki", "oscore", "dev1", "--data", &data_text, "--out", &device_text])? == 0, "pki oscore");
    let section = |name: &str| format!("[listeners.{name}]\naddress = \"0.0.0.0:0\"\nauth = [\"oscore\"]\n");
    let text = section("coap") + &section("coap_tcp");
    let plan = Plan { data: Some(&data), configuration: Some(&text), ..Plan::default() };
    let mut gateway = Gateway::start_as(plan)?;
    let (udp, stream) = (gateway.address("coap")?.port(), gateway.address("coap_tcp")?.port());
    for base in [format!("coap://127.0.0.1:{udp}"), format!("coap+tcp://127.0.0.1:{stream}")] {
        let url = format!("{base}/open/a");
        ensure!(fogmux(&["pub", &url, "x", "--retain", "--oscore", &device_text])? == 0, "{url} with OSCORE");
        ensure!(fogmux(&["get", &url, "--oscore", &device_text])? == 0, "{url} with OSCORE");
        for path in [".well-known/core", "ps", "ps/open/a", "nothing/here"] {
            let mut client = Command::new("coap-client-openssl");
            let output = client.args(["-B", "10", "-m", "get", &format!("{base}/{path}")]).output()?;
            let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            ensure!(said.trim() == "4.01", "{base}/{path} without OSCORE: {said:?}");
        }
    }
    unprotected_blocks(&gateway)?;
    // Everything else on it stays closed by the check of the configuration.
    for more in ["allow_remote_anonymous = true\n", "auth = [\"oscore\", \"psk\"]\n"] {
        let file = home.path().join("open.toml");
        let text = section("coap").replace(if more.starts_with("auth") { "auth = [\"oscore\"]\n" } else { "!" }, "");
        std::fs::write(&file, text + more)?;
        let code = fogmux(&["check", &file.display().to_string()])?;
        ensure!(code == 78, "{more}: {code}");
    }
    gateway.settle()?;
    Ok("UDP, TCP".to_owned())
}

/// The first of several blocks, which is refused where it would be kept.
fn unprotected_blocks(gateway: &Gateway) -> Result<()> {
    let path = (coap::URI_PATH, &b"a"[..]);
    let options = [path, (coap::BLOCK1, &[0x0e][..])];
    let udp = std::net::SocketAddr::from(([127, 0, 0, 1], gateway.address("coap")?.port()));
    let request = coap::message(coap::CON, coap::PUT, 1, &[7], &options, &[b'x'; 1024]);
    let answer = coap::dotted(&coap::exchange(&coap::endpoint(udp)?, &request, &[7])?);
    ensure!(answer == "4.01", "the first block by UDP: {answer}");
    let tcp = std::net::SocketAddr::from(([127, 0, 0, 1], gateway.address("coap_tcp")?.port()));
    let mut stream = coap::Line::open(tcp)?;
    stream.send(coap::PUT, &[7], &options, &[b'x'; 1024])?;
    let answer = loop {
        let message = stream.next(PATIENCE)?.context("no answer")?;
        if message.token == [7] {
            break message.code;
        }
    };
    ensure!(answer == 0x81, "the first block by TCP: {answer:#x}");
    let kept = gateway.metrics()?.get("fogmux_coap_uploads_bytes").copied();
    ensure!(kept == Some(0.0), "{kept:?} bytes are kept");
    Ok(())
}
