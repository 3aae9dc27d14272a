//! A UDP socket that reads many datagrams with one call and answers from the address that was asked.

use std::{
    io::{self, IoSliceMut},
    net::UdpSocket,
    task::{Context, Poll, ready},
};

use fogmux_coap::Outbox;
use memmap2::MmapMut;
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSockRef, UdpSocketState};
use tokio::io::{Interest, unix::AsyncFd};

#[cfg(target_os = "linux")]
pub(super) use self::direct::Sender;
use super::transport::{Path, Transport};

/// Room for one datagram, or for what the kernel has joined (GRO).
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// A call that brings no more than this has emptied the queue, and hardly anything will have come when it is answered:
/// the socket is then not read again before the kernel says so. After more, more have come meanwhile.
const FEW: usize = BATCH_SIZE / 8;

/// Room that is offered after a call that brought few: to prepare each datagram's costs, whether one comes or not.
const ROOM_AFTER_FEW: usize = FEW * 2;

/// The socket and its buffers.
pub(super) struct Socket {
    /// Told when something has come, and of nothing else: each datagram that leaves makes room, and to hear of that
    /// would cost a system call for each answer.
    io: AsyncFd<UdpSocket>,
    /// The same socket while it has no room, told when it has.
    full: Option<AsyncFd<UdpSocket>>,
    state: UdpSocketState,
    /// Memory is used only where something is written. The allocator would write zeros into two megabytes where it has
    /// used them before, as after the passwords of a first start.
    buffers: MmapMut,
    metas: [RecvMeta; BATCH_SIZE],
    received: usize,
    /// Whether the last call brought few.
    expect_few: bool,
    sent: usize,
    sender: Sender,
}

impl Socket {
    pub(super) fn new(io: UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&io))?;
        let wildcard = io.local_addr()?.ip().is_unspecified();
        decline_congestion_marks(&io);
        if !wildcard {
            decline_addresses(&io);
        }
        Ok(Self {
            sender: Sender::new(&io, wildcard)?,
            io: watched(io, Interest::READABLE)?,
            full: None,
            state,
            buffers: MmapMut::map_anon(DATAGRAM_BYTES_MAX * BATCH_SIZE)?,
            metas: [RecvMeta::default(); BATCH_SIZE],
            received: 0,
            expect_few: false,
            sent: 0,
        })
    }

    /// Waits for room.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let full = match &mut self.full {
            Some(full) => full,
            None => {
                let socket = self.io.get_ref().try_clone()?;
                self.full.insert(watched(socket, Interest::WRITABLE)?)
            }
        };
        let outcome = ready!(full.poll_write_ready(cx)).map(drop);
        self.full = None;
        Poll::Ready(outcome)
    }
}

/// A socket that the runtime watches for one thing.
#[expect(deprecated, reason = "the successor is unsafe, for what changes its descriptor; a `UdpSocket` never does")]
fn watched(socket: UdpSocket, interest: Interest) -> io::Result<AsyncFd<UdpSocket>> {
    AsyncFd::with_interest(socket, interest)
}

impl Transport for Socket {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.received = 0;
        loop {
            let mut guard = ready!(self.io.poll_read_ready(cx))?;
            let io = UdpSockRef::from(guard.get_inner());
            let outcome = if self.expect_few {
                receive::<ROOM_AFTER_FEW>(io, &self.state, &mut self.buffers, &mut self.metas)
            } else {
                receive::<BATCH_SIZE>(io, &self.state, &mut self.buffers, &mut self.metas)
            };
            match outcome {
                Ok(count) => {
                    self.received = count;
                    self.expect_few = count <= FEW;
                    if self.expect_few {
                        // Nothing is missed: each datagram that comes from now on is announced.
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                // An ICMP answer to something we sent earlier; the next call reads on.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn datagrams(&self) -> impl Iterator<Item = (Path, &[u8])> {
        let buffers = self.buffers.chunks_exact(DATAGRAM_BYTES_MAX);
        self.metas.iter().zip(buffers).take(self.received).flat_map(|(meta, buffer)| {
            let path = Path { remote: meta.addr, local: meta.dst_ip, association: 0 };
            let bytes = buffer.get(..meta.len).unwrap_or(&[]);
            bytes.chunks(meta.stride.max(1)).map(move |datagram| (path, datagram))
        })
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, out: &mut Outbox<Path>) -> Poll<u64> {
        while self.sent < out.len() {
            match self.sender.send(self.io.get_ref(), out.iter_from(self.sent)) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Err(error) = ready!(self.poll_room(cx)) {
                        tracing::debug!(%error, "the CoAP socket cannot be written");
                        break;
                    }
                }
                Err(error) => {
                    // Unreachable, refused by a filter, too large: the first is as good as lost on the way.
                    tracing::debug!(%error, "a CoAP datagram was not sent");
                    self.sent += 1;
                }
            }
        }
        self.sent = 0;
        let bytes = out.bytes() as u64;
        out.clear();
        Poll::Ready(bytes)
    }
}

/// The bits of RFC 3168, which `quinn_udp` asks for and CoAP has no use for, are copied out with each datagram.
fn decline_congestion_marks(io: &UdpSocket) {
    #[cfg(target_os = "linux")]
    {
        // Where the option is not there it was not set either.
        let _ = rustix::net::sockopt::set_ip_recvtos(io, false);
        let _ = rustix::net::sockopt::set_ipv6_recvtclass(io, false);
    }
}

/// Where the socket has one address only, each datagram came to that.
fn decline_addresses(io: &UdpSocket) {
    #[cfg(target_os = "linux")]
    {
        use nix::sys::socket::{setsockopt, sockopt};
        // One of the two is of the other family.
        let _ = setsockopt(io, sockopt::Ipv4PacketInfo, &false);
        let _ = setsockopt(io, sockopt::Ipv6RecvPacketInfo, &false);
    }
}

/// Reads up to `ROOM` datagrams; gives how many.
fn receive<const ROOM: usize>(
    io: UdpSockRef<'_>,
    state: &UdpSocketState,
    buffers: &mut [u8],
    metas: &mut [RecvMeta],
) -> io::Result<usize> {
    let mut buffers = buffers.chunks_exact_mut(DATAGRAM_BYTES_MAX);
    let mut slices: [_; ROOM] = std::array::from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or_default()));
    state.recv(io, &mut slices, metas)
}

/// Elsewhere than on Linux: one datagram a call.
#[cfg(not(target_os = "linux"))]
struct Sender {
    state: UdpSocketState,
    wildcard: bool,
}

#[cfg(not(target_os = "linux"))]
impl Sender {
    fn new(io: &UdpSocket, wildcard: bool) -> io::Result<Self> {
        Ok(Self { state: UdpSocketState::new(UdpSockRef::from(io))?, wildcard })
    }

    /// Sends one; gives how many that were.
    fn send<'a>(
        &mut self,
        io: &UdpSocket,
        mut datagrams: impl ExactSizeIterator<Item = (Path, &'a [u8])>,
    ) -> io::Result<usize> {
        let Some((path, contents)) = datagrams.next() else { return Ok(0) };
        // A socket of all addresses has to say from which it answers.
        let src_ip = path.local.filter(|_| self.wildcard);
        let transmit =
            quinn_udp::Transmit { destination: path.remote, ecn: None, contents, segment_size: None, src_ip };
        self.state.try_send(UdpSockRef::from(io), &transmit).map(|()| 1)
    }
}

/// Many datagrams with one system call: on a busy machine a third of a notification's cost (5.3 to 3.3 CPU-µs, C5).
#[cfg(target_os = "linux")]
mod direct {
    use std::{
        io::{self, IoSlice},
        net::{IpAddr, UdpSocket},
        os::fd::AsRawFd as _,
    };

    use nix::{
        cmsg_space,
        libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo},
        sys::socket::{ControlMessage, MsgFlags, MultiHeaders, SockaddrStorage, sendmmsg},
    };
    use quinn_udp::BATCH_SIZE;
    use rustix::net::{SendFlags, sendto};
    use smallvec::SmallVec;

    use super::Path;

    pub(in crate::coap) struct Sender {
        /// A socket of all addresses has to say from which it answers.
        wildcard: bool,
        headers: MultiHeaders<SockaddrStorage>,
    }

    /// From which address (`ip(7)`, RFC 3542 §6.2).
    enum Source {
        V4(in_pktinfo),
        V6(in6_pktinfo),
    }

    impl Source {
        const fn of(address: IpAddr) -> Self {
            match address {
                IpAddr::V4(address) => {
                    let ipi_spec_dst = in_addr { s_addr: u32::from_ne_bytes(address.octets()) };
                    Self::V4(in_pktinfo { ipi_ifindex: 0, ipi_spec_dst, ipi_addr: in_addr { s_addr: 0 } })
                }
                IpAddr::V6(address) => {
                    let ipi6_addr = in6_addr { s6_addr: address.octets() };
                    Self::V6(in6_pktinfo { ipi6_addr, ipi6_ifindex: 0 })
                }
            }
        }

        const fn message(&self) -> ControlMessage<'_> {
            match self {
                Self::V4(info) => ControlMessage::Ipv4PacketInfo(info),
                Self::V6(info) => ControlMessage::Ipv6PacketInfo(info),
            }
        }
    }

    impl Sender {
        pub(in crate::coap) fn new(_: &UdpSocket, wildcard: bool) -> io::Result<Self> {
            // The shorter of the two fits in: what is left is no header, and the kernel stops there.
            let source = wildcard.then(|| cmsg_space!(in6_pktinfo));
            Ok(Self { wildcard, headers: MultiHeaders::preallocate(BATCH_SIZE, source) })
        }

        /// Sends as many as the kernel takes at once, at least one; gives how many.
        pub(in crate::coap) fn send<'a>(
            &mut self,
            io: &UdpSocket,
            datagrams: impl ExactSizeIterator<Item = (Path, &'a [u8])>,
        ) -> io::Result<usize> {
            let is_one = datagrams.len() == 1;
            let mut datagrams = datagrams.peekable();
            let Some((path, contents)) = datagrams.peek() else { return Ok(0) };
            let local = path.local.filter(|_| self.wildcard);
            if local.is_none() && (self.wildcard || is_one) {
                return Ok(sendto(io, contents, SendFlags::DONTWAIT, &path.remote).map(|_| 1)?);
            }
            // One source for all that go out together.
            let source = local.map(Source::of);
            self.send_many(
                io,
                datagrams.take_while(|(path, _)| path.local == local || source.is_none()),
                source.as_ref(),
            )
        }

        /// Apart, so that one datagram does not pay for the room of many.
        #[inline(never)]
        fn send_many<'a>(
            &mut self,
            io: &UdpSocket,
            datagrams: impl Iterator<Item = (Path, &'a [u8])>,
            source: Option<&Source>,
        ) -> io::Result<usize> {
            let mut to: SmallVec<[Option<SockaddrStorage>; BATCH_SIZE]> = SmallVec::new();
            let mut slices: SmallVec<[[IoSlice<'_>; 1]; BATCH_SIZE]> = SmallVec::new();
            for (path, contents) in datagrams.take(BATCH_SIZE) {
                to.push(Some(path.remote.into()));
                slices.push([IoSlice::new(contents)]);
            }
            let control: SmallVec<[ControlMessage<'_>; 1]> = source.map(Source::message).into_iter().collect();
            let sent =
                sendmmsg(io.as_raw_fd(), &mut self.headers, slices.as_slice(), &to, control, MsgFlags::MSG_DONTWAIT)?;
            Ok(sent.count())
        }
    }
}

#[cfg(test)]
mod tests;
