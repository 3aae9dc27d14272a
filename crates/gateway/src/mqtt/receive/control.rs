//! Reading while a publisher pauses: its PINGREQ is answered, and what else comes before its next PUBLISH is handled.
//!
//! So much is read that it needs no account, and a PUBLISH stays where it is until the pause is over. A PINGREQ behind
//! more than that waits, too: to find it, all messages before it would have to be kept.

use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use fogmux_mqtt::{Frame, Limits, Packet, Version};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    super::connection::{Connection, End},
    Input,
};
use crate::unfinished::SMALL_BYTES;

/// The first bytes of PUBLISH without its flags, of SUBSCRIBE, UNSUBSCRIBE and PINGREQ.
const PUBLISH: u8 = 0x30;
const SUBSCRIBE: u8 = 0x82;
const UNSUBSCRIBE: u8 = 0xA2;
const PINGREQ: u8 = 0xC0;

/// Whether the next packet is a PUBLISH.
pub(super) fn is_publish(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| first & 0xF0 == PUBLISH)
}

/// Whether the next packet has filters, each of which is some work.
pub(super) fn has_filters(bytes: &[u8]) -> bool {
    matches!(bytes.first(), Some(&(SUBSCRIBE | UNSUBSCRIBE)))
}

/// Removes each whole PINGREQ. Returns how many there were.
fn remove_pings(bytes: &mut Vec<u8>, version: Version, limits: &Limits) -> u64 {
    let (mut at, mut kept, mut pings) = (0, 0, 0);
    while let Ok(Some(frame)) = Frame::read(bytes.get(at..).unwrap_or_default(), version, limits) {
        let end = at + frame.total_len();
        if end > bytes.len() {
            break;
        }
        if bytes.get(at) == Some(&PINGREQ) {
            pings += 1;
        } else {
            bytes.copy_within(at..end, kept);
            kept += end - at;
        }
        at = end;
    }
    bytes.drain(kept..at);
    pings
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Reads a little while this publisher pauses. Returns whether anything came.
    pub(in crate::mqtt) fn poll_control(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let before = match &mut self.reading.input {
            Input::Partial(bytes) | Input::Held(bytes) => std::mem::take(bytes),
            Input::Unread(_) | Input::Large(_) => return Ok(false),
        };
        let (bytes, came) = self.read_a_little(cx, before);
        let publishes = self.facts.publishes;
        self.take(&bytes)?;
        self.facts.publishes = publishes;
        self.answer_pings()?;
        Ok(came)
    }

    /// Appends what there is to bytes, if they are few. The end of the stream is left for when the pause is over: what
    /// came before it is still to be published.
    fn read_a_little(&mut self, cx: &mut Context<'_>, mut bytes: Vec<u8>) -> (Vec<u8>, bool) {
        let ctx = Rc::clone(&self.ctx);
        let mut buffer = ctx.read_buffer.borrow_mut();
        let room = SMALL_BYTES.saturating_sub(bytes.len());
        let mut read = ReadBuf::new(buffer.get_mut(..room).unwrap_or_default());
        if room == 0 || !matches!(Pin::new(&mut self.stream).poll_read(cx, &mut read), Poll::Ready(Ok(()))) {
            return (bytes, false);
        }
        self.count_read(read.filled().len());
        bytes.extend_from_slice(read.filled());
        let came = !read.filled().is_empty();
        (bytes, came)
    }

    /// Answers each PINGREQ among the bytes that are held.
    fn answer_pings(&mut self) -> Result<(), End> {
        let (version, limits) = (self.facts.version, self.limits());
        let Input::Held(held) = &mut self.reading.input else { return Ok(()) };
        let before = held.len();
        let pings = remove_pings(held, version, &limits);
        self.reading.boundary.handled(before - held.len());
        if pings == 0 {
            return Ok(());
        }
        self.reading.last_read = self.running();
        self.ctx.shared.metrics.mqtt_only.control_in.add(pings);
        (0..pings).try_for_each(|_| self.answer(&Packet::Pingresp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_are_taken_out_of_whole_packets_only() {
        let publish = [0x32, 6, 0, 1, b't', 0, 1, PINGREQ];
        let ping = [PINGREQ, 0];
        let limits = Limits { packet_bytes_max: 1 << 20 };
        for (packets, pings) in [
            (vec![&publish[..]], 0),
            (vec![&publish, &ping], 1),
            (vec![&ping, &publish, &ping, &ping, &publish, &ping], 4),
            (vec![], 0),
        ] {
            for rest in [&publish[..0], &publish[..1], &publish[..5], &ping[..1]] {
                let mut bytes = packets.concat();
                bytes.extend_from_slice(rest);
                let found = remove_pings(&mut bytes, Version::V311, &limits);
                let mut left = publish.repeat(packets.iter().filter(|packet| packet.len() > 2).count());
                left.extend_from_slice(rest);
                assert_eq!((found, bytes), (pings, left), "{packets:?} {rest:?}");
            }
        }
    }
}
