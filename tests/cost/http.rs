//! HTTP/1.1, and HTTP/2 with prior knowledge: GET of a retained message of 64 bytes by 16 clients on connections that
//! stay.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Result, ensure};
use fogmux_tests::{http2, tcp};

use crate::meter::Meter;

const CLIENTS: usize = 16;
const WARM: u32 = 3;
const ROUNDS: u32 = 150;
const GET: &[u8] = b"GET /topics/cost HTTP/1.1\r\nHost: localhost\r\n\r\n";

pub(crate) fn get(meter: &mut Meter) -> Result<u32> {
    let address = meter.gateway.address("http")?;
    put(address)?;
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| tcp::connect(address)).collect::<Result<_>>()?;
    let mut length = 0;
    for client in &mut clients {
        let answer = first_answer(client, GET)?;
        ensure!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        length = answer.len();
    }
    let mut answer = vec![0; length];
    for round in 0..WARM + ROUNDS {
        if round == WARM {
            meter.begin()?;
        }
        meter.at_once(|| clients.iter_mut().try_for_each(|client| Ok(client.write_all(GET)?)))?;
        for client in &mut clients {
            client.read_exact(&mut answer)?;
            ensure!(answer.starts_with(b"HTTP/1.1 200") && answer.ends_with(b"xxxx"));
        }
    }
    meter.end()?;
    Ok(ROUNDS * u32::try_from(CLIENTS)?)
}

/// The same over HTTP/2: one stream after the other on each connection.
pub(crate) fn get_h2(meter: &mut Meter) -> Result<u32> {
    let address = meter.gateway.address("http")?;
    put(address)?;
    let mut clients: Vec<Http2> = (0..CLIENTS).map(|_| Http2::connect(address)).collect::<Result<_>>()?;
    for round in 0..WARM + ROUNDS {
        if round == WARM {
            meter.begin()?;
        }
        meter.at_once(|| clients.iter_mut().try_for_each(Http2::ask))?;
        clients.iter_mut().try_for_each(Http2::answer)?;
    }
    meter.end()?;
    Ok(ROUNDS * u32::try_from(CLIENTS)?)
}

/// A connection of HTTP/2.
struct Http2 {
    stream: TcpStream,
    read: Vec<u8>,
    next: u32,
}

impl Http2 {
    fn connect(address: SocketAddr) -> Result<Self> {
        let mut stream = http2::connect(address)?;
        // The answer to the settings of the gateway, which are there before any answer (RFC 9113 §3.4).
        stream.write_all(&http2::frame(http2::SETTINGS, 1, 0, &[]))?;
        Ok(Self { stream, read: Vec::new(), next: 1 })
    }

    fn ask(&mut self) -> Result<()> {
        let flags = http2::END_STREAM | http2::END_HEADERS;
        self.stream.write_all(&http2::frame(http2::HEADERS, flags, self.next, &http2::get("/topics/cost")))?;
        Ok(())
    }

    /// Reads up to the end of the last stream.
    fn answer(&mut self) -> Result<()> {
        let mut body = Vec::new();
        loop {
            let Some((kind, flags, stream, payload)) = http2::take_frame(&mut self.read) else {
                let mut bytes = [0; 4096];
                let length = self.stream.read(&mut bytes)?;
                ensure!(length > 0, "the connection has ended");
                self.read.extend(bytes.iter().take(length));
                continue;
            };
            ensure!(kind != http2::RST_STREAM && kind != http2::GOAWAY, "frame {kind} of stream {stream}");
            if kind == http2::DATA {
                body.extend(payload);
            }
            if stream == self.next && flags & http2::END_STREAM != 0 {
                break;
            }
        }
        ensure!(body == [b'x'; 64], "{body:?}");
        // The window of the connection is given back (§6.9.1).
        self.stream.write_all(&http2::frame(http2::WINDOW_UPDATE, 0, 0, &64_u32.to_be_bytes()))?;
        self.next += 2;
        Ok(())
    }
}

/// Stores the message that is asked for.
fn put(address: SocketAddr) -> Result<()> {
    let put = format!("PUT /topics/cost HTTP/1.1\r\nHost: localhost\r\nContent-Length: 64\r\n\r\n{}", "x".repeat(64));
    let answer = first_answer(&mut tcp::connect(address)?, put.as_bytes())?;
    ensure!(answer.starts_with(b"HTTP/1.1 201"), "{}", String::from_utf8_lossy(&answer));
    Ok(())
}

/// A whole answer that fits a segment.
fn first_answer(stream: &mut TcpStream, request: &[u8]) -> Result<Vec<u8>> {
    stream.write_all(request)?;
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer)?;
    answer.truncate(length);
    Ok(answer)
}
