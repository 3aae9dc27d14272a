//! Extended authentication (§4.12): the method and its data in CONNECT, CONNACK and AUTH, and when AUTH may come.

use crate::packet::{Auth, Packet, PacketType};
use crate::property::{Properties, Property, PropertyBuffer};
use crate::{EncodeError, ProtocolError, ReasonCode, Version};

/// A method and what it has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authentication<'a> {
    /// The Authentication Method (§3.1.2.11.9).
    pub method: &'a str,
    /// The Authentication Data (§3.1.2.11.10), which the method gives a meaning.
    pub data: Option<&'a [u8]>,
}

/// The request of a client's AUTH, with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthStep<'a> {
    /// The answer to our AUTH (0x18).
    Continue(Option<&'a [u8]>),
    /// A new authentication on the open connection (0x19).
    Reauthenticate(Option<&'a [u8]>),
}

impl<'a> Authentication<'a> {
    /// Reads method and data from properties. Data without a method was refused by the decoder.
    #[must_use]
    pub fn of(list: Properties<'a>) -> Option<Self> {
        let (mut method, mut data) = (None, None);
        for property in &list {
            if let Property::AuthenticationMethod(name) = property {
                method = Some(name);
            } else if let Property::AuthenticationData(bytes) = property {
                data = Some(bytes);
            }
        }
        method.map(|method| Self { method, data })
    }

    /// Adds it to a list.
    ///
    /// # Errors
    /// The method or the data is longer than 65 535 bytes.
    pub fn push(&self, list: &mut PropertyBuffer) -> Result<(), EncodeError> {
        list.push(Property::AuthenticationMethod(self.method))?;
        self.data.map_or(Ok(()), |data| list.push(Property::AuthenticationData(data)))
    }

    /// Appends an AUTH packet.
    ///
    /// # Errors
    /// The method or the data is longer than 65 535 bytes.
    pub fn encode(&self, reason: ReasonCode, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut list = PropertyBuffer::new();
        self.push(&mut list)?;
        Packet::Auth(Auth { reason, properties: list.properties() }).encode(Version::V5, out)
    }
}

impl<'a> Auth<'a> {
    /// Interprets an AUTH from a client. `agreed` is the method of its CONNECT; `challenged` whether an AUTH of ours
    /// awaits its answer.
    ///
    /// # Errors There was no method ([MQTT-4.12.0-7]), it is another now ([MQTT-4.12.0-5], [MQTT-4.12.1-1]), or the
    /// reason is one that does not belong here ([MQTT-4.12.0-3]).
    pub fn step(&self, agreed: Option<&str>, challenged: bool) -> Result<AuthStep<'a>, ProtocolError> {
        let agreed = agreed.ok_or(ProtocolError::Unexpected(PacketType::Auth))?;
        let said = Authentication::of(self.properties).filter(|said| said.method == agreed);
        let said = said.ok_or(ProtocolError::AuthenticationMethod)?;
        match self.reason {
            ReasonCode::CONTINUE_AUTHENTICATION if challenged => Ok(AuthStep::Continue(said.data)),
            ReasonCode::RE_AUTHENTICATE if !challenged => Ok(AuthStep::Reauthenticate(said.data)),
            _ => Err(ProtocolError::Unexpected(PacketType::Auth)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(reason: ReasonCode, method: &str, agreed: Option<&str>, challenged: bool) -> Result<bool, ProtocolError> {
        let mut list = PropertyBuffer::new();
        Authentication { method, data: Some(b"d") }.push(&mut list).unwrap();
        let auth = Auth { reason, properties: list.properties() };
        auth.step(agreed, challenged).map(|step| match step {
            AuthStep::Continue(data) => data.is_none(),
            AuthStep::Reauthenticate(data) => data == Some(&b"d"[..]),
        })
    }

    #[test]
    fn s4_12_when_auth_may_come() {
        let (go_on, again) = (ReasonCode::CONTINUE_AUTHENTICATION, ReasonCode::RE_AUTHENTICATE);
        let unexpected = Err(ProtocolError::Unexpected(PacketType::Auth));
        assert_eq!(step(again, "M", Some("M"), false), Ok(true), "[MQTT-4.12.1-1]");
        assert_eq!(step(go_on, "M", Some("M"), true), Ok(false), "[MQTT-4.12.0-3]");
        assert_eq!(step(again, "M", None, false), unexpected, "[MQTT-4.12.0-7]");
        assert_eq!(step(go_on, "N", Some("M"), true), Err(ProtocolError::AuthenticationMethod), "[MQTT-4.12.0-5]");
        assert_eq!(step(go_on, "M", Some("M"), false), unexpected);
        assert_eq!(step(again, "M", Some("M"), true), unexpected);
        assert_eq!(step(ReasonCode::SUCCESS, "M", Some("M"), true), unexpected, "only a server says so");
        let bare = Auth { reason: go_on, properties: Properties::NONE };
        assert_eq!(bare.step(Some("M"), true), Err(ProtocolError::AuthenticationMethod), "§3.15.2.2.2");
    }

    #[test]
    fn s3_15_an_auth_packet() {
        let mut out = Vec::new();
        let said = Authentication { method: "M", data: Some(b"xy") };
        said.encode(ReasonCode::CONTINUE_AUTHENTICATION, &mut out).unwrap();
        assert_eq!(out, b"\xf0\x0b\x18\x09\x15\0\x01M\x16\0\x02xy");
    }
}
