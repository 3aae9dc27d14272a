//! The XMPP door from outside: STARTTLS or direct TLS, SASL, and publish-subscribe (XEP-0060) at `pubsub.<domain>`, on
//! the client role of `fogmux_xmpp`.

mod login;

use bytes::{Buf as _, BytesMut};
use fogmux_xmpp::form::{self, FieldType};
use fogmux_xmpp::iq::{self, IqKind};
use fogmux_xmpp::pubsub::FILTER_OPTION;
use fogmux_xmpp::stream::{ClientConfig, TlsWish};
use fogmux_xmpp::{ClientEvent, ClientStream, Element, Limits, Payload, Writer, ns, payload};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::Options;
use crate::connector::Connector;
use crate::error::ClientError;
use crate::message::{Arrived, Early, Outgoing};
use crate::stream::{Stream, tcp};
use crate::url::Url;

/// A message of 16 MiB in base64 and what stands around it.
const STANZA_BYTES_MAX: usize = 24 << 20;

/// A session to publish by.
pub struct Publisher(Session);

impl Publisher {
    /// Logs in.
    pub async fn open(url: &Url, options: &Options) -> Result<Self, ClientError> {
        Session::open(url, options).await.map(Self)
    }

    /// Publishes an item; returns on the result.
    pub async fn publish(&mut self, message: &Outgoing) -> Result<(), ClientError> {
        let session = &mut self.0;
        let service = session.service.clone();
        iq::request(&mut session.output, IqKind::Set, "publish", Some(&service), |w| write_publish(w, message));
        session.until(|event| answered(event, "publish", |_| Some(()))).await?.map_err(ClientError::from)
    }

    /// Says goodbye.
    pub async fn close(&mut self) {
        self.0.close().await;
    }
}

/// The kept item; nothing on `<item-not-found/>` or an empty list.
pub async fn get(url: &Url, options: &Options) -> Result<Option<Arrived>, ClientError> {
    let mut session = Session::open(url, options).await?;
    let service = session.service.clone();
    iq::request(&mut session.output, IqKind::Get, "items", Some(&service), |w| {
        w.start_ns("pubsub", ns::PUBSUB);
        w.start("items").attr("node", &url.topic).attr("max_items", "1").end("items");
        w.end("pubsub");
    });
    let found = session.until(|event| answered(event, "items", |iq| Some(kept(iq)))).await?;
    session.close().await;
    match found {
        Ok(kept) => kept,
        Err(Refusal::NotFound) => Ok(None),
        Err(Refusal::Error(error)) => Err(error),
    }
}

/// Follows a filter; returns on the result.
pub async fn subscribe(url: &Url, options: &Options) -> Result<Subscription, ClientError> {
    let mut session = Session::open(url, options).await?;
    let (early, ended) = session.follow(&url.topic).await?;
    Ok(Subscription { session, node: url.topic.clone(), early, ended })
}

/// Whether a node is named by a filter of several topics.
fn is_filter(node: &str) -> bool {
    node.split('/').any(|level| level == "+" || level == "#")
}

/// A subscription.
pub struct Subscription {
    session: Session,
    /// The topic or filter.
    node: String,
    /// Messages that arrived before they were requested.
    early: Early,
    /// The node was deleted, and the subscription with it (XEP-0060 §8.4).
    ended: bool,
}

impl Subscription {
    /// The next item, or an empty message where a topic has lost its item. A topic whose node was deleted is followed
    /// again: it is a node with the next message.
    pub async fn next(&mut self) -> Result<Arrived, ClientError> {
        loop {
            if let Some(message) = self.early.next()? {
                return Ok(message);
            }
            if self.ended {
                (self.early, self.ended) = self.session.follow(&self.node).await?;
                continue;
            }
            let node = (!is_filter(&self.node)).then_some(&*self.node);
            let heard = |event: ClientEvent<'_>| {
                let ClientEvent::Stanza(stanza) = event else { return None };
                let ended = node.is_some_and(|node| is_deletion(&stanza, node));
                Some((messages(&stanza)?, ended))
            };
            let (messages, ended) = self.session.until(heard).await?;
            self.early.extend(messages);
            self.ended = ended;
        }
    }

    /// Ends the stream.
    pub async fn close(mut self) {
        self.session.close().await;
    }
}

fn write_publish(w: &mut Writer<'_>, message: &Outgoing) {
    w.start_ns("pubsub", ns::PUBSUB);
    w.start("publish").attr("node", &message.topic).start("item");
    w.raw_with(|out| payload::write(out, message.content_type.as_deref(), &message.payload));
    w.end("item").end("publish");
    if !message.retain {
        w.start("publish-options");
        form::open(w, "submit", ns::PUBLISH_OPTIONS);
        form::field(w, "pubsub#persist_items", FieldType::Boolean, None, &["0"], &[]);
        form::close(w);
        w.end("publish-options");
    }
    w.end("pubsub");
}

/// The messages of an event, which are empty where a topic has lost its item; nothing when it is none.
fn messages(stanza: &Element<'_>) -> Option<Vec<Arrived>> {
    let event = stanza.child(ns::PUBSUB_EVENT, "event")?;
    let of = |name| event.child(ns::PUBSUB_EVENT, name);
    let cleared = |element: &Element<'_>| {
        let topic = element.attr("node").unwrap_or_default().to_owned();
        vec![Arrived { topic, ..Arrived::default() }]
    };
    // §7.1.2.1, §7.2.2.1, §8.5.2 and §8.4.2.
    match (of("items"), of("purge").or_else(|| of("delete"))) {
        (Some(items), _) if items.child(ns::PUBSUB_EVENT, "retract").is_some() => Some(cleared(items)),
        (Some(items), _) => Some(of_items(items, ns::PUBSUB_EVENT)),
        (None, Some(gone)) => Some(cleared(gone)),
        (None, None) => None,
    }
}

/// Whether an event says that the node was deleted.
fn is_deletion(stanza: &Element<'_>, node: &str) -> bool {
    let deleted = stanza.child(ns::PUBSUB_EVENT, "event").and_then(|event| event.child(ns::PUBSUB_EVENT, "delete"));
    deleted.is_some_and(|deleted| deleted.attr("node") == Some(node))
}

/// The first item of a result.
fn kept(iq: &Element<'_>) -> Result<Option<Arrived>, ClientError> {
    let items = iq.child(ns::PUBSUB, "pubsub").and_then(|pubsub| pubsub.child(ns::PUBSUB, "items"));
    let items = items.ok_or_else(|| ClientError::protocol("a result without items"))?;
    Ok(of_items(items, ns::PUBSUB).into_iter().next())
}

fn of_items(items: &Element<'_>, namespace: &str) -> Vec<Arrived> {
    let node = items.attr("node").unwrap_or_default();
    let arrived = |item: &Element<'_>| {
        let payload = Payload::of_item(item).ok()??;
        Some(Arrived {
            topic: node.to_owned(),
            payload: payload.bytes.into_owned().into(),
            content_type: payload.content_type.map(str::to_owned),
            ..Arrived::default()
        })
    };
    items.children_named(namespace, "item").filter_map(arrived).collect()
}

/// Why a request was answered with an error.
enum Refusal {
    NotFound,
    Error(ClientError),
}

impl From<Refusal> for ClientError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound => Self::NotAccepted("item-not-found".to_owned()),
            Refusal::Error(error) => error,
        }
    }
}

/// The answer to the request `id`.
fn answered<T>(
    event: ClientEvent<'_>,
    id: &str,
    read: impl FnOnce(&Element<'_>) -> Option<T>,
) -> Option<Result<T, Refusal>> {
    let ClientEvent::Stanza(stanza) = event else { return None };
    if stanza.name != "iq" || stanza.attr("id") != Some(id) {
        return None;
    }
    match stanza.attr("type") {
        Some("result") => read(&stanza).map(Ok),
        Some("error") => Some(Err(refusal(&stanza))),
        Some(_) | None => None,
    }
}

/// RFC 6120 §8.3: the condition, and a text for people.
fn refusal(stanza: &Element<'_>) -> Refusal {
    let error = stanza.elements().find(|child| child.name == "error");
    let conditions = error.into_iter().flat_map(Element::elements);
    let (mut condition, mut text) = ("undefined-condition", None);
    for child in conditions.filter(|child| child.namespace == ns::STANZA_ERRORS) {
        if child.name == "text" { text = Some(child.text()) } else { condition = child.name }
    }
    let said = match text {
        Some(text) => format!("{condition}: {text}"),
        None => condition.to_owned(),
    };
    match condition {
        "item-not-found" => Refusal::NotFound,
        "forbidden" | "not-authorized" | "not-allowed" => Refusal::Error(ClientError::Refused(said)),
        "resource-constraint" | "service-unavailable" | "internal-server-error" | "remote-server-timeout" => {
            Refusal::Error(ClientError::Unavailable(said))
        }
        _ => Refusal::Error(ClientError::NotAccepted(said)),
    }
}

/// A logged-in stream.
struct Session {
    transport: Stream,
    stream: ClientStream,
    input: BytesMut,
    output: Vec<u8>,
    service: String,
    jid: String,
    /// The host and port of the URL.
    host: (String, u16),
}

impl Session {
    /// Subscribes to a node or filter; returns on the result, with the messages that have overtaken it, and whether the
    /// end of the subscription has.
    async fn follow(&mut self, node: &str) -> Result<(Early, bool), ClientError> {
        let (service, jid) = (self.service.clone(), self.jid.clone());
        iq::request(&mut self.output, IqKind::Set, "subscribe", Some(&service), |w| {
            w.start_ns("pubsub", ns::PUBSUB);
            w.start("subscribe").attr("node", node).attr("jid", &jid).end("subscribe");
            if is_filter(node) {
                w.start("options");
                form::open(w, "submit", ns::SUBSCRIBE_OPTIONS);
                form::field(w, FILTER_OPTION, FieldType::TextSingle, None, &["true"], &[]);
                form::close(w);
                w.end("options");
            }
            w.end("pubsub");
        });
        let (mut early, mut ended) = (Early::default(), false);
        let heard = |event: ClientEvent<'_>| {
            if let ClientEvent::Stanza(stanza) = &event {
                early.extend(messages(stanza).into_iter().flatten());
                ended |= !is_filter(node) && is_deletion(stanza, node);
            }
            if early.is_too_many() { Some(Ok(())) } else { answered(event, "subscribe", |_| Some(())) }
        };
        self.until(heard).await??;
        Ok((early, ended))
    }

    /// Connects, secures, logs in and binds a resource.
    async fn open(url: &Url, options: &Options) -> Result<Self, ClientError> {
        let domain = options.domain.clone().unwrap_or_else(|| default_domain(&url.host));
        let transport = tcp(&url.host, url.port).await?;
        let transport = if url.secure {
            // XEP-0368 §3: the protocol name of direct TLS.
            Connector::new(options, &[b"xmpp-client"])?.connect(transport, &domain).await?
        } else {
            Stream::Plain(transport)
        };
        let config = ClientConfig {
            domain: domain.clone(),
            resource: None,
            tls: if url.secure { TlsWish::No } else { TlsWish::StartTls },
            limits: Limits { stanza_bytes_max: STANZA_BYTES_MAX, ..Limits::default() },
        };
        let mut output = Vec::new();
        let stream = ClientStream::new(config, &mut output);
        let service = format!("pubsub.{domain}");
        let host = (url.host.clone(), url.port);
        let mut this = Self { transport, stream, input: BytesMut::new(), output, service, jid: String::new(), host };
        if !url.secure {
            this.until(|event| matches!(event, ClientEvent::StartTls).then_some(())).await?;
            this = this.secure(&domain, options).await?;
        }
        this.log_in(options).await?;
        let bound = |event: ClientEvent<'_>| {
            if let ClientEvent::Bound(jid) = event { Some(jid.to_string()) } else { None }
        };
        this.jid = this.until(bound).await?;
        Ok(this)
    }

    /// RFC 6120 §5.4.3.3: what came before TLS does not count.
    async fn secure(mut self, domain: &str, options: &Options) -> Result<Self, ClientError> {
        let Stream::Plain(plain) = self.transport else { return Ok(self) };
        self.transport = Connector::new(options, &[])?.connect(plain, domain).await?;
        self.input.clear();
        self.stream.tls_established(&mut self.output);
        Ok(self)
    }

    /// Sends what is to be sent and takes what comes until `wanted` says what it was waiting for.
    async fn until<T>(&mut self, mut wanted: impl FnMut(ClientEvent<'_>) -> Option<T>) -> Result<T, ClientError> {
        loop {
            loop {
                let (used, event) = self.stream.handle(&self.input, &mut self.output);
                let Some(event) = event else {
                    self.input.advance(used);
                    if used > 0 {
                        continue;
                    }
                    break;
                };
                let found = match event {
                    ClientEvent::Refused(condition) => return Err(ClientError::Refused(condition)),
                    ClientEvent::Ended(condition) => return Err(ended(condition)),
                    ClientEvent::Failed(error) => return Err(ClientError::protocol(error)),
                    event @ (ClientEvent::StartTls
                    | ClientEvent::Mechanisms(_)
                    | ClientEvent::Challenge(_)
                    | ClientEvent::Success(_)
                    | ClientEvent::Bound(_)
                    | ClientEvent::Stanza(_)) => wanted(event),
                };
                self.input.advance(used);
                if let Some(found) = found {
                    return Ok(found);
                }
            }
            self.flush().await?;
            if self.transport.read_buf(&mut self.input).await.map_err(ClientError::unavailable)? == 0 {
                return Err(ClientError::unavailable("the gateway closed the connection"));
            }
        }
    }

    async fn flush(&mut self) -> Result<(), ClientError> {
        self.transport.write_all(&self.output).await.map_err(ClientError::unavailable)?;
        self.transport.flush().await.map_err(ClientError::unavailable)?;
        self.output.clear();
        Ok(())
    }

    /// Closes the stream. Errors are ignored, since the request is complete and the server may be gone.
    async fn close(&mut self) {
        self.stream.close(&mut self.output);
        let _ = self.flush().await;
        let _ = self.transport.shutdown().await;
    }
}

fn ended(condition: Option<fogmux_xmpp::StreamCondition>) -> ClientError {
    match condition {
        Some(condition) => ClientError::Unavailable(format!("the gateway ended the stream: {}", condition.as_str())),
        None => ClientError::unavailable("the gateway ended the stream"),
    }
}

/// The gateway's domain is `localhost` until it is configured, however it is reached on this machine.
fn default_domain(host: &str) -> String {
    match host.parse::<std::net::IpAddr>() {
        Ok(ip) if ip.is_loopback() => "localhost".to_owned(),
        Ok(_) | Err(_) => host.to_owned(),
    }
}
