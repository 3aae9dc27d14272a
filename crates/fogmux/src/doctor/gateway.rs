//! The data directory, whether a gateway runs on it, and what that one says of itself.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use fogmux_gateway::Listener as Kind;

use super::Subject;
use super::finding::Report;
use super::machine::Process;

/// How long the gateway may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// Returns the running gateway.
pub(super) fn examine(subject: &Subject<'_>, report: &mut Report) -> Option<Process> {
    let directory = &subject.directory;
    match std::fs::metadata(directory) {
        Ok(found) if found.is_dir() => report.ok("data-directory", directory.display().to_string()),
        Ok(_) => report.problem("data-directory", format!("{} is no directory", directory.display()), ""),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            report.ok("data-directory", format!("{} does not exist: the first start makes it", directory.display()));
        }
        Err(error) => {
            let mend = format!("sudo fogmux doctor{}", subject.arguments());
            report.unknown("data-directory", format!("{}: {error}; try `{mend}`", directory.display()));
        }
    }
    let lock = match std::fs::metadata(fogmux_store::lock_file(&subject.store())) {
        Ok(lock) => lock,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            report.ok("gateway", "no gateway has run on this data directory");
            return None;
        }
        Err(error) => {
            report.unknown("gateway", format!("whether one runs cannot be seen: {error}"));
            return None;
        }
    };
    let Some(process) = subject.machine.locked_by(lock.dev(), lock.ino()) else {
        report.ok("gateway", "no gateway runs on this data directory");
        return None;
    };
    report.ok("gateway", format!("process {} runs on this data directory", process.pid));
    readiness(subject, &process, report);
    Some(process)
}

/// Asks `/readyz` by a listener of HTTP without TLS, on loopback if there is one.
fn readiness(subject: &Subject<'_>, process: &Process, report: &mut Report) {
    let plain = subject.config.listeners.each().map(|(_, listener)| listener);
    let mut usable = plain.filter(|one| one.kind == Kind::Http && one.enabled && one.proxy_protocol != Some(true));
    let addresses = usable.by_ref().flat_map(|listener| &listener.addresses);
    // To others it says no reasons.
    let Some(address) = addresses
        .copied()
        .map(reachable)
        .filter(|address| address.port() != 0)
        .max_by_key(|address| address.ip().is_loopback())
    else {
        return;
    };
    match ask(address) {
        Ok((200, said)) => {
            report.ok("gateway-not-ready", "/readyz: ready");
            for shut in said.split("; ").filter(|line| line.starts_with("listeners.")) {
                let mend = "ip address; a listener opens by itself within 30 s of its address";
                report.warning("listener-not-open", format!("/readyz: {shut}"), mend);
            }
            for down in said.split("; ").filter(|line| line.starts_with("links.")) {
                let mend = "journalctl --unit fogmux --grep 'this link' --since today";
                report.warning("link-down", format!("/readyz: {down}"), mend);
            }
            for waiting in said.split("; ").filter_map(|line| line.strip_prefix("waiting: ")) {
                report.warning("waits-for-clock", format!("/readyz: {waiting}"), super::clock::SET);
            }
        }
        Ok((503, said)) => {
            let mend = "journalctl --unit fogmux --priority warning --since today";
            report.problem("gateway-not-ready", format!("/readyz: {said}"), mend);
        }
        Ok((status, _)) => report.unknown("gateway-not-ready", format!("/readyz answers {status}")),
        Err(error) => {
            let text = format!("{address} does not answer /readyz: {error}");
            if let Some(flag) = subject.machine.overriding(process) {
                let text =
                    format!("{text}; the gateway was started with {flag}, so its HTTP may be at another address");
                return report.unknown("gateway-not-ready", text);
            }
            report.problem("gateway-not-ready", text, format!("curl http://{address}/readyz"));
        }
    }
}

/// An address at which a listener can be reached from here.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn ask(address: SocketAddr) -> std::io::Result<(u16, String)> {
    let end = Instant::now() + PATIENCE;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    // The program that has the port may send a byte now and then.
    let (mut answer, mut part) = (Vec::new(), [0; 1024]);
    while answer.len() < ANSWER_BYTES_MAX {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => break,
            read => answer.extend(part.iter().take(read)),
        }
    }
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other("it does not speak HTTP"))?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    // The body has chunks or a length; what is said in it is on lines of its own.
    let said = body.lines().map(str::trim).filter(|line| u64::from_str_radix(line, 16).is_err());
    Ok((status, said.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")))
}

/// The command that shows who holds a port; what to do about that is not ours to say.
pub(super) fn show_holder(transport: &str, port: u16) -> String {
    let flag = if transport == "TCP" { 't' } else { 'u' };
    format!("sudo ss -l{flag}np 'sport = :{port}'")
}

/// The command that restarts the gateway.
pub(super) const RESTART: &str = "sudo systemctl restart fogmux";

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Another program may have the port.
    #[test]
    fn an_answer_without_an_end_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let drip = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Ten minutes, if nobody gives it up.
            for _ in 0..6_000 {
                if stream.write_all(b"H").is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let kind = ask(address).unwrap_err().kind();
        assert!([std::io::ErrorKind::TimedOut, std::io::ErrorKind::WouldBlock].contains(&kind), "{kind:?}");
        drip.join().unwrap();
    }
}
