//! OSCORE between messages and requests in one worker: opens requests and seals their responses.

use std::{rc::Rc, sync::Arc};

use fogmux_coap::{
    Class, Code, Encoder, Message, OptionNumber, Timestamp, Type,
    server::{Exchange, Opened, Protection, Role, Unsealed},
};
use fogmux_oscore::{self as oscore, Ring, SealError};

use super::keyring::Keyring;

/// One worker's way to the contexts.
#[derive(Debug)]
pub(in crate::coap) struct Shield {
    keyring: Arc<Keyring>,
    generation: u64,
    ring: Arc<Ring>,
}

impl Shield {
    pub(in crate::coap) fn new(keyring: Arc<Keyring>) -> Self {
        let (generation, ring) = keyring.ring();
        Self { keyring, generation, ring }
    }

    fn refresh(&mut self) {
        if self.keyring.generation() != self.generation {
            (self.generation, self.ring) = self.keyring.ring();
        }
    }
}

impl Protection for Shield {
    fn open(&mut self, now: Timestamp, outer: &Message<'_>, inner: &mut Vec<u8>) -> Opened {
        self.refresh();
        match self.ring.open_request(now, outer, inner) {
            Ok(oscore::Opened::Request(exchange)) => Opened::Request(Rc::new(Bound(exchange))),
            Ok(oscore::Opened::Unproven(exchange, echo)) => {
                challenge(outer, &echo, inner);
                Opened::Answer(Rc::new(Bound(exchange)))
            }
            Err(refused) => Opened::Refused { code: refused.reason(), text: refused.text() },
        }
    }
}

/// 4.01 with an Echo and nothing else (RFC 8613 appendix B.1.2).
fn challenge(outer: &Message<'_>, echo: &[u8], inner: &mut Vec<u8>) {
    let kind = if outer.kind == Type::Confirmable { Type::Acknowledgement } else { Type::NonConfirmable };
    Encoder::new(inner, kind, Code::UNAUTHORIZED, outer.message_id, &outer.token)
        .option(OptionNumber::ECHO, echo)
        .finish();
}

/// A request and the context it came under.
#[derive(Debug)]
struct Bound(oscore::Exchange);

impl Exchange for Bound {
    fn user(&self) -> &Arc<str> {
        self.0.context().name()
    }

    fn scope(&self) -> u64 {
        self.0.context().number()
    }

    fn seal(&self, _now: Timestamp, plain: &Message<'_>, _role: Role, out: &mut Vec<u8>) -> Result<(), Unsealed> {
        debug_assert!(plain.code.class() != Class::Request, "only what answers is sealed here");
        self.0.seal(plain, out).map_err(|error| match error {
            SealError::NotDurable => Unsealed::NotNow,
            SealError::Exhausted | SealError::Nested | SealError::ProxyUri | SealError::TooLong => {
                tracing::error!(user = %self.user(), %error, "an answer cannot be protected");
                Unsealed::Never
            }
        })
    }
}
