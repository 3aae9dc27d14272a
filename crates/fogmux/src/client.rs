//! `pub`, `sub` and `get`: one client for every door, with the same flags everywhere.

mod coap;
mod coap_stream;
mod dtls;
mod error;
mod http;
mod http3;
mod message;
mod mqtt;
mod oscore;
mod stream;
pub(crate) mod tls;
mod url;
mod websocket;
mod xmpp;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use fogmux_net::channel::Zeroizing;

pub(crate) use error::ClientError;
pub(crate) use message::{Arrived, Outgoing};
pub(crate) use tls::{Own, Trust};
pub(crate) use url::{Scheme, Url};

use crate::cli::{Access, Format, Get, HttpVersion, MqttVersion, Publish, Subscribe};
use crate::exit::{Failure, OrFail as _, Status};

/// How long `pub` and `get` wait when nothing is said.
const PATIENCE_SECONDS: f64 = 10.0;

/// How a door is to be used, whatever it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) credentials: Option<(String, String)>,
    pub(crate) trust: Trust,
    pub(crate) http: HttpVersion,
    pub(crate) mqtt: MqttVersion,
    pub(crate) client_id: Option<String>,
    pub(crate) domain: Option<String>,
    pub(crate) qos: u8,
    /// A certificate of one's own.
    pub(crate) own: Option<Own>,
    /// A pre-shared key.
    pub(crate) psk: Option<Psk>,
    /// The OSCORE context, for CoAP.
    pub(crate) oscore: Option<PathBuf>,
}

/// A pre-shared key.
#[derive(Clone)]
pub(crate) struct Psk {
    pub(crate) identity: String,
    pub(crate) key: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for Psk {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Psk").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// A connection to any door, to publish by.
pub(crate) enum Publisher {
    Http(Box<http::Publisher>),
    Mqtt(Box<mqtt::Publisher>),
    Coap(Box<coap::Publisher>),
    Xmpp(Box<xmpp::Publisher>),
}

impl Publisher {
    /// Connects and logs in.
    pub(crate) async fn open(url: &Url, options: &Options) -> Result<Self, ClientError> {
        Ok(match url.scheme {
            Scheme::Http => Self::Http(Box::new(http::Publisher::open(url, options).await?)),
            Scheme::Mqtt | Scheme::WebSocket => Self::Mqtt(Box::new(mqtt::Publisher::open(url, options).await?)),
            Scheme::Coap | Scheme::CoapTcp | Scheme::CoapWebSocket => {
                Self::Coap(Box::new(coap::Publisher::open(url, options).await?))
            }
            Scheme::Xmpp => Self::Xmpp(Box::new(xmpp::Publisher::open(url, options).await?)),
        })
    }

    /// Publishes one message; returns when the door has acknowledged it.
    pub(crate) async fn publish(&mut self, message: &Outgoing) -> Result<(), ClientError> {
        match self {
            Self::Http(publisher) => publisher.publish(message).await,
            Self::Mqtt(publisher) => publisher.publish(message).await,
            Self::Coap(publisher) => publisher.publish(message).await,
            Self::Xmpp(publisher) => publisher.publish(message).await,
        }
    }

    /// Says goodbye where the protocol has a word for it.
    pub(crate) async fn close(mut self) -> Result<(), ClientError> {
        match &mut self {
            Self::Mqtt(publisher) => publisher.close().await?,
            Self::Xmpp(publisher) => publisher.close().await,
            Self::Http(_) | Self::Coap(_) => {}
        }
        Ok(())
    }
}

/// The message that a topic keeps.
pub(crate) async fn get(url: &Url, options: &Options) -> Result<Option<Arrived>, ClientError> {
    match url.scheme {
        Scheme::Http => http::get(url, options).await,
        Scheme::Mqtt | Scheme::WebSocket => mqtt::get(url, options).await,
        Scheme::Coap | Scheme::CoapTcp | Scheme::CoapWebSocket => coap::get(url, options).await,
        Scheme::Xmpp => xmpp::get(url, options).await,
    }
}

/// Follows a filter; returns when the door has confirmed it, so that nothing published from then on is missed.
pub(crate) async fn subscribe(url: &Url, options: &Options) -> Result<Subscription, ClientError> {
    Ok(match url.scheme {
        Scheme::Http => Subscription::Http(Box::new(http::subscribe(url, options).await?)),
        Scheme::Mqtt | Scheme::WebSocket => Subscription::Mqtt(Box::new(mqtt::subscribe(url, options).await?)),
        Scheme::Coap | Scheme::CoapTcp | Scheme::CoapWebSocket => {
            Subscription::Coap(Box::new(coap::subscribe(url, options).await?))
        }
        Scheme::Xmpp => Subscription::Xmpp(Box::new(xmpp::subscribe(url, options).await?)),
    })
}

/// A subscription at any door.
pub(crate) enum Subscription {
    Http(Box<http::Subscription>),
    Mqtt(Box<mqtt::Subscription>),
    Coap(Box<coap::Subscription>),
    Xmpp(Box<xmpp::Subscription>),
}

impl Subscription {
    /// The next message.
    pub(crate) async fn next(&mut self) -> Result<Arrived, ClientError> {
        match self {
            Self::Http(subscription) => subscription.next().await,
            Self::Mqtt(subscription) => subscription.next().await,
            Self::Coap(subscription) => subscription.next().await,
            Self::Xmpp(subscription) => subscription.next().await,
        }
    }
}

/// `fogmux pub`.
pub(crate) fn run_publish(arguments: &Publish) -> Result<(), Failure> {
    let (url, options) = prepare(&arguments.url, &arguments.access)?;
    let payload = if arguments.payload == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map_err(|error| Failure::io("standard input", &error))?;
        Bytes::from(bytes)
    } else {
        Bytes::from(arguments.payload.clone())
    };
    let message = Outgoing {
        topic: url.topic.clone(),
        payload,
        content_type: arguments.content_type.clone(),
        qos: arguments.access.qos,
        retain: arguments.retain,
    };
    let patience = arguments.access.timeout.unwrap_or(PATIENCE_SECONDS);
    let publish = async {
        let mut publisher = Publisher::open(&url, &options).await?;
        publisher.publish(&message).await?;
        publisher.close().await
    };
    block_on(within(patience, publish))??;
    if arguments.access.json {
        println!("{}", serde_json::json!({"topic": url.topic, "bytes": message.payload.len()}));
    }
    Ok(())
}

/// `fogmux get`.
pub(crate) fn run_get(arguments: &Get) -> Result<(), Failure> {
    let (url, options) = prepare(&arguments.url, &arguments.access)?;
    let patience = arguments.access.timeout.unwrap_or(PATIENCE_SECONDS);
    let message = block_on(within(patience, get(&url, &options)))??.ok_or(ClientError::Nothing)?;
    print(&message, format(arguments.format, &arguments.access)).map(drop)
}

/// `fogmux sub`.
pub(crate) fn run_subscribe(arguments: &Subscribe) -> Result<(), Failure> {
    let (url, options) = prepare(&arguments.url, &arguments.access)?;
    let format = format(arguments.format, &arguments.access);
    let follow = async {
        let connecting = arguments.access.timeout.unwrap_or(PATIENCE_SECONDS);
        let mut subscription = within(connecting, subscribe(&url, &options)).await?;
        let mut left = arguments.count.unwrap_or(u64::MAX);
        while left > 0 {
            let message = match arguments.access.timeout {
                Some(patience) => within(patience, subscription.next()).await?,
                None => subscription.next().await?,
            };
            if !print(&message, format)? {
                break;
            }
            left -= 1;
        }
        Ok::<_, Failure>(())
    };
    block_on(follow)?
}

fn format(format: Format, access: &Access) -> Format {
    if access.json { Format::Json } else { format }
}

/// Prints; whether there is still somebody who reads.
fn print(message: &Arrived, format: Format) -> Result<bool, Failure> {
    match message.print(format, &mut std::io::stdout().lock()) {
        Ok(()) => Ok(true),
        // `fogmux sub … | head -1` is no error.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::io("standard output", &error)),
    }
}

/// Address and flags to what the doors' clients take.
fn prepare(address: &str, access: &Access) -> Result<(Url, Options), Failure> {
    let url: Url = address.parse().or_fail(Status::Usage, "the address")?;
    let user = access.user.clone().or_else(|| url.user.clone());
    let password = match &access.password_file {
        Some(file) => Some(password_from(file)?),
        None => access.password.clone().or_else(|| url.password.clone()),
    };
    if user.is_none() && password.is_some() {
        return Err(Failure::new(Status::Usage, "a password needs a user: --user NAME, or NAME@ in the address"));
    }
    let options = Options {
        credentials: user.map(|user| (user, password.unwrap_or_default())),
        trust: match (&access.ca, access.insecure) {
            (Some(file), _) => Trust::File(file.clone()),
            (None, true) => Trust::Insecure,
            (None, false) => Trust::System,
        },
        http: access.http,
        mqtt: access.mqtt,
        client_id: access.client_id.clone(),
        domain: access.domain.clone(),
        qos: access.qos,
        own: access.cert.clone().zip(access.key.clone()).map(|(certificate, key)| Own { certificate, key }),
        psk: psk(access)?,
        oscore: access.oscore.clone(),
    };
    Ok((url, options))
}

/// Identity and key of `--psk-id` and `--psk` or `--psk-file`.
fn psk(access: &Access) -> Result<Option<Psk>, Failure> {
    let Some(identity) = &access.psk_id else { return Ok(None) };
    let digits = match (&access.psk, &access.psk_file) {
        (Some(digits), _) => Zeroizing::new(digits.clone()),
        (None, Some(file)) => Zeroizing::new(password_from(file)?),
        (None, None) => return Err(Failure::new(Status::Usage, "--psk-id needs a key: --psk-file FILE or --psk HEX")),
    };
    let pairs = digits.trim().as_bytes().as_chunks::<2>();
    let key: Option<Vec<u8>> = match pairs {
        (pairs, []) => pairs.iter().map(|pair| hex_byte(*pair)).collect(),
        _ => None,
    };
    let key = key.filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| Failure::new(Status::Usage, "the pre-shared key is not in hexadecimal digits"))?;
    Ok(Some(Psk { identity: identity.clone(), key: Zeroizing::new(key) }))
}

fn hex_byte(pair: [u8; 2]) -> Option<u8> {
    let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high? << 4 | low?).ok()
}

/// The first line of a file, or of standard input for `-`.
pub(crate) fn password_from(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_line(&mut text).map(drop)
    } else {
        std::fs::read_to_string(file).map(|whole| text = whole)
    };
    read.map_err(|error| Failure::io(file.display(), &error))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

async fn within<T>(seconds: f64, work: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
    let patience = Duration::try_from_secs_f64(seconds)
        .map_err(|_| ClientError::Usage(format!("{seconds} is no number of seconds")))?;
    tokio::time::timeout(patience, work).await.unwrap_or(Err(ClientError::Timeout(seconds)))
}

/// Runs a client on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|error| Failure::io("the runtime", &error))?.block_on(work))
}
