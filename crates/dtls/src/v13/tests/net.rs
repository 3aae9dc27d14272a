//! The server, a small client and a simulated network between them.

use std::{collections::VecDeque, net::SocketAddr, sync::Arc, time::Duration};

use super::peer::{Heard, Offer, Peer};
use crate::{
    CookieKey, Credentials, Endpoint, EndpointConfig, Event, Inbox, Sent,
    tests::{Dice, MS, address, platform, psk_keys},
    v13::record::Content,
};

/// The first bytes of the server's identifiers.
pub(super) const WORKER: u8 = 5;

pub(super) fn endpoint(keys: Arc<dyn Credentials>, config: EndpointConfig) -> Endpoint<SocketAddr> {
    Endpoint::new(config, keys, platform(), Arc::new(CookieKey::new(&[3; 32]))).identified_by(WORKER)
}

pub(super) struct Net {
    pub(super) server: Endpoint<SocketAddr>,
    pub(super) client: Peer,
    pub(super) from: SocketAddr,
    pub(super) now: Duration,
    pub(super) to_server: VecDeque<Vec<u8>>,
    pub(super) to_client: VecDeque<(SocketAddr, Vec<u8>)>,
    pub(super) inbox: Inbox<SocketAddr>,
    pub(super) dice: Dice,
    /// Of a hundred datagrams.
    pub(super) lost: u64,
    pub(super) disorder: bool,
}

impl Net {
    pub(super) fn new(server: Endpoint<SocketAddr>, offer: Offer) -> Self {
        Self {
            server,
            client: Peer::new(offer, Duration::ZERO),
            from: address(5000),
            now: Duration::ZERO,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            inbox: Inbox::default(),
            dice: Dice(88_172_645_463_325_252),
            lost: 0,
            disorder: false,
        }
    }

    pub(super) fn psk(offer: Offer) -> Self {
        Self::new(endpoint(psk_keys(), EndpointConfig::default()), offer)
    }

    /// Lets datagrams travel until none is left.
    pub(super) fn travel(&mut self) {
        loop {
            self.to_server.extend(std::iter::from_fn(|| self.client.poll()));
            let (up, down) = (self.to_server.len(), self.to_client.len());
            if up + down == 0 {
                return;
            }
            let is_up = down == 0 || up > 0 && self.dice.roll(2) == 0;
            let count = if is_up { up } else { down };
            let at = if self.disorder { usize::try_from(self.dice.roll(count as u64)).unwrap() } else { 0 };
            let lost = self.dice.roll(100) < self.lost;
            let twice = self.disorder && self.dice.roll(10) == 0;
            if is_up {
                let datagram = self.to_server.remove(at).unwrap();
                (0..usize::from(!lost) + usize::from(!lost && twice)).for_each(|_| self.arrive(&datagram));
            } else {
                let (to, datagram) = self.to_client.remove(at).unwrap();
                if !lost && to == self.from {
                    self.client.handle(self.now, &datagram);
                }
            }
        }
    }

    pub(super) fn arrive(&mut self, datagram: &[u8]) {
        let out = &mut self.to_client;
        let send = &mut |to, bytes: &[u8]| out.push_back((to, bytes.to_vec()));
        self.server.handle(self.now, self.from, datagram, &mut self.inbox, send);
    }

    /// Lets time pass, up to the next thing that is due.
    pub(super) fn wait(&mut self) {
        let next = [self.client.next_timeout(), self.server.next_timeout()].into_iter().flatten().min();
        self.now = next.unwrap_or(Duration::MAX).clamp(self.now, self.now + 1000 * MS);
        self.client.handle_timeout(self.now);
        let out = &mut self.to_client;
        let send = &mut |to, bytes: &[u8]| out.push_back((to, bytes.to_vec()));
        self.server.handle_timeout(self.now, &mut self.inbox, send);
    }

    pub(super) fn shake(&mut self) -> bool {
        let end = self.now + Duration::from_secs(120);
        while self.now < end && self.client.heard.is_empty() {
            self.travel();
            if self.client.done {
                return true;
            }
            self.wait();
        }
        false
    }

    pub(super) fn say(&mut self, content: Content, plain: &[u8]) {
        let datagram = self.client.seal(content, plain);
        self.arrive(&datagram);
    }

    /// Data both ways; where the server's went.
    pub(super) fn exchange(&mut self) -> Option<SocketAddr> {
        self.say(Content::ApplicationData, b"question");
        let last = self.inbox.events().last();
        let Some(Event::Data { peer, association, data: b"question" }) = last else { panic!("{last:?}") };
        assert_eq!(peer, address(5000), "known as it was at first");
        let out = &mut self.to_client;
        let send = &mut |to, bytes: &[u8]| out.push_back((to, bytes.to_vec()));
        assert_eq!(self.server.send(self.now, peer, association, b"answer", send), Sent::Yes);
        let to = self.to_client.back().map(|(to, _)| *to);
        if to == Some(self.from) {
            self.travel();
            assert_eq!(self.client.heard.last(), Some(&Heard::Data(b"answer".to_vec())));
        }
        to
    }
}
