//! Which packets passed: captured frames, counted by what is in them.
//!
//! A frame counts once, as what its first record or message is. Nothing of a payload is looked at.

mod sequence;

use std::collections::BTreeMap;

pub use self::sequence::PREFIX as SEQUENCE_PREFIX;
use self::sequence::Sequence;

/// Before each packet in a "Linux cooked" capture (libpcap, LINKTYPE_LINUX_SLL), which tables 5 to 10 of seoane2021
/// count.
pub(super) const COOKED_HEADER: u64 = 16;
/// IEEE 802.3 fills a frame's data up to this.
pub(super) const ETHERNET_DATA_MIN: u64 = 46;

/// The name under which a frame is counted.
pub type Part = &'static str;

/// TCP's SYN, with and without ACK.
pub const SYN: Part = "TCP SYN";
/// TCP's FIN; what it carries is not counted apart.
pub const FIN: Part = "TCP FIN";
/// TCP's RST.
pub const RESET: Part = "TCP RST";
/// A segment that only acknowledges.
pub const PURE_ACK: Part = "TCP ACK without data";
/// A TLS or DTLS handshake message or ChangeCipherSpec.
pub const HANDSHAKE: Part = "TLS handshake";
/// TLS or DTLS application data.
pub const DATA: Part = "TLS data";
/// A TLS or DTLS alert; encrypted, it is `close_notify`.
pub const ALERT: Part = "TLS alert";
/// A Confirmable message.
pub const COAP_CON: Part = "CoAP CON";
/// A Non-confirmable message.
pub const COAP_NON: Part = "CoAP NON";
/// An empty acknowledgement.
pub const COAP_ACK: Part = "CoAP ACK";
/// An acknowledgement with the answer in it.
pub const COAP_ACK_ANSWER: Part = "CoAP ACK with answer";
/// A Reset.
pub const COAP_RESET: Part = "CoAP RST";
/// MQTT's CONNECT.
pub const MQTT_CONNECT: Part = "CONNECT";
/// CONNACK.
pub const MQTT_CONNACK: Part = "CONNACK";
/// PUBLISH.
pub const MQTT_PUBLISH: Part = "PUBLISH";
/// PUBACK.
pub const MQTT_PUBACK: Part = "PUBACK";
/// PUBREC.
pub const MQTT_PUBREC: Part = "PUBREC";
/// PUBREL.
pub const MQTT_PUBREL: Part = "PUBREL";
/// PUBCOMP.
pub const MQTT_PUBCOMP: Part = "PUBCOMP";
/// DISCONNECT.
pub const MQTT_DISCONNECT: Part = "DISCONNECT";
/// A datagram of QUIC (RFC 9000), whatever packets are in it.
pub const QUIC: Part = "QUIC";
const MQTT_OTHER: Part = "another MQTT packet";
const MQTT_SEVERAL: Part = "several MQTT packets in one segment";
const TCP_DATA: Part = "TCP data";
const UDP: Part = "UDP";
const OTHER: Part = "neither TCP nor UDP over IPv4";

/// How keys of these counts begin in [`Outcome::more`](crate::Outcome::more).
pub const PREFIX: &str = "frames.";
/// The key of the bytes as [`formula`](super::formula) counts them.
pub const COOKED_BYTES: &str = "frames.cooked_bytes";

/// The protocol inside TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// MQTT packets over TCP.
    Mqtt,
    /// QUIC over UDP, whose first bytes look like any others.
    Quic,
    /// Something whose packets have no names here.
    Other,
}

/// Counts of frames.
#[derive(Clone, Debug)]
pub struct Frames {
    inside: Inside,
    counts: BTreeMap<Part, u64>,
    cooked_bytes: u64,
    sequence: Sequence,
}

impl Frames {
    /// None so far.
    #[must_use]
    pub fn new(inside: Inside) -> Self {
        Self { inside, counts: BTreeMap::new(), cooked_bytes: 0, sequence: Sequence::default() }
    }

    /// Counts a frame, which begins with its Ethernet header.
    pub fn add(&mut self, frame: &[u8]) {
        let part = self.part(frame);
        *self.counts.entry(part).or_default() += 1;
        self.sequence.add(frame, part);
        let packet = u64::try_from(frame.len().saturating_sub(14)).unwrap_or_default();
        self.cooked_bytes += COOKED_HEADER + packet.max(ETHERNET_DATA_MIN);
    }

    /// As keys of an outcome.
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    pub fn write(&self, more: &mut BTreeMap<String, f64>) {
        for (part, count) in &self.counts {
            more.insert(format!("{PREFIX}{part}"), *count as f64);
        }
        more.insert(COOKED_BYTES.to_owned(), self.cooked_bytes as f64);
        self.sequence.write(more);
    }

    fn part(&self, frame: &[u8]) -> Part {
        let Some((0x0800, packet)) = frame.get(12..14).map(u16_of).zip(frame.get(14..)) else { return OTHER };
        let header = usize::from(packet.first().copied().unwrap_or_default() & 0x0f) * 4;
        let length = packet.get(2..4).map_or(0, u16_of);
        // A short packet is filled up by Ethernet; what IP says counts.
        let Some(segment) = packet.get(header..usize::from(length)) else { return OTHER };
        match packet.get(9) {
            Some(6) => self.tcp(segment).unwrap_or(OTHER),
            Some(17) if self.inside == Inside::Quic => QUIC,
            Some(17) => segment.get(8..).map_or(UDP, udp),
            _ => OTHER,
        }
    }

    fn tcp(&self, segment: &[u8]) -> Option<Part> {
        let header = usize::from(segment.get(12)? >> 4) * 4;
        let flags = *segment.get(13)?;
        let data = segment.get(header..)?;
        Some(match (flags, data) {
            (flags, _) if flags & 0x04 != 0 => RESET,
            (flags, _) if flags & 0x02 != 0 => SYN,
            (flags, _) if flags & 0x01 != 0 => FIN,
            (_, []) => PURE_ACK,
            (_, data) => record(data).unwrap_or_else(|| match self.inside {
                Inside::Mqtt => mqtt(data),
                Inside::Quic | Inside::Other => TCP_DATA,
            }),
        })
    }
}

fn u16_of(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |number, byte| number << 8 | u16::from(*byte))
}

/// RFC 5246 §6.2.1, RFC 6347 §4.1: content type, then a version that begins with 3, or 254.
fn record(data: &[u8]) -> Option<Part> {
    match data {
        [20 | 22, 3 | 254, ..] => Some(HANDSHAKE),
        [21, 3 | 254, ..] => Some(ALERT),
        [23, 3 | 254, ..] => Some(DATA),
        _ => None,
    }
}

/// RFC 7252 §3: version and type in the first byte, code in the second.
fn udp(data: &[u8]) -> Part {
    record(data).unwrap_or(match data {
        [first, _, ..] if first >> 4 == 0b0100 => COAP_CON,
        [first, _, ..] if first >> 4 == 0b0101 => COAP_NON,
        [first, 0, ..] if first >> 4 == 0b0110 => COAP_ACK,
        [first, _, ..] if first >> 4 == 0b0110 => COAP_ACK_ANSWER,
        [first, _, ..] if first >> 4 == 0b0111 => COAP_RESET,
        _ => UDP,
    })
}

/// MQTT 3.1.1 §2.2: the type in the upper half of the first byte, then the length of what follows.
fn mqtt(data: &[u8]) -> Part {
    let (mut length, mut header) = (0_usize, 1);
    for (at, byte) in data.iter().skip(1).take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * at);
        header += 1;
        if byte & 0x80 == 0 {
            break;
        }
    }
    if data.len() > header + length {
        return MQTT_SEVERAL;
    }
    match data.first().map_or(0, |first| first >> 4) {
        1 => MQTT_CONNECT,
        2 => MQTT_CONNACK,
        3 => MQTT_PUBLISH,
        4 => MQTT_PUBACK,
        5 => MQTT_PUBREC,
        6 => MQTT_PUBREL,
        7 => MQTT_PUBCOMP,
        14 => MQTT_DISCONNECT,
        _ => MQTT_OTHER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(protocol: u8, segment: &[u8], padding: usize) -> Vec<u8> {
        let length = u16::try_from(20 + segment.len()).unwrap().to_be_bytes();
        let mut frame = vec![0; 12];
        frame.extend([
            0x08, 0x00, 0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        frame.extend(segment);
        frame.extend(vec![0; padding]);
        frame
    }

    fn ports((source, destination): (u16, u16)) -> Vec<u8> {
        [source.to_be_bytes(), destination.to_be_bytes()].concat()
    }

    pub(super) fn udp_between(ends: (u16, u16), data: &[u8]) -> Vec<u8> {
        frame(17, &[&ports(ends), &[0; 4][..], data].concat(), 0)
    }

    pub(super) fn tcp_between(ends: (u16, u16), flags: u8, data: &[u8]) -> Vec<u8> {
        let header = [0, 0, 0, 0, 0, 0, 0, 0, 0x80, flags, 0, 0, 0, 0, 0, 0, 1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0];
        frame(6, &[&ports(ends), &header[..], data].concat(), 0)
    }

    fn udp(data: &[u8]) -> Vec<u8> {
        udp_between((0, 0), data)
    }

    fn tcp(flags: u8, data: &[u8]) -> Vec<u8> {
        tcp_between((0, 0), flags, data)
    }

    #[test]
    fn frames_are_told_apart() {
        let frames = Frames::new(Inside::Mqtt);
        for (frame, expected) in [
            (tcp(0x02, &[]), SYN),
            (tcp(0x12, &[]), SYN),
            (tcp(0x10, &[]), PURE_ACK),
            (tcp(0x11, &[]), FIN),
            (tcp(0x19, &[0xe0, 0]), FIN),
            (tcp(0x14, &[]), RESET),
            (tcp(0x18, &[0x10, 2, 0, 0]), MQTT_CONNECT),
            (tcp(0x18, &[0x30, 3, 0, 1, b'a']), MQTT_PUBLISH),
            (tcp(0x18, &[0x30, 3, 0, 1, b'a', 0xe0, 0]), MQTT_SEVERAL),
            (tcp(0x18, &[0xe0, 0]), MQTT_DISCONNECT),
            (tcp(0x18, &[22, 3, 1, 0, 5]), HANDSHAKE),
            (tcp(0x18, &[23, 3, 3, 0, 5]), DATA),
            (udp(&[0x40, 1, 0, 0]), COAP_CON),
            (udp(&[0x60, 0, 0, 0]), COAP_ACK),
            (udp(&[0x60, 0x45, 0, 0]), COAP_ACK_ANSWER),
            (udp(&[0x51, 1, 0, 0, 9]), COAP_NON),
            (udp(&[0x70, 0, 0, 0]), COAP_RESET),
            (udp(&[22, 254, 253, 0]), HANDSHAKE),
            (udp(&[21, 254, 253, 0]), ALERT),
            (vec![0; 42], OTHER),
            (vec![], OTHER),
        ] {
            assert_eq!(frames.part(&frame), expected, "{frame:02x?}");
        }
        assert_eq!(Frames::new(Inside::Other).part(&tcp(0x18, &[0x10, 2, 0, 0])), TCP_DATA);
        // The short header of QUIC begins as a Confirmable message does (RFC 9000 §17.3).
        assert_eq!(Frames::new(Inside::Quic).part(&udp(&[0x40, 1, 0, 0])), QUIC);
    }

    #[test]
    fn padding_is_no_data_and_short_packets_count_as_filled() {
        let mut frames = Frames::new(Inside::Mqtt);
        // An empty ACK of CoAP: 32 bytes of IP. On a real Ethernet 14 more would follow.
        frames.add(&udp(&[0x60, 0, 0, 0]));
        frames.add(&frame(17, &[&[0_u8; 8][..], &[0x60, 0, 0, 0]].concat(), 14));
        let mut more = BTreeMap::new();
        frames.write(&mut more);
        assert_eq!(more[COOKED_BYTES], 2.0 * 62.0);
        assert_eq!(more["frames.CoAP ACK"], 2.0);
    }
}
