//! The client's part: requests are sealed, answers and notifications opened (RFC 8613 §8.1, §8.4).

use std::sync::Arc;

use fogmux_coap::client::{Protection, Unopened};
use fogmux_coap::option::UintValue;
use fogmux_coap::{Message, OptionNumber};

use crate::aad::aad;
use crate::context::{Context, SealError};
use crate::option::OscoreOption;
use crate::partial_iv::PartialIv;
use crate::seal::{self, Sealing};

/// The value of Observe that registers (RFC 7641 §2).
const REGISTER: Option<u32> = Some(0);

/// A request that was sealed and may be answered, many times when it observes.
#[derive(Debug)]
pub struct Pending {
    context: Arc<Context>,
    request_piv: PartialIv,
    registration: bool,
    /// The Notification Number (RFC 8613 §4.1.3.5.2).
    newest: Option<u64>,
    /// Whether a notification came under the nonce of the request; only one may.
    without_partial_iv: bool,
    notifications: u32,
}

/// Why an answer is not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseRefused {
    /// It has no OSCORE option. It may be an error of the server's OSCORE, and it may be forged.
    #[error("the answer is not protected")]
    Unprotected,
    /// The option cannot be read.
    #[error("the OSCORE option of the answer is malformed")]
    Decode,
    /// Another context protected it, or it answers another request.
    #[error("the answer cannot be decrypted")]
    Decryption,
    /// The plaintext is not a response, or is a notification although the request did not observe.
    #[error("there is no answer inside")]
    NoResponse,
    /// A newer notification was received before (RFC 8613 §7.4.1).
    #[error("the notification is not newer than one that was seen")]
    Old,
}

impl Context {
    /// Seals a request (RFC 8613 §8.1). The protected message is appended to `out`, with type, message ID and token of
    /// `plain`. A request that is sent again because it was not acknowledged must not be sealed again.
    ///
    /// # Errors
    /// [`SealError`]; then nothing is appended.
    pub fn seal_request(self: &Arc<Self>, plain: &Message<'_>, out: &mut Vec<u8>) -> Result<Pending, SealError> {
        seal::check(plain)?;
        let request_piv = self.take_number()?;
        let kid = self.sender_id().as_slice();
        let option = OscoreOption { partial_iv: Some(request_piv), kid: Some(kid), kid_context: self.id_context() };
        let aad = aad(self.algorithm(), self.sender_id(), &request_piv);
        let nonce = self.own_nonce(&request_piv);
        Sealing { plain, option, cipher: self.sender(), nonce, aad: &aad }.write(out)?;
        Ok(Pending {
            context: Arc::clone(self),
            request_piv,
            registration: plain.option(OptionNumber::OBSERVE).is_some_and(|option| option.uint() == REGISTER),
            newest: None,
            without_partial_iv: false,
            notifications: 0,
        })
    }
}

impl Pending {
    /// Opens an answer (RFC 8613 §8.4). What was in it is appended to `inner` as a message of RFC 7252 with type,
    /// message ID and token of `outer`; notifications get an Observe that counts upwards (§4.1.3.5.2).
    ///
    /// # Errors
    /// [`ResponseRefused`]; then nothing is appended. An observation does not end by that (§8.4.2).
    pub fn open(&mut self, outer: &Message<'_>, inner: &mut Vec<u8>) -> Result<(), ResponseRefused> {
        let option = match seal::header(outer) {
            Some(Ok(option)) => option,
            Some(Err(())) => return Err(ResponseRefused::Decode),
            None => return Err(ResponseRefused::Unprotected),
        };
        let context = &self.context;
        let nonce = match &option.partial_iv {
            Some(partial_iv) => context.their_nonce(partial_iv),
            None => context.own_nonce(&self.request_piv),
        };
        let aad = aad(context.algorithm(), context.sender_id(), &self.request_piv);
        let begin = inner.len();
        seal::open(outer, context.recipient(), &nonce, &aad, inner).map_err(|_| ResponseRefused::Decryption)?;
        let admitted = match inner.get(begin..).map(Message::decode) {
            Some(Ok(message)) => self.admit(&message, option.partial_iv),
            Some(Err(_)) | None => Err(ResponseRefused::NoResponse),
        };
        match admitted {
            Ok(None) => {}
            Ok(Some(count)) => seal::merge(outer, Some(UintValue::new(count).as_slice()), inner, begin),
            Err(_) => inner.truncate(begin),
        }
        admitted.map(|_| ())
    }

    /// Whether an authentic answer is to be processed, and which number a notification gets.
    fn admit(&mut self, message: &Message<'_>, partial_iv: Option<PartialIv>) -> Result<Option<u32>, ResponseRefused> {
        if !message.code.is_response() || message.option(OptionNumber::OSCORE).is_some() {
            return Err(ResponseRefused::NoResponse);
        }
        if message.option(OptionNumber::OBSERVE).is_none() {
            return Ok(None);
        }
        if !self.registration {
            return Err(ResponseRefused::NoResponse);
        }
        match partial_iv.map(|partial_iv| partial_iv.number()) {
            // Without a Partial IV it is the oldest of all, and there is only one.
            None if self.without_partial_iv || self.newest.is_some() => return Err(ResponseRefused::Old),
            None => self.without_partial_iv = true,
            Some(number) if self.newest.is_some_and(|newest| number <= newest) => return Err(ResponseRefused::Old),
            Some(number) => self.newest = Some(number),
        }
        self.notifications = self.notifications.wrapping_add(1);
        Ok(Some(self.notifications & 0x00ff_ffff))
    }
}

/// OSCORE between the messages and the requests of a CoAP client (RFC 8613 §8.1, §8.4).
#[derive(Clone, Debug)]
pub struct RequestProtection(pub Arc<Context>);

impl Protection for RequestProtection {
    type Exchange = Pending;
    type Error = SealError;

    fn seal(&mut self, plain: &Message<'_>, out: &mut Vec<u8>) -> Result<Pending, SealError> {
        self.0.seal_request(plain, out)
    }

    fn open(pending: &mut Pending, outer: &Message<'_>, inner: &mut Vec<u8>) -> Result<(), Unopened> {
        pending.open(outer, inner).map_err(|refused| match refused {
            ResponseRefused::Unprotected => Unopened::Unprotected,
            ResponseRefused::Decode
            | ResponseRefused::Decryption
            | ResponseRefused::NoResponse
            | ResponseRefused::Old => Unopened::Invalid,
        })
    }
}
