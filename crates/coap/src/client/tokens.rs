//! The tokens of one client (RFC 7252 §5.3.1): each ends in the number of its request.

use super::exchanges::Number;
use crate::token::Token;

/// The form of a client's tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenForm {
    /// Eight bytes, six of which nobody can guess who has not seen one (RFC 7252 §5.3.1).
    #[default]
    Unguessable,
    /// The two bytes of the message ID, as load generators send: only where forged answers do no harm.
    MessageId,
    /// None, for requests one after the other (RFC 7252 §5.3.1): no second one is under way, and nothing is observed.
    Empty,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens {
    form: TokenForm,
    secret: [u8; 6],
}

impl Tokens {
    pub(super) const fn new(form: TokenForm, secret: u64) -> Self {
        let [secret @ .., _, _] = secret.to_be_bytes();
        Self { form, secret }
    }

    /// The token of a request.
    pub(super) fn of(self, number: Number) -> Token {
        let [high, low] = number.to_be_bytes();
        let [a, b, c, d, e, f] = self.secret;
        match self.form {
            TokenForm::MessageId => Token::new(&[high, low]).unwrap_or_default(),
            TokenForm::Empty => Token::EMPTY,
            TokenForm::Unguessable => Token::from_u64(u64::from_be_bytes([a, b, c, d, e, f, high, low])),
        }
    }

    /// The request of a token; `None` for a token that is none of ours, or empty and says nothing.
    pub(super) fn number(self, token: &Token) -> Option<Number> {
        let number = match self.form {
            TokenForm::MessageId => token.as_slice(),
            TokenForm::Empty => return None,
            TokenForm::Unguessable => token.as_slice().strip_prefix(&self.secret)?,
        };
        number.try_into().ok().map(Number::from_be_bytes)
    }

    /// Bytes of each.
    pub(super) const fn length(self) -> u64 {
        match self.form {
            TokenForm::MessageId => 2,
            TokenForm::Empty => 0,
            TokenForm::Unguessable => 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_to_its_request_and_no_other_does() {
        for form in [TokenForm::Unguessable, TokenForm::MessageId] {
            let tokens = Tokens::new(form, 0x0102_0304_0506_0708);
            let token = tokens.of(0x1234);
            assert_eq!((tokens.number(&token), u64::from(token.length())), (Some(0x1234), tokens.length()));
            assert_eq!(tokens.number(&Token::from_u64(0x1234)), None);
            assert_eq!(tokens.number(&Token::EMPTY), None);
        }
    }
}
