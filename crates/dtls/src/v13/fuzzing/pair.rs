//! An endpoint and an honest client whose secrets are known, so that somebody else can speak in their names.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustls::KeyLog;
use zeroize::Zeroizing;

use super::toys::{self, HANDSHAKES_MAX, SESSIONS_MAX, platform};
use crate::{
    Association, Endpoint, Event, Inbox, Sent, Suite, Suite13,
    client::{Client, ClientConfig, ClientEvent},
    v13::schedule::Secret,
    wire::{HANDSHAKE_HEADER, RECORD_HEADER},
};

pub(super) const IDENTITY: &[u8] = b"device";
pub(super) const KEY: &[u8] = b"the key of the device";
/// Bytes that one datagram may make an end say: the longest flight there is here, twice.
const ANSWER_MAX: usize = 4000;

/// The keys of an endpoint with one device.
pub(super) fn keys() -> toys::Keys {
    toys::Keys(|identity| (identity == IDENTITY).then_some(KEY))
}

/// The secrets of one client, by the labels of a key log.
#[derive(Default)]
pub(super) struct Secrets(Mutex<HashMap<String, Vec<u8>>>);

impl Secrets {
    pub(super) fn get<const N: usize>(&self, label: &str) -> Option<Zeroizing<[u8; N]>> {
        let secrets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        secrets.get(label).and_then(|secret| secret[..].try_into().ok()).map(Zeroizing::new)
    }

    pub(super) fn traffic(&self, label: &str) -> Option<Secret> {
        self.get(label)
    }
}

impl KeyLog for Secrets {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(label.to_owned(), secret.to_vec());
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

/// The offer of a client: one version, one suite, one kind of credential.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) is_newer: bool,
    pub(super) by_certificate: bool,
    pub(super) has_exchange: bool,
    pub(super) has_identifier: bool,
    pub(super) nth: u8,
}

impl Way {
    pub(super) const fn new(how: u8) -> Self {
        let by_certificate = how & 2 != 0;
        Self {
            is_newer: how & 1 != 0,
            by_certificate,
            has_exchange: by_certificate || how & 4 != 0,
            has_identifier: how & 8 != 0,
            nth: how >> 4,
        }
    }

    pub(super) fn suite(self) -> Suite {
        let of = |some: [Suite; 3]| some[usize::from(self.nth) % 3];
        match (self.by_certificate, self.has_exchange) {
            (true, _) => of([Suite::EcdheEcdsaAes128Gcm, Suite::EcdheEcdsaAes128Ccm, Suite::EcdheEcdsaAes128Ccm8]),
            (false, true) => of([Suite::EcdhePskAes128Gcm, Suite::EcdhePskAes128Ccm, Suite::EcdhePskAes128Ccm8]),
            (false, false) => of([Suite::PskAes128Gcm, Suite::PskAes128Ccm, Suite::PskAes128Ccm8]),
        }
    }

    pub(super) fn suite_13(self) -> Suite13 {
        Suite13::ALL[usize::from(self.nth) % 3]
    }

    pub(super) fn config(self, secrets: &Arc<Secrets>) -> ClientConfig {
        let mut config =
            if self.by_certificate { toys::by_certificate(false) } else { ClientConfig::psk(IDENTITY, KEY) };
        (config.suites, config.suites_13) = (vec![self.suite()], vec![self.suite_13()]);
        if self.is_newer {
            config.suites.clear();
        } else {
            config.suites_13.clear();
        }
        if !self.has_exchange {
            config.groups.clear();
        }
        config.identifiers = self.has_identifier;
        config.key_log = Some(Arc::clone(secrets) as _);
        config
    }
}

pub(super) struct Pair {
    pub(super) endpoint: Endpoint<SocketAddr>,
    pub(super) client: Client,
    pub(super) secrets: Arc<Secrets>,
    pub(super) from: SocketAddr,
    pub(super) now: Duration,
    pub(super) up: VecDeque<Vec<u8>>,
    pub(super) down: VecDeque<Vec<u8>>,
    /// The client's first datagram, and the random number in it.
    pub(super) greeting: Vec<u8>,
    pub(super) random: [u8; 32],
    /// Everything that the server has said.
    pub(super) said: Vec<Vec<u8>>,
    inbox: Inbox<SocketAddr>,
    /// The session of the client, as long as it is there.
    pub(super) association: Option<Association>,
    pub(super) made: usize,
    /// Data that has come to the server.
    pub(super) heard: Vec<Vec<u8>>,
    /// The events of the client.
    pub(super) events: Vec<ClientEvent>,
}

impl Pair {
    pub(super) fn new(way: Way) -> Self {
        toys::reseed(0x9E37_79B9_7F4A_7C15);
        let secrets = Arc::new(Secrets::default());
        let (client, up) = start(way.config(&secrets), Duration::ZERO);
        let greeting = up.front().cloned().unwrap_or_default();
        let random = greeting.get(RECORD_HEADER + HANDSHAKE_HEADER + 2..).and_then(|rest| rest.first_chunk());
        Self {
            endpoint: toys::endpoint(keys()),
            client,
            secrets,
            random: random.copied().unwrap_or_default(),
            greeting,
            from: SocketAddr::from(([192, 0, 2, 1], 5000)),
            now: Duration::ZERO,
            up,
            down: VecDeque::new(),
            said: Vec::new(),
            inbox: Inbox::default(),
            association: None,
            made: 0,
            heard: Vec::new(),
            events: Vec::new(),
        }
    }

    /// A datagram comes to the server; its answers are on their way to the client.
    pub(super) fn arrive(&mut self, datagram: &[u8]) {
        let (before, from) = (self.down.len(), self.from);
        let (down, said) = (&mut self.down, &mut self.said);
        let mut send = |to, bytes: &[u8]| {
            assert_eq!(to, from, "an answer to somebody else");
            down.push_back(bytes.to_vec());
            said.push(bytes.to_vec());
        };
        self.endpoint.handle(self.now, from, datagram, &mut self.inbox, &mut send);
        let bytes: usize = self.down.iter().skip(before).map(Vec::len).sum();
        assert!(bytes <= ANSWER_MAX, "{bytes} bytes for {}", datagram.len());
        self.look();
    }

    fn look(&mut self) {
        for event in self.inbox.events() {
            match event {
                Event::Established { association, channel, .. } => {
                    let by_key = channel.psk.as_ref().map(|psk| &*psk.identity) == Some(IDENTITY);
                    assert!(by_key || channel.certificate == Some(toys::certificate()), "nobody in particular");
                    self.association = Some(association);
                    self.made += 1;
                }
                Event::Data { association, data, .. } => {
                    assert_eq!(Some(association), self.association, "data of no session");
                    self.heard.push(data.to_vec());
                }
                Event::Ended { association, .. } => {
                    self.association.take_if(|ours| *ours == association);
                }
                Event::Moved { .. } | Event::Failed { .. } => {}
            }
        }
        self.inbox.clear();
        assert!(self.endpoint.sessions() <= SESSIONS_MAX && self.endpoint.handshakes() <= HANDSHAKES_MAX);
    }

    /// The client takes in what is on its way to it.
    pub(super) fn hear(&mut self) {
        while let Some(datagram) = self.down.pop_front() {
            let up = &mut self.up;
            self.events.extend(self.client.handle(self.now, &datagram, &mut |bytes| up.push_back(bytes.to_vec())));
        }
    }

    /// Everything arrives until nobody says anything.
    pub(super) fn settle(&mut self) {
        while let Some(datagram) = self.up.pop_front() {
            self.arrive(&datagram);
            self.hear();
        }
        self.hear();
    }

    pub(super) fn wait(&mut self, time: Duration) {
        self.now += time;
        let up = &mut self.up;
        self.client.handle_timeout(self.now, &mut |bytes| up.push_back(bytes.to_vec()));
        let (down, said) = (&mut self.down, &mut self.said);
        let mut send = |_, bytes: &[u8]| {
            down.push_back(bytes.to_vec());
            said.push(bytes.to_vec());
        };
        self.endpoint.handle_timeout(self.now, &mut self.inbox, &mut send);
        self.look();
    }

    /// Data for the client; whether there was a session.
    pub(super) fn tell(&mut self, data: &[u8]) -> bool {
        let Some(association) = self.association else { return false };
        let (down, said) = (&mut self.down, &mut self.said);
        let mut send = |_, bytes: &[u8]| {
            down.push_back(bytes.to_vec());
            said.push(bytes.to_vec());
        };
        self.endpoint.send(self.now, self.from, association, data, &mut send) != Sent::Ended
    }

    /// Another client gets a session at once, and nothing is left when all are gone.
    pub(super) fn serves_others(mut self, way: Way) {
        self.from.set_port(6000);
        (self.client, self.up) = start(way.config(&self.secrets), self.now);
        self.down.clear();
        self.settle();
        assert!(self.client.is_established(), "no session for somebody else: {:?}", self.events);
        let up = &mut self.up;
        self.client.send(b"question", &mut |bytes| up.push_back(bytes.to_vec()));
        self.settle();
        assert_eq!(self.heard.last().map(|data| &data[..]), Some(&b"question"[..]));
        assert!(self.tell(b"answer"));
        self.hear();
        assert_eq!(self.events.last(), Some(&ClientEvent::Data(b"answer".to_vec())));
        self.endpoint.close_all(&mut self.inbox, &mut |_, _| ());
        self.wait(Duration::from_secs(100));
        assert_eq!((self.endpoint.sessions(), self.endpoint.handshakes()), (0, 0));
        assert!(self.endpoint.peers() == 0 && self.endpoint.names.is_empty(), "somebody is left");
    }
}

fn start(config: ClientConfig, now: Duration) -> (Client, VecDeque<Vec<u8>>) {
    let mut up = VecDeque::new();
    let client = Client::start(config, platform(), now, &mut |bytes| up.push_back(bytes.to_vec()));
    (client.unwrap_or_else(|alert| panic!("a client does not start: {alert:?}")), up)
}
