//! A reader of `/subscribe` by hand: over HTTP/1.1, TLS and HTTP/2; as server-sent events, lines of JSON and WebSocket
//! messages; with a small receive buffer and at a pace of its own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::{http2, tcp, tls};
use serde_json::Value;

/// Bytes of the receive buffer that is asked for; the kernel doubles it. Below two segments of the loopback interface
/// every window waits for a timer.
const RECEIVE_BYTES: usize = 64 << 10;
/// The flow-control window of an HTTP/2 reader.
const WINDOW_BYTES: u32 = 16 << 10;

/// How a reader gets to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    Http1,
    Https1,
    Http2,
}

/// How events are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Sse,
    Ndjson,
    WebSocket,
}

pub(super) const VIAS: [Via; 3] = [Via::Http1, Via::Https1, Via::Http2];
pub(super) const FORMS: [Form; 3] = [Form::Sse, Form::Ndjson, Form::WebSocket];

trait Stream: Read + Write {
    fn socket(&self) -> &TcpStream;
}

impl Stream for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Stream for tls::Stream {
    fn socket(&self) -> &TcpStream {
        self.get_ref()
    }
}

/// A stream of events.
pub(super) struct Reader {
    stream: Box<dyn Stream>,
    via: Via,
    form: Form,
    /// As it came from the socket.
    raw: Vec<u8>,
    /// The body of the response, or of the WebSocket.
    body: Vec<u8>,
    /// How much of the body has no end of an event in it.
    searched: usize,
    /// The identifier received last.
    pub(super) last_id: Option<String>,
}

impl Reader {
    /// Opens a stream of what `filter` matches, after the event named `last`.
    pub(super) fn open(gateway: &Gateway, via: Via, form: Form, filter: &str, last: Option<&str>) -> Result<Self> {
        let listener = if via == Via::Https1 { "https" } else { "http" };
        let tcp = tcp::connect(gateway.address(listener)?)?;
        rustix::net::sockopt::set_socket_recv_buffer_size(&tcp, RECEIVE_BYTES)?;
        let stream: Box<dyn Stream> = match via {
            Via::Http1 | Via::Http2 => Box::new(tcp),
            Via::Https1 => Box::new(tls::over(&tls::config(gateway.ca())?, tcp)?),
        };
        let mut reader = Self { stream, via, form, raw: Vec::new(), body: Vec::new(), searched: 0, last_id: None };
        let mut target = format!("/subscribe?filter={}", filter.replace('#', "%23"));
        if let Some(last) = last {
            target.push_str("&since=");
            target.push_str(last);
        }
        match via {
            Via::Http1 | Via::Https1 => reader.ask_1(&target)?,
            Via::Http2 => reader.ask_2(&target)?,
        }
        // The first of the body may have come with the head.
        reader.unwrap_body()?;
        Ok(reader)
    }

    fn ask_1(&mut self, target: &str) -> Result<()> {
        let rest = match self.form {
            Form::Sse => "Accept: text/event-stream\r\n",
            Form::Ndjson => "Accept: application/x-ndjson\r\n",
            Form::WebSocket => {
                "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            }
        };
        self.stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{rest}\r\n").as_bytes())?;
        self.stream.flush()?;
        let end = loop {
            if let Some(at) = self.raw.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.read_raw(tcp::PATIENCE)?;
        };
        let head: Vec<u8> = self.raw.drain(..end).collect();
        let head = String::from_utf8_lossy(&head);
        let expected = if self.form == Form::WebSocket { "HTTP/1.1 101" } else { "HTTP/1.1 200" };
        ensure!(head.starts_with(expected), "{head}");
        Ok(())
    }

    fn ask_2(&mut self, target: &str) -> Result<()> {
        let mut settings = vec![0, 4];
        settings.extend(WINDOW_BYTES.to_be_bytes());
        let literal = http2::literal;
        let (block, end) = match self.form {
            Form::Sse => (http2::get(target), http2::END_STREAM),
            Form::Ndjson => {
                ([http2::get(target), literal("accept", "application/x-ndjson")].concat(), http2::END_STREAM)
            }
            // RFC 8441 §5.1.
            Form::WebSocket => {
                let fields = [
                    (":method", "CONNECT"),
                    (":protocol", "websocket"),
                    (":scheme", "http"),
                    (":path", target),
                    (":authority", "localhost"),
                    ("sec-websocket-version", "13"),
                ];
                (fields.iter().flat_map(|(name, value)| literal(name, value)).collect(), 0)
            }
        };
        let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        out.extend(http2::frame(http2::SETTINGS, 0, 0, &settings));
        out.extend(http2::frame(http2::HEADERS, http2::END_HEADERS | end, 1, &block));
        self.stream.write_all(&out)?;
        Ok(())
    }

    /// The next message or notice, as JSON.
    pub(super) fn next(&mut self, patience: Duration) -> Result<Value> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some((id, value)) = self.take()? {
                self.last_id = id.or_else(|| value.get("id")?.as_str().map(str::to_owned)).or(self.last_id.take());
                return Ok(value);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "nothing came for {patience:?}");
            self.read_raw(left)?;
            self.unwrap_body()?;
        }
    }

    fn read_raw(&mut self, patience: Duration) -> Result<()> {
        self.stream.socket().set_read_timeout(Some(patience))?;
        let mut buffer = [0; 16 << 10];
        let count = match self.stream.read(&mut buffer) {
            Err(error) if tcp::is_timeout(error.kind()) => bail!("nothing came for {patience:?}"),
            read => read?,
        };
        ensure!(count > 0, "the gateway closed the stream");
        self.raw.extend(buffer.iter().take(count));
        Ok(())
    }

    fn unwrap_body(&mut self) -> Result<()> {
        match (self.via, self.form) {
            (Via::Http2, _) => self.unwrap_frames(),
            (_, Form::WebSocket) => {
                self.body.append(&mut self.raw);
                Ok(())
            }
            (_, Form::Sse | Form::Ndjson) => self.unwrap_chunks(),
        }
    }

    fn unwrap_chunks(&mut self) -> Result<()> {
        while let Some(line) = self.raw.windows(2).position(|window| window == b"\r\n") {
            let size = std::str::from_utf8(self.raw.get(..line).unwrap_or_default())?;
            let size = usize::from_str_radix(size, 16).with_context(|| format!("chunk size {size:?}"))?;
            let (from, to) = (line + 2, line + 2 + size);
            let Some(chunk) = self.raw.get(from..to).filter(|_| self.raw.len() >= to + 2) else { break };
            self.body.extend_from_slice(chunk);
            self.raw.drain(..to + 2);
        }
        Ok(())
    }

    fn unwrap_frames(&mut self) -> Result<()> {
        while let Some((kind, flags, stream, payload)) = http2::take_frame(&mut self.raw) {
            match kind {
                http2::DATA => {
                    self.body.extend_from_slice(&payload);
                    let count = u32::try_from(payload.len())?.to_be_bytes();
                    let mut out = http2::frame(http2::WINDOW_UPDATE, 0, 0, &count);
                    out.extend(http2::frame(http2::WINDOW_UPDATE, 0, stream, &count));
                    if !payload.is_empty() {
                        self.stream.write_all(&out)?;
                    }
                }
                http2::SETTINGS if flags == 0 => self.stream.write_all(&http2::frame(http2::SETTINGS, 1, 0, &[]))?,
                http2::PING if flags == 0 => self.stream.write_all(&http2::frame(http2::PING, 1, 0, &payload))?,
                http2::RST_STREAM | http2::GOAWAY => bail!("frame {kind} {payload:?}"),
                _ => {}
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Result<Option<(Option<String>, Value)>> {
        match self.form {
            Form::Sse => self.take_event(),
            Form::Ndjson => {
                let Some(line) = self.take_until(b"\n") else { return Ok(None) };
                Ok(Some((None, serde_json::from_slice(&line)?)))
            }
            Form::WebSocket => self.take_text(),
        }
    }

    fn take_event(&mut self) -> Result<Option<(Option<String>, Value)>> {
        while let Some(block) = self.take_until(b"\n\n") {
            let block = String::from_utf8(block)?;
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
            if let Some(data) = field("data: ") {
                return Ok(Some((field("id: ").map(str::to_owned), serde_json::from_str(data)?)));
            }
        }
        Ok(None)
    }

    fn take_until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        let rest = self.body.get(self.searched..).unwrap_or_default();
        let Some(at) = rest.windows(end.len()).position(|window| window == end) else {
            self.searched = self.body.len().saturating_sub(end.len());
            return None;
        };
        let at = self.searched + at + end.len();
        self.searched = 0;
        Some(self.body.drain(..at).collect())
    }

    fn take_text(&mut self) -> Result<Option<(Option<String>, Value)>> {
        while let Some((opcode, payload)) = fogmux_tests::websocket::take_frame(&mut self.body) {
            match opcode {
                fogmux_tests::websocket::TEXT => return Ok(Some((None, serde_json::from_slice(&payload)?))),
                fogmux_tests::websocket::PING => {
                    let pong = fogmux_tests::websocket::frame(fogmux_tests::websocket::PONG, &payload);
                    self.send(&pong)?;
                }
                other => bail!("a frame of opcode {other}"),
            }
        }
        Ok(None)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        match self.via {
            Via::Http1 | Via::Https1 => self.stream.write_all(bytes)?,
            Via::Http2 => self.stream.write_all(&http2::frame(http2::DATA, 0, 1, bytes))?,
        }
        Ok(self.stream.flush()?)
    }
}
