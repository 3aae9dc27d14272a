//! A simulated network of datagrams under one seed: loss, duplication, delay and with it reordering, and receive
//! buffers that are too small.
//!
//! No exchange fails by chance: a Confirmable message, an acknowledgement or a Reset of one peer is never lost twice in
//! a row, so that the five transmissions of RFC 7252 §4.2 suffice. Non-confirmable messages are lost as often as the
//! seed says.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap, HashSet},
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use fogmux_coap::Outbox;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::random::Random;
use crate::coap::{Path, Transport};

/// Datagrams that fit into a small receive buffer.
const SMALL_ROOM: usize = 4;

/// Datagrams that the gateway reads together.
const BATCH: usize = 32;

/// The properties of one client's path.
#[derive(Clone, Copy, Debug)]
struct Air {
    loss_percent: usize,
    duplicate_percent: usize,
    /// In milliseconds.
    delay_max: usize,
    /// Datagrams that the client's receive buffer takes.
    room: usize,
}

/// A receive buffer.
#[derive(Debug, Default)]
struct Buffer {
    waiting: BTreeMap<(Instant, u64), (SocketAddr, Vec<u8>)>,
    number: u64,
    waker: Option<Waker>,
}

impl Buffer {
    fn put(&mut self, at: Instant, from: SocketAddr, datagram: &[u8]) {
        self.number += 1;
        self.waiting.insert((at, self.number), (from, datagram.to_vec()));
        self.waker.take().into_iter().for_each(Waker::wake);
    }

    fn take(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.waiting.first_entry().filter(|first| first.key().0 <= Instant::now()).map(|first| first.remove())
    }

    /// Waits for the next datagram, which may be on its way.
    fn poll(&mut self, sleep: &mut Option<Pin<Box<Sleep>>>, cx: &mut Context<'_>) -> Poll<(SocketAddr, Vec<u8>)> {
        loop {
            if let Some(datagram) = self.take() {
                return Poll::Ready(datagram);
            }
            self.waker = Some(cx.waker().clone());
            let Some(((at, _), _)) = self.waiting.first_key_value() else { return Poll::Pending };
            ready!(sleep.insert(Box::pin(sleep_until(*at))).as_mut().poll(cx));
        }
    }
}

/// One client's path to the gateway or back.
#[derive(Debug)]
struct Way {
    air: Air,
    random: Random,
    /// Of the messages that may not be lost twice in a row, those of which the last was lost.
    lost: HashSet<Vec<u8>>,
}

impl Way {
    fn carry(&mut self, to: &mut Buffer, from: SocketAddr, datagram: &[u8], room: usize) {
        let is_full = to.waiting.len() >= room;
        if self.random.percent(self.air.loss_percent) || is_full {
            match repeated(datagram) {
                Some(kind) if self.lost.contains(&kind) => {}
                Some(kind) => {
                    self.lost.insert(kind);
                    return;
                }
                None => return,
            }
        }
        if let Some(kind) = repeated(datagram) {
            self.lost.remove(&kind);
        }
        for _ in 0..1 + usize::from(self.random.percent(self.air.duplicate_percent)) {
            let delay = Duration::from_millis(self.random.below(1 + self.air.delay_max) as u64);
            to.put(Instant::now() + delay, from, datagram);
        }
    }
}

/// Type and token of a message that is sent again when it is lost, or answers one: all but Non-confirmables.
fn repeated(datagram: &[u8]) -> Option<Vec<u8>> {
    let kind = datagram[0] >> 4 & 3;
    let token = usize::from(datagram[0] & 15);
    (kind != NON).then(|| [&[kind][..], &datagram[4..4 + token]].concat())
}

const NON: u8 = 1;
const RESET: u8 = 3;

#[derive(Debug)]
struct Client {
    port: usize,
    up: Way,
    down: Way,
    buffer: Buffer,
    is_open: bool,
}

/// Everything between the clients and the sockets of a gateway.
#[derive(Debug)]
pub(super) struct Network {
    ports: Vec<RefCell<Buffer>>,
    clients: RefCell<HashMap<SocketAddr, Client>>,
}

impl Network {
    pub(super) fn new(ports: usize) -> Rc<Self> {
        Rc::new(Self { ports: (0..ports).map(|_| RefCell::default()).collect(), clients: RefCell::default() })
    }

    /// The gateway's socket of one worker.
    pub(super) fn port(self: &Rc<Self>, index: usize, random: &Random) -> Port {
        Port {
            network: Rc::clone(self),
            index,
            batch: Vec::new(),
            sleep: None,
            sent: 0,
            full: None,
            random: random.fork(),
        }
    }

    /// A new client, on the gateway's machine or elsewhere.
    pub(super) fn socket(self: &Rc<Self>, random: &Random) -> Socket {
        let mut clients = self.clients.borrow_mut();
        let ip = *random.pick(&[Ipv4Addr::LOCALHOST, Ipv4Addr::new(192, 0, 2, 1)]);
        let address = SocketAddr::from((ip, 10_000 + u16::try_from(clients.len()).unwrap()));
        let air = Air {
            loss_percent: *random.pick(&[0, 0, 5, 20]),
            duplicate_percent: *random.pick(&[0, 0, 10]),
            delay_max: *random.pick(&[0, 0, 1, 20, 200]),
            room: *random.pick(&[SMALL_ROOM, 64, usize::MAX]),
        };
        let way = || Way { air, random: random.fork(), lost: HashSet::new() };
        let port = random.below(self.ports.len());
        clients.insert(address, Client { port, up: way(), down: way(), buffer: Buffer::default(), is_open: true });
        Socket { network: Rc::clone(self), address, sleep: None }
    }

    /// From the gateway. A host whose socket is closed answers as one that has forgotten (RFC 7641 §3.6).
    fn deliver(&self, port: usize, to: SocketAddr, datagram: &[u8]) {
        let mut clients = self.clients.borrow_mut();
        let client = clients.get_mut(&to).expect("an address that somebody has");
        if client.is_open {
            let room = client.down.air.room;
            client.down.carry(&mut client.buffer, to, datagram, room);
        } else if datagram[0] >> 4 & 3 <= NON {
            let reset = [0x40 | RESET << 4, 0, datagram[2], datagram[3]];
            self.ports[port].borrow_mut().put(Instant::now(), to, &reset);
        }
    }
}

/// A client's socket.
pub(super) struct Socket {
    network: Rc<Network>,
    address: SocketAddr,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    /// Whether everything arrives, in its order.
    pub(super) fn is_steady(&self) -> bool {
        let air = self.network.clients.borrow()[&self.address].down.air;
        air.loss_percent == 0 && air.delay_max == 0 && air.room > SMALL_ROOM
    }

    /// The properties of its path, for messages of tests.
    pub(super) fn path(&self) -> String {
        let air = self.network.clients.borrow()[&self.address].down.air;
        let room = if air.room == usize::MAX { "any".to_owned() } else { air.room.to_string() };
        let (loss, twice, delay) = (air.loss_percent, air.duplicate_percent, air.delay_max);
        format!("loss {loss} %, twice {twice} %, delay {delay} ms, room {room}")
    }

    pub(super) fn send(&self, datagram: &[u8]) {
        let mut clients = self.network.clients.borrow_mut();
        let client = clients.get_mut(&self.address).unwrap();
        let mut buffer = self.network.ports[client.port].borrow_mut();
        client.up.carry(&mut buffer, self.address, datagram, usize::MAX);
    }

    pub(super) async fn receive(&mut self) -> Vec<u8> {
        let (network, address, sleep) = (&self.network, self.address, &mut self.sleep);
        std::future::poll_fn(|cx| {
            let mut clients = network.clients.borrow_mut();
            clients.get_mut(&address).unwrap().buffer.poll(sleep, cx).map(|(_, datagram)| datagram)
        })
        .await
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut clients = self.network.clients.borrow_mut();
        clients.get_mut(&self.address).unwrap().is_open = false;
    }
}

/// A socket of the gateway.
pub(super) struct Port {
    network: Rc<Network>,
    index: usize,
    batch: Vec<(Path, Vec<u8>)>,
    sleep: Option<Pin<Box<Sleep>>>,
    sent: usize,
    /// The kernel's buffer has no room until then.
    full: Option<Pin<Box<Sleep>>>,
    random: Random,
}

impl Transport for Port {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.batch.clear();
        let mut buffer = self.network.ports[self.index].borrow_mut();
        let mut next = Some(ready!(buffer.poll(&mut self.sleep, cx)));
        while let Some((remote, datagram)) = next {
            self.batch.push((Path { remote, local: None, association: 0 }, datagram));
            next = if self.batch.len() < BATCH { buffer.take() } else { None };
        }
        Poll::Ready(Ok(()))
    }

    fn datagrams(&self) -> impl Iterator<Item = (Path, &[u8])> {
        self.batch.iter().map(|(path, datagram)| (*path, &datagram[..]))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, out: &mut Outbox<Path>) -> Poll<u64> {
        if let Some(full) = &mut self.full {
            ready!(full.as_mut().poll(cx));
            self.full = None;
        }
        for (path, datagram) in out.iter().skip(self.sent) {
            if self.random.percent(1) {
                let mut full = Box::pin(sleep(Duration::from_millis(1 + self.random.below(20) as u64)));
                if full.as_mut().poll(cx).is_pending() {
                    self.full = Some(full);
                    return Poll::Pending;
                }
            }
            self.network.deliver(self.index, path.remote, datagram);
            self.sent += 1;
        }
        let bytes = out.iter().map(|(_, datagram)| datagram.len() as u64).sum();
        self.sent = 0;
        out.clear();
        Poll::Ready(bytes)
    }
}
