//! A server, a client and a simulated network between them: seeded loss, repetition and disorder, time by hand.

use std::{collections::VecDeque, net::SocketAddr, sync::Arc, time::Duration};

use super::keys::{Keys, platform};
use crate::{
    Association, CookieKey, Endpoint, EndpointConfig, Event, Inbox, Sent,
    client::{Client, ClientConfig, ClientEvent},
};

pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) fn endpoint(keys: Arc<Keys>, config: EndpointConfig) -> Endpoint<SocketAddr> {
    Endpoint::new(config, keys, platform(), Arc::new(CookieKey::new(&[3; 32])))
}

pub(crate) fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

/// Without DTLS 1.3.
pub(crate) fn older(config: ClientConfig) -> ClientConfig {
    ClientConfig { suites_13: Vec::new(), ..config }
}

/// Numbers that only look random.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// A server, a client and what is on its way between them.
pub(crate) struct Net {
    pub(crate) server: Endpoint<SocketAddr>,
    pub(crate) client: Client,
    pub(crate) port: u16,
    pub(crate) now: Duration,
    pub(crate) to_server: VecDeque<Vec<u8>>,
    pub(crate) to_client: VecDeque<Vec<u8>>,
    pub(crate) inbox: Inbox<SocketAddr>,
    pub(crate) events: Vec<ClientEvent>,
    pub(crate) dice: Dice,
    /// Of a hundred datagrams.
    pub(crate) lost: u64,
    pub(crate) disorder: bool,
}

impl Net {
    /// With a client of DTLS 1.2.
    pub(crate) fn new(server: Endpoint<SocketAddr>, config: ClientConfig) -> Self {
        Self::of_any(server, older(config))
    }

    /// With a client of the versions that it is configured for.
    pub(crate) fn of_any(server: Endpoint<SocketAddr>, config: ClientConfig) -> Self {
        let mut to_server = VecDeque::new();
        let client =
            Client::start(config, platform(), Duration::ZERO, &mut |bytes| to_server.push_back(bytes.to_vec()))
                .unwrap();
        Self {
            server,
            client,
            port: 5000,
            now: Duration::ZERO,
            to_server,
            to_client: VecDeque::new(),
            inbox: Inbox::default(),
            events: Vec::new(),
            dice: Dice(88_172_645_463_325_252),
            lost: 0,
            disorder: false,
        }
    }

    /// A new client at the same address, which knows nothing of the old.
    pub(crate) fn reboot(&mut self, config: ClientConfig) {
        let (now, out) = (self.now, &mut self.to_server);
        self.client =
            Client::start(older(config), platform(), now, &mut |bytes| out.push_back(bytes.to_vec())).unwrap();
    }

    /// Lets datagrams travel until none is left.
    pub(crate) fn travel(&mut self) {
        loop {
            let up = self.dice.roll(2) == 0;
            let queue = if up { &mut self.to_server } else { &mut self.to_client };
            let at =
                if self.disorder { usize::try_from(self.dice.roll(queue.len().max(1) as u64)).unwrap() } else { 0 };
            let Some(datagram) = queue.remove(at) else {
                if self.to_server.is_empty() && self.to_client.is_empty() {
                    return;
                }
                continue;
            };
            if self.dice.roll(100) < self.lost {
                continue;
            }
            let twice = self.disorder && self.dice.roll(10) == 0;
            for _ in 0..=usize::from(twice) {
                self.arrive(up, &datagram);
            }
        }
    }

    pub(crate) fn arrive(&mut self, up: bool, datagram: &[u8]) {
        if up {
            let out = &mut self.to_client;
            let mut send = |_, bytes: &[u8]| out.push_back(bytes.to_vec());
            self.server.handle(self.now, address(self.port), datagram, &mut self.inbox, &mut send);
        } else {
            let out = &mut self.to_server;
            self.events.extend(self.client.handle(self.now, datagram, &mut |bytes| out.push_back(bytes.to_vec())));
        }
    }

    /// Lets time pass, up to the next thing that is due.
    pub(crate) fn wait(&mut self) {
        let next = [self.client.next_timeout(), self.server.next_timeout()].into_iter().flatten().min();
        self.now = next.unwrap_or(Duration::MAX).clamp(self.now, self.now + 1000 * MS);
        let out = &mut self.to_server;
        self.client.handle_timeout(self.now, &mut |bytes| out.push_back(bytes.to_vec()));
        let out = &mut self.to_client;
        self.server.handle_timeout(self.now, &mut self.inbox, &mut |_, bytes| out.push_back(bytes.to_vec()));
    }

    /// Handshakes until the client has the session, or two minutes have passed.
    pub(crate) fn shake(&mut self) -> bool {
        let end = self.now + Duration::from_secs(120);
        while self.now < end {
            self.travel();
            if self.client.is_established() {
                return true;
            }
            self.wait();
        }
        false
    }

    pub(crate) fn association(&self) -> Association {
        self.inbox
            .events()
            .filter_map(
                |event| if let Event::Established { association, .. } = event { Some(association) } else { None },
            )
            .last()
            .unwrap()
    }

    pub(crate) fn exchange(&mut self) {
        let out = &mut self.to_server;
        assert!(self.client.send(b"question", &mut |bytes| out.push_back(bytes.to_vec())));
        self.travel();
        let last = self.inbox.events().last();
        let Some(Event::Data { peer, association, data: b"question" }) = last else { panic!("{last:?}") };
        let out = &mut self.to_client;
        let send = &mut |_, bytes: &[u8]| out.push_back(bytes.to_vec());
        assert_eq!(self.server.send(self.now, peer, association, b"answer", send), Sent::Yes);
        self.travel();
        assert_eq!(self.events.last(), Some(&ClientEvent::Data(b"answer".to_vec())));
    }
}
