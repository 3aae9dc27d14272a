//! Proxies in front of listeners: the networks that the operator names, and the PROXY protocol, versions 1 and 2, by
//! which a proxy says whose connection it passes on (HAProxy, `doc/proxy-protocol.txt`).

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
    time::Duration,
};

use tokio::{io::AsyncReadExt as _, net::TcpStream, time::timeout};

/// The first bytes of a header of version 2 (§2.2).
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of a header of version 2 before its addresses.
const FIXED_BYTES: usize = 16;
/// Bits of an IPv4-mapped IPv6 address before the IPv4 address (RFC 4291 §2.5.5.2).
const MAPPED_BITS: u8 = 96;
/// Longest header of version 1, CR LF included (§2.1).
const LINE_BYTES_MAX: usize = 107;
/// Longest addresses and TLVs of version 2 that are taken. Certificates in TLVs take a few kilobytes.
const REST_BYTES_MAX: usize = 8 << 10;
/// The longest addresses of version 2: two of UNIX sockets (§2.2).
const ADDRESSES_BYTES_MAX: usize = 216;

/// Why a string is no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an address, nor a network such as 192.0.2.0/24")]
pub struct NoNetwork;

/// Addresses with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u8,
}

impl FromStr for Network {
    type Err = NoNetwork;

    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| NoNetwork)?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let bits: u8 = bits.map_or(Ok(max), str::parse).map_err(|_| NoNetwork)?;
        if bits > max {
            return Err(NoNetwork);
        }
        // Addresses of peers are made canonical before they are compared, so `::ffff:192.0.2.0/120` is 192.0.2.0/24. A
        // shorter prefix holds IPv4 and IPv6 addresses (RFC 4291 §2.5.5.2) and would match none of the former.
        let canonical = address.to_canonical();
        let mapped = if canonical == address { 0 } else { MAPPED_BITS };
        let bits = bits.checked_sub(mapped).ok_or(NoNetwork)?;
        Ok(Self { address: canonical, bits })
    }
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        let prefix = |value: u128, width: u8| value.checked_shr(u32::from(width - self.bits)).unwrap_or(0);
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                prefix(own.to_bits().into(), 32) == prefix(other.to_bits().into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => prefix(own.to_bits(), 128) == prefix(other.to_bits(), 128),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// The networks of the proxies that the operator named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies(Vec<Network>);

impl Proxies {
    /// Parses addresses and networks.
    ///
    /// # Errors
    /// [`NoNetwork`] for the first that is neither.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, NoNetwork> {
        texts.into_iter().map(str::parse).collect::<Result<_, _>>().map(Self)
    }

    /// Whether an address is one of theirs.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(address))
    }

    /// Whether none is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The origin that a header states for its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The proxy speaks for itself, as in a health check (§2.2, LOCAL).
    Proxy,
    /// A client at this address.
    Client(SocketAddr),
    /// A client whose address is not known, or no address of the Internet (UNKNOWN, AF_UNSPEC, AF_UNIX).
    Unknown,
}

/// Why the header of a connection was not read.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// It is not one of the PROXY protocol.
    #[error("no header of the PROXY protocol: {0}")]
    Malformed(&'static str),
    /// It did not arrive in time.
    #[error("the header of the PROXY protocol did not arrive in time")]
    TooSlow,
    /// The connection ended.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads the header, and not a byte more, within `limit`.
///
/// # Errors
/// [`HeaderError`]; the connection is of no use then.
pub async fn read_header(stream: &mut TcpStream, limit: Duration) -> Result<Origin, HeaderError> {
    timeout(limit, read(stream)).await.unwrap_or(Err(HeaderError::TooSlow))
}

async fn read(stream: &mut TcpStream) -> Result<Origin, HeaderError> {
    // Each version's shortest header is longer.
    let mut start = [0; SIGNATURE.len()];
    stream.read_exact(&mut start).await?;
    if start == SIGNATURE {
        let mut fixed = [0; FIXED_BYTES - SIGNATURE.len()];
        stream.read_exact(&mut fixed).await?;
        let [command, family, high, low] = fixed;
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length > REST_BYTES_MAX {
            return Err(HeaderError::Malformed("it is too long"));
        }
        let mut bytes = [0; ADDRESSES_BYTES_MAX];
        let addresses = bytes.get_mut(..length.min(ADDRESSES_BYTES_MAX)).unwrap_or_default();
        stream.read_exact(addresses).await?;
        let origin = binary(command, family, addresses).map_err(HeaderError::Malformed)?;
        skip(stream, length - addresses.len()).await?;
        return Ok(origin);
    }
    if !start.starts_with(b"PROXY ") {
        return Err(HeaderError::Malformed("it begins otherwise"));
    }
    let mut line = start.to_vec();
    let mut waiting = [0; LINE_BYTES_MAX];
    while line.last() != Some(&b'\n') {
        let room = waiting.get_mut(..LINE_BYTES_MAX - line.len()).unwrap_or_default();
        if room.is_empty() {
            return Err(HeaderError::Malformed("the line does not end"));
        }
        // Bytes after the line are the client's and stay in the socket.
        let seen = stream.peek(room).await?;
        let seen = room.get(..seen).unwrap_or_default();
        let wanted = seen.iter().position(|byte| *byte == b'\n').map_or(seen.len(), |at| at + 1);
        if wanted == 0 {
            return Err(HeaderError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        let taken = waiting.get_mut(..wanted).unwrap_or_default();
        stream.read_exact(taken).await?;
        line.extend_from_slice(taken);
    }
    text(&line).map_err(HeaderError::Malformed)
}

/// Reads TLVs away, which are not used, without room for all of them: thousands of connections may wait here.
async fn skip(stream: &mut TcpStream, mut bytes: usize) -> io::Result<()> {
    let mut buffer = [0; 256];
    while bytes > 0 {
        let some = bytes.min(buffer.len());
        let some = buffer.get_mut(..some).unwrap_or_default();
        bytes -= stream.read_exact(some).await?;
    }
    Ok(())
}

/// A header of version 1 (§2.1).
fn text(line: &[u8]) -> Result<Origin, &'static str> {
    let line = line.strip_suffix(b"\r\n").and_then(|line| std::str::from_utf8(line).ok()).ok_or("no line of text")?;
    let mut words = line.split(' ');
    let (_, family) = (words.next(), words.next().unwrap_or_default());
    if family == "UNKNOWN" {
        // The rest is to be ignored.
        return Ok(Origin::Unknown);
    }
    let address = |word: Option<&str>| -> Option<IpAddr> {
        match family {
            "TCP4" => word?.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
            "TCP6" => word?.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            _ => None,
        }
    };
    // A number may have a sign in Rust.
    let digits = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
    let port = |word: Option<&str>| word.filter(digits)?.parse::<u16>().ok();
    let (source, destination) = (address(words.next()), address(words.next()));
    let (source_port, destination_port) = (port(words.next()), port(words.next()));
    match (source, destination, source_port, destination_port, words.next()) {
        (Some(source), Some(_), Some(port), Some(_), None) => Ok(client(source, port)),
        _ => Err("no addresses and ports"),
    }
}

/// A proxy that listens on both families names clients of IPv4 by mapped addresses; they are the same clients.
const fn client(address: IpAddr, port: u16) -> Origin {
    Origin::Client(SocketAddr::new(address.to_canonical(), port))
}

/// A header of version 2 (§2.2). TLVs, which follow the addresses, are ignored.
fn binary(command: u8, family: u8, rest: &[u8]) -> Result<Origin, &'static str> {
    if command >> 4 != 2 {
        return Err("an unknown version");
    }
    match command & 0x0f {
        0 => return Ok(Origin::Proxy),
        1 => {}
        _ => return Err("an unknown command"),
    }
    // The lower half is the transport: none, a stream, a datagram.
    if family & 0x0f > 2 {
        return Err("an unknown transport");
    }
    let port = |at: usize| rest.get(at..at + 2).and_then(<[u8]>::first_chunk).map(|port| u16::from_be_bytes(*port));
    let of = |address: Option<IpAddr>, port: Option<u16>| match (address, port) {
        (Some(address), Some(port)) => Ok(client(address, port)),
        _ => Err("addresses cut short"),
    };
    match family >> 4 {
        0 => Ok(Origin::Unknown),
        1 if rest.len() >= 12 => of(rest.first_chunk::<4>().map(|bytes| Ipv4Addr::from(*bytes).into()), port(8)),
        2 if rest.len() >= 36 => of(rest.first_chunk::<16>().map(|bytes| Ipv6Addr::from(*bytes).into()), port(32)),
        3 if rest.len() >= ADDRESSES_BYTES_MAX => Ok(Origin::Unknown),
        1..=3 => Err("addresses cut short"),
        _ => Err("an unknown family"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_addresses() {
        let proxies = Proxies::parse(["127.0.0.1", "10.1.0.0/16", "2001:db8::/32", "0.0.0.0/32"]).unwrap();
        for inside in ["127.0.0.1", "::ffff:127.0.0.1", "10.1.255.1", "2001:db8:1::1"] {
            assert!(proxies.contains(inside.parse().unwrap()), "{inside}");
        }
        for outside in ["127.0.0.2", "10.2.0.1", "2001:db9::1", "::1"] {
            assert!(!proxies.contains(outside.parse().unwrap()), "{outside}");
        }
        assert!(Proxies::parse(["0.0.0.0/0"]).unwrap().contains("203.0.113.1".parse().unwrap()));
        for wrong in ["", "x", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.1/8/8"] {
            assert_eq!(Proxies::parse([wrong]), Err(NoNetwork), "{wrong}");
        }
    }

    #[test]
    fn ipv4_mapped_networks_are_those_of_ipv4() {
        let proxies = Proxies::parse(["::ffff:127.0.0.1", "::ffff:10.0.0.0/104"]).unwrap();
        assert_eq!(proxies, Proxies::parse(["127.0.0.1", "10.0.0.0/8"]).unwrap());
        // Neither of IPv4 nor of IPv6.
        assert_eq!(Proxies::parse(["::ffff:127.0.0.1/95"]), Err(NoNetwork));
    }

    #[test]
    fn every_network_that_is_taken_holds_its_own_address() {
        for address in ["127.0.0.1", "0.0.0.0", "::", "::1", "2001:db8::1", "::127.0.0.1", "::ffff:203.0.113.9"] {
            let own: IpAddr = address.parse().unwrap();
            let widths: Vec<_> = (0..=128).map(|bits| format!("{address}/{bits}")).collect();
            for text in widths.iter().map(String::as_str).chain([address]) {
                let Ok(proxies) = Proxies::parse([text]) else { continue };
                assert!(proxies.contains(own) && proxies.contains(own.to_canonical()), "{text}");
            }
        }
    }

    #[test]
    fn s2_1_lines() {
        let client = |text: &str| Ok(Origin::Client(text.parse().unwrap()));
        assert_eq!(text(b"PROXY TCP4 203.0.113.9 192.0.2.1 65535 1883\r\n"), client("203.0.113.9:65535"));
        assert_eq!(text(b"PROXY TCP6 2001:db8::9 ::1 9 1\r\n"), client("[2001:db8::9]:9"));
        assert_eq!(text(b"PROXY TCP6 ::ffff:203.0.113.9 ::1 9 1\r\n"), client("203.0.113.9:9"), "mapped");
        assert_eq!(text(b"PROXY UNKNOWN\r\n"), Ok(Origin::Unknown));
        assert_eq!(text(b"PROXY UNKNOWN ffff:: ffff:: 1 2\r\n"), Ok(Origin::Unknown));
        for wrong in [
            "PROXY TCP4 203.0.113.9 192.0.2.1 65536 1\r\n",
            "PROXY TCP4 203.0.113.9 192.0.2.1 +1 1\r\n",
            "PROXY TCP4 ::1 192.0.2.1 1 1\r\n",
            "PROXY TCP4 203.0.113.9 192.0.2.1 1\r\n",
            "PROXY TCP4 203.0.113.9 192.0.2.1 1 1 1\r\n",
            "PROXY TCP4 203.0.113.9 192.0.2.1 1 1\n",
            "PROXY TCP9 203.0.113.9 192.0.2.1 1 1\r\n",
            "PROXY \r\n",
        ] {
            assert!(text(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn s2_2_binary() {
        let mut v4 = vec![203, 0, 113, 9, 192, 0, 2, 1, 0, 9, 0, 1];
        assert_eq!(binary(0x21, 0x11, &v4), Ok(Origin::Client("203.0.113.9:9".parse().unwrap())));
        assert!(binary(0x21, 0x11, &v4[..11]).is_err());
        v4.extend([4, 0, 1, 0]);
        assert_eq!(binary(0x21, 0x11, &v4), Ok(Origin::Client("203.0.113.9:9".parse().unwrap())), "with a TLV");
        let v6 = [&[0x20, 1, 0xd, 0xb8][..], &[0; 28], &[0, 9, 0, 1]].concat();
        assert_eq!(binary(0x21, 0x21, &v6), Ok(Origin::Client("[2001:db8::]:9".parse().unwrap())));
        assert!(binary(0x21, 0x21, &v6[..35]).is_err());
        assert_eq!(binary(0x21, 0x31, &[0; 216]), Ok(Origin::Unknown));
        assert_eq!(binary(0x21, 0x00, &[]), Ok(Origin::Unknown));
        assert_eq!(binary(0x20, 0x00, &[]), Ok(Origin::Proxy));
        assert_eq!(binary(0x20, 0xff, &[]), Ok(Origin::Proxy), "LOCAL: the family is to be ignored");
        for (command, family) in [(0x11, 0x11), (0x22, 0x11), (0x21, 0x41), (0x21, 0x13)] {
            assert!(binary(command, family, &[0; 216]).is_err(), "{command:#x} {family:#x}");
        }
    }
}
