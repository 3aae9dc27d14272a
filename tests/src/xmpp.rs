//! XMPP by hand: streams as text, right or wrong.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustls::ClientConfig;

use crate::tls;

/// The stream header of a client of `localhost`.
pub const OPEN: &str = "<?xml version='1.0'?><stream:stream to='localhost' version='1.0' xmlns='jabber:client' \
                        xmlns:stream='http://etherx.jabber.org/streams'>";

/// A session over direct TLS.
pub struct Session {
    /// The stream below.
    pub stream: tls::Stream,
    /// The full JID that the gateway gave.
    pub jid: String,
    inbox: String,
}

impl Session {
    /// Opens a stream and logs in with SASL ANONYMOUS.
    ///
    /// # Errors
    /// When any step is refused.
    pub fn anonymous(config: &Arc<ClientConfig>, address: SocketAddr) -> Result<Self> {
        let stream = tls::connect(config, address)?;
        let mut session = Self { stream, jid: String::new(), inbox: String::new() };
        session.send(OPEN)?;
        session.until("</stream:features>")?;
        session.send("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='ANONYMOUS'/>")?;
        session.until("<success")?;
        session.inbox.clear();
        session.send(OPEN)?;
        session.until("</stream:features>")?;
        session.send("<iq type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>")?;
        let answer = session.until("</iq>")?;
        let jid = answer.split_once("<jid>").and_then(|(_, rest)| rest.split_once("</jid>"));
        session.jid = jid.map(|(jid, _)| jid.to_owned()).with_context(|| format!("no JID in {answer}"))?;
        Ok(session)
    }

    /// Sends text as it is.
    ///
    /// # Errors
    /// When the stream is closed.
    pub fn send(&mut self, text: &str) -> Result<()> {
        self.stream.write_all(text.as_bytes())?;
        self.stream.flush().context("flush")
    }

    /// Everything up to and with `end`.
    ///
    /// # Errors
    /// When the stream ends or is silent before.
    pub fn until(&mut self, end: &str) -> Result<String> {
        let mut buffer = vec![0; 16 << 10];
        loop {
            if let Some(at) = self.inbox.find(end) {
                let rest = self.inbox.split_off(at + end.len());
                return Ok(std::mem::replace(&mut self.inbox, rest));
            }
            let count = self.stream.read(&mut buffer).with_context(|| format!("waiting for {end}: {}", self.inbox))?;
            if count == 0 {
                bail!("stream ended, waiting for {end}: {}", self.inbox);
            }
            let text: Vec<u8> = buffer.iter().take(count).copied().collect();
            self.inbox.push_str(&String::from_utf8_lossy(&text));
        }
    }
}
