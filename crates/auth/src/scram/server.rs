//! The server's side of SCRAM: one type per message awaited.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    ScramKeys,
    message::{self, ScramError},
};
use crate::prepare::prepare_text;

/// Channel binding data of the TLS connection below (RFC 5929, RFC 9266).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelBinding {
    /// Its registered name.
    pub kind: &'static str,
    /// Its bytes.
    pub data: Vec<u8>,
}

impl ChannelBinding {
    /// `tls-exporter` (RFC 9266): bytes that only the two ends of this TLS 1.3 connection have.
    #[must_use]
    pub fn exporter(data: &[u8; 32]) -> Self {
        Self { kind: "tls-exporter", data: data.to_vec() }
    }

    /// `tls-server-end-point` (RFC 5929 §4): the digest of the server's certificate.
    #[must_use]
    pub fn end_point(digest: &[u8]) -> Self {
        Self { kind: "tls-server-end-point", data: digest.to_vec() }
    }
}

/// A parsed `client-first-message`: who it is about to be, and everything the proof will cover.
#[derive(Debug)]
pub struct ClientFirst {
    user: String,
    authzid: Option<String>,
    /// The required `c=` of the next message: the header as sent, then the binding.
    expected_binding: Vec<u8>,
    bare: String,
    client_nonce: String,
}

/// The bindings that the channel offers, which decide the header that is acceptable.
pub(crate) enum Binding<'a> {
    /// The mechanism is a `-PLUS` one: the client must use one of these.
    Required(&'a [ChannelBinding]),
    /// A `-PLUS` mechanism was offered and not chosen: a client that says it would have (`y`) was tricked.
    Declined,
    /// Never offered.
    Absent,
}

impl ClientFirst {
    /// Reads the first message of a mechanism without channel binding.
    ///
    /// # Errors
    /// [`ScramError`] if the message violates the grammar (RFC 5802 §7).
    pub fn parse(message: &[u8]) -> Result<Self, ScramError> {
        Self::parse_bound(message, &Binding::Absent)
    }

    pub(crate) fn parse_bound(message: &[u8], binding: &Binding<'_>) -> Result<Self, ScramError> {
        let text = message::text(message)?;
        let (flag, rest) = text.split_once(',').ok_or(ScramError::Malformed("header"))?;
        let (authzid, bare) = rest.split_once(',').ok_or(ScramError::Malformed("header"))?;
        let bound = bound_data(flag, binding)?;
        let authzid = match authzid {
            "" => None,
            named => {
                let encoded = named.strip_prefix("a=").ok_or(ScramError::Malformed("authzid"))?;
                Some(message::decode_name(encoded)?)
            }
        };
        if bare.starts_with("m=") {
            return Err(ScramError::ExtensionsNotSupported);
        }
        let (user, rest) = message::attribute(bare, "n")?;
        let (client_nonce, rest) = message::attribute(rest.ok_or(ScramError::Malformed("nonce missing"))?, "r")?;
        message::extensions(rest)?;
        let user = message::decode_name(user)?;
        let user = prepare_text(&user).ok_or(ScramError::Malformed("name"))?.into_owned();
        let header_bytes = text.len() - bare.len();
        let mut expected_binding = text.as_bytes().get(..header_bytes).unwrap_or_default().to_vec();
        expected_binding.extend_from_slice(bound);
        let client_nonce = message::nonce(client_nonce)?.into();
        Ok(Self { user, authzid, expected_binding, bare: bare.into(), client_nonce })
    }

    /// The name to look keys up for, prepared by SASLprep.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The identity to act as, when the client named one.
    #[must_use]
    pub fn authzid(&self) -> Option<&str> {
        self.authzid.as_deref()
    }

    /// Answers with the `server-first-message`. `server_nonce` must be fresh, random and printable without commas.
    #[must_use]
    pub fn challenge(self, keys: ScramKeys, server_nonce: &str) -> (AwaitingClientFinal, Vec<u8>) {
        let nonce = format!("{}{server_nonce}", self.client_nonce);
        let server_first = format!("r={nonce},s={},i={}", STANDARD.encode(&keys.salt), keys.iterations);
        let sent = server_first.clone().into_bytes();
        (AwaitingClientFinal { first: self, keys, nonce, server_first }, sent)
    }
}

/// The bytes after the header in `c=`, when the flag fits what the channel offers.
fn bound_data<'a>(flag: &str, binding: &Binding<'a>) -> Result<&'a [u8], ScramError> {
    match (flag.split_once('='), flag, binding) {
        (Some(("p", kind)), _, Binding::Required(channels)) => {
            let channel = channels.iter().find(|channel| channel.kind == kind);
            channel.map(|channel| &*channel.data).ok_or(ScramError::ChannelBinding)
        }
        (Some(("p", _)), _, _) | (None, "n" | "y", Binding::Required(_)) => Err(ScramError::ChannelBinding),
        (None, "y", Binding::Declined) => Err(ScramError::ChannelBinding),
        (None, "n", Binding::Declined | Binding::Absent) | (None, "y", Binding::Absent) => Ok(&[]),
        (Some(_) | None, _, _) => Err(ScramError::Malformed("channel binding flag")),
    }
}

/// The challenge is out; the proof comes next.
pub struct AwaitingClientFinal {
    first: ClientFirst,
    keys: ScramKeys,
    nonce: String,
    server_first: String,
}

impl AwaitingClientFinal {
    /// The identity to act as, when the client named one.
    #[must_use]
    pub fn authzid(&self) -> Option<&str> {
        self.first.authzid()
    }

    /// The name whose keys were used.
    #[must_use]
    pub fn user(&self) -> &str {
        self.first.user()
    }

    /// Checks the proof and answers with the `server-final-message`. An unknown user fails here as a wrong password
    /// does.
    ///
    /// # Errors
    /// The message is malformed, of another exchange, or the proof is wrong.
    pub fn client_final(self, message: &[u8]) -> Result<Vec<u8>, ScramError> {
        let text = message::text(message)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(ScramError::Malformed("no proof"))?;
        let (binding, rest) = message::attribute(without_proof, "c")?;
        let (nonce, rest) = message::attribute(rest.ok_or(ScramError::Malformed("no nonce"))?, "r")?;
        message::extensions(rest)?;
        if nonce != self.nonce {
            return Err(ScramError::OtherExchange);
        }
        if message::base64(binding)? != self.first.expected_binding {
            return Err(ScramError::ChannelBinding);
        }
        let hash = self.keys.hash;
        let proof = message::base64(proof)?;
        let auth_message: [&[u8]; 5] =
            [self.first.bare.as_bytes(), b",", self.server_first.as_bytes(), b",", without_proof.as_bytes()];
        // RFC 5802 §3: ClientKey := ClientProof XOR HMAC(StoredKey, AuthMessage); H(ClientKey) must be StoredKey.
        let signature = hash.hmac(self.keys.stored_key.as_slice(), &auth_message);
        let client_key = signature.xor(&proof);
        let fits = hash.digest(client_key.as_slice()).is(self.keys.stored_key.as_slice());
        if !fits || !self.keys.real || proof.len() != signature.as_slice().len() {
            return Err(ScramError::InvalidProof);
        }
        let signature = hash.hmac(self.keys.server_key.as_slice(), &auth_message);
        Ok(format!("v={}", STANDARD.encode(signature.as_slice())).into_bytes())
    }
}
