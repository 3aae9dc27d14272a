//! Discovery of the gateway by multicast DNS (RFC 6762, RFC 6763): a socket for each interface and family on which a
//! listener is open beyond loopback. The responder decides what is said; this module has the sockets, the interfaces
//! that come and go, and the time.

mod offer;

use std::{
    future::poll_fn,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use fogmux_mdns::{
    Responder,
    responder::{LinkId, MESSAGE_BYTES_MAX, Offer, PORT, Transmit, Verdict},
};
use fogmux_net::interfaces::{Interface, interfaces};
use rustix::net::{SendFlags, sendto};
use tokio::{
    io::ReadBuf,
    net::UdpSocket,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use crate::WorkerContext;

/// The groups of multicast DNS (RFC 6762 §3).
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);

/// How often the interfaces are looked at: one that comes is served within this time.
const LOOK: Duration = Duration::from_secs(5);

/// Datagrams of one link that are read in one turn.
const READ_MAX: usize = 16;

/// How the gateway is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryConfig {
    /// The name of its services, for people.
    pub name: String,
    /// Its host name, one label. Not that of the machine, which a daemon of the system may tell (ADR 0059).
    pub host: String,
}

/// An interface with one family of addresses.
struct Link {
    id: LinkId,
    interface: Interface,
    socket: UdpSocket,
}

/// The links, and the responder of all of them.
struct Discovery {
    ctx: Rc<WorkerContext>,
    responder: Responder,
    links: Vec<Link>,
    /// Links that could not be opened, which are logged once.
    refused: Vec<LinkId>,
    /// Whether it was logged that the interfaces cannot be listed.
    is_blind: bool,
    /// The names that were logged.
    told: Option<(String, String)>,
    buffer: Box<[u8]>,
}

/// Tells of the listeners until the shutdown, and takes it back then.
pub(crate) async fn serve(ctx: Rc<WorkerContext>, config: DiscoveryConfig) {
    let mut seed = [0; 8];
    if let Err(error) = getrandom::fill(&mut seed) {
        return tracing::error!(%error, "multicast DNS has no random numbers");
    }
    let discovery = Discovery {
        responder: Responder::new(&config.name, &config.host, u64::from_ne_bytes(seed)),
        ctx,
        links: Vec::new(),
        refused: Vec::new(),
        is_blind: false,
        told: None,
        // One more byte than a message has: a longer one is not taken for what is left of it.
        buffer: vec![0; MESSAGE_BYTES_MAX + 1].into_boxed_slice(),
    };
    discovery.run().await;
}

impl Discovery {
    async fn run(mut self) {
        let ctx = Rc::clone(&self.ctx);
        let mut drain = std::pin::pin!(ctx.drain());
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let due = self.responder.next_timeout().map(|at| ctx.shared.clock.instant(at));
            tokio::select! {
                biased;
                () = &mut drain => break,
                _ = look.tick() => self.look(),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                () = poll_fn(|cx| self.poll_read(cx)) => {}
            }
            self.send();
            self.log_names();
        }
        self.responder.shut_down();
        self.send();
    }

    /// Opens links on interfaces that have come, closes those of interfaces that have gone, and tells on each what is
    /// true there.
    fn look(&mut self) {
        let all = match interfaces() {
            Ok(all) => all,
            Err(error) => {
                if !std::mem::replace(&mut self.is_blind, true) {
                    tracing::warn!(%error, "the interfaces cannot be listed, so nothing is told by multicast DNS");
                }
                return;
            }
        };
        let mut offers: Vec<(LinkId, Interface, Offer)> = Vec::new();
        for interface in all {
            let offer = offer::on(&self.ctx.shared, &interface);
            for (is_ipv4, group) in [(true, GROUP_V4.into()), (false, GROUP_V6.into())] {
                if !offer.services.is_empty() && interface.has_family_of(group) {
                    let id = LinkId { interface: interface.index, is_ipv4 };
                    offers.push((id, interface.clone(), offer.clone()));
                }
            }
        }
        let is_offered = |id: LinkId| offers.iter().any(|(offered, ..)| *offered == id);
        let (now, responder) = (self.ctx.now(), &mut self.responder);
        // Takes back what was told, where there is still somebody to hear it.
        self.links.iter().filter(|link| !is_offered(link.id)).for_each(|link| {
            responder.set_link(now, link.id, Offer::default());
        });
        self.refused.retain(|id| is_offered(*id));
        self.send();
        self.links.retain(|link| is_offered(link.id));
        for (id, interface, offer) in offers {
            self.offer(id, interface, offer);
        }
    }

    fn offer(&mut self, id: LinkId, interface: Interface, offer: Offer) {
        let now = self.ctx.now();
        let known = self.links.iter().find(|link| link.id == id).map(|link| link.interface == interface);
        if known == Some(true) {
            // A listener may have been opened.
            return self.responder.set_link(now, id, offer);
        }
        if known == Some(false) {
            // Its addresses are others now: it may be on another link, so it joins again after it has said so.
            self.responder.set_link(now, id, offer.clone());
            self.send();
            self.links.retain(|link| link.id != id);
        }
        match interface.join_to_send(group(id)).and_then(UdpSocket::from_std) {
            Ok(socket) => {
                self.refused.retain(|refused| *refused != id);
                self.links.push(Link { id, interface, socket });
                self.responder.set_link(now, id, offer);
            }
            Err(error) => {
                self.responder.drop_link(id);
                if !self.refused.contains(&id) {
                    let group = group(id);
                    tracing::warn!(interface = interface.name, %group, %error, "multicast DNS cannot be served here");
                    self.refused.push(id);
                }
            }
        }
    }

    /// Reads what has come.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.ctx.now();
        let metrics = &self.ctx.shared.metrics.mdns;
        let mut has_read = false;
        for link in &self.links {
            for _ in 0..READ_MAX {
                let mut buffer = ReadBuf::new(&mut self.buffer);
                let from = match link.socket.poll_recv_from(cx, &mut buffer) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(from)) => from,
                    // Of one datagram; the next call reads on.
                    Poll::Ready(Err(_)) => continue,
                };
                has_read = true;
                // A source off the link may be forged (RFC 6762 §11).
                if link.interface.towards(from.ip()).is_none() {
                    metrics.suppressed.increment();
                    continue;
                }
                match self.responder.handle(now, link.id, from, buffer.filled()) {
                    Verdict::Answered => metrics.answered.increment(),
                    Verdict::Limited => metrics.suppressed.increment(),
                    Verdict::Heard | Verdict::Ignored => {}
                }
            }
        }
        if has_read { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Sends what is due; what a socket does not take now is lost, as on the way.
    fn send(&mut self) {
        while let Some(transmit) = self.responder.poll_transmit(self.ctx.now()) {
            let Some(link) = self.links.iter().find(|link| link.id == transmit.link) else { continue };
            if let Err(error) = send(link, &transmit) {
                tracing::debug!(interface = link.interface.name, %error, "a message of multicast DNS was not sent");
            }
        }
    }

    /// Logs the names when they are ours, and when they are others after a conflict.
    fn log_names(&mut self) {
        if self.links.is_empty() || !self.responder.is_established() {
            return;
        }
        let names = (self.responder.instance(), self.responder.host());
        if self.told.as_ref() == Some(&names) {
            return;
        }
        let (name, host) = &names;
        if self.told.is_some() {
            tracing::warn!(name, host, "another host had a name of this gateway, which is found under this one now");
        } else {
            tracing::info!(name, host, "this gateway is found by multicast DNS");
        }
        self.told = Some(names);
    }
}

/// The group of a link, with its interface as the scope.
fn group(id: LinkId) -> SocketAddr {
    match id.is_ipv4 {
        true => SocketAddr::new(GROUP_V4.into(), PORT),
        false => SocketAddrV6::new(GROUP_V6, PORT, 0, id.interface).into(),
    }
}

/// Sends at once or not at all. The runtime knows only later that a new socket can be written to.
fn send(link: &Link, transmit: &Transmit) -> io::Result<()> {
    let to = transmit.to.unwrap_or_else(|| group(link.id));
    sendto(&link.socket, &transmit.bytes, SendFlags::DONTWAIT, &to)?;
    Ok(())
}
