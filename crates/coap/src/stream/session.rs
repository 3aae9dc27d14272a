//! The session of one connection (RFC 8323): negotiated capabilities, and the deadlines for messages of the peer.

use std::time::Duration;

use crate::Timestamp;
use crate::code::Class;
use crate::message::Message;
use crate::server::StreamLimits;
use crate::stream::frame::{Frame, FrameFault, Framing};
use crate::stream::signal::{self, Abort, Alternative, MESSAGE_BYTES_BASE, Signal};
use crate::token::Token;

/// The bounds of a connection.
#[derive(Clone, Copy, Debug)]
pub struct SessionConfig {
    /// The longest message taken, which is what our CSM says.
    pub message_bytes_max: usize,
    /// How long the first message may take, CSM.
    pub settings_timeout: Duration,
    /// How long a message may take from its first byte to its last.
    pub message_timeout: Duration,
    /// After so long without a byte, Ping asks whether anybody is there.
    pub idle_timeout: Duration,
    /// How long an answer to that may take.
    pub pong_timeout: Duration,
}

impl SessionConfig {
    /// The bounds of a client: messages of 1 MiB, 10 s for the settings, 60 s for a message and without a byte, 20 s
    /// for Pong.
    pub const CLIENT: Self = Self {
        message_bytes_max: 1 << 20,
        settings_timeout: Duration::from_secs(10),
        message_timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(60),
        pong_timeout: Duration::from_secs(20),
    };
}

/// One end of one connection.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    framing: Framing,
    opened: Timestamp,
    heard: Timestamp,
    /// The time at which the first bytes of an incomplete message arrived.
    incomplete: Option<Timestamp>,
    pinged: Option<Timestamp>,
    pings: u64,
    settings: Option<StreamLimits>,
    block_wise: bool,
}

/// A message as its receiver handles it.
#[derive(Debug)]
pub enum Heard<'a> {
    /// A request or a response.
    Message(Message<'a>),
    /// The peer announced its capabilities.
    Settings(StreamLimits),
    /// To be answered by [`signal::push_pong`]; with custody once everything before it is done (RFC 8323 §5.4.1).
    Ping {
        /// The token to repeat in the Pong.
        token: Token,
        /// Whether the Pong must wait until all earlier messages are processed.
        custody: bool,
    },
    /// Nothing to do: Pong, or an Empty message (RFC 8323 §4.3).
    Nothing,
    /// The peer sent Release: open requests are answered, then the connection is closed (RFC 8323 §5.5).
    Released(Alternative),
    /// The peer sent Abort (RFC 8323 §5.6).
    Aborted(Box<str>),
}

/// The action that has become due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// No action.
    Nothing,
    /// A Ping was appended to the output.
    Pinged,
    /// The connection is to be aborted.
    Over(Abort),
}

impl Session {
    /// Opens the session of a new connection and appends a CSM, the first message of either end (RFC 8323 §5.3).
    #[must_use]
    pub fn open(config: SessionConfig, framing: Framing, now: Timestamp, out: &mut Vec<u8>) -> Self {
        signal::push_settings(StreamLimits { message_bytes_max: config.message_bytes_max, bert: true }, framing, out);
        Self {
            config,
            framing,
            opened: now,
            heard: now,
            incomplete: None,
            pinged: None,
            pings: 0,
            settings: None,
            block_wise: false,
        }
    }

    /// The layer that delimits messages.
    #[must_use]
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// The limits of the peer; the base values until its CSM arrives.
    #[must_use]
    pub fn limits(&self) -> StreamLimits {
        self.settings.unwrap_or(StreamLimits { message_bytes_max: MESSAGE_BYTES_BASE, bert: false })
    }

    /// Whether the peer's CSM has arrived.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.settings.is_some()
    }

    /// Takes the next message from the beginning of what was read; says how many bytes it took, nothing while it is not
    /// whole. Before CSM no more is taken than everybody has to take.
    ///
    /// # Errors
    /// [`Abort`]: that is to be written, and the connection closed.
    pub fn take<'a>(&mut self, now: Timestamp, bytes: &'a [u8]) -> Result<Option<(Heard<'a>, usize)>, Abort> {
        let most = if self.is_settled() { self.config.message_bytes_max } else { MESSAGE_BYTES_BASE };
        let max = most.min(self.config.message_bytes_max);
        match Frame::split(bytes, max)? {
            None => {
                // RFC 8323 §3.2: it has begun; it must not take for ever.
                self.incomplete = (!bytes.is_empty()).then(|| self.incomplete.unwrap_or(now));
                Ok(None)
            }
            Some((frame, used)) => {
                self.incomplete = None;
                self.hear(now, &frame).map(|heard| Some((heard, used)))
            }
        }
    }

    /// Takes a message in that came whole, over WebSockets.
    ///
    /// # Errors
    /// [`Abort`].
    pub fn take_whole<'a>(&mut self, now: Timestamp, bytes: &'a [u8]) -> Result<Heard<'a>, Abort> {
        if bytes.len() > self.config.message_bytes_max {
            return Err(FrameFault::TooLong(bytes.len()).into());
        }
        self.hear(now, &Frame::whole(bytes)?)
    }

    fn hear<'a>(&mut self, now: Timestamp, frame: &Frame<'a>) -> Result<Heard<'a>, Abort> {
        self.heard = now;
        self.pinged = None;
        if !self.is_settled() && frame.code.class() == Class::Request {
            // RFC 8323 §5.3 wants CSM first, of which Californium 3 knows nothing: who begins to ask gets answers that
            // everybody has to take, and no more.
            self.settings = Some(self.limits());
        }
        if !self.is_settled() && frame.code != signal::CSM && frame.code != signal::ABORT {
            return Err(Abort::NoSettings);
        }
        match frame.code.class() {
            // RFC 8323 §4.3: to be ignored, whatever is in it.
            Class::Empty => Ok(Heard::Nothing),
            Class::Reserved => Err(Abort::ReservedCode(frame.code)),
            Class::Request | Class::Success | Class::ClientError | Class::ServerError => {
                Ok(Heard::Message(frame.message()?))
            }
            Class::Signal => self.obey(frame),
        }
    }

    fn obey<'a>(&mut self, frame: &Frame<'a>) -> Result<Heard<'a>, Abort> {
        Ok(match Signal::parse(&frame.message()?)? {
            Signal::Settings { message_bytes_max, block_wise } => {
                self.block_wise |= block_wise;
                let message_bytes_max = message_bytes_max.unwrap_or(self.limits().message_bytes_max);
                // RFC 8323 §5.3.2: blocks and more than the base size together mean BERT.
                let bert = self.block_wise && message_bytes_max > MESSAGE_BYTES_BASE;
                let limits = StreamLimits { message_bytes_max, bert };
                self.settings = Some(limits);
                Heard::Settings(limits)
            }
            Signal::Ping { custody } => Heard::Ping { token: frame.token, custody },
            Signal::Pong => Heard::Nothing,
            Signal::Release(alternative) => Heard::Released(alternative),
            Signal::Abort(diagnostic) => Heard::Aborted(diagnostic),
        })
    }

    /// Notes whether a message has begun and is not whole, where the framing is another's.
    pub fn set_incomplete(&mut self, now: Timestamp, incomplete: bool) {
        self.incomplete = incomplete.then(|| self.incomplete.unwrap_or(now));
    }

    /// Notes that bytes came, whatever they are.
    pub const fn touch(&mut self, now: Timestamp) {
        self.heard = now;
        self.pinged = None;
    }

    /// Grants more time: for so long, nothing that the other end may have sent was read.
    pub fn excuse(&mut self, unread: Duration) {
        self.opened = self.opened + unread;
        self.heard = self.heard + unread;
        for since in [&mut self.incomplete, &mut self.pinged].into_iter().flatten() {
            *since = *since + unread;
        }
    }

    /// When [`Session::handle_timeout`] is due.
    #[must_use]
    pub fn next_timeout(&self) -> Timestamp {
        let unsettled = (!self.is_settled()).then(|| self.opened + self.config.settings_timeout);
        let incomplete = self.incomplete.map(|since| since + self.config.message_timeout);
        let silent = match self.pinged {
            Some(pinged) => pinged + self.config.pong_timeout,
            None => self.heard + self.config.idle_timeout,
        };
        [unsettled, incomplete].into_iter().flatten().fold(silent, Timestamp::min)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Timestamp, out: &mut Vec<u8>) -> Due {
        let config = &self.config;
        if !self.is_settled() && now >= self.opened + config.settings_timeout {
            return Due::Over(Abort::TooSlow("CSM"));
        }
        if self.incomplete.is_some_and(|since| now >= since + config.message_timeout) {
            return Due::Over(Abort::TooSlow("a message"));
        }
        match self.pinged {
            Some(pinged) if now >= pinged + config.pong_timeout => Due::Over(Abort::Dead),
            None if now >= self.heard + config.idle_timeout => {
                self.pings = self.pings.wrapping_add(1);
                signal::push_ping(&Token::from_u64(self.pings), self.framing, out);
                self.pinged = Some(now);
                Due::Pinged
            }
            Some(_) | None => Due::Nothing,
        }
    }
}
