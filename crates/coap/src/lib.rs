//! CoAP (RFC 7252, 7641, 7959) as data and pure state machines, both roles.
