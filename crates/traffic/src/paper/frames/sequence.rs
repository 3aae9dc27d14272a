//! The first frames of one connection in their order, as documents list them from Wireshark: how long each is, and
//! whether anybody on the way could read it.
//!
//! The connection is that of the first frame. Frames without data (SYN, acknowledgements, FIN) are not numbered, for
//! their places depend on timing. Documents capture on a loopback device of 65 536 bytes: a segment that fills a frame
//! here counts with what follows it, as the one frame that it would be there.

use std::collections::BTreeMap;

use super::{ALERT, COAP_ACK, COAP_RESET, DATA, FIN, HANDSHAKE, PURE_ACK, Part, QUIC, RESET, SYN, u16_of};

/// How keys of this module begin in [`Outcome::more`](crate::Outcome::more).
pub const PREFIX: &str = "sequence.";
/// Frames that are kept each way.
const KEPT_MAX: usize = 12;
/// Of Ethernet with an MTU of 1500 bytes, without the frame check sequence.
const FRAME_BYTES_FULL: usize = 1514;
const ETHERNET_HEADER: usize = 14;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// RFC 8613 §2.
const OSCORE_OPTION: u32 = 9;

/// The frames of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequence {
    /// Ports of the client and of the server.
    ports: Option<(u16, u16)>,
    up: Way,
    down: Way,
    /// Of an acknowledgement of TCP without data.
    ack_bytes: Option<usize>,
    /// The least that a frame with data carries.
    data_bytes_min: Option<usize>,
    /// Frames that begin with data of the application, or a protocol below it, and those that are not protected.
    carrying: u64,
    clear: u64,
}

/// One direction.
#[derive(Clone, Debug, Default)]
struct Way {
    bytes: Vec<usize>,
    /// Whether the last segment filled its frame.
    is_full: bool,
}

/// The content of a frame.
struct Carried<'a> {
    protocol: u8,
    source: u16,
    destination: u16,
    data: &'a [u8],
}

impl Sequence {
    /// Notes a frame that is `part`.
    pub(super) fn add(&mut self, frame: &[u8], part: Part) {
        let Some(carried) = carried(frame) else { return };
        let ports = *self.ports.get_or_insert((carried.source, carried.destination));
        let way = match (carried.source, carried.destination) {
            ends if ends == ports => &mut self.up,
            (source, destination) if (destination, source) == ports => &mut self.down,
            _ => return,
        };
        if [SYN, FIN, RESET].contains(&part) {
            return;
        }
        if part == PURE_ACK {
            self.ack_bytes.get_or_insert(frame.len());
            return;
        }
        let is_begun = way.add(frame.len(), &carried);
        self.data_bytes_min = self.data_bytes_min.into_iter().chain([carried.data.len()]).min();
        // Half of a record does not tell what it is, and an empty message has nothing that could be read.
        if is_begun && ![COAP_ACK, COAP_RESET].contains(&part) {
            self.carrying += 1;
            self.clear += u64::from(!is_protected(part, &carried));
        }
    }

    /// As keys of an outcome.
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    pub(super) fn write(&self, more: &mut BTreeMap<String, f64>) {
        for (name, way) in [("up", &self.up), ("down", &self.down)] {
            for (at, bytes) in way.bytes.iter().enumerate() {
                more.insert(format!("{PREFIX}{name}.{}", at + 1), *bytes as f64);
            }
        }
        let single = [("ack", self.ack_bytes), ("data_min", self.data_bytes_min)];
        more.extend(single.into_iter().filter_map(|(key, bytes)| Some((format!("{PREFIX}{key}"), bytes? as f64))));
        if self.carrying > 0 {
            let percent = 100.0 * self.clear as f64 / self.carrying as f64;
            more.insert(format!("{PREFIX}clear_percent"), percent);
        }
    }
}

impl Way {
    /// Whether the frame begins something, and does not go on with what filled the one before.
    fn add(&mut self, frame_bytes: usize, carried: &Carried<'_>) -> bool {
        let is_begun = !self.is_full;
        let is_full = carried.protocol == TCP && frame_bytes >= FRAME_BYTES_FULL;
        if let Some(last) = self.bytes.last_mut().filter(|_| self.is_full) {
            *last += carried.data.len();
        } else if self.bytes.len() < KEPT_MAX {
            self.bytes.push(frame_bytes);
        }
        self.is_full = is_full;
        is_begun
    }
}

/// The data of a TCP segment or UDP datagram over IPv4.
fn carried(frame: &[u8]) -> Option<Carried<'_>> {
    let packet = frame.get(ETHERNET_HEADER..).filter(|_| frame.get(12..14) == Some(&[0x08, 0x00]))?;
    let header = usize::from(packet.first()? & 0x0f) * 4;
    // A short packet is filled up by Ethernet; what IP says counts.
    let segment = packet.get(header..usize::from(u16_of(packet.get(2..4)?)))?;
    let protocol = *packet.get(9)?;
    let data = match protocol {
        TCP => segment.get(usize::from(segment.get(12)? >> 4) * 4..)?,
        UDP => segment.get(8..)?,
        _ => return None,
    };
    let (source, destination) = (u16_of(segment.get(..2)?), u16_of(segment.get(2..4)?));
    Some(Carried { protocol, source, destination, data })
}

/// Whether the data is that of a protocol which encrypts.
fn is_protected(part: Part, carried: &Carried<'_>) -> bool {
    match part {
        HANDSHAKE | DATA | ALERT | QUIC => true,
        _ => carried.protocol == UDP && has_oscore(carried.data),
    }
}

/// Whether a CoAP message has the option of OSCORE: header and token, then options in the order of their numbers, each
/// by its distance from the one before (RFC 7252 §3.1).
fn has_oscore(message: &[u8]) -> bool {
    let token = usize::from(message.first().copied().unwrap_or_default() & 0x0f);
    let mut rest = message.get(4 + token..).unwrap_or_default();
    let mut number = 0;
    while let [first, after @ ..] = rest {
        let Some((delta, after)) = extended(first >> 4, after) else { return false };
        let Some((length, after)) = extended(first & 0x0f, after) else { return false };
        number += delta;
        if number >= OSCORE_OPTION {
            return number == OSCORE_OPTION;
        }
        let Some(after) = usize::try_from(length).ok().and_then(|length| after.get(length..)) else { return false };
        rest = after;
    }
    false
}

/// RFC 7252 §3.1: 13 and 14 have their number in the next byte, or two; 15 is the marker before the payload.
fn extended(nibble: u8, rest: &[u8]) -> Option<(u32, &[u8])> {
    match (nibble, rest) {
        (13, [byte, rest @ ..]) => Some((13 + u32::from(*byte), rest)),
        (14, [high, low, rest @ ..]) => Some((269 + u32::from(u16_of(&[*high, *low])), rest)),
        (nibble @ 0..13, rest) => Some((u32::from(nibble), rest)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{tcp_between, udp_between};
    use super::super::{Frames, Inside};
    use super::*;

    const CLIENT: (u16, u16) = (50_000, 1883);
    const SERVER: (u16, u16) = (1883, 50_000);

    fn listed(inside: Inside, frames: &[Vec<u8>]) -> BTreeMap<String, f64> {
        let mut counted = Frames::new(inside);
        frames.iter().for_each(|frame| counted.add(frame));
        let mut more = BTreeMap::new();
        counted.write(&mut more);
        more.retain(|key, _| key.starts_with(PREFIX));
        more
    }

    #[test]
    fn frames_with_data_of_the_first_connection_are_numbered_each_way() {
        let more = listed(
            Inside::Mqtt,
            &[
                tcp_between(CLIENT, 0x02, &[]),
                tcp_between(SERVER, 0x12, &[]),
                tcp_between(CLIENT, 0x10, &[]),
                tcp_between(CLIENT, 0x18, &[0x10, 2, 0, 0]),
                tcp_between((50_001, 1883), 0x18, &[0x10, 3, 0, 0, 0]),
                tcp_between(SERVER, 0x18, &[0x20, 1, 0]),
                tcp_between(CLIENT, 0x18, &[0x82, 0]),
                tcp_between(CLIENT, 0x11, &[]),
            ],
        );
        let lengths = [("down.1", 69.0), ("up.1", 70.0), ("up.2", 68.0)];
        let expected = [("ack", 66.0), ("clear_percent", 100.0), ("data_min", 2.0)].into_iter().chain(lengths);
        assert_eq!(more, expected.map(|(key, value)| (format!("{PREFIX}{key}"), value)).collect());
    }

    #[test]
    fn a_segment_that_fills_its_frame_counts_with_the_next_one() {
        let record = |length: usize| [&[22, 3, 3][..], &vec![0; length - 3]].concat();
        let frames = [
            tcp_between(CLIENT, 0x18, &record(517)),
            tcp_between(SERVER, 0x18, &record(1448)),
            tcp_between(SERVER, 0x18, &[0; 669]),
            tcp_between(SERVER, 0x18, &record(271)),
        ];
        let more = listed(Inside::Other, &frames);
        // As figure 7 of karamina2024 has them.
        assert_eq!((more["sequence.up.1"], more["sequence.down.1"], more["sequence.down.2"]), (583.0, 2183.0, 337.0));
        assert_eq!(more["sequence.clear_percent"], 0.0);
    }

    #[test]
    fn a_message_with_oscore_is_protected_and_one_without_is_not() {
        // Token of two bytes; Observe (6, one byte), then OSCORE (9, three bytes) or Uri-Path (11).
        let oscore = [0x42, 5, 0, 1, 7, 7, 0x61, 0, 0x33, 9, 0, 1, 0xff, 1];
        let plain = [0x42, 1, 0, 1, 7, 7, 0x61, 0, 0x54, b't', b'i', b'm', b'e'];
        let far = [0x40, 1, 0, 1, 0xd1, 30, 0, 0xff, 1];
        assert_eq!(
            [&oscore[..], &plain, &far, &[], &[0x40, 1, 0, 1, 0xe1]].map(has_oscore),
            [true, false, false, false, false]
        );
        let frames = [&oscore[..], &plain, &[0x60, 0, 0, 1]].map(|message| udp_between(CLIENT, message));
        let percent = listed(Inside::Other, &frames)["sequence.clear_percent"];
        assert_eq!(percent, 50.0);
    }

    #[test]
    fn more_frames_than_any_document_lists_are_not_kept() {
        let frames = vec![udp_between(CLIENT, &[0x40, 1, 0, 0]); KEPT_MAX + 5];
        assert_eq!(listed(Inside::Other, &frames).keys().filter(|key| key.contains("up.")).count(), KEPT_MAX);
    }
}
