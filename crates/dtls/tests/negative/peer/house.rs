//! Our server, an enemy at one address, and a friend at another whose session must not suffer.

use std::{collections::VecDeque, net::SocketAddr, sync::Arc, time::Duration};

use fogmux_dtls::{
    Alert, Association, CookieKey, Endpoint, EndpointConfig, Event, Inbox, Sent, Suite,
    client::{Client, ClientConfig, ClientEvent},
};

use super::pki::{KEY, Keys, platform};

/// An event of our server's about the enemy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Established,
    Data(Vec<u8>),
    Ended,
    Failed(Alert),
}

pub(crate) struct House {
    endpoint: Endpoint<SocketAddr>,
    pub(crate) now: Duration,
    /// Where the enemy is.
    pub(crate) enemy: SocketAddr,
    /// Datagrams to the enemy, and what was said of it.
    pub(crate) out: VecDeque<Vec<u8>>,
    pub(crate) said: Vec<Said>,
    /// The enemy's newest session.
    session: Option<(SocketAddr, Association)>,
    friend: Client,
    heard: Vec<ClientEvent>,
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

fn friend() -> SocketAddr {
    address(9)
}

impl House {
    pub(crate) fn new(strict: bool) -> Self {
        let cookies = Arc::new(CookieKey::new(&[3; 32]));
        let endpoint = Endpoint::new(EndpointConfig::default(), Arc::new(Keys { strict }), platform(), cookies);
        let config = ClientConfig { suites: vec![Suite::PskAes128Gcm], ..ClientConfig::psk(b"friend", KEY) };
        let config = ClientConfig { suites_13: Vec::new(), ..config };
        let (now, mut first) = (Duration::from_secs(1), Vec::new());
        let friend = Client::start(config, platform(), now, &mut |bytes| first = bytes.to_vec()).unwrap();
        let mut house = Self {
            endpoint: endpoint.identified_by(7),
            now,
            enemy: address(6666),
            out: VecDeque::new(),
            said: Vec::new(),
            session: None,
            friend,
            heard: Vec::new(),
        };
        house.arrive_from(self::friend(), &first);
        assert!(house.friend.is_established());
        house
    }

    /// A datagram of the enemy's.
    pub(crate) fn arrive(&mut self, datagram: &[u8]) {
        self.arrive_from(self.enemy, datagram);
    }

    fn arrive_from(&mut self, from: SocketAddr, datagram: &[u8]) {
        let (mut inbox, mut out) = (Inbox::default(), Vec::new());
        let send = &mut |to, bytes: &[u8]| out.push((to, bytes.to_vec()));
        self.endpoint.handle(self.now, from, datagram, &mut inbox, send);
        self.look(&inbox, out);
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.now += time;
        let (mut inbox, mut out) = (Inbox::default(), Vec::new());
        let send = &mut |to, bytes: &[u8]| out.push((to, bytes.to_vec()));
        self.endpoint.handle_timeout(self.now, &mut inbox, send);
        self.look(&inbox, out);
    }

    fn look(&mut self, inbox: &Inbox<SocketAddr>, out: Vec<(SocketAddr, Vec<u8>)>) {
        let mut answers = Vec::new();
        for event in inbox.events() {
            let (peer, said) = match event {
                Event::Established { peer, association, .. } => {
                    self.session = Some((peer, association)).filter(|_| peer != friend()).or(self.session);
                    (peer, Said::Established)
                }
                Event::Data { peer, association, data } => {
                    if data == b"question" {
                        answers.push((peer, association));
                    }
                    (peer, Said::Data(data.to_vec()))
                }
                Event::Ended { peer, .. } => (peer, Said::Ended),
                Event::Failed { peer, alert, .. } => (peer, Said::Failed(alert)),
                // The amount that may be sent there is not the subject here.
                Event::Moved { .. } => continue,
            };
            if peer != friend() {
                self.said.push(said);
            }
        }
        let mut out = out;
        for (peer, association) in answers {
            let send = &mut |to, bytes: &[u8]| out.push((to, bytes.to_vec()));
            assert_ne!(self.endpoint.send(self.now, peer, association, b"answer", send), Sent::Ended);
        }
        for (to, datagram) in out {
            if to != friend() {
                self.out.push_back(datagram);
                continue;
            }
            let mut up = Vec::new();
            self.heard.extend(self.friend.handle(self.now, &datagram, &mut |bytes| up.push(bytes.to_vec())));
            up.iter().for_each(|datagram| self.arrive_from(friend(), datagram));
        }
    }

    /// Sends data to the enemy.
    pub(crate) fn send(&mut self, data: &[u8]) -> Sent {
        let (peer, association) = self.session.unwrap();
        let out = &mut self.out;
        self.endpoint.send(self.now, peer, association, data, &mut |_, bytes| out.push_back(bytes.to_vec()))
    }

    /// Asserts that our server sends the enemy so many bytes at once, and no byte more.
    pub(crate) fn sends_at_most(&mut self, most: usize) {
        let (peer, association) = self.session.unwrap();
        assert_eq!(self.endpoint.data_max(peer, association), Some(most));
        assert_eq!((self.send(&vec![7; most + 1]), self.out.len()), (Sent::TooLong, 0));
        assert_eq!(self.send(&vec![7; most]), Sent::Yes);
    }

    /// Asserts that the friend's session carries data both ways.
    pub(crate) fn is_unharmed(&mut self) {
        self.heard.clear();
        let mut up = Vec::new();
        assert!(self.friend.send(b"question", &mut |bytes| up = bytes.to_vec()));
        self.arrive_from(friend(), &up);
        assert_eq!(self.heard, [ClientEvent::Data(b"answer".to_vec())]);
    }

    /// Asserts that of the enemy nothing is left.
    pub(crate) fn is_rid_of_it(&self) {
        assert_eq!((self.endpoint.sessions(), self.endpoint.handshakes()), (1, 0), "the friend's only");
    }
}
