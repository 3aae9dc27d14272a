//! Codes of requests and responses (RFC 7252 §12.1): `c.dd` in one byte.

use std::fmt;

use coap_numbers::code as registry;

/// A code as encoded on the wire. Every byte is a code; not every code is assigned.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(u8);

/// The class of a code (RFC 7252 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// 0.00
    Empty,
    /// 0.01–0.31
    Request,
    /// 2.xx
    Success,
    /// 4.xx
    ClientError,
    /// 5.xx
    ServerError,
    /// 7.xx: signalling, only over reliable transports (RFC 8323 §5)
    Signal,
    /// 1.xx, 3.xx and 6.xx
    Reserved,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident)*) => {
        impl Code {
            $($(#[$doc])* pub const $name: Self = Self(registry::$name);)*
        }
    };
}

codes! {
    /// 0.00
    EMPTY
    /// 0.01
    GET
    /// 0.02
    POST
    /// 0.03
    PUT
    /// 0.04
    DELETE
    /// 0.05 (RFC 8132)
    FETCH
    /// 0.06 (RFC 8132)
    PATCH
    /// 0.07 (RFC 8132)
    IPATCH
    /// 2.01
    CREATED
    /// 2.02
    DELETED
    /// 2.03
    VALID
    /// 2.04
    CHANGED
    /// 2.05
    CONTENT
    /// 2.31 (RFC 7959)
    CONTINUE
    /// 4.00
    BAD_REQUEST
    /// 4.01
    UNAUTHORIZED
    /// 4.02
    BAD_OPTION
    /// 4.03
    FORBIDDEN
    /// 4.04
    NOT_FOUND
    /// 4.05
    METHOD_NOT_ALLOWED
    /// 4.06
    NOT_ACCEPTABLE
    /// 4.08 (RFC 7959)
    REQUEST_ENTITY_INCOMPLETE
    /// 4.09 (RFC 8132)
    CONFLICT
    /// 4.12
    PRECONDITION_FAILED
    /// 4.13
    REQUEST_ENTITY_TOO_LARGE
    /// 4.15
    UNSUPPORTED_CONTENT_FORMAT
    /// 4.22 (RFC 8132)
    UNPROCESSABLE_ENTITY
    /// 4.29 (RFC 8516)
    TOO_MANY_REQUESTS
    /// 5.00
    INTERNAL_SERVER_ERROR
    /// 5.01
    NOT_IMPLEMENTED
    /// 5.02
    BAD_GATEWAY
    /// 5.03
    SERVICE_UNAVAILABLE
    /// 5.04
    GATEWAY_TIMEOUT
    /// 5.05
    PROXYING_NOT_SUPPORTED
    /// 5.08 (RFC 8768)
    HOP_LIMIT_REACHED
}

impl Code {
    /// The code of a byte.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    /// The encoded byte.
    #[must_use]
    pub const fn as_byte(self) -> u8 {
        self.0
    }

    /// The class of the code.
    #[must_use]
    pub const fn class(self) -> Class {
        match (self.0 >> 5, self.0 & 0x1f) {
            (0, 0) => Class::Empty,
            (0, _) => Class::Request,
            (2, _) => Class::Success,
            (4, _) => Class::ClientError,
            (5, _) => Class::ServerError,
            (7, _) => Class::Signal,
            _ => Class::Reserved,
        }
    }

    /// Whether this is a response code.
    #[must_use]
    pub const fn is_response(self) -> bool {
        matches!(self.class(), Class::Success | Class::ClientError | Class::ServerError)
    }

    /// Whether this is 2.xx.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self.class(), Class::Success)
    }

    /// Whether this method changes nothing (RFC 7252 §5.1, RFC 8132 §2), so that a repeat may simply be answered anew.
    #[must_use]
    pub const fn is_safe_method(self) -> bool {
        matches!(self, Self::GET | Self::FETCH)
    }

    /// The registered name, where there is one.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        registry::to_name(self.0)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 >> 5, self.0 & 0x1f)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_classes_of_codes() {
        assert_eq!(Code::EMPTY.class(), Class::Empty);
        assert_eq!(Code::IPATCH.class(), Class::Request);
        assert_eq!(Code::from_byte(0x5f).class(), Class::Success);
        assert_eq!(Code::from_byte(0x20).class(), Class::Reserved);
        assert_eq!(Code::from_byte(0xe1).class(), Class::Signal);
        assert_eq!(Code::TOO_MANY_REQUESTS.to_string(), "4.29");
    }
}
