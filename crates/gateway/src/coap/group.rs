//! The groups of CoAP nodes (RFC 7252 §8, §12.8): a socket for each group and interface that a listener serves, which
//! are read only. Answers go out by the listener's own socket, so that they come from a unicast address and the port at
//! which the client goes on. What may be told is what a client without any credential may read.

use std::{
    future::poll_fn,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use fogmux_bus::Timestamp;
use fogmux_coap::{
    Outbox, Query,
    group::{GroupServer, Verdict},
};
use fogmux_net::interfaces::{Interface, interfaces};
use smallvec::SmallVec;
use tokio::{
    io::ReadBuf,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use super::{
    context::CoapContext,
    core::machine_time,
    identity,
    looks::Allowance,
    socket::Sender,
    transport::{Listener, Path},
    well_known,
};

/// All CoAP Nodes (RFC 7252 §12.8): in IPv4, of the link, and of the site.
const GROUPS: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(224, 0, 1, 187)),
    IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfd)),
    IpAddr::V6(Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 0xfd)),
];

/// How often the interfaces are looked at: one that comes is served within this time.
const LOOK: Duration = Duration::from_secs(5);

/// Datagrams of one group that are read in one turn.
const READ_MAX: usize = 16;

/// More than a request that is answered has; the rest of a longer one is cut off, and it is ignored for its length.
const DATAGRAM_BYTES_MAX: usize = 512;

/// A group on an interface.
struct Membership {
    interface: Interface,
    group: IpAddr,
    socket: tokio::net::UdpSocket,
}

/// The groups of one listener at one address.
pub(super) struct Groups {
    ctx: Rc<CoapContext>,
    /// Another handle of the listener's socket.
    socket: UdpSocket,
    sender: Sender,
    address: SocketAddr,
    listener: Listener,
    memberships: Vec<Membership>,
    /// Groups that could not be joined, which are logged once.
    refused: Vec<(String, IpAddr)>,
    /// Whether it was logged that the interfaces cannot be listed.
    is_blind: bool,
    server: GroupServer<Path>,
    out: Outbox<Path>,
    allowance: Allowance,
}

impl Groups {
    pub(super) fn new(ctx: Rc<CoapContext>, socket: UdpSocket, listener: Listener) -> io::Result<Self> {
        let address = socket.local_addr()?;
        Ok(Self {
            sender: Sender::new(&socket, address.ip().is_unspecified())?,
            server: GroupServer::new(ctx.door.config.group.clone(), ctx.door.seed()?),
            socket,
            address,
            listener,
            memberships: Vec::new(),
            refused: Vec::new(),
            is_blind: false,
            out: Outbox::default(),
            allowance: Allowance::default(),
            ctx,
        })
    }

    /// Answers until the shutdown.
    pub(super) async fn run(mut self) {
        let ctx = Rc::clone(&self.ctx);
        let mut drain = std::pin::pin!(ctx.drain());
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let due = self.server.next_timeout().map(|at| Timestamp::from_millis(at.as_millis()));
            let due = due.map(|at| ctx.shared.clock.instant(at));
            tokio::select! {
                biased;
                () = &mut drain => return,
                _ = look.tick() => self.look(),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.answer(),
                () = poll_fn(|cx| self.poll_read(cx)) => {}
            }
        }
    }

    /// Joins the groups on interfaces that have come, and leaves those on interfaces that have gone.
    fn look(&mut self) {
        let all = match interfaces() {
            Ok(all) => all,
            Err(error) => {
                if !std::mem::replace(&mut self.is_blind, true) {
                    tracing::warn!(%error, "the interfaces cannot be listed, so no request to a group is answered");
                }
                return;
            }
        };
        let own = self.address.ip();
        let served = |interface: &Interface| match own.is_unspecified() {
            true => interface.has_family_of(own),
            false => interface.has(own),
        };
        let served: Vec<Interface> = all.into_iter().filter(served).collect();
        // One whose addresses are others now is joined again, as others may be on its link.
        self.memberships.retain(|member| served.contains(&member.interface));
        self.refused.retain(|(name, _)| served.iter().any(|interface| interface.name == *name));
        for interface in served {
            for group in GROUPS.into_iter().filter(|group| group.is_ipv4() == own.is_ipv4()) {
                let is_member = |member: &Membership| member.group == group && member.interface == interface;
                if !self.memberships.iter().any(is_member) {
                    self.join(&interface, group);
                }
            }
        }
    }

    fn join(&mut self, interface: &Interface, group: IpAddr) {
        let at = SocketAddr::new(group, self.address.port());
        let joined = interface.join(at).and_then(tokio::net::UdpSocket::from_std);
        match joined {
            Ok(socket) => {
                tracing::info!(interface = interface.name, group = %at, "requests to this group are answered");
                self.memberships.push(Membership { interface: interface.clone(), group, socket });
            }
            Err(error) => {
                let what = (interface.name.clone(), group);
                if !self.refused.contains(&what) {
                    tracing::warn!(interface = interface.name, group = %at, %error, "a group cannot be joined");
                    self.refused.push(what);
                }
            }
        }
    }

    /// Reads what has come to the groups.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = machine_time(self.ctx.now());
        let suppressed = &self.ctx.shared.metrics.coap_groups.suppressed;
        let is_wildcard = self.address.ip().is_unspecified();
        let mut has_read = false;
        for member in &self.memberships {
            for _ in 0..READ_MAX {
                let mut bytes = [0; DATAGRAM_BYTES_MAX];
                let mut buffer = ReadBuf::new(&mut bytes);
                let from = match member.socket.poll_recv_from(cx, &mut buffer) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(from)) => from,
                    // Of one datagram; the next call reads on.
                    Poll::Ready(Err(_)) => continue,
                };
                has_read = true;
                // A source off the link may be forged: its owner would get an answer that it has not asked for.
                let Some(local) = member.interface.towards(from.ip()) else {
                    suppressed.increment();
                    continue;
                };
                let path = Path { remote: from, local: is_wildcard.then_some(local), association: 0 };
                match self.server.handle(now, path, buffer.filled()) {
                    Verdict::Waits => {}
                    Verdict::Ignored | Verdict::Limited => suppressed.increment(),
                }
            }
        }
        if has_read { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Answers the requests whose answers are due, with what anybody may know at this moment.
    fn answer(&mut self) {
        let now = self.ctx.now();
        let Self { ctx, server, out, allowance, .. } = self;
        let gate = identity::of_anybody(ctx, self.listener);
        let metrics = &ctx.shared.metrics.coap_groups;
        while let Some(waiting) = server.take_due(machine_time(now)) {
            let asked = (now, waiting.from().remote);
            let links = gate.as_ref().and_then(|gate| {
                let request = waiting.request()?;
                let queries: SmallVec<[Query<'_>; 2]> = request.queries().collect();
                well_known::all_links(ctx, allowance, asked, gate, &queries)
            });
            let response = links.as_deref().map(well_known::response);
            match response.is_some_and(|response| server.respond(&waiting, &response, out)) {
                true => metrics.answered.increment(),
                false => metrics.suppressed.increment(),
            }
        }
        self.send();
    }

    /// Sends what the socket takes; what it does not take now nobody waits for.
    fn send(&mut self) {
        let mut sent = 0;
        while sent < self.out.len() {
            match self.sender.send(&self.socket, self.out.iter_from(sent)) {
                Ok(count) => sent += count.max(1),
                Err(error) => {
                    tracing::debug!(%error, "an answer to a group was not sent");
                    sent += 1;
                }
            }
        }
        self.ctx.shared.metrics.coap.bytes_out.add(self.out.bytes() as u64);
        self.out.clear();
    }
}
