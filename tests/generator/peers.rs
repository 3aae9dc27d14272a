//! Brokers and servers that others wrote, driven by the same generator.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fogmux_tests::suite::Case;

use crate::{check, lasting, number, outcomes};

pub(crate) const CASES: &[Case] = &[
    Case { name: "mosquitto, MQTT 3.1.1 and 5", run: mosquitto },
    Case { name: "libcoap's server, plain and by a pre-shared key", run: libcoap },
    Case { name: "aiocoap's server, observed too", run: aiocoap },
    Case { name: "nginx, HTTP/1.1 and HTTP/2", run: nginx },
    Case { name: "ejabberd, XMPP", run: ejabberd },
];

const START_MAX: Duration = Duration::from_secs(60);
const ATTEMPTS: usize = 3;

/// A server of others; dropped, it is killed.
struct Server {
    child: Child,
    /// Its standard error.
    said: File,
}

impl Server {
    fn start(command: &mut Command) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let said = tempfile::tempfile()?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.try_clone()?).spawn();
        let child = child.with_context(|| format!("{program} is missing; use `cargo xtask test`"))?;
        Ok(Self { child, said })
    }

    /// Starts what `command` makes of a free port, and waits until it serves there. Between the choice and the server's
    /// own bind(2) somebody else may take the port: then another one is tried.
    fn start_at(free: impl Fn() -> Result<u16>, command: impl Fn(u16) -> Result<Command>) -> Result<(Self, u16)> {
        let mut attempts = Vec::new();
        while attempts.len() < ATTEMPTS {
            let port = free()?;
            let mut server = Self::start(&mut command(port)?)?;
            match server.wait(port) {
                Ok(()) => return Ok((server, port)),
                Err(error) => attempts.push(format!("port {port}: {error:#}")),
            }
        }
        anyhow::bail!("{}", attempts.join("; "))
    }

    /// Waits until the port is its own, whether of TCP or UDP.
    fn wait(&mut self, port: u16) -> Result<()> {
        let until = Instant::now() + START_MAX;
        loop {
            if let Some(status) = self.child.try_wait()? {
                anyhow::bail!("it ended with {status}: {}", self.said());
            }
            if has_udp_socket(port)? || TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(());
            }
            ensure!(Instant::now() < until, "it does not serve: {}", self.said());
            sleep(Duration::from_millis(20));
        }
    }

    fn said(&mut self) -> String {
        let mut said = String::new();
        // Only the report of a failure misses it.
        let _ = self.said.rewind();
        let _ = self.said.read_to_string(&mut said);
        said
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors were reported before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether somebody has the port for UDP, by what the kernel lists. To try bind(2) would take it from the server.
fn has_udp_socket(port: u16) -> Result<bool> {
    let end = format!(":{port:04X}");
    let is_there = |line: &str| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&end));
    let listed = fs::read_to_string("/proc/net/udp")? + &fs::read_to_string("/proc/net/udp6").unwrap_or_default();
    Ok(listed.lines().any(is_there))
}

fn free_tcp_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn free_udp_port() -> Result<u16> {
    Ok(UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// One short experiment, whose outcomes must be sound and must know what the server used.
fn drive(url: &str, pid: &str, words: &[&str]) -> Result<f64> {
    let common = ["peer", url, "--pid", pid, "--warm-up", "0.1", "--repeat", "1"];
    let report = lasting(&[&common[..], words].concat()).with_context(|| format!("{url} {}", words.join(" ")))?;
    let mut rate = 0.0;
    for outcome in outcomes(&report)? {
        check(outcome).with_context(|| format!("{url} {}", words.join(" ")))?;
        let used = number(outcome.get("gateway").context("the server's processor time is missing")?, "cpu_us")?;
        ensure!(used > 0.0, "the server used nothing");
        rate = number(outcome, "acknowledged")?.max(number(outcome, "delivered")?) / number(outcome, "seconds")?;
    }
    Ok(rate)
}

fn mosquitto() -> Result<String> {
    let place = tempfile::tempdir()?;
    let file = place.path().join("mosquitto.conf");
    let (server, port) = Server::start_at(free_tcp_port, |port| {
        fs::write(&file, format!("listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n"))?;
        let mut command = Command::new(program("mosquitto"));
        command.arg("-c").arg(&file);
        Ok(command)
    })?;
    let url = format!("mqtt://127.0.0.1:{port}");
    let rates = [
        drive(&url, &server.pid(), &["--in-flight", "1000"])?,
        drive(&url, &server.pid(), &["--qos", "1"])?,
        drive(&url, &server.pid(), &["--qos", "2", "--door", "mqtt5"])?,
    ];
    Ok(format!("({} messages a second by QoS)", rates.map(|rate| format!("{rate:.0}")).join(", ")))
}

fn libcoap() -> Result<String> {
    let (plain, port) = Server::start_at(free_udp_port, |port| {
        let mut command = Command::new("coap-server-notls");
        command.args(["-A", "127.0.0.1", "-p", &port.to_string()]);
        Ok(command)
    })?;
    // DTLS is at the port after the one that is named.
    let (key, secure) = Server::start_at(free_udp_port, |port| {
        let mut command = Command::new("coap-server-openssl");
        command.args(["-A", "127.0.0.1", "-p", &(port - 1).to_string(), "-k", "secretPSK", "-h", ""]);
        Ok(command)
    })?;
    let words = ["--topic", "example_data", "--pubs", "4", "--window", "1"];
    let url = format!("coap://127.0.0.1:{port}");
    let put = drive(&url, &plain.pid(), &[&words[..], &["--operation", "put", "--qos", "1"]].concat())?;
    let get = drive(&url, &plain.pid(), &[&words[..], &["--operation", "get"]].concat())?;
    let psk = ["--psk-id", "dev1", "--psk", "73656372657450534b", "--operation", "put", "--qos", "1"];
    let url = format!("coaps://127.0.0.1:{secure}");
    let dtls = drive(&url, &key.pid(), &[&words[..], &psk].concat())?;
    Ok(format!("(PUT {put:.0}, GET {get:.0}, under DTLS {dtls:.0} a second)"))
}

fn aiocoap() -> Result<String> {
    let clients = std::env::var("FOGMUX_CLIENTS").context("FOGMUX_CLIENTS names no place; use `cargo xtask test`")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("generator/aiocoap_server.py");
    let python = Path::new(&clients).join("venv/bin/python");
    let (server, port) = Server::start_at(free_udp_port, |port| {
        let mut command = Command::new(&python);
        command.arg(&script).arg(port.to_string());
        Ok(command)
    })?;
    let url = format!("coap://127.0.0.1:{port}");
    let words = ["--topic", "value", "--window", "1"];
    let put = drive(&url, &server.pid(), &[&words[..], &["--operation", "put", "--qos", "1"]].concat())?;
    let get = drive(&url, &server.pid(), &[&words[..], &["--operation", "get", "--pubs", "4"]].concat())?;
    let followed = ["--retain", "--qos", "1", "--subs", "4"];
    let observed = drive(&url, &server.pid(), &[&words[..], &followed].concat())?;
    Ok(format!("(PUT {put:.0}, GET {get:.0}, {observed:.0} notifications a second)"))
}

/// One process, whose end is the end of it; and connections that it ends after 1 000 requests, as it does by itself.
fn nginx() -> Result<String> {
    let place = tempfile::tempdir()?;
    let file = place.path().join("nginx.conf");
    fs::create_dir(place.path().join("kept"))?;
    let at = place.path().display();
    // The generator puts the value that it asks for, and compares each answer with it.
    let keeps = format!("location / {{ root {at}/kept; dav_methods PUT; create_full_put_path on; }}");
    let configuration = |port: u16, h2: u16| {
        format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error;\nevents {{}}\nhttp {{ access_log off; \
             client_body_temp_path {at}/a; proxy_temp_path {at}/b; fastcgi_temp_path {at}/c; uwsgi_temp_path {at}/d; scgi_temp_path {at}/e;\n\
             server {{ listen 127.0.0.1:{port}; {keeps} }}\n\
             server {{ listen 127.0.0.1:{h2} http2; {keeps} }} }}\n"
        )
    };
    let first = Cell::new(0);
    let (server, h2) = Server::start_at(free_tcp_port, |h2| {
        first.set(free_tcp_port()?);
        fs::write(&file, configuration(first.get(), h2))?;
        let mut command = Command::new(program("nginx"));
        command.arg("-c").arg(&file).arg("-p").arg(place.path());
        Ok(command)
    })?;
    let port = first.get();
    let words = ["--operation", "get", "--pubs", "4"];
    let url = format!("http://127.0.0.1:{port}");
    let one = drive(&url, &server.pid(), &[&words[..], &["--window", "1"]].concat())?;
    let url = format!("http://127.0.0.1:{h2}");
    let two = drive(&url, &server.pid(), &[&words[..], &["--door", "http2", "--window", "10"]].concat())?;
    Ok(format!("(HTTP/1.1 {one:.0}, HTTP/2 {two:.0} a second)"))
}

/// Without a node name there is no distribution, and so no port mapper that would stay when this is over.
fn ejabberd() -> Result<String> {
    let place = tempfile::tempdir()?;
    let port = free_tcp_port()?;
    let [file, log, ready] = ["ejabberd.yml", "ejabberd.log", "ready"].map(|name| place.path().join(name));
    fs::write(
        &file,
        format!(
            "hosts: [localhost]\nloglevel: error\nauth_method: internal\nauth_password_format: scram\n\
             auth_scram_hash: sha256\nlisten: [{{port: {port}, ip: 127.0.0.1, module: ejabberd_c2s}}]\n\
             modules: {{mod_disco: {{}}, mod_pubsub: {{access_createnode: all, plugins: [flat]}}}}\n"
        ),
    )?;
    let register = format!(
        "spawn(fun Try() -> case catch ejabberd_auth:try_register(<<\"bench\">>, <<\"localhost\">>, <<\"secret\">>) of \
         ok -> file:write_file({ready:?}, <<>>); _ -> timer:sleep(50), Try() end end)."
    );
    let mut erl = Command::new("erl");
    erl.args(["-noinput", "-mnesia", "dir"]).arg(format!("{:?}", place.path().join("spool")));
    erl.args(["-s", "ejabberd", "-eval", &register]).env("HOME", place.path()).env("ERL_CRASH_DUMP", "/dev/null");
    erl.env("ERL_LIBS", erlang_libraries()?).env("EJABBERD_CONFIG_PATH", &file).env("EJABBERD_LOG_PATH", &log);
    let mut server = Server::start(&mut erl)?;
    let until = Instant::now() + START_MAX;
    while !ready.exists() {
        let said = || fs::read_to_string(&log).unwrap_or_default();
        ensure!(Instant::now() < until, "ejabberd does not start: {}", said());
        sleep(Duration::from_millis(20));
    }
    server.wait(port)?;
    let url = format!("xmpp://bench:secret@127.0.0.1:{port}");
    let passing = drive(&url, &server.pid(), &["--name", "localhost", "--subs", "2"])?;
    let kept = drive(&url, &server.pid(), &["--name", "localhost", "--retain", "--topic", "kept/{}"])?;
    Ok(format!("(passing {passing:.0}, kept {kept:.0} a second)"))
}

/// Where the package has put its libraries, which its own script knows.
fn erlang_libraries() -> Result<String> {
    let script = program("ejabberdctl");
    let text = fs::read_to_string(&script).with_context(|| format!("{script} is missing; use `cargo xtask test`"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("ERL_LIBS="));
    Ok(line.unwrap_or_default().trim_matches('\'').to_owned())
}

/// Where Debian has servers: not on everybody's path.
fn program(name: &str) -> String {
    let there = Path::new("/usr/sbin").join(name);
    if there.exists() { there.display().to_string() } else { name.to_owned() }
}
