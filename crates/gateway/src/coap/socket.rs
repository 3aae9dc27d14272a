//! A UDP socket that reads many datagrams with one call and answers from the address that was asked.

use std::{
    io::{self, IoSliceMut},
    task::{Context, Poll, ready},
};

use fogmux_coap::Outbox;
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use smallvec::SmallVec;
use tokio::{io::Interest, net::UdpSocket};

use super::transport::{Path, Transport};

/// Room for one datagram, or for what the kernel has joined (GRO). Memory is used only where something is written.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// The socket and its buffers.
pub(super) struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
    buffers: Box<[u8]>,
    metas: [RecvMeta; BATCH_SIZE],
    received: usize,
    sent: usize,
    /// Whether the socket is bound to all addresses.
    wildcard: bool,
}

impl Socket {
    pub(super) fn new(io: UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&io))?;
        let wildcard = io.local_addr()?.ip().is_unspecified();
        Ok(Self {
            wildcard,
            io,
            state,
            buffers: vec![0; DATAGRAM_BYTES_MAX * BATCH_SIZE].into_boxed_slice(),
            metas: [RecvMeta::default(); BATCH_SIZE],
            received: 0,
            sent: 0,
        })
    }
}

impl Transport for Socket {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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

    fn datagrams(&self) -> impl Iterator<Item = (Path, &[u8])> {
        let buffers = self.buffers.chunks_exact(DATAGRAM_BYTES_MAX);
        self.metas.iter().zip(buffers).take(self.received).flat_map(|(meta, buffer)| {
            let path = Path { remote: meta.addr, local: meta.dst_ip, association: 0 };
            let bytes = buffer.get(..meta.len).unwrap_or(&[]);
            bytes.chunks(meta.stride.max(1)).map(move |datagram| (path, datagram))
        })
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, out: &mut Outbox<Path>) -> Poll<u64> {
        let (io, state) = (&self.io, &self.state);
        while self.sent < out.len() {
            let batch: Batch<'_> = out.iter().skip(self.sent).take(BATCH_SIZE).collect();
            match io.try_io(Interest::WRITABLE, || send(io, state, self.wildcard, &batch)) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Err(error) = ready!(io.poll_send_ready(cx)) {
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
        let bytes = out.iter().map(|(_, contents)| contents.len() as u64).sum();
        out.clear();
        Poll::Ready(bytes)
    }
}

/// Datagrams that go to the kernel together.
type Batch<'a> = SmallVec<[(Path, &'a [u8]); BATCH_SIZE]>;

/// Sends as many as the kernel takes, at least one; gives how many.
fn send(io: &UdpSocket, state: &UdpSocketState, wildcard: bool, batch: &Batch<'_>) -> io::Result<usize> {
    #[cfg(target_os = "linux")]
    if !wildcard && batch.len() > 1 {
        return many::send(io, batch);
    }
    // A socket of all addresses has to say from which it answers.
    let Some((path, contents)) = batch.first() else { return Ok(0) };
    let src_ip = path.local.filter(|_| wildcard);
    let transmit = Transmit { destination: path.remote, ecn: None, contents, segment_size: None, src_ip };
    state.try_send(UdpSockRef::from(io), &transmit).map(|()| 1)
}

/// Many datagrams with one system call: on a busy machine a third of a notification's cost (5.3 to 3.3 CPU-µs, C5).
#[cfg(target_os = "linux")]
mod many {
    use std::io::{self, IoSlice};

    use quinn_udp::BATCH_SIZE;
    use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg};
    use smallvec::SmallVec;

    use super::Batch;

    pub(super) fn send(io: &tokio::net::UdpSocket, batch: &Batch<'_>) -> io::Result<usize> {
        let to: SmallVec<[SocketAddrAny; BATCH_SIZE]> =
            batch.iter().map(|(path, _)| SocketAddrAny::from(path.remote)).collect();
        let slices: SmallVec<[[IoSlice<'_>; 1]; BATCH_SIZE]> =
            batch.iter().map(|(_, contents)| [IoSlice::new(contents)]).collect();
        let mut controls: [SendAncillaryBuffer<'_, '_, '_>; BATCH_SIZE] = Default::default();
        let mut headers: SmallVec<[MMsgHdr<'_>; BATCH_SIZE]> = to
            .iter()
            .zip(&slices)
            .zip(&mut controls)
            .map(|((to, slice), control)| MMsgHdr::new_with_addr(to, slice, control))
            .collect();
        Ok(sendmmsg(io, &mut headers, SendFlags::DONTWAIT)?)
    }
}
