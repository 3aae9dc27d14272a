//! A client's messages through OSCORE: sits between a CoAP client that knows nothing of it and the network.
//!
//! Requests are sealed, and repeated as they were; answers are opened; acknowledgements and resets pass.

use std::collections::VecDeque;
use std::sync::Arc;

use fogmux_coap::{Class as CodeClass, Code, Encoder, Message, Token, Type};

use crate::client::{Pending, ResponseRefused};
use crate::context::{Context, SealError};

/// Requests that may be answered at the same time; of more, the oldest is forgotten.
const PENDING_MAX: usize = 1024;

/// A client's way to one server.
#[derive(Debug)]
pub struct Tunnel {
    context: Arc<Context>,
    pending: VecDeque<Sent>,
}

#[derive(Debug)]
struct Sent {
    token: Token,
    message_id: u16,
    plain: Vec<u8>,
    sealed: Vec<u8>,
    answers: Pending,
}

/// What came from the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// Something for the client: what was appended.
    Message,
    /// Nothing for the client: forged, or old.
    Nothing,
    /// The server could make nothing of the request of this token, or somebody wants us to believe so.
    Refused {
        /// Which request.
        token: Token,
        /// What it said.
        code: Code,
        /// And why.
        text: String,
    },
}

impl Tunnel {
    /// A way on which nothing was sent.
    #[must_use]
    pub const fn new(context: Arc<Context>) -> Self {
        Self { context, pending: VecDeque::new() }
    }

    /// The context in use.
    #[must_use]
    pub const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Appends to `out` what is to be sent for a datagram of the client.
    ///
    /// # Errors
    /// [`SealError`]; then nothing is appended.
    pub fn send(&mut self, datagram: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        let Ok(plain) = Message::decode(datagram) else { return Ok(()) };
        if plain.code.class() != CodeClass::Request {
            out.extend_from_slice(datagram);
            return Ok(());
        }
        let again = |sent: &&Sent| sent.message_id == plain.message_id && sent.plain == datagram;
        if let Some(sent) = self.pending.iter().find(again) {
            out.extend_from_slice(&sent.sealed);
            return Ok(());
        }
        let begin = out.len();
        let answers = self.context.seal_request(&plain, out)?;
        self.pending.retain(|sent| sent.token != plain.token);
        if self.pending.len() >= PENDING_MAX {
            self.pending.pop_front();
        }
        let sealed = out.get(begin..).unwrap_or(&[]).to_vec();
        let (token, message_id) = (plain.token, plain.message_id);
        self.pending.push_back(Sent { token, message_id, plain: datagram.to_vec(), sealed, answers });
        Ok(())
    }

    /// Appends to `inner` what a datagram from the network says to the client.
    pub fn receive(&mut self, datagram: &[u8], inner: &mut Vec<u8>) -> Received {
        let message = match Message::decode(datagram) {
            Ok(message) if message.code.is_response() => message,
            // Acknowledgements, resets, and what the client will reject.
            Ok(_) | Err(_) => {
                inner.extend_from_slice(datagram);
                return Received::Message;
            }
        };
        let Some(sent) = self.pending.iter_mut().find(|sent| sent.token == message.token) else {
            return Self::stranger(&message, inner);
        };
        match sent.answers.open(&message, inner) {
            Ok(()) => Received::Message,
            Err(ResponseRefused::Unprotected) if !message.code.is_success() => Received::Refused {
                token: message.token,
                code: message.code,
                text: String::from_utf8_lossy(message.payload()).into_owned(),
            },
            Err(_) => Received::Nothing,
        }
    }

    /// An answer to a request that was never sent, or is forgotten: nobody has verified it, so the client must see nothing
    /// of it – it may still wait for that token. What is left of it is what a message without content says: acknowledged,
    /// or to be rejected by a reset (RFC 7252 §4.2, as to a ping of §4.3).
    fn stranger(message: &Message<'_>, inner: &mut Vec<u8>) -> Received {
        match message.kind {
            kind @ (Type::Confirmable | Type::Acknowledgement) => {
                Encoder::new(inner, kind, Code::EMPTY, message.message_id, &Token::EMPTY).finish();
                Received::Message
            }
            Type::NonConfirmable | Type::Reset => Received::Nothing,
        }
    }
}
