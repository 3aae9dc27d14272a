//! The carrier of a connection's messages: the stream itself, or the frames of a WebSocket in it.

use bytes::BytesMut;
use fogmux_coap::stream::{Abort, FrameFault, Framing};
use fogmux_http::websocket::{CloseCode, Incoming, Opcode, Receiver, Role, push_close, push_frame};

/// Which of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::coap) enum WireKind {
    /// TCP or TLS.
    Stream,
    /// A WebSocket (RFC 8323 §4).
    WebSocket,
}

impl WireKind {
    pub(super) const fn framing(self) -> Framing {
        match self {
            Self::Stream => Framing::Stream,
            Self::WebSocket => Framing::WebSocket,
        }
    }

    /// Appends a message.
    pub(super) fn write(self, output: &mut Vec<u8>, write: impl FnOnce(Framing, &mut Vec<u8>)) {
        match self {
            Self::Stream => write(Framing::Stream, output),
            Self::WebSocket => {
                let mut message = Vec::new();
                write(Framing::WebSocket, &mut message);
                push_frame(Opcode::Binary, &message, None, output);
            }
        }
    }
}

/// A WebSocket that is being read: messages are put together from fragments.
pub(super) struct Frames {
    receiver: Receiver,
    pub(super) input: BytesMut,
    message: Vec<u8>,
    bytes_max: usize,
}

/// An event of a WebSocket.
pub(super) enum Said {
    /// A whole message.
    Message(Vec<u8>),
    /// The Pong to write after a Ping.
    Answer(Vec<u8>),
    /// The client closed the WebSocket; this is the Close to write.
    Closed(Vec<u8>),
    /// Nothing more for now.
    Nothing,
}

impl Frames {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            receiver: Receiver::new(Role::Server, u64::try_from(bytes_max).unwrap_or(u64::MAX)),
            input: BytesMut::new(),
            message: Vec::new(),
            bytes_max,
        }
    }

    /// Whether a message has begun and is not whole.
    pub(super) fn is_incomplete(&self) -> bool {
        !self.message.is_empty() || !self.input.is_empty()
    }

    pub(super) fn next(&mut self) -> Result<Said, Abort> {
        loop {
            match self.receiver.receive(&mut self.input) {
                Ok(None) => {
                    if self.input.is_empty() {
                        self.input = BytesMut::new();
                    }
                    return Ok(Said::Nothing);
                }
                Ok(Some(Incoming::Binary { bytes, end })) => {
                    if self.message.len() + bytes.len() > self.bytes_max {
                        return Err(FrameFault::TooLong(self.message.len() + bytes.len()).into());
                    }
                    self.message.extend_from_slice(&bytes);
                    if end {
                        return Ok(Said::Message(std::mem::take(&mut self.message)));
                    }
                }
                Ok(Some(Incoming::Text { .. })) => return Err(Abort::NotBinary),
                Ok(Some(Incoming::Ping(payload))) => {
                    let mut answer = Vec::new();
                    push_frame(Opcode::Pong, &payload, None, &mut answer);
                    return Ok(Said::Answer(answer));
                }
                Ok(Some(Incoming::Pong(_))) => {}
                Ok(Some(Incoming::Close(_))) => {
                    let mut answer = Vec::new();
                    push_close(CloseCode::Normal, "", None, &mut answer);
                    return Ok(Said::Closed(answer));
                }
                Err(violation) => {
                    let mut answer = Vec::new();
                    push_close(violation.close_code(), "", None, &mut answer);
                    return Ok(Said::Closed(answer));
                }
            }
        }
    }
}
