//! Messages cut into what is sealed and what is not, and put together again (RFC 8613 §4, §5.3).

use fogmux_coap::message::{HEADER_BYTES, PAYLOAD_MARKER};
use fogmux_coap::{Class as CodeClass, Code, Encoder, Message, OptionNumber};
use smallvec::SmallVec;

use crate::aead::{Cipher, Forged};
use crate::class::Class;
use crate::context::SealError;
use crate::nonce::Nonce;
use crate::option::OscoreOption;

/// A message that goes out protected.
pub(crate) struct Sealing<'a> {
    pub(crate) plain: &'a Message<'a>,
    pub(crate) option: OscoreOption<'a>,
    pub(crate) cipher: &'a Cipher,
    pub(crate) nonce: Nonce,
    pub(crate) aad: &'a [u8],
}

/// Whether a message may be sealed at all.
pub(crate) fn check(plain: &Message<'_>) -> Result<(), SealError> {
    for option in plain.options() {
        match option.number {
            OptionNumber::OSCORE => return Err(SealError::Nested),
            OptionNumber::PROXY_URI => return Err(SealError::ProxyUri),
            _ => {}
        }
    }
    Ok(())
}

impl Sealing<'_> {
    /// Appends the protected message, with the type, message ID and token of the plain one.
    pub(crate) fn write(&self, out: &mut Vec<u8>) -> Result<(), SealError> {
        let begin = out.len();
        self.write_outer(out);
        out.push(PAYLOAD_MARKER);
        let start = out.len();
        self.write_plaintext(out);
        let sealed = self.cipher.seal(&self.nonce, self.aad, out, start);
        if sealed.is_none() {
            out.truncate(begin);
        }
        sealed.ok_or(SealError::TooLong)
    }

    /// Head and Outer options.
    fn write_outer(&self, out: &mut Vec<u8>) {
        let plain = self.plain;
        let observed = plain.option(OptionNumber::OBSERVE).is_some();
        let code = outer_code(plain.code, observed);
        let mut encoder = Encoder::new(out, plain.kind, code, plain.message_id, &plain.token);
        let mut value: SmallVec<[u8; 24]> = SmallVec::new();
        self.option.write(&mut value);
        let outer = |number| matches!(Class::of(number), Class::Outer | Class::Both);
        let mut written = false;
        for option in plain.options().filter(|option| outer(option.number)) {
            if !written && option.number > OptionNumber::OSCORE {
                encoder.push(OptionNumber::OSCORE, &value);
                written = true;
            }
            encoder.push(option.number, option.value);
        }
        if !written {
            encoder.push(OptionNumber::OSCORE, &value);
        }
        encoder.finish();
    }

    /// Code, Inner options and payload (RFC 8613 §5.3).
    fn write_plaintext(&self, out: &mut Vec<u8>) {
        let plain = self.plain;
        let is_request = plain.code.class() == CodeClass::Request;
        out.push(plain.code.as_byte());
        let mut encoder = Encoder::body(out);
        for option in plain.options() {
            match Class::of(option.number) {
                Class::Inner => encoder.push(option.number, option.value),
                // RFC 8613 §4.1.3.5.2: in notifications the number is the Partial IV's affair.
                Class::Both => encoder.push(option.number, if is_request { option.value } else { &[] }),
                Class::Outer | Class::Oscore => {}
            }
        }
        encoder.payload(plain.payload());
    }
}

/// RFC 8613 §4.2: POST and 2.04, but with Observe FETCH and 2.05 (§4.1.3.5).
fn outer_code(code: Code, observed: bool) -> Code {
    match (code.class() == CodeClass::Request, observed) {
        (true, false) => Code::POST,
        (true, true) => Code::FETCH,
        (false, false) => Code::CHANGED,
        (false, true) => Code::CONTENT,
    }
}

/// Appends to `inner` the head of `outer` and what its payload decrypts to: a whole message, but for Outer options.
/// On failure `inner` is as it was.
pub(crate) fn open(
    outer: &Message<'_>,
    cipher: &Cipher,
    nonce: &Nonce,
    aad: &[u8],
    inner: &mut Vec<u8>,
) -> Result<(), Forged> {
    let begin = inner.len();
    Encoder::new(inner, outer.kind, Code::EMPTY, outer.message_id, &outer.token).finish();
    let start = inner.len();
    inner.extend_from_slice(outer.payload());
    let opened = cipher.open(nonce, aad, inner, start).and_then(|()| {
        // The code moves into the head.
        let code = inner.get(start).copied().ok_or(Forged)?;
        inner.remove(start);
        *inner.get_mut(begin + 1).ok_or(Forged)? = code;
        Ok(())
    });
    if opened.is_err() {
        inner.truncate(begin);
    }
    opened
}

/// Adds the Outer options of `outer` that count (RFC 8613 §8.2, step 1) to the message that stands in `inner` from
/// `begin` on, and gives Observe this value, if it is there.
pub(crate) fn merge(outer: &Message<'_>, observe: Option<&[u8]>, inner: &mut Vec<u8>, begin: usize) {
    let counts = |number| Class::of(number) == Class::Outer;
    if observe.is_none() && !outer.options().any(|option| counts(option.number)) {
        return;
    }
    let opened: SmallVec<[u8; 256]> = inner.get(begin..).unwrap_or(&[]).into();
    let Ok(message) = Message::decode(&opened) else { return };
    inner.truncate(begin);
    let mut encoder = Encoder::new(inner, message.kind, message.code, message.message_id, &message.token);
    let mut outside = outer.options().filter(|option| counts(option.number)).peekable();
    for option in message.options() {
        while let Some(earlier) = outside.next_if(|earlier| earlier.number <= option.number) {
            encoder.push(earlier.number, earlier.value);
        }
        let value = observe.filter(|_| option.number == OptionNumber::OBSERVE).unwrap_or(option.value);
        encoder.push(option.number, value);
    }
    outside.for_each(|option| encoder.push(option.number, option.value));
    encoder.payload(message.payload());
}

/// The OSCORE option of a message. `None` when it has none; an error when what it has cannot be read: more than one
/// option, a malformed value, no payload (RFC 8613 §2).
pub(crate) fn header<'a>(outer: &Message<'a>) -> Option<Result<OscoreOption<'a>, ()>> {
    let mut options = outer.options().filter(|option| option.number == OptionNumber::OSCORE);
    let first = options.next()?;
    if options.next().is_some() || outer.payload().is_empty() {
        return Some(Err(()));
    }
    Some(OscoreOption::decode(first.value).map_err(|_| ()))
}

/// The shortest message there is, for a place to begin.
const _: () = assert!(HEADER_BYTES == 4, "the code is the second byte of the head");
