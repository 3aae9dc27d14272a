//! The MQTT door from outside: TCP, TLS and WebSocket, versions 3.1.1 and 5, on the client role of `fogmux_mqtt`.

#![expect(clippy::wildcard_enum_match_arm, reason = "who waits for one event lets all others pass")]

use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use fogmux_mqtt::{
    Client, ClientLimits, Connect, Event, Incoming, Outgoing as Packet, Properties, PublishProperties, Qos, ReasonCode,
    RetainHandling, SubscriptionOptions, Version,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until, timeout};

use crate::error::ClientError;
use crate::message::{Arrived, Early, Outgoing};
use crate::stream::Stream;
use crate::url::{Scheme, Url};
use crate::websocket::WebSocket;
use crate::{MqttVersion, Options};

/// Seconds; the gateway may ask for another.
const KEEP_ALIVE: u16 = 60;
/// How long a retained message may still arrive after everything else was answered: MQTT does not say that there is
/// none.
const GRACE: Duration = Duration::from_millis(500);

/// A connection to publish by.
pub struct Publisher(Conversation);

impl Publisher {
    /// Connects; returns on CONNACK.
    pub async fn open(url: &Url, options: &Options) -> Result<Self, ClientError> {
        Conversation::open(url, options).await.map(Self)
    }

    /// Publishes; returns on PUBACK, PUBCOMP, or for QoS 0 on the answer to a ping behind it.
    pub async fn publish(&mut self, message: &Outgoing) -> Result<(), ClientError> {
        let conversation = &mut self.0;
        if message.content_type.is_some() && conversation.version == MqttVersion::V311 {
            return Err(ClientError::Usage("MQTT 3.1.1 has no content type; leave it out or use --mqtt 5".to_owned()));
        }
        let packet = Packet {
            topic: &message.topic,
            qos: qos(message.qos),
            retain: message.retain,
            content_type: message.content_type.as_deref(),
            payload: &message.payload,
            ..Packet::default()
        };
        let sent = conversation.client.publish(&packet, &mut conversation.output);
        let sent = sent.map_err(|error| ClientError::NotAccepted(error.to_string()))?;
        if sent.is_none() {
            conversation.client.ping(&mut conversation.output);
        }
        let done = |event: Event<'_>| match event {
            Event::Published { packet_id, reason } if Some(packet_id) == sent => Some(succeeded(reason, None)),
            Event::Pong if sent.is_none() => Some(Ok(())),
            _ => None,
        };
        conversation.until(done).await?
    }

    /// Says goodbye.
    pub async fn close(&mut self) -> Result<(), ClientError> {
        self.0.close().await
    }
}

/// The retained message that arrives after subscribing.
pub async fn get(url: &Url, options: &Options) -> Result<Option<Arrived>, ClientError> {
    let mut subscription = subscribe(url, options).await?;
    let conversation = &mut subscription.0;
    conversation.client.ping(&mut conversation.output);
    let found = match std::mem::take(&mut conversation.early).next()? {
        Some(message) => Some(message),
        None => {
            let kept = |event: Event<'_>| match event {
                Event::Message(incoming) if incoming.retain => Some(Some(arrived(&incoming))),
                Event::Pong => Some(None),
                _ => None,
            };
            match conversation.until(kept).await? {
                Some(message) => Some(message),
                None => timeout(GRACE, conversation.until(kept)).await.unwrap_or(Ok(None))?,
            }
        }
    };
    subscription.0.close().await?;
    Ok(found)
}

/// Follows a filter; returns on SUBACK.
pub async fn subscribe(url: &Url, options: &Options) -> Result<Subscription, ClientError> {
    let mut conversation = Conversation::open(url, options).await?;
    let wanted = SubscriptionOptions {
        qos: qos(options.qos),
        no_local: false,
        retain_as_published: options.mqtt == MqttVersion::V5,
        retain_handling: RetainHandling::Always,
    };
    let entries = [(url.topic.as_str(), wanted)];
    let sent = conversation.client.subscribe(&entries, Properties::NONE, &mut conversation.output);
    let sent = sent.map_err(|error| ClientError::NotAccepted(error.to_string()))?;
    let mut early = Early::default();
    let granted = |event: Event<'_>| match event {
        Event::Subscribed { packet_id, codes } if packet_id == sent => {
            Some(codes.iter().try_for_each(|code| succeeded(code, None)))
        }
        // [MQTT-3.8.4-2]: retained messages may arrive before SUBACK.
        Event::Message(incoming) => {
            early.extend([arrived(&incoming)]);
            early.is_too_many().then(|| early.next().map(drop))
        }
        _ => None,
    };
    conversation.until(granted).await??;
    conversation.early = early;
    Ok(Subscription(conversation))
}

/// A subscription.
pub struct Subscription(Conversation);

impl Subscription {
    /// The next message.
    pub async fn next(&mut self) -> Result<Arrived, ClientError> {
        if let Some(message) = self.0.early.next()? {
            return Ok(message);
        }
        let message = |event: Event<'_>| match event {
            Event::Message(incoming) => Some(arrived(&incoming)),
            _ => None,
        };
        self.0.until(message).await
    }

    /// Sends DISCONNECT.
    pub async fn close(mut self) -> Result<(), ClientError> {
        self.0.close().await
    }
}

fn arrived(incoming: &Incoming<'_>) -> Arrived {
    Arrived {
        topic: incoming.topic.as_str().to_owned(),
        payload: incoming.payload.to_vec().into(),
        content_type: PublishProperties::from(incoming.properties).content_type.map(str::to_owned),
        qos: Some(incoming.qos.bits()),
        retain: Some(incoming.retain),
    }
}

/// A connection, a machine and what is between them.
struct Conversation {
    transport: Transport,
    client: Client,
    version: MqttVersion,
    input: BytesMut,
    output: Vec<u8>,
    early: Early,
    next_ping: Instant,
}

impl Conversation {
    /// Connects; returns on CONNACK of success.
    async fn open(url: &Url, options: &Options) -> Result<Self, ClientError> {
        let transport = match url.scheme {
            Scheme::WebSocket => Transport::WebSocket(Box::new(WebSocket::open(url, options).await?)),
            Scheme::Mqtt | Scheme::Coap | Scheme::CoapTcp | Scheme::CoapWebSocket | Scheme::Http | Scheme::Xmpp => {
                Transport::Stream(Box::new(Stream::open(url, options, &[b"mqtt"]).await?))
            }
        };
        let version = match options.mqtt {
            MqttVersion::V311 => Version::V311,
            MqttVersion::V5 => Version::V5,
        };
        let (user, password) = match (&options.token, &options.credentials) {
            // A token says whose it is. MQTT 3.1.1 has no password without a user name (§3.1.2.9).
            (Some(token), _) => (Some("").filter(|_| version != Version::V5), Some(token)),
            (None, Some((user, password))) => (Some(user.as_str()), Some(password)),
            (None, None) => (None, None),
        };
        let connect = Connect {
            version,
            bridge: false,
            clean_start: true,
            keep_alive: KEEP_ALIVE,
            client_id: options.client_id.as_deref().unwrap_or_default(),
            will: None,
            user,
            password: password.map(String::as_bytes),
            properties: Properties::NONE,
        };
        let mut output = Vec::new();
        let client = Client::connect(&connect, ClientLimits::default(), &mut output)
            .map_err(|error| ClientError::Usage(error.to_string()))?;
        let next_ping = Instant::now() + Duration::from_secs(u64::from(KEEP_ALIVE));
        let (input, early) = (BytesMut::new(), Early::default());
        let mut this = Self { transport, client, version: options.mqtt, input, output, early, next_ping };
        let connected = |event: Event<'_>| match event {
            Event::Connected { .. } => Some(Ok(())),
            Event::Refused { reason, text } => Some(succeeded(reason, text)),
            _ => None,
        };
        this.until(connected).await??;
        Ok(this)
    }

    /// Sends output and handles input until `wanted` returns a value.
    async fn until<T>(&mut self, mut wanted: impl FnMut(Event<'_>) -> Option<T>) -> Result<T, ClientError> {
        loop {
            while let Some((event, used)) =
                self.client.handle(&self.input, &mut self.output).map_err(ClientError::protocol)?
            {
                if let Event::Disconnected { reason, text } = &event {
                    return Err(match succeeded(*reason, *text) {
                        Err(refused) => refused,
                        Ok(()) => ClientError::unavailable("the gateway ended the connection"),
                    });
                }
                let found = wanted(event);
                self.input.advance(used);
                if let Some(found) = found {
                    self.flush().await?;
                    return Ok(found);
                }
            }
            self.flush().await?;
            self.receive().await?;
        }
    }

    async fn receive(&mut self) -> Result<(), ClientError> {
        loop {
            tokio::select! {
                received = self.transport.receive(&mut self.input) => return received,
                () = sleep_until(self.next_ping), if self.client.ping_interval().is_some() => {
                    self.client.ping(&mut self.output);
                    self.flush().await?;
                }
            }
        }
    }

    async fn flush(&mut self) -> Result<(), ClientError> {
        if self.output.is_empty() {
            return Ok(());
        }
        self.transport.send(&self.output).await?;
        self.output.clear();
        self.next_ping = Instant::now() + self.client.ping_interval().unwrap_or_default();
        Ok(())
    }

    async fn close(&mut self) -> Result<(), ClientError> {
        self.client.disconnect(ReasonCode::SUCCESS, &mut self.output);
        self.flush().await?;
        self.transport.close().await
    }
}

/// The transport of the packets.
enum Transport {
    Stream(Box<Stream>),
    WebSocket(Box<WebSocket>),
}

impl Transport {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        match self {
            Self::Stream(stream) => {
                stream.write_all(bytes).await.map_err(ClientError::unavailable)?;
                stream.flush().await.map_err(ClientError::unavailable)
            }
            Self::WebSocket(socket) => socket.send(bytes).await,
        }
    }

    async fn receive(&mut self, input: &mut BytesMut) -> Result<(), ClientError> {
        match self {
            Self::Stream(stream) => match stream.read_buf(input).await {
                Ok(0) => Err(ClientError::unavailable("the gateway closed the connection")),
                Ok(_) => Ok(()),
                Err(error) => Err(ClientError::unavailable(error)),
            },
            Self::WebSocket(socket) => socket.receive(input).await,
        }
    }

    async fn close(&mut self) -> Result<(), ClientError> {
        match self {
            // Everything published is acknowledged: the peer may be gone already.
            Self::Stream(stream) => {
                let _ = stream.shutdown().await;
                Ok(())
            }
            Self::WebSocket(socket) => {
                let _ = socket.close().await;
                Ok(())
            }
        }
    }
}

fn qos(bits: u8) -> Qos {
    Qos::from_bits(bits).unwrap_or(Qos::ExactlyOnce)
}

/// A reason code as an error of the command.
fn succeeded(reason: ReasonCode, text: Option<&str>) -> Result<(), ClientError> {
    if !reason.is_error() {
        return Ok(());
    }
    let said = match text {
        Some(text) => format!("{} (0x{:02x}): {text}", reason.name(), reason.0),
        None => format!("{} (0x{:02x})", reason.name(), reason.0),
    };
    Err(match reason {
        ReasonCode::BAD_USER_NAME_OR_PASSWORD | ReasonCode::NOT_AUTHORIZED | ReasonCode::BANNED => {
            ClientError::Refused(said)
        }
        ReasonCode::QUOTA_EXCEEDED
        | ReasonCode::SERVER_BUSY
        | ReasonCode::SERVER_UNAVAILABLE
        | ReasonCode::SERVER_SHUTTING_DOWN
        | ReasonCode::SESSION_TAKEN_OVER
        | ReasonCode::UNSPECIFIED_ERROR => ClientError::Unavailable(said),
        _ => ClientError::NotAccepted(said),
    })
}
