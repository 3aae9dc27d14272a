//! A UDP socket that reads many datagrams with one call and answers from the address that was asked.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr},
    task::{Context, Poll, ready},
};

use fogmux_coap::{Outbox, Peer};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use smallvec::SmallVec;
use tokio::{io::Interest, net::UdpSocket};

/// Room for one datagram, or for what the kernel has joined (GRO). Memory is used only where something is written.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// The other end, and the address of ours that it spoke to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Path {
    pub(super) remote: SocketAddr,
    local: Option<IpAddr>,
}

impl Peer for Path {
    fn host(&self) -> IpAddr {
        self.remote.host()
    }

    fn identity(&self) -> [u8; 18] {
        self.remote.identity()
    }

    fn is_verified(&self) -> bool {
        self.remote.is_verified()
    }

    fn is_local(&self) -> bool {
        self.remote.is_local()
    }
}

/// The socket and its buffers.
pub(super) struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
    buffers: Box<[u8]>,
    metas: [RecvMeta; BATCH_SIZE],
    received: usize,
    sent: usize,
}

impl Socket {
    pub(super) fn new(io: UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&io))?;
        Ok(Self {
            io,
            state,
            buffers: vec![0; DATAGRAM_BYTES_MAX * BATCH_SIZE].into_boxed_slice(),
            metas: [RecvMeta::default(); BATCH_SIZE],
            received: 0,
            sent: 0,
        })
    }

    /// Reads what there is, up to a batch. [`Socket::datagrams`] has it.
    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.received = 0;
        loop {
            ready!(self.io.poll_recv_ready(cx))?;
            let mut slices: SmallVec<[IoSliceMut<'_>; BATCH_SIZE]> =
                self.buffers.chunks_exact_mut(DATAGRAM_BYTES_MAX).map(IoSliceMut::new).collect();
            let (io, state, metas) = (&self.io, &self.state, &mut self.metas);
            match io.try_io(Interest::READABLE, || state.recv(UdpSockRef::from(io), &mut slices, metas)) {
                Ok(count) => {
                    self.received = count;
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // An ICMP answer to something we sent earlier; the next call reads on.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// What was read last.
    pub(super) fn datagrams(&self) -> impl Iterator<Item = (Path, &[u8])> {
        let buffers = self.buffers.chunks_exact(DATAGRAM_BYTES_MAX);
        self.metas.iter().zip(buffers).take(self.received).flat_map(|(meta, buffer)| {
            let path = Path { remote: meta.addr, local: meta.dst_ip };
            let bytes = buffer.get(..meta.len).unwrap_or(&[]);
            bytes.chunks(meta.stride.max(1)).map(move |datagram| (path, datagram))
        })
    }

    /// Writes all that is in the box, and empties it. When the kernel has no room, the rest stays for the next call.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>, out: &mut Outbox<Path>) -> Poll<u64> {
        let (io, state) = (&self.io, &self.state);
        let mut bytes = 0;
        for (path, contents) in out.iter().skip(self.sent) {
            let transmit =
                Transmit { destination: path.remote, ecn: None, contents, segment_size: None, src_ip: path.local };
            while let Err(error) = io.try_io(Interest::WRITABLE, || state.try_send(UdpSockRef::from(io), &transmit)) {
                if error.kind() != io::ErrorKind::WouldBlock {
                    // Unreachable, refused by a filter, too large: as good as lost on the way.
                    tracing::debug!(%error, "a CoAP datagram was not sent");
                    break;
                }
                match io.poll_send_ready(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => break,
                    Poll::Pending => return Poll::Pending,
                }
            }
            self.sent += 1;
            bytes += contents.len() as u64;
        }
        self.sent = 0;
        out.clear();
        Poll::Ready(bytes)
    }
}
