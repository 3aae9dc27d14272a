//! OSCORE between messages and requests in one worker: opens requests and seals their responses.

use std::{cell::RefCell, net::SocketAddr, rc::Rc, sync::Arc};

use fogmux_auth::Door;
use fogmux_coap::{
    Class, Code, Encoder, Message, OptionNumber, Timestamp, Type,
    server::{Exchange, Opened, Protection, Role, Unsealed},
};
use fogmux_oscore::{self as oscore, OscoreOption, RequestRefused, Ring, SealError};

use super::keyring::Keyring;
use crate::{Shared, audit::RefusedLogin};

/// One worker's way to the contexts.
#[derive(Debug)]
pub(in crate::coap) struct Shield {
    keyring: Arc<Keyring>,
    generation: u64,
    ring: Arc<Ring>,
    unopened: Rc<Unopened>,
}

/// The latest request that no context opens, for the log.
#[derive(Debug, Default)]
pub(in crate::coap) struct Unopened(RefCell<Option<(String, RequestRefused)>>);

impl Unopened {
    /// Logs it, if there is one.
    pub(in crate::coap) fn log(&self, shared: &Shared, from: SocketAddr) {
        if let Some((kid, refused)) = self.0.take() {
            let (claimed, reason) = (&*kid, refused.text());
            RefusedLogin { from, door: Door::Coap, by: "oscore", claimed, token: None, client: "", reason }.log(shared);
        }
    }

    /// Notes a request that was not sealed by a key of ours. A repeated request was.
    fn note(&self, outer: &Message<'_>, refused: RequestRefused) {
        if matches!(refused, RequestRefused::NoContext | RequestRefused::Decryption) {
            let option = outer.option(OptionNumber::OSCORE).and_then(|option| OscoreOption::decode(option.value).ok());
            let kid = option.and_then(|option| option.kid).map(fogmux_net::hex).unwrap_or_default();
            *self.0.borrow_mut() = Some((kid, refused));
        }
    }
}

impl Shield {
    pub(in crate::coap) fn new(keyring: Arc<Keyring>) -> Self {
        let (generation, ring) = keyring.ring();
        Self { keyring, generation, ring, unopened: Rc::default() }
    }

    /// Notes in `unopened` the requests that no context opens.
    pub(in crate::coap) fn noting(self, unopened: Rc<Unopened>) -> Self {
        Self { unopened, ..self }
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
            Err(refused) => {
                self.unopened.note(outer, refused);
                Opened::Refused { code: refused.reason(), text: refused.text() }
            }
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
                tracing::error!(user = ?self.user(), %error, "an answer cannot be protected");
                Unsealed::Never
            }
        })
    }
}
