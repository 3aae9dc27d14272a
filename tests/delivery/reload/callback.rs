//! The keys of `[auth.callback]`, with a server of our own that is asked and counts.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use anyhow::Result;
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use openssl::ssl::{SslAcceptor, SslFiletype, SslMethod};

use super::{Row, Subject, basic, get, quoted};

pub(super) const CALLBACK: Row = Row {
    keys: &["auth.callback.url", "auth.callback.ca_file", "auth.callback.timeout", "auth.callback.cache"],
    case: Case { name: "reload: each key of auth.callback", run: callback },
};

/// How long the server takes for an answer: more than the shortest timeout, less than the longest.
const THINKS: Duration = Duration::from_millis(600);

/// A server that lets everybody in, after a while; it lives as long as the test.
struct Server {
    address: SocketAddr,
    asked: Arc<AtomicU64>,
}

impl Server {
    fn start(tls: Option<SslAcceptor>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, asked) = (listener.local_addr()?, Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that gives up is what some cases are about.
                let _ = match &tls {
                    Some(tls) => tls.accept(stream).map_err(anyhow::Error::from).and_then(|s| answer(s, &count)),
                    None => answer(stream, &count),
                };
            }
        });
        Ok(Self { address, asked })
    }

    fn url(&self, scheme: &str) -> String {
        format!("\"{scheme}://localhost:{}/login\"", self.address.port())
    }
}

/// Reads a request and says yes.
fn answer(mut stream: impl Read + Write, asked: &AtomicU64) -> Result<()> {
    let (mut heard, mut buffer) = (Vec::new(), [0; 2048]);
    while !heard.ends_with(b"}") {
        let count = stream.read(&mut buffer)?;
        anyhow::ensure!(count > 0, "gone");
        heard.extend(buffer.iter().take(count));
    }
    asked.fetch_add(1, SeqCst);
    std::thread::sleep(THINKS);
    let body = "{\"allow\":true}";
    Ok(write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())?)
}

fn acceptor(pki: &Path) -> Result<SslAcceptor> {
    let mut tls = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls())?;
    tls.set_certificate_chain_file(pki.join("server.pem"))?;
    tls.set_private_key_file(pki.join("server.key"), SslFiletype::PEM)?;
    Ok(tls.build())
}

fn callback() -> Result<String> {
    let mut subject = Subject::start(&[("auth.callback.timeout", "\"30s\""), ("auth.callback.cache", "\"0s\"")], &[])?;
    let pki = subject.gateway.data().join("pki");
    let (plain, secure) = (Server::start(None)?, Server::start(Some(acceptor(&pki)?))?);
    let let_in = |gateway: &Gateway| Ok(get(gateway, "a", &basic("carol", "anything"))?.0 == 404);
    subject.changes(("auth.callback.url", &plain.url("http")), (false, true), let_in)?;
    subject.changes(("auth.callback.timeout", "\"100ms\""), (true, false), let_in)?;
    subject.set("auth.callback.timeout", "\"30s\"")?;
    // Questions that two logins cost.
    let asked = Arc::clone(&plain.asked);
    let questions = move |gateway: &Gateway| -> Result<u64> {
        let before = asked.load(SeqCst);
        for _ in 0..2 {
            anyhow::ensure!(get(gateway, "a", &basic("carol", "anything"))?.0 == 404, "carol is not let in");
        }
        Ok(asked.load(SeqCst) - before)
    };
    subject.changes(("auth.callback.cache", "\"1h\""), (2, 1), questions)?;
    subject.set("auth.callback.url", &secure.url("https"))?;
    subject.changes(("auth.callback.ca_file", &quoted(&pki.join("ca.pem"))), (false, true), let_in)?;
    Ok(String::new())
}
