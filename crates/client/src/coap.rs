//! A CoAP client: sockets around the client role of `fogmux_coap`, which keeps time, blocks and observations.

#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use fogmux_coap::client::{Answer, CallFailed, CallId, RequestError};
use fogmux_coap::{BlockSize, Call, Client, ClientConfig, ClientEvent, Code, Outbox, Timestamp, content_format};
use fogmux_oscore::RequestProtection;
use tokio::net::UdpSocket;
use tokio::time::{Duration, Instant, sleep_until};

use crate::Options;
use crate::coap_stream::Line;
use crate::dtls::Link;
use crate::error::ClientError;
use crate::message::{Arrived, Outgoing};
use crate::oscore::{self, Reserved};
use crate::url::{Scheme, Url};

/// Where topics live.
const ROOT: &str = "ps";
/// RFC 7252 §5.10: the longest Uri-Path option.
const LEVEL_BYTES_MAX: usize = 255;

/// Bytes of a payload in one message over a connection; other messages have their turn in between.
const CHUNK_BYTES_MAX: usize = 64 << 10;

/// Bytes of a request beside its payload where the server takes short records only: header, token, a topic, and others.
const REQUEST_BYTES: usize = 128;

/// The shortest time before an observation is registered again, whatever the server says.
const RETRY_MIN: Duration = Duration::from_secs(1);

/// A socket to publish by.
pub struct Publisher(Exchange);

impl Publisher {
    /// Opens a socket; nothing is sent yet.
    pub async fn open(url: &Url, options: &Options) -> Result<Self, ClientError> {
        Exchange::open(url, options).await.map(Self)
    }

    /// Publishes by PUT (retained) or POST. QoS 0 is Non-confirmable, if it fits into one message. Returns on 2.xx.
    pub async fn publish(&mut self, message: &Outgoing) -> Result<(), ClientError> {
        let format = |name| (name, content_format::of_representation(name, &message.payload));
        let format = message.content_type.as_deref().map(format);
        if let Some((name, None)) = format {
            eprintln!("fogmux: {name:?} has no CoAP Content-Format; it is left out");
        }
        let mut call = call(if message.retain { Code::PUT } else { Code::POST }, &message.topic)?;
        call.confirmable = message.qos > 0;
        call.content_format = format.and_then(|(_, format)| format);
        call.payload = message.payload.clone();
        if message.qos == 0 && self.0.confirmable_above.is_some_and(|most| message.payload.len() > most) {
            // Where nothing is said of QoS, the gateway takes a Confirmable request for QoS 1.
            call.queries.push("qos=0".to_owned());
        }
        self.0.ask(call).await?;
        accepted(&self.0.answer().await?.1)
    }

    /// Ends the session or connection below, if there is one.
    pub async fn close(self) -> Result<(), ClientError> {
        self.0.link.close().await
    }
}

/// The latest message; nothing on 4.04.
pub async fn get(url: &Url, options: &Options) -> Result<Option<Arrived>, ClientError> {
    let mut exchange = Exchange::open(url, options).await?;
    exchange.ask(call(Code::GET, &url.topic)?).await?;
    let (_, answer) = exchange.answer().await?;
    // The answer is there, whether or not the end is heard.
    let _ = exchange.link.close().await;
    if answer.code == Code::NOT_FOUND {
        return Ok(None);
    }
    accepted(&answer)?;
    Ok(Some(arrived(&answer, &url.topic)))
}

/// Subscribes to a filter by FETCH with Observe, which, unlike GET, needs no message to exist yet.
pub async fn subscribe(url: &Url, options: &Options) -> Result<Subscription, ClientError> {
    let mut call = Call::new(Code::FETCH, ROOT);
    call.queries.push(format!("filter={}", url.topic));
    if options.qos > 0 {
        // Notifications are then Confirmable.
        call.queries.push(format!("qos={}", options.qos));
    }
    call.observe = true;
    let mut exchange = Exchange::open(url, options).await?;
    let observation = exchange.ask(call.clone()).await?;
    let (observed, answer) = exchange.answer().await?;
    accepted(&answer)?;
    if !observed {
        return Err(does_not_observe());
    }
    let first = Some(answer).filter(|answer| !answer.location.is_empty());
    Ok(Subscription { exchange, call, observation, topic: url.topic.clone(), first, again: None })
}

/// An observation.
pub struct Subscription {
    exchange: Exchange,
    /// The registration.
    call: Call,
    observation: CallId,
    topic: String,
    first: Option<Answer>,
    /// When to register again, after the gateway has ended the observation for a while.
    again: Option<Instant>,
}

impl Subscription {
    /// The next state of a topic that the filter matches.
    pub async fn next(&mut self) -> Result<Arrived, ClientError> {
        loop {
            if let Some(at) = self.again {
                self.exchange.pause(at).await?;
                self.observation = self.exchange.ask(self.call.clone()).await?;
                self.again = None;
            }
            let (observed, answer) = match self.first.take() {
                Some(answer) => (true, answer),
                None => self.exchange.answer().await?,
            };
            // An error ends the observation (RFC 7641 §3.2, §4.2). 5.03 with Max-Age ends it for so long (RFC 7252
            // §5.9.3.4): the gateway had no more room for what waited, or shuts down and may be started again.
            if answer.code == Code::SERVICE_UNAVAILABLE
                && let Some(seconds) = answer.max_age
            {
                self.again = Some(Instant::now() + RETRY_MIN.max(Duration::from_secs(seconds.into())));
                eprintln!(
                    "fogmux: the gateway has ended the observation (5.03), and messages may be missed; it is registered \
                     again in {seconds} s, and retained messages may come again"
                );
                continue;
            }
            accepted(&answer)?;
            if !observed {
                return Err(does_not_observe());
            }
            // The answer to a registration is no message.
            if answer.location.is_empty() {
                continue;
            }
            return Ok(arrived(&answer, &self.topic));
        }
    }

    /// Ends the observation by asking for it, and waits for the answer (RFC 7641 §3.6); then the link.
    pub async fn close(self) -> Result<(), ClientError> {
        let Self { mut exchange, observation, .. } = self;
        let ended = exchange.cancel(observation).await;
        exchange.link.close().await.and(ended)
    }
}

fn does_not_observe() -> ClientError {
    ClientError::protocol("the gateway answered but does not observe")
}

fn call(method: Code, topic: &str) -> Result<Call, ClientError> {
    if topic.split('/').any(|level| level.len() > LEVEL_BYTES_MAX) {
        return Err(ClientError::Usage(format!("CoAP carries at most {LEVEL_BYTES_MAX} bytes in a level of a topic")));
    }
    Ok(Call::new(method, &format!("{ROOT}/{topic}")))
}

fn arrived(answer: &Answer, asked: &str) -> Arrived {
    let topic = match answer.location.split_first() {
        Some((root, levels)) if root == ROOT => levels.join("/"),
        Some(_) | None => asked.to_owned(),
    };
    Arrived {
        topic,
        payload: answer.payload.clone(),
        content_type: answer.content_format.and_then(content_format::mime_type).map(str::to_owned),
        ..Arrived::default()
    }
}

/// An answer as an error of the command; RFC 7252 §5.5.2: the payload of an error is for people.
fn accepted(answer: &Answer) -> Result<(), ClientError> {
    if answer.code.is_success() {
        return Ok(());
    }
    let number = format!("{}.{:02}", answer.code.as_byte() >> 5, answer.code.as_byte() & 0x1f);
    let name = answer.code.name().unwrap_or("unknown code");
    let said = match std::str::from_utf8(&answer.payload) {
        Ok(text) if !text.is_empty() => format!("{number} {name}: {text}"),
        Ok(_) | Err(_) => format!("{number} {name}"),
    };
    Err(match answer.code {
        Code::UNAUTHORIZED | Code::FORBIDDEN => ClientError::Refused(said),
        Code::TOO_MANY_REQUESTS => ClientError::Unavailable(said),
        code if code.as_byte() >> 5 == 4 => ClientError::NotAccepted(said),
        _ => ClientError::Unavailable(said),
    })
}

/// A socket, a machine and the time.
struct Exchange {
    link: Link,
    client: Client<RequestProtection>,
    out: Outbox<()>,
    started: Instant,
    /// The context of `client`, which gives unused numbers back when it goes last.
    oscore: Option<Reserved>,
    /// Bytes of a payload above which it goes in blocks, Confirmable in any case; `None` over a connection.
    confirmable_above: Option<usize>,
    /// Missed states at the last warning.
    warned: u64,
}

impl Exchange {
    async fn open(url: &Url, options: &Options) -> Result<Self, ClientError> {
        if options.credentials.is_some() || options.token.is_some() {
            return Err(ClientError::Usage("CoAP has no way to carry a password or a token".to_owned()));
        }
        let secret = getrandom::u64().map_err(|error| ClientError::Io(format!("no random numbers: {error}")))?;
        let link = Self::link(url, options).await?;
        let mut config = ClientConfig::default();
        if let Some(limits) = link.limits() {
            config.reliable = true;
            (config.block_size, config.chunk) = limits.blocks(CHUNK_BYTES_MAX);
        }
        if let Some(most) = link.record_bytes_max() {
            // RFC 8449: a server that takes less is sent smaller blocks.
            config.block_size = config.block_size.min(BlockSize::at_most(most.saturating_sub(REQUEST_BYTES)));
        }
        let confirmable_above = (!config.reliable).then(|| config.block_size.bytes());
        let oscore = options.oscore.as_deref().map(oscore::open).transpose()?;
        let protection = oscore.as_ref().map(|reserved| RequestProtection(Arc::clone(reserved.context())));
        let client = Client::with(config, secret, protection);
        let (out, started) = (Outbox::default(), Instant::now());
        Ok(Self { link, client, out, started, oscore, confirmable_above, warned: 0 })
    }

    async fn link(url: &Url, options: &Options) -> Result<Link, ClientError> {
        if url.scheme != Scheme::Coap {
            return Ok(Link::Stream(Box::new(Line::open(url, options).await?)));
        }
        let mut found =
            tokio::net::lookup_host((url.host.as_str(), url.port)).await.map_err(ClientError::unavailable)?;
        let remote = found.next().ok_or_else(|| ClientError::unavailable("the host has no address"))?;
        let local: SocketAddr =
            if remote.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
        let socket = UdpSocket::bind(local).await.map_err(ClientError::unavailable)?;
        socket.connect(remote).await.map_err(ClientError::unavailable)?;
        Link::open(socket, url, options).await
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    async fn ask(&mut self, call: Call) -> Result<CallId, ClientError> {
        let now = self.now();
        let asked = self.client.try_request(now, &call, &mut self.out);
        let id = asked.map_err(|error| match (error, &self.oscore) {
            (RequestError::Unsealed(error), Some(reserved)) => reserved.unsealed(error),
            (error, _) => ClientError::Usage(error.to_string()),
        })?;
        self.flush().await?;
        Ok(id)
    }

    /// Returns when the observation is over.
    async fn cancel(&mut self, observation: CallId) -> Result<(), ClientError> {
        let now = self.now();
        self.client.cancel(now, observation, &mut self.out);
        self.flush().await?;
        while !self.client.is_idle() {
            // Notifications that were on their way.
            while self.client.poll_event().is_some() {}
            self.turn().await?;
        }
        Ok(())
    }

    /// The next answer or notification, and whether more will follow.
    async fn answer(&mut self) -> Result<(bool, Answer), ClientError> {
        loop {
            match self.client.poll_event() {
                Some(ClientEvent::Answered { answer, observed, .. }) => return Ok((observed, answer)),
                Some(ClientEvent::Notified { answer, .. }) => return Ok((true, answer)),
                // Not protected, and yet the best explanation there is.
                Some(ClientEvent::Failed { reason: reason @ CallFailed::Unprotected { .. }, .. }) => {
                    return Err(ClientError::Refused(reason.to_string()));
                }
                Some(ClientEvent::Failed { reason: CallFailed::Unsealed(why), .. }) => {
                    return Err(ClientError::Io(why));
                }
                Some(ClientEvent::Failed { reason, .. }) => return Err(ClientError::unavailable(reason)),
                None => self.turn().await?,
            }
        }
    }

    /// Returns at a point in time. What comes before that is answered and not told.
    async fn pause(&mut self, until: Instant) -> Result<(), ClientError> {
        while Instant::now() < until {
            self.turn_until(until).await?;
            while self.client.poll_event().is_some() {}
        }
        Ok(())
    }

    async fn turn(&mut self) -> Result<(), ClientError> {
        self.turn_until(Instant::now() + Duration::from_secs(3600)).await
    }

    async fn turn_until(&mut self, latest: Instant) -> Result<(), ClientError> {
        let due = self.client.next_timeout().map(|due| self.started + Duration::from_millis(due.as_millis()));
        tokio::select! {
            received = self.link.receive() => {
                let datagram = received?;
                let now = self.now();
                self.client.handle(now, &datagram, &mut self.out);
            }
            () = sleep_until(due.map_or(latest, |due| due.min(latest))) => {
                let now = self.now();
                self.client.handle_timeout(now, &mut self.out);
            }
        }
        self.warn();
        self.flush().await
    }

    /// Says that states were not fetched, each time that they are twice as many.
    fn warn(&mut self) {
        let missed = self.client.missed();
        if missed.states > 0 && missed.states >= 2 * self.warned {
            self.warned = missed.states;
            let (states, path) = (missed.states, missed.last.join("/"));
            eprintln!(
                "fogmux: too many large messages at once: {states} so far were not fetched, the last of {path:?}"
            );
        }
    }

    async fn flush(&mut self) -> Result<(), ClientError> {
        for ((), datagram) in self.out.iter() {
            self.link.send(datagram).await?;
        }
        self.out.clear();
        Ok(())
    }
}
