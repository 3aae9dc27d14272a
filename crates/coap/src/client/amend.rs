//! The next message of an exchange, made of the one before: another block, an Echo, another registration.

use crate::encode::Encoder;
use crate::message::Message;
use crate::option::{OptionNumber, UintValue};
use crate::token::Token;

/// The value of Observe that registers (RFC 7641 §2).
pub(super) const REGISTER: u32 = 0;
/// The value of Observe that deregisters.
pub(super) const DEREGISTER: u32 = 1;

/// The parts of a request that differ from the message before. Type, code and all other options stay.
#[derive(Debug)]
pub(super) struct Amendment<'a> {
    pub(super) message_id: u16,
    pub(super) token: Token,
    pub(super) observe: Option<u32>,
    pub(super) block1: Option<u32>,
    pub(super) block2: Option<u32>,
    pub(super) size1: Option<u32>,
    /// `None` keeps the Echo there is.
    pub(super) echo: Option<&'a [u8]>,
    /// `None` keeps the payload there is.
    pub(super) payload: Option<&'a [u8]>,
}

impl<'a> Amendment<'a> {
    /// Keeps the payload, and takes all options of [`Amendment`] but Echo away.
    pub(super) const fn new(message_id: u16, token: Token) -> Self {
        let (observe, block1, block2, size1) = (None, None, None, None);
        Self { message_id, token, observe, block1, block2, size1, echo: None, payload: None }
    }

    /// Writes the amended form of `before` in place of what `out` holds.
    pub(super) fn write(&self, before: &[u8], out: &mut Vec<u8>) {
        out.clear();
        // Every request was written by us, and is one.
        let Ok(before) = Message::decode(before) else { return };
        let uints = [
            (OptionNumber::OBSERVE, self.observe),
            (OptionNumber::BLOCK2, self.block2),
            (OptionNumber::BLOCK1, self.block1),
            (OptionNumber::SIZE1, self.size1),
        ]
        .map(|(number, value)| (number, value.map(UintValue::new)));
        let uints = uints.iter().filter_map(|(number, value)| Some((*number, value.as_ref()?.as_slice())));
        let mut added = uints.chain(self.echo.map(|echo| (OptionNumber::ECHO, echo))).peekable();
        let mut encoder = Encoder::new(out, before.kind, before.code, self.message_id, &self.token);
        for option in before.options().filter(|option| !self.replaces(option.number)) {
            while let Some((number, value)) = added.next_if(|(number, _)| *number < option.number) {
                encoder.push(number, value);
            }
            encoder.push(option.number, option.value);
        }
        added.for_each(|(number, value)| encoder.push(number, value));
        encoder.payload(self.payload.unwrap_or(before.payload()));
    }

    fn replaces(&self, number: OptionNumber) -> bool {
        [OptionNumber::OBSERVE, OptionNumber::BLOCK2, OptionNumber::BLOCK1, OptionNumber::SIZE1].contains(&number)
            || (number == OptionNumber::ECHO && self.echo.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Code;
    use crate::message::Type;

    fn options(datagram: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let message = Message::decode(datagram).unwrap();
        message.options().map(|option| (option.number.get(), option.value.to_vec())).collect()
    }

    #[test]
    fn options_are_replaced_added_and_kept_in_their_order() {
        let (mut first, mut second, mut third) = (Vec::new(), Vec::new(), Vec::new());
        Encoder::new(&mut first, Type::Confirmable, Code::FETCH, 1, &Token::EMPTY)
            .uint(OptionNumber::OBSERVE, REGISTER)
            .option(OptionNumber::URI_PATH, b"a")
            .option(OptionNumber::URI_QUERY, b"q")
            .option(OptionNumber::NO_RESPONSE, &[])
            .payload(b"body");
        let token = Token::new(b"t").unwrap();
        let part = Amendment {
            block1: Some(0x0e),
            size1: Some(4),
            echo: Some(b"e"),
            payload: Some(b"bo"),
            ..Amendment::new(2, token)
        };
        part.write(&first, &mut second);
        let message = Message::decode(&second).unwrap();
        assert_eq!((message.message_id, message.token, message.payload()), (2, token, b"bo".as_slice()));
        let kept = [(11, b"a".to_vec()), (15, b"q".to_vec())];
        let tail = [(252, b"e".to_vec()), (258, Vec::new())];
        let expected = [&kept[..], &[(27, vec![0x0e]), (60, vec![4])], &tail].concat();
        assert_eq!(options(&second), expected);

        let again = Amendment { observe: Some(DEREGISTER), ..Amendment::new(3, Token::EMPTY) };
        again.write(&second, &mut third);
        assert_eq!(options(&third), [&[(6, vec![1])], &kept[..], &tail].concat());
        assert_eq!(Message::decode(&third).unwrap().payload(), b"bo");
    }
}
