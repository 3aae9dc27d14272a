//! A socket that takes and gives whole frames of one device (packet(7)).

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, bind, recvmsg, send, setsockopt,
    socket, sockopt,
};
use nix::sys::time::TimeSpec;

/// For bursts that come while the thread does not run.
const BUFFER_BYTES: usize = 32 << 20;
/// Longer than any frame on a device whose offloads are off.
pub(super) const FRAME_BYTES_MAX: usize = 65_536;

#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Of a device in the calling thread's namespace; it does not block.
    pub(super) fn open(device: &str) -> io::Result<Self> {
        let link = getifaddrs()?
            .filter(|interface| interface.interface_name == device)
            .find_map(|interface| interface.address?.as_link_addr().copied())
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("there is no device {device}")))?;
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
        setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES)?;
        setsockopt(&socket, sockopt::SndBufForce, &BUFFER_BYTES)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        // The address has no protocol, so that the socket keeps its own: all of them.
        bind(socket.as_raw_fd(), &link)?;
        Ok(Self(socket))
    }

    /// The length of the next frame, if there is one, and when it passed, since 1970.
    pub(super) fn receive(&self, frame: &mut [u8]) -> io::Result<Option<(usize, Duration)>> {
        let mut control = cmsg_space!(TimeSpec);
        let mut slices = [IoSliceMut::new(frame)];
        let message = recvmsg::<()>(self.0.as_raw_fd(), &mut slices, Some(&mut control), MsgFlags::empty());
        let Some(message) = unless_blocked(message)? else { return Ok(None) };
        let stamp = message.cmsgs()?.find_map(|message| {
            if let ControlMessageOwned::ScmTimestampns(time) = message { Some(Duration::from(time)) } else { None }
        });
        Ok(Some((message.bytes, stamp.unwrap_or_default())))
    }

    /// Sends a frame; whether it went.
    pub(super) fn send(&self, frame: &[u8]) -> bool {
        send(self.0.as_raw_fd(), frame, MsgFlags::empty()).is_ok()
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn unless_blocked<T>(result: nix::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
