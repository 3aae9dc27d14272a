//! The client's side of SCRAM, for `fogmux pub` and `sub` and for tests.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

use super::{
    ChannelBinding, ITERATIONS_RANGE, Output, ScramHash,
    message::{self, ScramError},
};
use crate::prepare::prepare_text;

/// The client's channel binding flag (RFC 5802 §6).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ClientBinding {
    /// There is nothing to bind to.
    #[default]
    None,
    /// There is, but the server offered no `-PLUS`: it finds out if somebody in between took that away.
    NotOffered,
    /// This, with a `-PLUS` mechanism.
    Bound(ChannelBinding),
}

impl ClientBinding {
    /// `gs2-header`, and what `c=` holds.
    fn header(&self) -> (String, Vec<u8>) {
        let (flag, data): (String, &[u8]) = match self {
            Self::None => ("n".into(), &[]),
            Self::NotOffered => ("y".into(), &[]),
            Self::Bound(binding) => (format!("p={}", binding.kind), &binding.data),
        };
        let header = format!("{flag},,");
        let input = [header.as_bytes(), data].concat();
        (header, input)
    }
}

/// One login. Call [`Self::first`], [`Self::respond`] and [`Self::verify`] in this order.
pub struct ScramClient {
    hash: ScramHash,
    password: String,
    binding: ClientBinding,
    bare: String,
    nonce: String,
    server_signature: Option<Output>,
}

/// A cache of the SaltedPassword of the last login. It depends only on password, salt and iteration count, and most of
/// a client's work is to compute it (RFC 5802 §5.1 suggests to cache it).
#[derive(Default)]
pub struct SaltedPassword(Option<Salted>);

struct Salted {
    hash: ScramHash,
    password: Zeroizing<String>,
    salt: Vec<u8>,
    iterations: u32,
    output: Output,
}

impl SaltedPassword {
    /// The cached key for these parameters, derived if it is not cached.
    fn of(&mut self, hash: ScramHash, password: &str, salt: &[u8], iterations: u32) -> Output {
        let same = |known: &&Salted| {
            (known.hash, known.password.as_str(), known.salt.as_slice(), known.iterations)
                == (hash, password, salt, iterations)
        };
        if let Some(known) = self.0.as_ref().filter(same) {
            return known.output;
        }
        let output = hash.salted_password(password.as_bytes(), salt, iterations);
        self.0 = Some(Salted {
            hash,
            password: Zeroizing::new(password.to_owned()),
            salt: salt.to_vec(),
            iterations,
            output,
        });
        output
    }
}

/// Why the login did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScramClientError {
    /// Name or password hold what SASLprep prohibits.
    #[error("the name or password holds characters that SASLprep prohibits")]
    Unprepared,
    /// The server's message breaks the grammar or the exchange.
    #[error("the server answered wrongly: {0}")]
    Server(#[from] ScramError),
    /// The server's iteration count is too weak or absurd.
    #[error("the server asked for {0} iterations; 4096 to 10000000 are acceptable")]
    Iterations(u32),
    /// The server says no.
    #[error("the server refused: {0}")]
    Refused(String),
    /// The server does not know the password: it is not who it claims to be.
    #[error("the server could not prove that it knows the password")]
    ServerNotGenuine,
}

impl ScramClient {
    /// `nonce` must be fresh, random and printable without commas.
    ///
    /// # Errors
    /// [`ScramClientError::Unprepared`].
    pub fn new(hash: ScramHash, user: &str, password: &str, nonce: &str) -> Result<Self, ScramClientError> {
        let user = prepare_text(user).ok_or(ScramClientError::Unprepared)?;
        let password = prepare_text(password).ok_or(ScramClientError::Unprepared)?.into_owned();
        let bare = format!("n={},r={nonce}", message::encode_name(&user));
        let binding = ClientBinding::default();
        Ok(Self { hash, password, binding, bare, nonce: nonce.into(), server_signature: None })
    }

    /// The same login with that binding.
    #[must_use]
    pub fn bound(self, binding: ClientBinding) -> Self {
        Self { binding, ..self }
    }

    /// The `client-first-message`.
    #[must_use]
    pub fn first(&self) -> Vec<u8> {
        format!("{}{}", self.binding.header().0, self.bare).into_bytes()
    }

    /// Answers the `server-first-message` with the `client-final-message`. Blocks for the time of the iterations.
    ///
    /// # Errors
    /// The server's message is unacceptable.
    pub fn respond(&mut self, server_first: &[u8]) -> Result<Vec<u8>, ScramClientError> {
        self.respond_again(server_first, &mut SaltedPassword::default())
    }

    /// The same, without the iterations where a login before has done them.
    ///
    /// # Errors
    /// The server's message is unacceptable.
    pub fn respond_again(
        &mut self,
        server_first: &[u8],
        salted: &mut SaltedPassword,
    ) -> Result<Vec<u8>, ScramClientError> {
        let text = message::text(server_first)?;
        let (nonce, rest) = message::attribute(text, "r")?;
        let (salt, rest) = message::attribute(rest.ok_or(ScramError::Malformed("no salt"))?, "s")?;
        let (iterations, rest) = message::attribute(rest.ok_or(ScramError::Malformed("no iterations"))?, "i")?;
        message::extensions(rest)?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(ScramError::OtherExchange.into());
        }
        let iterations = iterations.parse().map_err(|_| ScramError::Malformed("iterations"))?;
        if !ITERATIONS_RANGE.contains(&iterations) {
            return Err(ScramClientError::Iterations(iterations));
        }
        let salt = message::base64(salt)?;
        let salted = salted.of(self.hash, &self.password, &salt, iterations);
        let without_proof = format!("c={},r={nonce}", STANDARD.encode(self.binding.header().1));
        let auth_message: [&[u8]; 5] = [self.bare.as_bytes(), b",", text.as_bytes(), b",", without_proof.as_bytes()];
        let client_key = self.hash.hmac(salted.as_slice(), &[b"Client Key"]);
        let stored_key = self.hash.digest(client_key.as_slice());
        let proof = self.hash.hmac(stored_key.as_slice(), &auth_message).xor(client_key.as_slice());
        let server_key = self.hash.hmac(salted.as_slice(), &[b"Server Key"]);
        self.server_signature = Some(self.hash.hmac(server_key.as_slice(), &auth_message));
        Ok(format!("{without_proof},p={}", STANDARD.encode(proof.as_slice())).into_bytes())
    }

    /// Checks the `server-final-message`: only a server that knows the keys can make it.
    ///
    /// # Errors
    /// The server refused, or is not genuine.
    pub fn verify(self, server_final: &[u8]) -> Result<(), ScramClientError> {
        let text = message::text(server_final)?;
        if let Some(reason) = text.strip_prefix("e=") {
            return Err(ScramClientError::Refused(reason.escape_debug().to_string()));
        }
        let (signature, rest) = message::attribute(text, "v")?;
        message::extensions(rest)?;
        let signature = message::base64(signature)?;
        match self.server_signature {
            Some(expected) if expected.is(&signature) => Ok(()),
            Some(_) | None => Err(ScramClientError::ServerNotGenuine),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scram::{ClientFirst, ScramKeys};

    struct Vector {
        hash: ScramHash,
        client_nonce: &'static str,
        server_nonce: &'static str,
        salt: &'static str,
        messages: [&'static str; 4],
    }

    /// RFC 5802 §5 and RFC 7677 §3, user "user", password "pencil".
    const VECTORS: [Vector; 2] = [
        Vector {
            hash: ScramHash::Sha1,
            client_nonce: "fyko+d2lbbFgONRv9qkxdawL",
            server_nonce: "3rfcNHYJY1ZVvWVs7j",
            salt: "QSXCR+Q6sek8bf92",
            messages: [
                "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
                "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
                "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
                "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
            ],
        },
        Vector {
            hash: ScramHash::Sha256,
            client_nonce: "rOprNGfwEbeRWgbNEkqO",
            server_nonce: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
            salt: "W22ZaJ0SNY7soEsUEjb6gQ==",
            messages: [
                "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
                "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
                "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
                "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
            ],
        },
    ];

    fn keys(vector: &Vector) -> ScramKeys {
        let salt = STANDARD.decode(vector.salt).unwrap();
        ScramKeys::derive(vector.hash, "pencil", &salt, 4096).unwrap()
    }

    #[test]
    fn the_exchanges_of_the_standards() {
        for vector in &VECTORS {
            let [client_first, server_first, client_final, server_final] = vector.messages;
            let mut client = ScramClient::new(vector.hash, "user", "pencil", vector.client_nonce).unwrap();
            assert_eq!(client.first(), client_first.as_bytes());
            let first = ClientFirst::parse(client_first.as_bytes()).unwrap();
            assert_eq!(first.user(), "user");
            let (server, sent) = first.challenge(keys(vector), vector.server_nonce);
            assert_eq!(sent, server_first.as_bytes());
            assert_eq!(client.respond(&sent).unwrap(), client_final.as_bytes());
            let sent = server.client_final(client_final.as_bytes()).unwrap();
            assert_eq!(sent, server_final.as_bytes());
            client.verify(&sent).unwrap();
        }
    }

    #[test]
    fn what_is_remembered_is_for_the_same_password_salt_and_count_only() {
        let mut salted = SaltedPassword::default();
        for _ in 0..2 {
            for (vector, password, salt, iterations) in [
                (&VECTORS[0], "pencil", "one", 4096),
                (&VECTORS[0], "pencil", "two", 4096),
                (&VECTORS[0], "pencil", "two", 4097),
                (&VECTORS[1], "pencil", "two", 4097),
                (&VECTORS[1], "pencils", "two", 4097),
                (&VECTORS[1], "pencils", "two", 4097),
            ] {
                let expected = vector.hash.salted_password(password.as_bytes(), salt.as_bytes(), iterations);
                let found = salted.of(vector.hash, password, salt.as_bytes(), iterations);
                assert_eq!(found.as_slice(), expected.as_slice());
            }
        }
    }

    #[test]
    fn a_wrong_password_a_decoy_and_a_false_server_are_found_out() {
        let vector = &VECTORS[1];
        for (password, keys) in
            [("pencils", keys(vector)), ("pencil", ScramKeys::decoy(ScramHash::Sha256, b"secret", "user"))]
        {
            let mut client = ScramClient::new(vector.hash, "user", password, "abc").unwrap();
            let (server, sent) = ClientFirst::parse(&client.first()).unwrap().challenge(keys, "def");
            let proof = client.respond(&sent).unwrap();
            assert_eq!(server.client_final(&proof), Err(ScramError::InvalidProof));
            assert_eq!(client.verify(b"v=AAAA"), Err(ScramClientError::ServerNotGenuine));
        }
    }

    #[test]
    fn every_changed_byte_of_the_final_message_is_refused() {
        let vector = &VECTORS[1];
        let message = vector.messages[2].as_bytes();
        for at in 0..message.len() {
            let mut changed = message.to_vec();
            changed[at] ^= 1;
            let first = ClientFirst::parse(vector.messages[0].as_bytes()).unwrap();
            let (server, _) = first.challenge(keys(vector), vector.server_nonce);
            assert!(server.client_final(&changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn s6_channel_binding_flags() {
        assert!(ClientFirst::parse(b"y,,n=user,r=abc").is_ok());
        assert_eq!(ClientFirst::parse(b"p=tls-unique,,n=user,r=abc").err(), Some(ScramError::ChannelBinding));
        assert!(ClientFirst::parse(b"x,,n=user,r=abc").is_err());
        assert_eq!(ClientFirst::parse(b"n,,m=x,n=user,r=abc").err(), Some(ScramError::ExtensionsNotSupported));
        assert_eq!(ClientFirst::parse(b"n,,n=user,r=abc,m=x").err(), Some(ScramError::ExtensionsNotSupported));
        assert!(ClientFirst::parse(b"n,,n=user,r=abc,x=ignored").is_ok());
        let acting = ClientFirst::parse(b"n,a=other=2Cone,n=user,r=abc").unwrap();
        assert_eq!(acting.authzid(), Some("other,one"));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(first in proptest::collection::vec(any::<u8>(), 0..80), last in "[cnrpaem=,ywbis]{0,40}") {
            let _ = ClientFirst::parse(&first);
            let _ = ClientFirst::parse(last.as_bytes());
            let (server, _) = ClientFirst::parse(b"n,,n=u,r=a")
                .unwrap()
                .challenge(ScramKeys::decoy(ScramHash::Sha1, b"", "u"), "b");
            let _ = server.client_final(last.as_bytes());
            let mut client = ScramClient::new(ScramHash::Sha1, "u", "p", "a").unwrap();
            let _ = client.respond(&first);
            let _ = client.verify(last.as_bytes());
        }
    }
}
