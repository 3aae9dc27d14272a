//! A frame as Wireshark lists it: its headers and what they carry, without the frame check sequence.

use serde::Deserialize;

use super::{ETHERNET_HEADER, IPV4_HEADER, TCP_HEADER, UDP_HEADER};

/// RFC 8200 §3.
const IPV6_HEADER: u64 = 40;

/// A frame of a listing (karamina2024, figures 6 to 15), by what the listing says beside its length: sequence numbers
/// of TCP, or the length of the packets in it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Frame {
    network: Network,
    transport: Transport,
    /// Bytes that TCP or UDP carries.
    data: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Network {
    Ipv4,
    Ipv6,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Transport {
    Tcp,
    Udp,
}

impl Frame {
    pub(super) const fn bytes(&self) -> u64 {
        let network = match self.network {
            Network::Ipv4 => IPV4_HEADER,
            Network::Ipv6 => IPV6_HEADER,
        };
        let transport = match self.transport {
            Transport::Tcp => TCP_HEADER,
            Transport::Udp => UDP_HEADER,
        };
        ETHERNET_HEADER + network + transport + self.data
    }
}
