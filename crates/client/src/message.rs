//! A message as the clients of all doors send and receive it.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::error::ClientError;

/// A message to publish.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The topic.
    pub topic: String,
    /// The payload.
    pub payload: Bytes,
    /// MIME type of the payload.
    pub content_type: Option<String>,
    /// Quality of service. On CoAP, 0 is sent Non-confirmable if it fits into one message, otherwise Confirmable.
    pub qos: u8,
    /// Whether the message is retained.
    pub retain: bool,
}

/// A received message. Fields that the door does not transmit are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// The topic it was published on.
    pub topic: String,
    /// The payload.
    pub payload: Bytes,
    /// MIME type of the payload.
    pub content_type: Option<String>,
    /// Quality of service.
    pub qos: Option<u8>,
    /// Whether it is the retained message of the topic.
    pub retain: Option<bool>,
}

/// Bytes of a body, and of all messages that arrive before they are asked for.
pub(crate) const BYTES_MAX: usize = 64 << 20;
/// Bytes that a waiting message takes beside its topic and its payload.
const MESSAGE_BYTES: usize = 128;

/// Messages that arrived before the answer to the request for them.
#[derive(Debug, Default)]
pub(crate) struct Early {
    messages: VecDeque<Arrived>,
    bytes: usize,
    too_many: bool,
}

impl Early {
    /// Adds messages, as long as there is room for them.
    pub(crate) fn extend(&mut self, messages: impl IntoIterator<Item = Arrived>) {
        for message in messages {
            self.bytes = self.bytes.saturating_add(message.topic.len() + message.payload.len() + MESSAGE_BYTES);
            if self.bytes > BYTES_MAX {
                self.too_many = true;
                return;
            }
            self.messages.push_back(message);
        }
    }

    /// Whether there was no room for some.
    pub(crate) const fn is_too_many(&self) -> bool {
        self.too_many
    }

    /// Takes the first.
    ///
    /// # Errors
    /// The server has sent more than a client keeps.
    pub(crate) fn next(&mut self) -> Result<Option<Arrived>, ClientError> {
        if self.too_many {
            return Err(ClientError::protocol("messages of more than 64 MiB before the answer to the request"));
        }
        let message = self.messages.pop_front();
        if let Some(message) = &message {
            self.bytes = self.bytes.saturating_sub(message.topic.len() + message.payload.len() + MESSAGE_BYTES);
        }
        Ok(message)
    }
}

/// Text of a peer as one line without control characters, which are escaped to protect the terminal.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() && character != '\t' {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}
