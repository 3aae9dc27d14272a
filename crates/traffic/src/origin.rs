//! A small CoAP origin, for what our gateway does not do by itself: it answers as it is told, piggybacked or separately
//! (RFC 7252 §5.2), which is scenario B of the document wiss and of seed 002.
//!
//! It keeps a value for each path: PUT and POST replace it, GET gives it (4.04 when there is none), Observe follows. It
//! is to be measured against, not to be used: anybody may write, and nothing bounds how many paths there are.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fogmux_coap::server::{Amplification, Event, Notification, Registered, RelationId};
use fogmux_coap::transmission::Transmission;
use fogmux_coap::{Code, ETag, Incoming, Outbox, Response, Server, ServerConfig, Ticket, Timestamp};
use fogmux_dtls::{self as dtls, CookieKey, Credentials, Endpoint, EndpointConfig, Inbox, Psk};
use fogmux_net::dtls::platform;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};
use zeroize::Zeroizing;

use crate::experiment::CoapAnswer;

/// Bytes of the largest datagram there is.
const DATAGRAM_MAX: usize = 64 << 10;
/// Bodies that are taken, which is what the documents send at most.
const BODY_BYTES_MAX: usize = 16 << 20;

/// Content-Format of text (RFC 7252 §12.3), and a freshness lifetime of one byte, in seconds.
const TEXT: u16 = 0;
const MAX_AGE: u32 = 30;

/// Confirmables under way to one client.
const NSTART: usize = 4096;

/// The configuration of an origin.
#[derive(Clone, Default)]
pub struct OriginConfig {
    /// How it answers Confirmable requests. Non-confirmable ones are answered so in any case.
    pub answer: CoapAnswer,
    /// The time from a GET to its answer, as of a sensor that has to be read.
    pub delay: Duration,
    /// Whether notifications are Confirmable.
    pub confirm_notifications: bool,
    /// DTLS, if at all.
    pub dtls: Option<Keys>,
}

/// The credentials of the DTLS server: a pre-shared key and its identity, a certificate, or both.
#[derive(Clone, Default)]
pub struct Keys {
    psk: Option<(Vec<u8>, Zeroizing<Vec<u8>>)>,
    certified: Option<Arc<CertifiedKey>>,
}

impl Keys {
    /// A pre-shared key.
    #[must_use]
    pub fn psk(identity: &str, key: &[u8]) -> Self {
        Self { psk: Some((identity.as_bytes().to_vec(), Zeroizing::new(key.to_vec()))), certified: None }
    }

    /// A certificate and its key, as PEM.
    ///
    /// # Errors
    /// A file and the reason why it cannot be used.
    pub fn certificate(chain: &Path, key: &Path) -> Result<Self, String> {
        let failed = |file: &Path, why: String| format!("{}: {why}", file.display());
        let certificates = CertificateDer::pem_file_iter(chain).and_then(Iterator::collect);
        let certificates = certificates.map_err(|error| failed(chain, error.to_string()))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, error.to_string()))?;
        let certified = CertifiedKey::from_der(certificates, key, &rustls::crypto::ring::default_provider());
        let certified = certified.map_err(|error| failed(chain, error.to_string()))?;
        Ok(Self { psk: None, certified: Some(Arc::new(certified)) })
    }
}

impl Credentials for Keys {
    fn certified_key(&self) -> Option<Arc<CertifiedKey>> {
        self.certified.clone()
    }

    fn client_verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        None
    }

    fn has_psk(&self) -> bool {
        self.psk.is_some()
    }

    fn psk(&self, _: std::net::IpAddr, identity: &[u8]) -> Option<Psk> {
        self.psk.as_ref().filter(|(known, _)| known == identity).map(|(_, key)| Psk { key: key.clone(), mark: 0 })
    }
}

/// One value and who follows it.
#[derive(Default)]
struct Value {
    bytes: Option<Bytes>,
    version: u64,
    followers: Vec<RelationId>,
}

/// An origin on one socket.
pub struct Origin {
    socket: UdpSocket,
    server: Server<SocketAddr>,
    out: Outbox<SocketAddr>,
    dtls: Option<Protected>,
    values: HashMap<String, Value>,
    config: OriginConfig,
    began: Instant,
    /// GETs whose answers are due later, in the order of when.
    late: VecDeque<(Duration, String, Ticket<SocketAddr>)>,
}

/// Sessions, and the one that each peer has now.
struct Protected {
    endpoint: Endpoint<SocketAddr>,
    inbox: Inbox<SocketAddr>,
    current: HashMap<SocketAddr, dtls::Association>,
    /// Records on their way out.
    records: Outbox<SocketAddr>,
}

impl Origin {
    /// Binds the socket.
    ///
    /// # Errors
    /// The socket's, or there are no random numbers.
    pub async fn bind(address: SocketAddr, config: OriginConfig) -> io::Result<Self> {
        let socket = UdpSocket::bind(address).await?;
        let secret = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
        let dtls = config.dtls.clone().map(Protected::new).transpose()?;
        let server = ServerConfig {
            acknowledge_after: Duration::ZERO,
            body_bytes_max: BODY_BYTES_MAX,
            upload_bytes_max: 4 * BODY_BYTES_MAX,
            download_bytes_max: 4 * BODY_BYTES_MAX,
            amplification: Amplification::Off,
            // As many separate answers at once as an experiment asks for, not one.
            transmission: Transmission { nstart: NSTART, ..Transmission::default() },
            ..ServerConfig::default()
        };
        // Echo is never demanded: what makes its values need keep no secret.
        let server = Server::new(server, secret, Box::new(|_: &[u8]| [0; 8]));
        let (out, values) = (Outbox::default(), HashMap::new());
        let late = VecDeque::new();
        Ok(Self { socket, server, out, dtls, values, config, began: Instant::now(), late })
    }

    /// The address that the origin listens on.
    ///
    /// # Errors
    /// An error of the socket.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until the future is dropped.
    ///
    /// # Errors
    /// An error of the socket.
    pub async fn serve(mut self) -> io::Result<()> {
        let mut buffer = vec![0; DATAGRAM_MAX];
        loop {
            let due = self.next_timeout();
            tokio::select! {
                received = self.socket.recv_from(&mut buffer) => match received {
                    Ok((bytes, from)) => self.take(from, buffer.get(..bytes).unwrap_or_default()),
                    // Somebody who was answered is gone (ICMP).
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                    Err(error) => return Err(error),
                },
                () = sleep_until(due) => self.handle_timeout(),
            }
            self.flush().await;
        }
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn next_timeout(&self) -> Instant {
        let of_server = self.server.next_timeout().map(|due| Duration::from_millis(due.as_millis()));
        let of_dtls = self.dtls.as_ref().and_then(|dtls| dtls.endpoint.next_timeout());
        let of_answers = self.late.front().map(|(due, ..)| *due);
        let soonest = [of_server, of_dtls, of_answers].into_iter().flatten().min();
        self.began + soonest.unwrap_or(self.elapsed() + Duration::from_secs(3600))
    }

    fn handle_timeout(&mut self) {
        let (now, elapsed) = (self.now(), self.elapsed());
        self.server.handle_timeout(now, &mut self.out);
        if let Some(Protected { endpoint, inbox, records, .. }) = &mut self.dtls {
            endpoint.handle_timeout(elapsed, inbox, &mut |to, record| records.push(to, record));
        }
        while let Some((_, path, ticket)) = self.late.pop_front_if(|(due, ..)| *due <= elapsed) {
            self.get(now, path, ticket);
        }
        self.take_events();
        self.attend_observers();
    }

    /// Takes a datagram in.
    fn take(&mut self, from: SocketAddr, datagram: &[u8]) {
        let elapsed = self.elapsed();
        match &mut self.dtls {
            None => self.handle(from, datagram),
            Some(Protected { endpoint, inbox, records, .. }) => {
                endpoint.handle(elapsed, from, datagram, inbox, &mut |to, record| records.push(to, record));
                self.take_events();
            }
        }
    }

    fn take_events(&mut self) {
        let Some(protected) = &mut self.dtls else { return };
        let inbox = std::mem::take(&mut protected.inbox);
        for event in inbox.events() {
            let Some(protected) = &mut self.dtls else { return };
            match event {
                dtls::Event::Established { peer, association, .. } => {
                    protected.current.insert(peer, association);
                    self.server.forget(&peer);
                }
                dtls::Event::Data { peer, data, .. } => self.handle(peer, data),
                dtls::Event::Ended { peer, association, .. } => {
                    if protected.current.get(&peer) == Some(&association) {
                        protected.current.remove(&peer);
                        self.server.forget(&peer);
                    }
                }
                dtls::Event::Moved { .. } | dtls::Event::Failed { .. } => {}
            }
        }
    }

    /// Takes a message in.
    fn handle(&mut self, from: SocketAddr, message: &[u8]) {
        let now = self.now();
        let Some(Incoming { request, ticket }) = self.server.handle(now, from, message, &mut self.out) else {
            self.attend_observers();
            return;
        };
        if self.config.answer == CoapAnswer::Separate {
            self.server.defer(now, &ticket);
            self.server.handle_timeout(now, &mut self.out);
        }
        let path = request.path().collect::<Vec<_>>().join("/");
        match request.method {
            Code::GET if self.config.delay > Duration::ZERO => {
                self.late.push_back((self.elapsed() + self.config.delay, path, ticket));
            }
            Code::GET => self.get(now, path, ticket),
            Code::PUT | Code::POST => {
                self.server.respond(now, ticket, &Response::new(Code::CHANGED), &mut self.out);
                self.put(now, path, Bytes::copy_from_slice(request.body.as_slice()));
            }
            _ => self.server.respond(now, ticket, &Response::new(Code::METHOD_NOT_ALLOWED), &mut self.out),
        }
        self.attend_observers();
    }

    fn get(&mut self, now: Timestamp, path: String, mut ticket: Ticket<SocketAddr>) {
        let value = self.values.entry(path).or_default();
        let observed = self.server.observe(now, &mut ticket);
        if let Ok(Registered::New(relation)) = observed {
            value.followers.push(relation);
        }
        let response = match &value.bytes {
            Some(bytes) => content(bytes, value.version),
            // An observer that waits for the first value must not get an error before (RFC 7641 §4.2).
            None if observed.is_ok() => Response::new(Code::CONTENT),
            None => Response::new(Code::NOT_FOUND),
        };
        self.server.respond(now, ticket, &response, &mut self.out);
    }

    fn put(&mut self, now: Timestamp, path: String, bytes: Bytes) {
        let value = self.values.entry(path).or_default();
        value.version += 1;
        let response = content(&bytes, value.version);
        let confirmable = self.config.confirm_notifications;
        for relation in &value.followers {
            let notification = Notification { response, confirmable, encoded: None, event: false };
            self.server.notify(now, *relation, &notification, &mut self.out);
        }
        value.bytes = Some(bytes);
    }

    /// Forgets observers that are gone, and tells those that may be told again.
    fn attend_observers(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                Event::Ready { relation } => self.tell_again(relation),
                Event::ObserverGone { relation, .. } => {
                    self.values.values_mut().for_each(|value| value.followers.retain(|other| *other != relation));
                }
            }
        }
    }

    /// Tells an observer the newest state, which it could not be told when that came.
    fn tell_again(&mut self, relation: RelationId) {
        let Some(value) = self.values.values().find(|value| value.followers.contains(&relation)) else { return };
        let Some(bytes) = &value.bytes else { return };
        let response = content(bytes, value.version);
        let notification =
            Notification { response, confirmable: self.config.confirm_notifications, encoded: None, event: false };
        let now = self.now();
        self.server.notify(now, relation, &notification, &mut self.out);
    }

    /// Sends what waits. What the socket has no room for is lost, as on a network.
    async fn flush(&mut self) {
        let elapsed = self.elapsed();
        if let Some(Protected { endpoint, current, records, .. }) = &mut self.dtls {
            for (to, message) in self.out.iter() {
                if let Some(association) = current.get(&to) {
                    let _ =
                        endpoint.send(elapsed, to, *association, message, &mut |to, record| records.push(to, record));
                }
            }
            self.out.clear();
            std::mem::swap(&mut self.out, records);
        }
        for (to, datagram) in self.out.iter() {
            let _ = self.socket.send_to(datagram, to).await;
        }
        self.out.clear();
    }
}

impl Protected {
    fn new(keys: Keys) -> io::Result<Self> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| io::Error::other(error.to_string()))?;
        let cookies = Arc::new(CookieKey::new(&secret));
        Ok(Self {
            endpoint: Endpoint::new(EndpointConfig::default(), Arc::new(keys), platform(), cookies),
            inbox: Inbox::default(),
            current: HashMap::new(),
            records: Outbox::default(),
        })
    }
}

/// A value, tagged so that its blocks are told from those of another: with the options that libcoap's example server
/// has in document seoane2021, in nine bytes with the payload marker.
fn content(bytes: &Bytes, version: u64) -> Response<'_> {
    let [.., a, b, c, d] = version.to_be_bytes();
    let (etag, content_format, max_age) = (ETag::new(&[a, b, c, d]), Some(TEXT), Some(MAX_AGE));
    Response {
        etag,
        content_format,
        max_age,
        payload: fogmux_coap::response::Payload::Shared(bytes),
        ..Response::new(Code::CONTENT)
    }
}
