//! DTLS towards the gateway: OpenSSL as the client for whole sessions, and handshake messages by hand for what no
//! client would send.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use openssl::ssl::{ShutdownResult, Ssl, SslContext, SslFiletype, SslMethod, SslStream, SslVerifyMode, SslVersion};

use crate::tcp::{self, PATIENCE};

/// DTLS 1.2 on the wire (RFC 6347 §4.1).
const VERSION: [u8; 2] = [0xfe, 0xfd];
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const HELLO_VERIFY_REQUEST: u8 = 3;
const RECORD_HEADER: usize = 13;
/// Record header and handshake header (RFC 6347 §4.1, §4.2.2).
const HEADERS: usize = RECORD_HEADER + 12;
/// `TLS_PSK_WITH_AES_128_CCM_8` and `_GCM_SHA256` (RFC 6655 §6, RFC 5487 §2), `TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8`
/// (RFC 7251 §2).
const SUITES: [u8; 6] = [0xc0, 0xa8, 0x00, 0xa8, 0xc0, 0xae];

/// The datagrams of a socket as OpenSSL wants to read and write them.
#[derive(Debug)]
pub struct Datagrams {
    socket: UdpSocket,
    /// Records that somebody who can forge the client's address sends before its first protected one.
    forged: u8,
}

impl Read for Datagrams {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.recv(buffer)
    }
}

impl Write for Datagrams {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let Some(at) = first_protected(buffer).filter(|_| self.forged > 0) else { return self.socket.send(buffer) };
        let (before, protected) = buffer.split_at(at);
        if !before.is_empty() {
            self.socket.send(before)?;
        }
        for number in 0..std::mem::take(&mut self.forged) {
            self.socket.send(&forged_record(number))?;
        }
        self.socket.send(protected)?;
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where in a datagram the first record of epoch 1 begins, if it has one (RFC 6347 §4.1).
fn first_protected(datagram: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(header) = datagram.get(at..at + RECORD_HEADER) {
        let [.., high, low] = *header else { return None };
        if header.get(3..5) == Some(&[0, 1]) {
            return Some(at);
        }
        at += RECORD_HEADER + usize::from(u16::from_be_bytes([high, low]));
    }
    None
}

/// A handshake record of epoch 1 under no key at all.
fn forged_record(number: u8) -> Vec<u8> {
    let mut record = vec![HANDSHAKE];
    record.extend(VERSION);
    record.extend([0, 1, 0, 0, 0, 0, 0, 100 + number, 0, 48]);
    record.extend([number; 48]);
    record
}

/// A session after its handshake.
#[derive(Debug)]
pub struct Session(SslStream<Datagrams>);

impl Session {
    /// Shakes hands from this socket, which is connected to the gateway.
    ///
    /// # Errors
    /// When the handshake fails or takes too long.
    pub fn open(context: &SslContext, socket: UdpSocket) -> Result<Self> {
        Self::open_among(context, socket, 0)
    }

    /// The same while somebody forges records of it.
    ///
    /// # Errors
    /// When the handshake fails or takes too long.
    pub fn open_among(context: &SslContext, socket: UdpSocket, forged: u8) -> Result<Self> {
        let mut ssl = Ssl::new(context)?;
        // Loopback takes any; without it OpenSSL asks a socket that it does not have.
        ssl.set_mtu(1400)?;
        let mut stream = SslStream::new(ssl, Datagrams { socket, forged })?;
        stream.connect().context("DTLS handshake")?;
        Ok(Self(stream))
    }

    /// Sends a message and gives the next one that comes.
    ///
    /// # Errors
    /// When none comes.
    pub fn exchange(&mut self, message: &[u8]) -> Result<Vec<u8>> {
        self.0.write_all(message)?;
        let mut buffer = vec![0; 2048];
        let count = tcp::read(&mut self.0, &mut buffer).context("no answer under DTLS")?;
        buffer.truncate(count);
        Ok(buffer)
    }

    /// Ends the session with close_notify (RFC 5246 §7.2.1) and waits for that of the gateway.
    ///
    /// # Errors
    /// When none comes.
    pub fn close(mut self) -> Result<()> {
        if self.0.shutdown()? == ShutdownResult::Sent {
            self.0.shutdown().context("no close_notify")?;
        }
        Ok(())
    }

    /// The socket beneath, for datagrams that are none of the session's.
    #[must_use]
    pub fn socket(&self) -> &UdpSocket {
        &self.0.get_ref().socket
    }

    /// Forgets the keys as a device does that loses its power; the port stays.
    ///
    /// # Errors
    /// The system is out of sockets.
    pub fn into_socket(self) -> Result<UdpSocket> {
        Ok(self.socket().try_clone()?)
    }
}

/// Returns the TLS context for clients with one pre-shared key.
///
/// # Errors
/// OpenSSL was built without the cipher suites.
pub fn psk(identity: &'static str, key: &'static [u8]) -> Result<SslContext> {
    let mut context = SslContext::builder(SslMethod::dtls_client())?;
    context.set_min_proto_version(Some(SslVersion::DTLS1_2))?;
    context.set_verify(SslVerifyMode::NONE);
    context.set_cipher_list("PSK-AES128-CCM8:PSK-AES128-GCM-SHA256:@SECLEVEL=0")?;
    context.set_psk_client_callback(move |_, _, identity_out, key_out| {
        // Identity with its NUL, then the key; a buffer too small is a handshake that fails.
        let Some(place) = identity_out.get_mut(..=identity.len()) else { return Ok(0) };
        let (name, end) = place.split_at_mut(identity.len());
        name.copy_from_slice(identity.as_bytes());
        end.fill(0);
        let Some(place) = key_out.get_mut(..key.len()) else { return Ok(0) };
        place.copy_from_slice(key);
        Ok(key.len())
    });
    Ok(context.build())
}

/// A client with suites of certificates and, if there are files of one, with a certificate of its own.
///
/// # Errors
/// When a file cannot be read.
pub fn certificates(own: Option<(&Path, &Path)>) -> Result<SslContext> {
    let mut context = SslContext::builder(SslMethod::dtls_client())?;
    context.set_min_proto_version(Some(SslVersion::DTLS1_2))?;
    context.set_verify(SslVerifyMode::NONE);
    context.set_cipher_list("ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-CCM8:@SECLEVEL=0")?;
    if let Some((certificate, key)) = own {
        context.set_certificate_chain_file(certificate)?;
        context.set_private_key_file(key, SslFiletype::PEM)?;
    }
    Ok(context.build())
}

/// A socket at one of loopback's sixteen million addresses, so that thousands of peers are not one address.
///
/// # Errors
/// When no port is left.
pub fn endpoint(server: SocketAddr, number: u32) -> Result<UdpSocket> {
    let [_, high, middle, low] = (number / 200 + 0x0001_0001).to_be_bytes();
    let socket = UdpSocket::bind((IpAddr::V4(Ipv4Addr::new(127, high, middle, low.max(1))), 0))?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// A ClientHello in one record, with a cookie or an empty one (RFC 6347 §4.2.1).
#[must_use]
pub fn client_hello(sequence: u16, cookie: &[u8]) -> Vec<u8> {
    client_hello_of(sequence, cookie, &SUITES)
}

/// The same with these suites, two bytes each.
#[must_use]
pub fn client_hello_of(sequence: u16, cookie: &[u8], suites: &[u8]) -> Vec<u8> {
    let mut body = VERSION.to_vec();
    body.extend([0x5a; 32]);
    body.push(0);
    body.push(u8::try_from(cookie.len()).unwrap_or(u8::MAX));
    body.extend(cookie);
    body.extend(u16::try_from(suites.len()).unwrap_or(u16::MAX).to_be_bytes());
    body.extend(suites);
    body.extend([1, 0]);
    record(sequence, CLIENT_HELLO, &body)
}

/// A ClientHello that speaks DTLS 1.3 only (RFC 9147 §5.3), with a share of X25519; with a cookie it is a second one.
#[must_use]
pub fn client_hello_13(sequence: u16, cookie: &[u8]) -> Vec<u8> {
    let vector = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes()[..], bytes].concat();
    let extension = |number: u16, bytes: &[u8]| [&number.to_be_bytes()[..], &vector(bytes)].concat();
    let share = [&[0, 29][..], &vector(&[9; 32])].concat();
    let mut extensions = [
        // supported_versions, supported_groups, signature_algorithms, key_share (RFC 8446 §4.2)
        extension(43, &[2, 0xfe, 0xfc]),
        extension(10, &vector(&[0, 29])),
        extension(13, &vector(&[4, 3])),
        extension(51, &vector(&share)),
    ]
    .concat();
    if !cookie.is_empty() {
        extensions.extend(extension(44, &vector(cookie)));
    }
    let mut body = VERSION.to_vec();
    body.extend([0x5a; 32]);
    // No session, no cookie of 1.2, TLS_AES_128_GCM_SHA256, no compression.
    body.extend([0, 0, 0, 2, 0x13, 0x01, 1, 0]);
    body.extend(vector(&extensions));
    record(sequence, CLIENT_HELLO, &body)
}

fn record(sequence: u16, kind: u8, body: &[u8]) -> Vec<u8> {
    let length = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
    let mut out = vec![HANDSHAKE];
    out.extend(VERSION);
    out.extend([0; 6]);
    out.extend(sequence.to_be_bytes());
    out.extend(length(body.len() + 12));
    out.push(kind);
    out.push(0);
    out.extend(length(body.len()));
    out.extend(sequence.to_be_bytes());
    out.extend([0; 3]);
    out.push(0);
    out.extend(length(body.len()));
    out.extend(body);
    out
}

/// Records of an earlier handshake that are passed over.
const STALE_MAX: usize = 8;

/// Asks for a cookie and gives it back: a handshake that has begun and, if nothing more is sent, never ends.
///
/// # Errors
/// When the answer is no HelloVerifyRequest.
pub fn half_open(socket: &UdpSocket) -> Result<usize> {
    half_open_with(socket, &SUITES)
}

/// The same with these suites.
///
/// # Errors
/// When the answer is no HelloVerifyRequest.
pub fn half_open_with(socket: &UdpSocket, suites: &[u8]) -> Result<usize> {
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    let first = client_hello_of(0, b"", suites);
    socket.send(&first)?;
    let mut answer = [0; 2_048];
    let mut count = socket.recv(&mut answer).context("no HelloVerifyRequest")?;
    // The port may have been that of an earlier socket, whose half-open handshake the gateway still repeats its part
    // of.
    for _ in 0..STALE_MAX {
        if answer.get(13) == Some(&HELLO_VERIFY_REQUEST) {
            break;
        }
        count = socket.recv(&mut answer).context("no HelloVerifyRequest")?;
    }
    ensure!(answer.get(13) == Some(&HELLO_VERIFY_REQUEST), "{:02x?} instead of HelloVerifyRequest", answer.get(13));
    // Two bytes of version, one of length.
    let cookie = answer.get(HEADERS + 3..count).context("no cookie")?;
    socket.send(&client_hello_of(1, cookie, suites))?;
    Ok(count * 100 / first.len())
}
