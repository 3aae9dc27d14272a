//! A request that is encoded once and sent any number of times, each time with its own number and payload.

use crate::code::Code;
use crate::encode::Encoder;
use crate::message::{Message, PAYLOAD_MARKER, Type};
use crate::option::OptionNumber;
use crate::token::Token;

use super::amend::REGISTER;

/// In the value of No-Response: no answer of class 2.xx is wanted (RFC 7967 §2.1).
const NO_SUCCESS: u32 = 2;

/// Type, method and options of a request.
#[derive(Clone, Debug)]
pub struct Template {
    kind: Type,
    code: Code,
    options: Vec<u8>,
    observes: bool,
    unanswered: bool,
}

impl Template {
    /// A request whose options `write` adds, in the order of their numbers. Observe 0 makes it a registration
    /// (RFC 7641 §2). With No-Response for 2.xx no answer is waited for (RFC 7967 §2.1).
    ///
    /// Block1, Block2, Size1 and Echo are the machine's own.
    #[must_use]
    pub fn new(kind: Type, code: Code, write: impl FnOnce(&mut Encoder<'_>)) -> Self {
        let mut options = Vec::new();
        write(&mut Encoder::body(&mut options));
        let uint = |number| Message::of_stream(code, Token::EMPTY, &options).ok()?.option(number)?.uint();
        let observes = uint(OptionNumber::OBSERVE) == Some(REGISTER);
        let unanswered = uint(OptionNumber::NO_RESPONSE).is_some_and(|classes| classes & NO_SUCCESS != 0);
        Self { kind, code, options, observes, unanswered }
    }

    /// The same request without waiting for an answer: a Non-confirmable is done when it is sent, and an answer
    /// is dropped.
    #[must_use]
    pub fn unanswered(self) -> Self {
        Self { unanswered: true, ..self }
    }

    pub(super) const fn kind(&self) -> Type {
        self.kind
    }

    pub(super) const fn observes(&self) -> bool {
        self.observes
    }

    pub(super) const fn is_unanswered(&self) -> bool {
        self.unanswered
    }

    /// Writes the request in place of what `out` holds, as a message of type `kind`.
    pub(super) fn write(&self, kind: Type, message_id: u16, token: &Token, payload: &[u8], out: &mut Vec<u8>) {
        out.clear();
        Encoder::new(out, kind, self.code, message_id, token).finish();
        out.extend_from_slice(&self.options);
        if !payload.is_empty() {
            out.push(PAYLOAD_MARKER);
            out.extend_from_slice(payload);
        }
    }
}
