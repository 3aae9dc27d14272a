//! Signaling messages (RFC 8323 §5): what they say, and what is to be done with those that say it wrongly.

use crate::code::Code;
use crate::encode::Encoder;
use crate::message::{Fault, Message};
use crate::option::{Opt, OptionNumber};
use crate::server::StreamLimits;
use crate::stream::frame::{Frame, FrameFault, Framing};
use crate::token::Token;

/// 7.01 Capabilities and Settings (RFC 8323 §5.3).
pub const CSM: Code = Code::from_byte(0xe1);
/// 7.02 (RFC 8323 §5.4).
pub const PING: Code = Code::from_byte(0xe2);
/// 7.03 (RFC 8323 §5.4).
pub const PONG: Code = Code::from_byte(0xe3);
/// 7.04 (RFC 8323 §5.5).
pub const RELEASE: Code = Code::from_byte(0xe4);
/// 7.05 (RFC 8323 §5.6).
pub const ABORT: Code = Code::from_byte(0xe5);

/// The base value of Max-Message-Size in bytes, until a peer announces another (RFC 8323 §5.3.1).
pub const MESSAGE_BYTES_BASE: usize = 1152;

/// Option numbers are specific to each signaling message (RFC 8323 §5.2): 2 and 4 of CSM.
const MAX_MESSAGE_SIZE: OptionNumber = OptionNumber::new(2);
const BLOCK_WISE_TRANSFER: OptionNumber = OptionNumber::new(4);
/// 2 of Ping and Pong.
const CUSTODY: OptionNumber = OptionNumber::new(2);
/// 2 and 4 of Release.
const ALTERNATIVE_ADDRESS: OptionNumber = OptionNumber::new(2);
const HOLD_OFF: OptionNumber = OptionNumber::new(4);
/// 2 of Abort.
const BAD_CSM_OPTION: OptionNumber = OptionNumber::new(2);

/// The longest diagnostic payload of a peer that is logged, in bytes.
const DIAGNOSTIC_BYTES_MAX: usize = 128;

/// A valid signaling message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// CSM: capabilities of the peer. Those that it leaves out keep their value (RFC 8323 §5.3).
    Settings { message_bytes_max: Option<usize>, block_wise: bool },
    /// Ping: to be answered, and with custody only once all earlier messages are processed.
    Ping { custody: bool },
    /// The answer to a Ping.
    Pong,
    /// The peer asks to close the connection.
    Release(Alternative),
    /// The peer aborts the connection, with its diagnostic payload.
    Abort(Box<str>),
}

/// The alternative server that a Release names, and when to connect again (RFC 8323 §5.5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alternative {
    /// The first Alternative-Address.
    pub address: Option<Box<str>>,
    /// Hold-Off, in seconds.
    pub hold_off: Option<u32>,
}

/// The reason for aborting a connection (RFC 8323 §5.6), sent as the diagnostic payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Abort {
    /// The framing of a message is invalid.
    #[error("{0} (RFC 8323 §3.2)")]
    Frame(#[from] FrameFault),
    /// The options of a message are malformed.
    #[error("{0}")]
    Message(#[from] Fault),
    /// The first message is not a CSM.
    #[error("the first message is not CSM (RFC 8323 §5.3)")]
    NoSettings,
    /// A critical option of CSM is unknown.
    #[error("a critical option of CSM is not understood (RFC 8323 §5.6)")]
    BadCsmOption(u16),
    /// A critical option of another signaling message is unknown.
    #[error("critical option {0} of a signaling message is not understood (RFC 8323 §5.2)")]
    BadOption(u16),
    /// The signaling code is unknown.
    #[error("signaling code {0} is not understood (RFC 8323 §5.1)")]
    UnknownSignal(Code),
    /// The code is of the reserved classes 1.xx, 3.xx or 6.xx.
    #[error("code {0} is reserved (RFC 7252 §3)")]
    ReservedCode(Code),
    /// The peer did not send the message in time.
    #[error("{0} came too slowly")]
    TooSlow(&'static str),
    /// The peer does not answer a Ping.
    #[error("no answer to Ping (RFC 8323 §5.4)")]
    Dead,
    /// The peer does not read.
    #[error("what was sent is not read")]
    Deaf,
    /// A WebSocket message of the peer is not binary (RFC 8323 §4.2).
    #[error("messages over WebSockets are binary (RFC 8323 §4.2)")]
    NotBinary,
}

impl Signal {
    /// Parses a message of class 7.
    pub(crate) fn parse(message: &Message<'_>) -> Result<Self, Abort> {
        let settings = message.code == CSM;
        let refuse = |option: &Opt<'_>| {
            let number = option.number.get();
            if settings { Abort::BadCsmOption(number) } else { Abort::BadOption(number) }
        };
        // RFC 8323 §5.2: unknown elective options are skipped, as in requests.
        if let Some(option) = message.options().find(|option| option.number.is_critical()) {
            return Err(refuse(&option));
        }
        let uint = |number, bytes| {
            let option = message.option(number).filter(|option| option.value.len() <= bytes);
            option.and_then(|option| option.uint())
        };
        let is_set = |number| message.option(number).is_some();
        Ok(match message.code {
            CSM => Self::Settings {
                message_bytes_max: uint(MAX_MESSAGE_SIZE, 4).map(|size| usize::try_from(size).unwrap_or(usize::MAX)),
                block_wise: is_set(BLOCK_WISE_TRANSFER),
            },
            PING => Self::Ping { custody: is_set(CUSTODY) },
            PONG => Self::Pong,
            RELEASE => {
                let address = message.option(ALTERNATIVE_ADDRESS).and_then(|option| option.text()).map(Box::from);
                Self::Release(Alternative { address, hold_off: uint(HOLD_OFF, 3) })
            }
            ABORT => Self::Abort(diagnostic(message.payload())),
            unknown => return Err(Abort::UnknownSignal(unknown)),
        })
    }
}

/// The start of a diagnostic payload as text, without control characters.
fn diagnostic(payload: &[u8]) -> Box<str> {
    let short = payload.get(..DIAGNOSTIC_BYTES_MAX).unwrap_or(payload);
    let text = String::from_utf8_lossy(short);
    text.chars().filter(|char| !char.is_control()).collect::<String>().into()
}

/// Appends a CSM with this end's Max-Message-Size and, if `bert`, Block-Wise-Transfer (RFC 8323 §5.3.2).
pub fn push_settings(limits: StreamLimits, framing: Framing, out: &mut Vec<u8>) {
    let size = u32::try_from(limits.message_bytes_max).unwrap_or(u32::MAX);
    push(CSM, &Token::EMPTY, framing, out, |encoder| {
        let encoder = encoder.uint(MAX_MESSAGE_SIZE, size);
        let encoder = if limits.bert { encoder.option(BLOCK_WISE_TRANSFER, &[]) } else { encoder };
        encoder.finish();
    });
}

/// Appends a Ping.
pub fn push_ping(token: &Token, framing: Framing, out: &mut Vec<u8>) {
    push(PING, token, framing, out, |encoder| encoder.finish());
}

/// Appends a Pong; with custody once all messages before the Ping are processed (RFC 8323 §5.4.1).
pub fn push_pong(token: &Token, custody: bool, framing: Framing, out: &mut Vec<u8>) {
    push(
        PONG,
        token,
        framing,
        out,
        |encoder| {
            if custody { encoder.option(CUSTODY, &[]).finish() } else { encoder.finish() }
        },
    );
}

/// Writes Release.
pub fn push_release(hold_off: Option<u32>, framing: Framing, out: &mut Vec<u8>) {
    push(RELEASE, &Token::EMPTY, framing, out, |encoder| encoder.uint_if(HOLD_OFF, hold_off).finish());
}

impl Abort {
    /// Writes Abort, with the option of CSM that it is about, and the reason for a person (RFC 8323 §5.6).
    pub fn push(&self, framing: Framing, out: &mut Vec<u8>) {
        let text = self.to_string();
        let option = if let Self::BadCsmOption(number) = self { Some(u32::from(*number)) } else { None };
        push(ABORT, &Token::EMPTY, framing, out, |encoder| {
            encoder.uint_if(BAD_CSM_OPTION, option).payload(text.as_bytes());
        });
    }
}

fn push(code: Code, token: &Token, framing: Framing, out: &mut Vec<u8>, write: impl FnOnce(Encoder<'_>)) {
    let mut body = Vec::new();
    write(Encoder::body(&mut body));
    Frame { code, token: *token, body: &body }.write(framing, out);
}
