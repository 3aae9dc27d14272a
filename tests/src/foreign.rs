//! Servers that others wrote, as the tests and measurements start them: on loopback, open to everybody, with what they
//! keep in a directory of their own.

use std::cell::Cell;
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::server::{START_MAX, Server, free_tcp_port, free_udp_port, program};

/// A running server and where it is.
#[derive(Debug)]
pub struct Foreign {
    server: Server,
    /// Its configuration and what it keeps.
    _place: TempDir,
    /// The URL of each door by its scheme; HTTP/2 without TLS is `h2c`.
    urls: Vec<(&'static str, String)>,
}

impl Foreign {
    /// The URL of a door.
    ///
    /// # Errors
    /// When the server has no such door.
    pub fn url(&self, scheme: &str) -> Result<&str> {
        let found = self.urls.iter().find(|(door, _)| *door == scheme);
        Ok(&found.with_context(|| format!("no {scheme}"))?.1)
    }

    /// The process identifier.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }
}

/// Mosquitto, open to everybody, whose queues and windows have no bound.
///
/// # Errors
/// When it does not start.
pub fn mosquitto() -> Result<Foreign> {
    mosquitto_with("allow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 0\n")
}

/// Mosquitto with these lines in its configuration beside its listener.
///
/// # Errors
/// When it does not start.
pub fn mosquitto_with(lines: &str) -> Result<Foreign> {
    broker("mosquitto", "-c", |port| format!("listener {port} 127.0.0.1\n{lines}"))
}

/// `FlashMQ`, which sends without delay and holds as many messages as there are identifiers.
///
/// # Errors
/// When it does not start.
pub fn flashmq() -> Result<Foreign> {
    let text = |port| {
        format!(
            "allow_anonymous true\nlog_level warning\nmax_qos_msg_pending_per_client 65535\n\
             max_qos_bytes_pending_per_client 100000000\n\
             listen {{\n  protocol mqtt\n  port {port}\n  inet4_bind_address 127.0.0.1\n  tcp_nodelay true\n}}\n"
        )
    };
    broker("flashmq", "--config-file", text)
}

/// A broker of MQTT with a configuration file that names its port.
fn broker(name: &str, flag: &str, text: impl Fn(u16) -> String) -> Result<Foreign> {
    let place = tempfile::tempdir()?;
    let file = place.path().join("conf");
    let (server, port) = Server::start_at(free_tcp_port, |port| {
        fs::write(&file, text(port))?;
        let mut command = Command::new(program(name));
        command.arg(flag).arg(&file).current_dir(place.path());
        Ok(command)
    })?;
    Ok(Foreign { server, _place: place, urls: vec![("mqtt", format!("mqtt://127.0.0.1:{port}"))] })
}

/// libcoap's server without DTLS.
///
/// # Errors
/// When it does not start.
pub fn libcoap() -> Result<Foreign> {
    let (server, port) = Server::start_at(free_udp_port, |port| {
        let mut command = Command::new("coap-server-notls");
        command.args(["-A", "127.0.0.1", "-p", &port.to_string()]);
        Ok(command)
    })?;
    Ok(Foreign { server, _place: tempfile::tempdir()?, urls: vec![("coap", format!("coap://127.0.0.1:{port}"))] })
}

/// libcoap's server with DTLS by OpenSSL, and one key for all identities.
///
/// # Errors
/// When it does not start.
pub fn libcoap_psk(key: &str) -> Result<Foreign> {
    // DTLS is at the port after the one that is named.
    let (server, port) = Server::start_at(free_udp_port, |port| {
        let mut command = Command::new("coap-server-openssl");
        command.args(["-A", "127.0.0.1", "-p", &(port - 1).to_string(), "-k", key, "-h", ""]);
        Ok(command)
    })?;
    Ok(Foreign { server, _place: tempfile::tempdir()?, urls: vec![("coaps", format!("coaps://127.0.0.1:{port}"))] })
}

/// nginx that keeps what is PUT in files: one process, whose end is the end of it. `settings` are directives for HTTP.
///
/// # Errors
/// When it does not start.
pub fn nginx(settings: &str) -> Result<Foreign> {
    let place = tempfile::tempdir()?;
    let file = place.path().join("nginx.conf");
    fs::create_dir(place.path().join("kept"))?;
    let at = place.path().display();
    // The generator puts the value that it asks for, and compares each answer with it.
    let keeps = format!("location / {{ root {at}/kept; dav_methods PUT; create_full_put_path on; }}");
    let configuration = |port: u16, h2: u16| {
        format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error;\nevents {{}}\nhttp {{ access_log off; \
             {settings}\n\
             client_body_temp_path {at}/a; proxy_temp_path {at}/b; fastcgi_temp_path {at}/c; uwsgi_temp_path {at}/d; \
             scgi_temp_path {at}/e;\n\
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
    let urls = vec![("http", format!("http://127.0.0.1:{}", first.get())), ("h2c", format!("http://127.0.0.1:{h2}"))];
    Ok(Foreign { server, _place: place, urls })
}

/// ejabberd with the user `bench`, whose password is `secret`, in the domain `localhost`. Without a node name there is
/// no distribution, and so no port mapper that would stay when this is over.
///
/// # Errors
/// When it does not start.
pub fn ejabberd() -> Result<Foreign> {
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
    let urls = vec![("xmpp", format!("xmpp://bench:secret@127.0.0.1:{port}"))];
    Ok(Foreign { server, _place: place, urls })
}

/// Where the package has put its libraries, which its own script knows.
fn erlang_libraries() -> Result<String> {
    let script = program("ejabberdctl");
    let text = fs::read_to_string(&script).with_context(|| format!("{script} is missing; use `cargo xtask test`"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("ERL_LIBS="));
    Ok(line.unwrap_or_default().trim_matches('\'').to_owned())
}
