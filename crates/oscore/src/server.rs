//! The server's part: requests are opened, answers and notifications sealed (RFC 8613 §8.2, §8.3).

use std::sync::Arc;

use fogmux_coap::{Class as CodeClass, Code, Message, OptionNumber, Timestamp};

use crate::aad::aad;
use crate::context::{Context, ECHO_BYTES, SealError, Verdict};
use crate::exchange::{Exchange, RequestNonce};
use crate::option::OscoreOption;
use crate::partial_iv::PartialIv;
use crate::ring::Ring;
use crate::seal::{self, Sealing};

/// A request that is authentic.
#[derive(Debug)]
pub enum Opened {
    /// It was never seen before; `inner` holds it.
    Request(Exchange),
    /// It may be a replay, for the context was restarted: it is to be answered by a 4.01 with this Echo and nothing
    /// else, sealed, and not carried out (RFC 8613 appendix B.1.2).
    Unproven(Exchange, [u8; ECHO_BYTES]),
}

/// Why a request is refused; the answer goes out unprotected (RFC 8613 §8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefused {
    /// §8.2, step 2.
    #[error("Failed to decode COSE")]
    Decode,
    /// §8.2, step 2.
    #[error("Security context not found")]
    NoContext,
    /// §7.4.
    #[error("Replay detected")]
    Replay,
    /// §8.2, step 6.
    #[error("Decryption failed")]
    Decryption,
    /// The plaintext is not a request, or contains an OSCORE option itself (§4.1.3.7).
    #[error("No request inside")]
    NoRequest,
}

impl RequestRefused {
    /// The response code that the standard names; the text is that of `Display`.
    #[must_use]
    pub const fn reason(&self) -> Code {
        match self {
            Self::Decode => Code::BAD_OPTION,
            Self::NoContext | Self::Replay => Code::UNAUTHORIZED,
            Self::Decryption | Self::NoRequest => Code::BAD_REQUEST,
        }
    }

    /// The diagnostic text that the standard names.
    #[must_use]
    pub const fn text(&self) -> &'static str {
        match self {
            Self::Decode => "Failed to decode COSE",
            Self::NoContext => "Security context not found",
            Self::Replay => "Replay detected",
            Self::Decryption => "Decryption failed",
            Self::NoRequest => "No request inside",
        }
    }
}

impl Ring {
    /// Opens a request that has an OSCORE option, of which all Outer blocks are there (RFC 8613 §8.2). What was in it
    /// is appended to `inner` as a message of RFC 7252 with type, message ID and token of `outer`.
    ///
    /// # Errors
    /// [`RequestRefused`], which names the answer.
    pub fn open_request(
        &self,
        now: Timestamp,
        outer: &Message<'_>,
        inner: &mut Vec<u8>,
    ) -> Result<Opened, RequestRefused> {
        let Some(Ok(option)) = seal::header(outer) else { return Err(RequestRefused::Decode) };
        let (Some(request_piv), Some(kid)) = (option.partial_iv, option.kid) else {
            return Err(RequestRefused::Decode);
        };
        let Ok(kid) = crate::Id::new(kid) else { return Err(RequestRefused::NoContext) };
        let mut refused = RequestRefused::NoContext;
        for context in self.candidates(&kid, option.kid_context) {
            match context.open_request(now, outer, &request_piv, inner) {
                Ok(opened) => return Ok(opened),
                // It was authentic, so no other context is meant.
                Err(RequestRefused::NoRequest) => return Err(RequestRefused::NoRequest),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }
}

impl Context {
    fn open_request(
        self: &Arc<Self>,
        now: Timestamp,
        outer: &Message<'_>,
        request_piv: &PartialIv,
        inner: &mut Vec<u8>,
    ) -> Result<Opened, RequestRefused> {
        let number = request_piv.number();
        if self.is_replay(number) {
            return Err(RequestRefused::Replay);
        }
        let begin = inner.len();
        let aad = aad(self.algorithm(), self.recipient_id(), request_piv);
        seal::open(outer, self.recipient(), &self.their_nonce(request_piv), &aad, inner)
            .map_err(|_| RequestRefused::Decryption)?;
        let request = inner.get(begin..).and_then(|bytes| Message::decode(bytes).ok()).filter(is_request);
        let echo = request.and_then(|request| request.option(OptionNumber::ECHO)).map(|option| option.value);
        let verdict = self.note_request(now, number, echo);
        let opened = match verdict {
            Verdict::Replay => Err(RequestRefused::Replay),
            _ if request.is_none() => Err(RequestRefused::NoRequest),
            Verdict::New => Ok(Opened::Request(self.exchange(request_piv, RequestNonce::Free))),
            Verdict::Prove(echo) => Ok(Opened::Unproven(self.exchange(request_piv, RequestNonce::Spent), echo)),
        };
        match opened {
            Ok(Opened::Request(_)) => seal::merge(outer, None, inner, begin),
            Ok(Opened::Unproven(..)) | Err(_) => inner.truncate(begin),
        }
        opened
    }

    fn exchange(self: &Arc<Self>, request_piv: &PartialIv, nonce: RequestNonce) -> Exchange {
        Exchange::new(Arc::clone(self), *request_piv, nonce)
    }
}

impl Exchange {
    /// Seals an answer or a notification (RFC 8613 §8.3): the first with the nonce of the request, all others with a
    /// Partial IV of their own. The protected message is appended to `out`, with type, message ID and token of `plain`,
    /// whose Observe becomes the Outer one.
    ///
    /// # Errors
    /// [`SealError`]; then nothing is appended.
    pub fn seal(&self, plain: &Message<'_>, out: &mut Vec<u8>) -> Result<(), SealError> {
        seal::check(plain)?;
        let context = self.context();
        let (nonce, partial_iv) = match self.spend_nonce() {
            RequestNonce::Free => (context.their_nonce(self.request_piv()), None),
            RequestNonce::Spent => {
                let partial_iv = context.take_number()?;
                (context.own_nonce(&partial_iv), Some(partial_iv))
            }
        };
        let option = OscoreOption { partial_iv, kid: None, kid_context: None };
        let aad = aad(context.algorithm(), context.recipient_id(), self.request_piv());
        Sealing { plain, option, cipher: context.sender(), nonce, aad: &aad }.write(out)
    }
}

/// Whether what was sealed may be carried out.
fn is_request(message: &Message<'_>) -> bool {
    message.code.class() == CodeClass::Request && message.option(OptionNumber::OSCORE).is_none()
}
