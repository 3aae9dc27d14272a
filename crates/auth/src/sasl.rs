//! SASL for every door that speaks it: XMPP now, MQTT 5 AUTH and AMQP with the same code. RFC 4422.
//!
//! A door offers [`mechanisms`], begins an [`Exchange`] and passes messages until it is done. Base64 and framing are the
//! door's. No I/O happens here; a password check comes back as a [`PasswordCheck`] to be run on a blocking thread.

use std::{fmt, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};

use crate::{
    authority::{Authority, Refused},
    password::prepare_text,
    principal::Principal,
    scram::{AwaitingClientFinal, Binding, ChannelBinding, ClientFirst, ScramError, ScramHash},
    users::random,
};

/// A way to log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// `SCRAM-SHA-256-PLUS` or `SCRAM-SHA-1-PLUS`: bound to the TLS connection.
    ScramPlus(ScramHash),
    /// `SCRAM-SHA-256` or `SCRAM-SHA-1`.
    Scram(ScramHash),
    /// `PLAIN` (RFC 4616).
    Plain,
    /// `ANONYMOUS` (RFC 4505).
    Anonymous,
}

impl Mechanism {
    const ALL: [Self; 6] = [
        Self::ScramPlus(ScramHash::Sha256),
        Self::Scram(ScramHash::Sha256),
        Self::ScramPlus(ScramHash::Sha1),
        Self::Scram(ScramHash::Sha1),
        Self::Plain,
        Self::Anonymous,
    ];

    /// The registered name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScramPlus(ScramHash::Sha256) => "SCRAM-SHA-256-PLUS",
            Self::ScramPlus(ScramHash::Sha1) => "SCRAM-SHA-1-PLUS",
            Self::Scram(hash) => hash.mechanism(),
            Self::Plain => "PLAIN",
            Self::Anonymous => "ANONYMOUS",
        }
    }
}

/// What the connection is like, which decides what is offered on it.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// The channel is confidential: without it no `PLAIN`.
    pub tls: bool,
    /// Anonymous login is allowed here, as [`Authority::anonymous`] says.
    pub anonymous: bool,
    /// `user@realm` as authorisation identity means `user`: the domain of an XMPP server.
    pub realm: Option<Box<str>>,
    /// Offers the `-PLUS` mechanisms with this binding.
    pub binding: Option<ChannelBinding>,
}

impl Context {
    fn offers(&self, mechanism: Mechanism) -> bool {
        match mechanism {
            Mechanism::ScramPlus(_) => self.binding.is_some(),
            Mechanism::Scram(_) => true,
            Mechanism::Plain => self.tls,
            Mechanism::Anonymous => self.anonymous,
        }
    }

    /// Whether the identity asked for is the one that logged in: left out, the same, or the same at our realm.
    fn is_self(&self, authzid: Option<&str>, user: &str) -> bool {
        let Some(authzid) = authzid.filter(|authzid| !authzid.is_empty()) else {
            return true;
        };
        let local = match (&self.realm, authzid.split_once('@')) {
            (Some(realm), Some((local, at))) if at == &**realm => local,
            (Some(_) | None, _) => authzid,
        };
        local == user || prepare_text(local).is_some_and(|prepared| prepared == user)
    }
}

/// The mechanisms to offer on a connection, the strongest first.
pub fn mechanisms(context: &Context) -> impl Iterator<Item = Mechanism> + use<'_> {
    Mechanism::ALL.into_iter().filter(|mechanism| context.offers(*mechanism))
}

/// What a message led to.
#[derive(Debug)]
pub enum Step {
    /// Send this and pass the answer to [`Exchange::respond`].
    Challenge(Vec<u8>),
    /// Run this on a blocking thread; its result ends the exchange.
    Check(PasswordCheck),
    /// Logged in. SCRAM's last message goes out with the success.
    Done {
        /// Who it is.
        principal: Principal,
        /// Additional data with success, if any.
        data: Option<Vec<u8>>,
    },
    /// Not logged in.
    Refused(Refused),
}

/// One login attempt.
pub struct Exchange {
    authority: Arc<Authority>,
    context: Context,
    state: State,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

enum State {
    AwaitingInitial(Mechanism),
    AwaitingClientFinal(Box<AwaitingClientFinal>),
    Ended,
}

impl Exchange {
    /// Begins with a mechanism the peer named, and its first message if it came along. Without one, the step is an empty
    /// challenge (RFC 4422 §3.3).
    pub fn start(
        authority: &Arc<Authority>,
        context: Context,
        mechanism: &str,
        initial: Option<&[u8]>,
    ) -> (Self, Step) {
        let chosen = mechanisms(&context).find(|offered| offered.name() == mechanism);
        let mut exchange = Self { authority: Arc::clone(authority), context, state: State::Ended };
        let step = match (chosen, initial) {
            (None, _) => Step::Refused(Refused::Mechanism),
            // The trace information is optional, and clients that have none rarely say so with an empty message (`=`):
            // ejabberd and Prosody let them in without a challenge as well.
            (Some(Mechanism::Anonymous), None) => anonymous(&[]),
            (Some(chosen), None) => {
                exchange.state = State::AwaitingInitial(chosen);
                Step::Challenge(Vec::new())
            }
            (Some(chosen), Some(initial)) => exchange.initial(chosen, initial),
        };
        (exchange, step)
    }

    /// Passes on what the peer answered to a challenge.
    pub fn respond(&mut self, response: &[u8]) -> Step {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::AwaitingInitial(mechanism) => self.initial(mechanism, response),
            State::AwaitingClientFinal(server) => self.client_final(*server, response),
            State::Ended => Step::Refused(Refused::Malformed("the exchange is over")),
        }
    }

    fn initial(&mut self, mechanism: Mechanism, message: &[u8]) -> Step {
        match mechanism {
            Mechanism::ScramPlus(hash) => {
                let context = &self.context;
                let first = context.binding.as_ref().ok_or(ScramError::ChannelBinding);
                self.client_first(
                    hash,
                    first.and_then(|bound| ClientFirst::parse_bound(message, &Binding::Required(bound))),
                )
            }
            Mechanism::Scram(hash) => {
                let binding = if self.context.binding.is_some() { Binding::Declined } else { Binding::Absent };
                self.client_first(hash, ClientFirst::parse_bound(message, &binding))
            }
            Mechanism::Plain => self.plain(message),
            Mechanism::Anonymous => anonymous(message),
        }
    }

    fn client_first(&mut self, hash: ScramHash, first: Result<ClientFirst, ScramError>) -> Step {
        match first {
            Ok(first) => {
                let keys = self.authority.scram_keys(hash, first.user());
                let (server, challenge) = first.challenge(keys, &STANDARD_NO_PAD.encode(random::<18>()));
                self.state = State::AwaitingClientFinal(Box::new(server));
                Step::Challenge(challenge)
            }
            Err(error) => Step::Refused(error.into()),
        }
    }

    fn client_final(&mut self, server: AwaitingClientFinal, message: &[u8]) -> Step {
        let own_identity = self.context.is_self(server.authzid(), server.user());
        let user = server.user().to_owned();
        match server.client_final(message) {
            Ok(_) if !own_identity => Step::Refused(Refused::Identity),
            Ok(data) => match self.authority.principal(&user) {
                Some(principal) => Step::Done { principal, data: Some(data) },
                None => Step::Refused(Refused::Credentials),
            },
            Err(error) => Step::Refused(error.into()),
        }
    }

    fn plain(&self, message: &[u8]) -> Step {
        let Some(plain) = Plain::parse(message) else {
            return Step::Refused(Refused::Malformed("PLAIN message"));
        };
        let prepared = prepare_text(plain.user);
        let user = prepared.as_deref().unwrap_or(plain.user);
        if !self.context.is_self(Some(plain.authzid), user) {
            return Step::Refused(Refused::Identity);
        }
        match self.authority.recall(user, plain.password) {
            Some(principal) => Step::Done { principal, data: None },
            None => Step::Check(PasswordCheck::new(&self.authority, user, plain.password)),
        }
    }
}

/// ANONYMOUS carries at most 255 characters of trace information, which is not kept (RFC 4505 §2).
fn anonymous(message: &[u8]) -> Step {
    match std::str::from_utf8(message) {
        Ok(trace) if trace.chars().count() <= 255 => Step::Done { principal: Principal::anonymous(), data: None },
        Ok(_) | Err(_) => Step::Refused(Refused::Malformed("ANONYMOUS trace")),
    }
}

/// The message of PLAIN: `[authzid] NUL authcid NUL passwd` (RFC 4616 §2).
pub struct Plain<'a> {
    /// The identity to act as; empty for one's own.
    pub authzid: &'a str,
    /// The user's name.
    pub user: &'a str,
    /// The password.
    pub password: &'a [u8],
}

impl<'a> Plain<'a> {
    /// The parts, when the message has exactly these and they are UTF-8 of allowed length.
    #[must_use]
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(message).ok()?.split('\0');
        let (authzid, user, password) = (parts.next()?, parts.next()?, parts.next()?);
        let sizes = authzid.len() <= 255 && (1..=255).contains(&user.len()) && (1..=1024).contains(&password.len());
        (sizes && parts.next().is_none()).then_some(Self { authzid, user, password: password.as_bytes() })
    }

    /// The message for a client to send, without an authorisation identity.
    #[must_use]
    pub fn encode(user: &str, password: &str) -> Vec<u8> {
        format!("\0{user}\0{password}").into_bytes()
    }
}

/// A password that waits to be verified. `Send`, so that a blocking thread can.
pub struct PasswordCheck {
    authority: Arc<Authority>,
    user: Box<str>,
    password: Box<[u8]>,
}

impl PasswordCheck {
    /// A check to be run elsewhere.
    #[must_use]
    pub fn new(authority: &Arc<Authority>, user: &str, password: &[u8]) -> Self {
        Self { authority: Arc::clone(authority), user: user.into(), password: password.into() }
    }

    /// The name that is tried, for back-off.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Verifies. Blocks; see [`Authority::password`].
    ///
    /// # Errors
    /// The login is refused.
    pub fn run(self) -> Result<Principal, Refused> {
        self.authority.password(&self.user, &self.password)
    }
}

impl fmt::Debug for PasswordCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordCheck").finish_non_exhaustive()
    }
}

impl From<ScramError> for Refused {
    fn from(error: ScramError) -> Self {
        match error {
            ScramError::Malformed(what) => Self::Malformed(what),
            ScramError::ExtensionsNotSupported => Self::Malformed("SCRAM extension"),
            ScramError::ChannelBinding => Self::ChannelBinding,
            ScramError::InvalidProof => Self::Credentials,
            ScramError::OtherExchange => Self::Malformed("not of this exchange"),
        }
    }
}
