//! TLS around any stream, as the options say: by rustls, or by OpenSSL for what rustls leaves out on purpose. Files are
//! read once; connections are made of it as many as one likes, each with a handshake of its own if a profile asks.

use std::sync::Arc;

use fogmux_net::Profile;
use fogmux_net::profile::Stack;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::Options;
use crate::counted::{Counted, Counter};
use crate::error::ClientError;
use crate::stream::{Stream, tcp};
use crate::tls::{self, server_name, tls_failed};
use crate::url::Url;

/// Makes handshakes.
pub struct Connector(Kind);

enum Kind {
    Rustls(TlsConnector),
    #[cfg(feature = "tls-openssl")]
    OpenSsl(fogmux_net::openssl::Connector),
}

impl Connector {
    /// Reads certificates, keys and authorities; offers `alpn`.
    ///
    /// Without a profile, a pre-shared key is used if there is one – by all suites for it –, and else everything that
    /// is safe is offered.
    pub fn new(options: &Options, alpn: &[&[u8]]) -> Result<Self, ClientError> {
        let by_openssl = match options.profile.map(|profile| (profile, profile.stack)) {
            Some((profile, Stack::Plain)) => {
                return Err(ClientError::Usage(format!("profile {} has no TLS", profile.name)));
            }
            Some((profile, Stack::OpenSsl)) => Some(profile),
            Some((_, Stack::Rustls)) | None => None,
        };
        if by_openssl.is_some() || (options.profile.is_none() && options.psk.is_some()) {
            return openssl(options, by_openssl, alpn).map(Self);
        }
        Ok(Self(Kind::Rustls(TlsConnector::from(Arc::new(tls::config(options, alpn)?)))))
    }

    /// Makes a handshake over `stream` with the server that is called `name`.
    pub async fn connect<S>(&self, stream: S, name: &str) -> Result<Stream<S>, ClientError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        match &self.0 {
            Kind::Rustls(connector) => {
                let stream = connector.connect(server_name(name)?, stream).await.map_err(tls_failed)?;
                Ok(Stream::Tls(Box::new(stream)))
            }
            #[cfg(feature = "tls-openssl")]
            Kind::OpenSsl(connector) => {
                let stream = connector.connect(stream, name).await;
                Ok(Stream::OpenSsl(stream.map_err(|error| ClientError::Unavailable(format!("TLS: {error}")))?))
            }
        }
    }
}

/// With a pre-shared key both ends know each other, and nobody needs a certificate.
#[cfg(feature = "tls-openssl")]
fn openssl(options: &Options, profile: Option<&'static Profile>, alpn: &[&[u8]]) -> Result<Kind, ClientError> {
    use fogmux_net::profile::PSK;

    let by_key = profile.is_none_or(|profile| profile.psk);
    let psk = options.psk.as_ref().filter(|_| by_key);
    if by_key && psk.is_none() {
        return Err(ClientError::Usage("this profile needs a pre-shared key".to_owned()));
    }
    let own = options.own.as_ref().filter(|_| !by_key);
    let client = fogmux_net::openssl::Client {
        offer: options.offer().unwrap_or(&PSK.accept),
        group: options.only.group,
        alpn,
        psk: psk.map(|psk| (psk.identity.as_bytes(), psk.key.as_slice())),
        ca: if by_key { None } else { options.trust.authority()? },
        certificate: own.map(|own| (own.certificate.as_path(), own.key.as_path())),
        key_log: options.key_log.as_ref(),
    };
    let connector = client.connector().map_err(|error| ClientError::Io(format!("TLS: {error}")))?;
    Ok(Kind::OpenSsl(connector))
}

#[cfg(not(feature = "tls-openssl"))]
fn openssl(_: &Options, _: Option<&'static Profile>, _: &[&[u8]]) -> Result<Kind, ClientError> {
    Err(ClientError::Usage("this kind of TLS needs a build with the feature tls-openssl".to_owned()))
}

impl Stream {
    /// Connects as the URL says; `alpn` only matters with TLS.
    pub async fn open(url: &Url, options: &Options, alpn: &[&[u8]]) -> Result<Self, ClientError> {
        let stream = tcp(&url.host, url.port).await?;
        if !url.secure {
            return Ok(Self::Plain(stream));
        }
        Connector::new(options, alpn)?.connect(stream, &url.host).await
    }
}

/// Where to connect, and how: for many connections alike.
pub struct Dialer {
    host: String,
    port: u16,
    name: String,
    connector: Option<Connector>,
}

impl Dialer {
    /// To a port of a host, whose certificate carries `name`; with TLS if there is a connector.
    pub fn new(host: &str, port: u16, name: &str, connector: Option<Connector>) -> Self {
        Self { host: host.to_owned(), port, name: name.to_owned(), connector }
    }

    /// Connects, with every handshake that is needed, and counts from the first byte.
    pub async fn dial(&self) -> Result<(Stream<Counted<TcpStream>>, Arc<Counter>), ClientError> {
        let socket = Counted::new(tcp(&self.host, self.port).await?);
        let counter = socket.counter();
        let stream = match &self.connector {
            Some(connector) => connector.connect(socket, &self.name).await?,
            None => Stream::Plain(socket),
        };
        Ok((stream, counter))
    }
}
