//! Credentials that are withdrawn while their connections are open, and files that are not there to withdraw them.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::{tcp, users};
use openssl::ssl::{Ssl, SslContext, SslFiletype, SslMethod, SslStream, SslVerifyMode, SslVersion};

use rustix::process::Signal;

use super::{KEY, PATIENCE, TLS_PSK, keys, tls_psk};

pub(super) const READ_AGAIN: &str = "users, rules and keys are read again";

pub(super) fn refused_certificate() -> Result<String> {
    let mut gateway = Gateway::start_furnished(&[], &[("certificates.toml", "# nobody is refused\n")])?;
    let context = client_certificate(&gateway, "dev1")?;
    let mut client = tls(&context, gateway.address("mqtts")?)?;
    ensure!(super::connack(&mut client)? == 0, "CONNACK");
    let mut stream = tls(&context, gateway.address("https")?)?;
    stream.write_all(b"GET /subscribe?filter=a HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    ensure!(head == *b"HTTP/1.1 200", "{}", String::from_utf8_lossy(&head));
    fs::write(gateway.data().join("certificates.toml"), "[[certificate]]\ncommon_name = \"dev1\"\nrefuse = true\n")?;
    gateway.wait_log(READ_AGAIN, PATIENCE)?;
    ends(&mut client).context("MQTT over TLS")?;
    ends(&mut stream).context("server-sent events")?;
    gateway.check_alive()?;
    Ok(String::new())
}

pub(super) fn revoked() -> Result<String> {
    let mut gateway = Gateway::start(&["tls.cut_revoked=true"])?;
    let context = client_certificate(&gateway, "dev1")?;
    let mut client = tls(&context, gateway.address("mqtts")?)?;
    ensure!(super::connack(&mut client)? == 0, "CONNACK");
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    let made = Command::new(binary).args(["pki", "revoke", "dev1", "--data"]).arg(gateway.data()).output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    // Before the gateway has noticed by itself, as `systemctl reload` behind the command.
    gateway.signal(Signal::HUP)?;
    ends(&mut client)?;
    gateway.check_alive()?;
    Ok(String::new())
}

pub(super) fn replaced_key() -> Result<String> {
    let settings = [TLS_PSK, "listeners.coaps_tcp.profile=\"psk\"", "listeners.mqtts.anonymous=false"];
    let mut gateway = Gateway::start_furnished(&settings, &[("psk.toml", &*keys())])?;
    let mut client = tls_psk(gateway.address("mqtts")?, SslVersion::TLS1_3, "dev", KEY)?;
    ensure!(super::connack(&mut client)? == 0, "CONNACK");
    let mut coap = tls_psk(gateway.address("coaps_tcp")?, SslVersion::TLS1_3, "dev", KEY)?;
    // CSM without options (RFC 8323 §5.3).
    coap.write_all(&[0x00, 0xe1])?;
    let before = ask(&mut coap)?;
    ensure!(before == "4.04", "{before} under the first key");
    fs::write(gateway.data().join("psk.toml"), users::key_file("dev", b"another key of 16+"))?;
    gateway.wait_log(READ_AGAIN, PATIENCE)?;
    ends(&mut client).context("MQTT over TLS")?;
    let after = ask(&mut coap)?;
    ensure!(after == "4.01", "{after} on a connection that outlives its key");
    gateway.check_alive()?;
    Ok(String::new())
}

pub(super) fn wills() -> Result<String> {
    let names = ["ada", "eve"];
    let mut gateway = users::gateway(&[], &names, &[])?;
    let address = gateway.address("mqtt")?;
    let (mut reader, ..) = users::Login::of("ada", "reader").connect(address)?;
    reader.subscribe(1, &["#"], 0)?;
    let thief = |client: &'static str| users::Login { will_bytes: 4, ..users::Login::of("eve", client) };
    let (mut now, ..) = thief("now").connect(address)?;
    super::secrets::passwd(&gateway.data(), "eve")?;
    gateway.wait_log(READ_AGAIN, PATIENCE)?;
    ensure!(tcp::read_end(&mut now.stream, PATIENCE)?.is_closed(), "the connection outlives its password");
    gateway.wait_log("a will is not published", PATIENCE)?;
    // Of a client whose credential holds, the will comes, and it is the first message.
    let (lost, ..) = users::Login { will_bytes: 5, ..users::Login::of("ada", "lost") }.connect(address)?;
    drop(lost);
    let (_, body) = reader.read()?;
    ensure!(body.ends_with(&[b'w'; 5]) && !body.ends_with(&[b'w'; 6]), "{body:?}");
    gateway.check_alive()?;
    Ok(String::new())
}

pub(super) fn same_size_and_time() -> Result<String> {
    const RULES: [&str; 2] = [
        "[[allow]]\nuser = \"eve\"\nwrite = [\"door\"]\nread = []\n",
        "[[allow]]\nuser = \"ada\"\nwrite = [\"door\"]\nread = []\n",
    ];
    let [before, after] = RULES;
    let mut gateway = users::gateway(&[], &["ada", "eve"], &[("acl.toml", before)])?;
    let http = gateway.address("http")?;
    let put = |user: &str| users::http(http, user, "PUT", "/topics/door", b"open");
    ensure!(put("eve")? == 204 && put("ada")? == 403);
    let file = gateway.data().join("acl.toml");
    let fresh = gateway.data().join("acl.toml.fresh");
    fs::write(&fresh, after)?;
    File::options().write(true).open(&fresh)?.set_modified(fs::metadata(&file)?.modified()?)?;
    fs::rename(&fresh, &file)?;
    gateway.wait_log(READ_AGAIN, PATIENCE)?;
    ensure!(put("eve")? == 403 && put("ada")? == 204, "the rules of before are in force");
    gateway.check_alive()?;
    Ok(String::new())
}

pub(super) fn dangling() -> Result<String> {
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    for name in ["acl.toml", "users.toml", "psk.toml", "certificates.toml"] {
        let home = tempfile::tempdir()?;
        symlink(home.path().join("not mounted yet"), home.path().join(name))?;
        let (status, said) = start(&binary, home.path()).context(name)?;
        ensure!(status == Some(78) && said.contains(name), "{name}: {status:?} {said}");
    }
    Ok(String::new())
}

/// Starts a gateway that is expected to refuse. Returns its exit code and what it said.
fn start(binary: &str, data: &Path) -> Result<(Option<i32>, String)> {
    let mut command = Command::new(binary);
    let config = data.join("fogmux.toml");
    let kinds = ["mqtt", "mqtts", "coap", "coaps", "coap_tcp", "coaps_tcp", "http", "https", "xmpp", "xmpps"];
    let listener = |kind: &&str| format!("[listeners.{kind}]\naddress = \"127.0.0.1:0\"\n");
    fs::write(&config, kinds.iter().map(listener).collect::<String>())?;
    command.arg("serve").arg("-c").arg(&config).arg("--data").arg(data);
    let log = data.join("log");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(File::create(&log)?)
        .stderr(File::options().append(true).open(&log)?)
        .spawn()?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            bail!("it has started: {}", fs::read_to_string(&log)?);
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    Ok((status.code(), fs::read_to_string(&log)?))
}

/// Makes a client certificate of the gateway's authority.
pub(super) fn client_certificate(gateway: &Gateway, name: &str) -> Result<SslContext> {
    let binary = std::env::var("FOGMUX_BIN").context("FOGMUX_BIN")?;
    let made = Command::new(binary).args(["pki", "client", name, "--data"]).arg(gateway.data()).output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let file = |kind: &str| gateway.data().join("pki/clients").join(format!("{name}.{kind}"));
    let mut context = SslContext::builder(SslMethod::tls_client())?;
    context.set_verify(SslVerifyMode::NONE);
    context.set_certificate_chain_file(file("pem"))?;
    context.set_private_key_file(file("key"), SslFiletype::PEM)?;
    Ok(context.build())
}

pub(super) fn tls(context: &SslContext, server: SocketAddr) -> Result<SslStream<TcpStream>> {
    let mut stream = SslStream::new(Ssl::new(context)?, tcp::connect(server)?)?;
    stream.connect().context("TLS handshake")?;
    Ok(stream)
}

/// Reads until the gateway ends the connection.
pub(super) fn ends(stream: &mut SslStream<TcpStream>) -> Result<()> {
    stream.get_ref().set_read_timeout(Some(PATIENCE))?;
    let mut rest = [0; 4096];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                bail!("the connection goes on");
            }
            Err(_) => return Ok(()),
        }
    }
}

/// The code of the answer to a GET over CoAP in TLS (RFC 8323 §3.2), which may come behind other messages.
pub(super) fn ask(stream: &mut SslStream<TcpStream>) -> Result<String> {
    // Five bytes of options, a token of one; Uri-Path twice.
    stream.write_all(&[0x51, 0x01, b't', 0xb2, b'p', b's', 0x01, b'a'])?;
    loop {
        let [lengths, mut rest] = read(stream)?;
        let mut length = usize::from(lengths >> 4);
        if length == 13 {
            length += usize::from(rest);
            [rest] = read(stream)?;
        }
        ensure!(length < 13 + 256, "a long message");
        let mut body = vec![0; usize::from(lengths & 15) + length];
        stream.read_exact(&mut body)?;
        // Signals are of class 7 (RFC 8323 §5).
        if rest >> 5 != 7 {
            return Ok(format!("{}.{:02}", rest >> 5, rest & 31));
        }
    }
}

fn read<const N: usize>(stream: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}
