//! XMPP by hand: streams as text, right or wrong.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustls::ClientConfig;

use crate::{tcp, tls};

/// The stream header of a client of `localhost`.
pub const OPEN: &str = "<?xml version='1.0'?><stream:stream to='localhost' version='1.0' xmlns='jabber:client' \
                        xmlns:stream='http://etherx.jabber.org/streams'>";
const SASL: &str = "urn:ietf:params:xml:ns:xmpp-sasl";
const STARTTLS: &str = "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>";

/// How a client reaches the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Without TLS, as loopback may.
    Plain,
    /// STARTTLS.
    StartTls,
    /// TLS from the first byte.
    DirectTls,
}

impl Via {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Plain, Self::StartTls, Self::DirectTls];

    /// The listener's name in the configuration.
    #[must_use]
    pub const fn listener(self) -> &'static str {
        match self {
            Self::Plain | Self::StartTls => "xmpp",
            Self::DirectTls => "xmpps",
        }
    }
}

/// The connection below a stream.
#[derive(Debug)]
pub enum Transport {
    /// TCP.
    Plain(TcpStream),
    /// TLS.
    Tls(Box<tls::Stream>),
}

impl Transport {
    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref(),
        }
    }
}

impl Read for Transport {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// A session that has logged in.
#[derive(Debug)]
pub struct Session {
    /// The stream below.
    pub stream: Transport,
    /// The full JID that the gateway gave.
    pub jid: String,
    inbox: String,
    asked: u32,
}

impl Session {
    /// Opens a stream over direct TLS and logs in with SASL ANONYMOUS.
    ///
    /// # Errors
    /// When any step is refused.
    pub fn anonymous(config: &Arc<ClientConfig>, address: SocketAddr) -> Result<Self> {
        Self::over(tcp::connect(address)?, config, Via::DirectTls)
    }

    /// Logs in with SASL ANONYMOUS over a connection that is there already.
    ///
    /// # Errors
    /// When any step is refused.
    pub fn over(stream: TcpStream, config: &Arc<ClientConfig>, via: Via) -> Result<Self> {
        let mut session = Self::connect(stream, config, via)?;
        session.send(&format!("<auth xmlns='{SASL}' mechanism='ANONYMOUS'/>"))?;
        session.until("<success")?;
        session.inbox.clear();
        session.bind("")?;
        Ok(session)
    }

    /// Logs in with SASL PLAIN, which wants TLS, and asks for a resource.
    ///
    /// # Errors
    /// When any step is refused.
    pub fn plain_password(
        stream: TcpStream,
        config: &Arc<ClientConfig>,
        credentials: &str,
        resource: &str,
    ) -> Result<Self> {
        let mut session = Self::begin_plain(stream, config, credentials)?;
        session.until("<success")?;
        session.inbox.clear();
        session.bind(&format!("<resource>{resource}</resource>"))?;
        Ok(session)
    }

    /// Sends SASL PLAIN, and does not wait for the answer.
    ///
    /// # Errors
    /// When the stream cannot be opened.
    pub fn begin_plain(stream: TcpStream, config: &Arc<ClientConfig>, credentials: &str) -> Result<Self> {
        Self::begin_sasl(stream, config, "PLAIN", credentials)
    }

    /// Sends the first message of a SASL mechanism, in Base64, and does not wait for the answer.
    ///
    /// # Errors
    /// When the stream cannot be opened.
    pub fn begin_sasl(stream: TcpStream, config: &Arc<ClientConfig>, mechanism: &str, initial: &str) -> Result<Self> {
        let mut session = Self::connect(stream, config, Via::DirectTls)?;
        session.send(&format!("<auth xmlns='{SASL}' mechanism='{mechanism}'>{initial}</auth>"))?;
        Ok(session)
    }

    /// Sends the next message of a SASL mechanism, in Base64.
    ///
    /// # Errors
    /// When the stream has ended.
    pub fn respond_sasl(&mut self, response: &str) -> Result<()> {
        self.send(&format!("<response xmlns='{SASL}'>{response}</response>"))
    }

    /// A stream with its first features.
    fn connect(stream: TcpStream, config: &Arc<ClientConfig>, via: Via) -> Result<Self> {
        let of = |stream| Self { stream, jid: String::new(), inbox: String::new(), asked: 0 };
        let secure = |stream| tls::over(config, stream).map(|stream| Transport::Tls(Box::new(stream)));
        let mut session = match via {
            Via::Plain => of(Transport::Plain(stream)),
            Via::DirectTls => of(secure(stream)?),
            Via::StartTls => {
                let mut clear = of(Transport::Plain(stream));
                clear.send(&format!("{OPEN}{STARTTLS}"))?;
                clear.until("<proceed")?;
                clear.until("/>")?;
                let Transport::Plain(stream) = clear.stream else { bail!("it was a plain connection") };
                of(secure(stream)?)
            }
        };
        session.send(OPEN)?;
        session.until("</stream:features>")?;
        Ok(session)
    }

    fn bind(&mut self, resource: &str) -> Result<()> {
        self.send(OPEN)?;
        self.until("</stream:features>")?;
        let bind = format!("<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>{resource}</bind>");
        self.send(&format!("<iq type='set' id='bind'>{bind}</iq>"))?;
        let answer = self.until("</iq>")?;
        let jid = answer.split_once("<jid>").and_then(|(_, rest)| rest.split_once("</jid>"));
        self.jid = jid.map(|(jid, _)| jid.to_owned()).with_context(|| format!("no JID in {answer}"))?;
        Ok(())
    }

    /// The address without the resource.
    #[must_use]
    pub fn bare(&self) -> String {
        self.jid.split('/').next().unwrap_or_default().to_owned()
    }

    /// Sends text as it is.
    ///
    /// # Errors
    /// When the stream is closed.
    pub fn send(&mut self, text: &str) -> Result<()> {
        self.stream.write_all(text.as_bytes())?;
        self.stream.flush().context("flush")
    }

    /// Sends an IQ to the publish-subscribe service; what comes up to and with its answer.
    ///
    /// # Errors
    /// When the stream ends or is silent before.
    pub fn ask(&mut self, kind: &str, body: &str) -> Result<String> {
        self.asked += 1;
        let id = format!("q{}", self.asked);
        self.send(&format!("<iq type='{kind}' id='{id}' to='pubsub.localhost'>{body}</iq>"))?;
        let before = self.until(&format!("id='{id}'"))?;
        // An answer is either empty or has an end tag of its own.
        let head = self.until(">")?;
        let rest = if head.ends_with("/>") { String::new() } else { self.until("</iq>")? };
        Ok(before + &head + &rest)
    }

    /// The same for an action of subscribers and publishers (XEP-0060 §6, §7).
    ///
    /// # Errors
    /// When the stream ends or is silent before.
    pub fn entity(&mut self, kind: &str, action: &str) -> Result<String> {
        self.ask(kind, &format!("<pubsub xmlns='http://jabber.org/protocol/pubsub'>{action}</pubsub>"))
    }

    /// The same for an action of owners (§8).
    ///
    /// # Errors
    /// When the stream ends or is silent before.
    pub fn owner(&mut self, kind: &str, action: &str) -> Result<String> {
        self.ask(kind, &format!("<pubsub xmlns='http://jabber.org/protocol/pubsub#owner'>{action}</pubsub>"))
    }

    /// Everything up to and with `end`.
    ///
    /// # Errors
    /// When the stream ends or is silent before.
    pub fn until(&mut self, end: &str) -> Result<String> {
        self.until_count(end, 1)
    }

    /// Everything up to and with the `count`-th `end`.
    ///
    /// # Errors
    /// When the stream ends or is silent before; the error says how many there were.
    pub fn until_count(&mut self, end: &str, count: usize) -> Result<String> {
        let mut buffer = vec![0; 16 << 10];
        let (mut found, mut looked) = (0, 0);
        if count == 0 {
            return Ok(String::new());
        }
        loop {
            while let Some(at) = self.inbox.get(looked..).and_then(|rest| rest.find(end)) {
                looked += at + end.len();
                found += 1;
                if found == count {
                    let rest = self.inbox.split_off(looked);
                    return Ok(std::mem::replace(&mut self.inbox, rest));
                }
            }
            let tail: String = self.inbox.chars().rev().take(200).collect::<Vec<_>>().into_iter().rev().collect();
            let said = || format!("waiting for {end}, {found} of {count} came: …{tail}");
            let read = tcp::read(&mut self.stream, &mut buffer).with_context(said)?;
            if read == 0 {
                bail!("stream ended, {}", said());
            }
            let text: Vec<u8> = buffer.iter().take(read).copied().collect();
            self.inbox.push_str(&String::from_utf8_lossy(&text));
        }
    }
}

/// A data form that is filled in (XEP-0004); `kind` names its type within XEP-0060.
#[must_use]
pub fn form(kind: &str, fields: &[(&str, &str)]) -> String {
    let fields: String = fields.iter().map(|(k, v)| format!("<field var='{k}'><value>{v}</value></field>")).collect();
    format!(
        "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'><value>http://jabber.org/protocol/pubsub#\
         {kind}</value></field>{fields}</x>"
    )
}
