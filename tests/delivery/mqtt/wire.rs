//! The transports of MQTT as blocking streams of bytes: TCP, TLS, WebSocket over either, and over HTTP/2 (RFC 8441).

use std::collections::VecDeque;
use std::io::{Error, Read, Result as IoResult, Write};
use std::net::TcpStream;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::http2::{self, END_HEADERS, HEADERS, PING, RST_STREAM, SETTINGS, frame};
use fogmux_tests::websocket::{self, ByteStream};
use fogmux_tests::{tcp, tls};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// The transports of MQTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Tls,
    Ws,
    Wss,
    Http2,
}

/// A connection.
pub(crate) trait Wire: Read + Write + Send {}

impl<T: Read + Write + Send> Wire for T {}

/// A receive buffer that a burst fills at once.
pub(crate) const SMALL_BUFFER: usize = 16 << 10;

/// Connects; with `buffer`, the socket takes no more than about so many bytes that are not read.
pub(crate) fn open(gateway: &Gateway, transport: Transport, buffer: Option<usize>) -> Result<Box<dyn Wire>> {
    let socket = |listener: &str| -> Result<TcpStream> {
        let address = gateway.address(listener)?;
        let Some(bytes) = buffer else { return tcp::connect(address) };
        // Before the handshake, in which TCP says how large its window may become.
        // A gateway that another case starts now must not inherit it, or it stays open.
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        set_socket_recv_buffer_size(&socket, bytes)?;
        rustix::net::connect(&socket, &address)?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(tcp::PATIENCE))?;
        stream.set_write_timeout(Some(tcp::PATIENCE))?;
        Ok(stream)
    };
    let secure = |listener: &str, alpn: &[u8]| -> Result<tls::Stream> {
        let mut config = (*tls::config(gateway.ca())?).clone();
        config.alpn_protocols = vec![alpn.to_vec()];
        let session = rustls::ClientConnection::new(Arc::new(config), "localhost".try_into()?)?;
        Ok(rustls::StreamOwned::new(session, socket(listener)?))
    };
    Ok(match transport {
        Transport::Tcp => Box::new(socket("mqtt")?),
        Transport::Tls => Box::new(secure("mqtts", b"mqtt")?),
        Transport::Ws => Box::new(upgraded(socket("http")?)?),
        Transport::Wss => Box::new(upgraded(secure("https", b"http/1.1")?)?),
        Transport::Http2 => Box::new(ByteStream::over(Tunnel::connect(secure("https", b"h2")?)?)),
    })
}

fn upgraded<S: Read + Write>(mut stream: S) -> Result<ByteStream<S>> {
    websocket::upgrade(&mut stream, "/mqtt", "mqtt")?;
    Ok(ByteStream::over(stream))
}

/// The stream that an extended CONNECT opens (RFC 8441 §4), with flow control (RFC 9113 §5.2).
struct Tunnel<S> {
    stream: S,
    data: VecDeque<u8>,
    /// The peer's flow-control windows of the connection and of the stream.
    window: [i64; 2],
    initial: i64,
    ended: bool,
}

const DATA: u8 = 0;
const WINDOW_UPDATE: u8 = 8;
const ACKNOWLEDGE: u8 = 1;
const STREAM: u32 = 1;

impl<S: Read + Write> Tunnel<S> {
    fn connect(mut stream: S) -> Result<Self> {
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
        stream.write_all(&frame(SETTINGS, 0, 0, &[]))?;
        let fields = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":path", "/mqtt"),
            (":authority", "localhost"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-protocol", "mqtt"),
        ];
        let mut block = Vec::new();
        for (name, value) in fields {
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len())?);
                block.extend(text.bytes());
            }
        }
        let mut tunnel = Self { stream, data: VecDeque::new(), window: [65_535; 2], initial: 65_535, ended: false };
        // The CONNECT may go out once the peer's settings allow it (RFC 8441 §3).
        while tunnel.take_frame()?.0 != SETTINGS {}
        tunnel.stream.write_all(&frame(HEADERS, END_HEADERS, STREAM, &block))?;
        loop {
            let (kind, payload) = tunnel.take_frame()?;
            if kind == HEADERS {
                ensure!(payload.first() == Some(&0x88), "the answer to CONNECT is no 200: {payload:?}");
                return Ok(tunnel);
            }
        }
    }

    /// Takes a frame in and does what the protocol asks for.
    fn take_frame(&mut self) -> Result<(u8, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let [a, b, c, kind, flags, _, _, _, stream] = head;
        let mut payload = vec![0; usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)];
        self.stream.read_exact(&mut payload)?;
        match kind {
            DATA => {
                self.data.extend(&payload);
                self.ended |= flags & http2::END_STREAM != 0;
                let step = u32::try_from(payload.len())?.to_be_bytes();
                if !payload.is_empty() {
                    self.stream.write_all(&frame(WINDOW_UPDATE, 0, 0, &step))?;
                    self.stream.write_all(&frame(WINDOW_UPDATE, 0, STREAM, &step))?;
                    self.stream.flush()?;
                }
            }
            SETTINGS if flags & ACKNOWLEDGE == 0 => {
                self.settings(&payload);
                self.stream.write_all(&frame(SETTINGS, ACKNOWLEDGE, 0, &[]))?;
                self.stream.flush()?;
            }
            WINDOW_UPDATE => {
                let step = i64::from(u32::from_be_bytes(payload.as_slice().try_into()?));
                if let Some(window) = self.window.get_mut(usize::from(stream != 0)) {
                    *window += step;
                }
            }
            PING if flags & ACKNOWLEDGE == 0 => self.stream.write_all(&frame(PING, ACKNOWLEDGE, 0, &payload))?,
            RST_STREAM => self.ended = true,
            _ => {}
        }
        Ok((kind, payload))
    }

    /// SETTINGS_INITIAL_WINDOW_SIZE changes the windows of open streams, too (RFC 9113 §6.9.2).
    fn settings(&mut self, payload: &[u8]) {
        for entry in payload.chunks_exact(6) {
            if let [0, 4, value @ ..] = entry
                && let Ok(value) = value.try_into().map(u32::from_be_bytes)
            {
                let [_, stream] = &mut self.window;
                *stream += i64::from(value) - self.initial;
                self.initial = i64::from(value);
            }
        }
    }
}

impl<S: Read + Write> Read for Tunnel<S> {
    fn read(&mut self, buffer: &mut [u8]) -> IoResult<usize> {
        while self.data.is_empty() {
            if self.ended {
                return Ok(0);
            }
            self.take_frame().map_err(|error| error.downcast::<Error>().unwrap_or_else(Error::other))?;
        }
        self.data.read(buffer)
    }
}

impl<S: Read + Write> Write for Tunnel<S> {
    fn write(&mut self, bytes: &[u8]) -> IoResult<usize> {
        let part = bytes.get(..bytes.len().min(8192)).unwrap_or_default();
        let length = i64::try_from(part.len()).map_err(Error::other)?;
        while self.window.iter().any(|window| *window < length) {
            self.take_frame().map_err(|error| error.downcast::<Error>().unwrap_or_else(Error::other))?;
        }
        self.window.iter_mut().for_each(|window| *window -= length);
        self.stream.write_all(&frame(DATA, 0, STREAM, part))?;
        Ok(part.len())
    }

    fn flush(&mut self) -> IoResult<()> {
        self.stream.flush()
    }
}

/// The end of a packet's remaining length at the front of `bytes` and the length itself, when it is there.
pub(crate) fn remaining_length(bytes: &[u8]) -> Result<Option<(usize, usize)>> {
    let mut length = 0;
    for (index, digit) in bytes.iter().skip(1).take(4).enumerate() {
        length |= usize::from(digit & 0x7f) << (7 * index);
        if digit & 0x80 == 0 {
            return Ok(Some((index + 2, length)));
        }
    }
    ensure!(bytes.len() < 5, "a remaining length of more than four bytes");
    Ok(None)
}

/// A number that a packet has at a place.
pub(crate) fn number(body: &[u8], at: usize) -> Result<u16> {
    let bytes = body.get(at..at + 2).context("a packet that is too short")?;
    Ok(u16::from_be_bytes(bytes.try_into()?))
}
