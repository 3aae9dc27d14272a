//! SASL for every door that speaks it: XMPP and MQTT 5 AUTH now, AMQP with the same code. RFC 4422.
//!
//! A door offers [`mechanisms`], begins an [`Exchange`] and passes messages until it is done. Base64 and framing are
//! the door's. No I/O happens here; a password check comes back as a [`PasswordCheck`] to be run elsewhere.

mod bearer;
mod plain;

use std::{fmt, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};

pub use bearer::Bearer;
pub use plain::Plain;

use crate::{
    authority::Authority,
    login::{CallbackCheck, LogIn, PasswordCheck},
    prepare::prepare_text,
    principal::Principal,
    random::random,
    refused::Refused,
    scram::{AwaitingClientFinal, Binding, ChannelBinding, ClientFirst, ScramError, ScramHash},
    source::{SourceKind, SourceSet, Verified},
};

/// A way to log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// `EXTERNAL`: what the handshake below has shown already (RFC 4422 appendix A, XEP-0178).
    External,
    /// `SCRAM-SHA-256-PLUS` or `SCRAM-SHA-1-PLUS`: bound to the TLS connection.
    ScramPlus(ScramHash),
    /// `SCRAM-SHA-256` or `SCRAM-SHA-1`.
    Scram(ScramHash),
    /// `OAUTHBEARER` (RFC 7628).
    OAuthBearer,
    /// `PLAIN` (RFC 4616).
    Plain,
    /// `ANONYMOUS` (RFC 4505).
    Anonymous,
}

impl Mechanism {
    const ALL: [Self; 8] = [
        Self::External,
        Self::ScramPlus(ScramHash::Sha256),
        Self::Scram(ScramHash::Sha256),
        Self::ScramPlus(ScramHash::Sha1),
        Self::Scram(ScramHash::Sha1),
        Self::OAuthBearer,
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
            Self::External => "EXTERNAL",
            Self::OAuthBearer => "OAUTHBEARER",
            Self::Plain => "PLAIN",
            Self::Anonymous => "ANONYMOUS",
        }
    }
}

/// The protection below the exchange.
#[derive(Clone, Default)]
pub struct SaslChannel {
    /// Confidential: without it no secret is taken in the clear.
    pub secure: bool,
    /// The `tls-exporter` value (RFC 9266), under TLS 1.3.
    pub exporter: Option<[u8; 32]>,
    /// The `tls-server-end-point` value (RFC 5929 §4): the digest of our certificate.
    pub end_point: Option<Box<[u8]>>,
    /// The principal of the client certificate that the handshake has verified.
    pub certificate: Option<Principal>,
}

impl fmt::Debug for SaslChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaslChannel").field("secure", &self.secure).finish_non_exhaustive()
    }
}

/// The connection's properties, which decide what is offered on it.
#[derive(Debug, Clone)]
pub struct Context {
    /// The channel below.
    pub channel: SaslChannel,
    /// Anonymous login is allowed here, as [`Authority::anonymous`] says.
    pub anonymous: bool,
    /// `user@realm` as authorisation identity means `user`: the domain of an XMPP server.
    pub realm: Option<Box<str>>,
    /// The credentials that the listener takes and that are configured; see [`Authority::offered`].
    pub sources: SourceSet,
    /// The time, in seconds since 1970, for tokens.
    pub now_unix_s: u64,
}

/// A plain connection on which passwords count.
impl Default for Context {
    fn default() -> Self {
        Self {
            channel: SaslChannel::default(),
            anonymous: false,
            realm: None,
            sources: SourceSet::NONE.with(SourceKind::Password),
            now_unix_s: 0,
        }
    }
}

impl Context {
    fn offers(&self, mechanism: Mechanism) -> bool {
        let takes = |kind| self.sources.contains(kind);
        let somebodys = [SourceKind::Password, SourceKind::Token, SourceKind::Callback];
        match mechanism {
            Mechanism::External => self.channel.certificate.is_some() && takes(SourceKind::Certificate),
            Mechanism::ScramPlus(_) => takes(SourceKind::Password) && self.bindings().next().is_some(),
            Mechanism::Scram(_) => takes(SourceKind::Password),
            Mechanism::OAuthBearer => self.channel.secure && takes(SourceKind::Token),
            Mechanism::Plain => self.channel.secure && somebodys.into_iter().any(takes),
            Mechanism::Anonymous => self.anonymous,
        }
    }

    /// The channel bindings that a `-PLUS` mechanism may use here, the one to be preferred first.
    pub fn bindings(&self) -> impl Iterator<Item = ChannelBinding> + use<> {
        let exporter = self.channel.exporter.map(|data| ChannelBinding::exporter(&data));
        let end_point = self.channel.end_point.as_deref().map(ChannelBinding::end_point);
        exporter.into_iter().chain(end_point).collect::<Vec<_>>().into_iter()
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

/// The next step of an exchange.
#[derive(Debug)]
pub enum Step {
    /// Send this and pass the answer to [`Exchange::respond`].
    Challenge(Vec<u8>),
    /// Run this on a thread for such work; its result ends the exchange.
    Check(PasswordCheck),
    /// Ask the callback about this name and password; the answer ends the exchange.
    Ask {
        /// The callback.
        check: CallbackCheck,
        /// The name.
        user: Box<str>,
        /// The password.
        password: Box<[u8]>,
    },
    /// Logged in. SCRAM's last message goes out with the success.
    Done {
        /// The principal.
        principal: Principal,
        /// Additional data with success, if any.
        data: Option<Vec<u8>>,
        /// When the login ends by itself, in seconds since 1970.
        expires_unix_s: Option<u64>,
    },
    /// Not logged in.
    Refused(Refused),
}

impl Step {
    fn done(verified: Verified, data: Option<Vec<u8>>) -> Self {
        Self::Done { principal: verified.principal, data, expires_unix_s: verified.expires_unix_s }
    }
}

/// One login attempt.
pub struct Exchange {
    authority: Arc<Authority>,
    context: Context,
    user: Option<Box<str>>,
    /// The user that a token names which was not accepted.
    claimed: Option<Box<str>>,
    state: State,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

enum State {
    AwaitingInitial(Mechanism),
    /// Besides the awaited proof, the user whose keys it has to match.
    AwaitingClientFinal(Box<(AwaitingClientFinal, Option<Principal>)>),
    /// The client was told the reason and acknowledges it (RFC 7628 §3.2.3).
    AwaitingKiss(Refused),
    Ended,
}

impl Exchange {
    /// Begins with a mechanism the peer named, and its first message if it came along. Without one, the step is an
    /// empty challenge (RFC 4422 §3.3).
    pub fn start(
        authority: &Arc<Authority>,
        context: Context,
        mechanism: &str,
        initial: Option<&[u8]>,
    ) -> (Self, Step) {
        let chosen = mechanisms(&context).find(|offered| offered.name() == mechanism);
        let mut exchange =
            Self { authority: Arc::clone(authority), context, user: None, claimed: None, state: State::Ended };
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

    /// Takes the peer's response to a challenge.
    pub fn respond(&mut self, response: &[u8]) -> Step {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::AwaitingInitial(mechanism) => self.initial(mechanism, response),
            State::AwaitingClientFinal(awaited) => {
                let (server, user) = *awaited;
                self.client_final(server, user, response)
            }
            State::AwaitingKiss(refused) => Step::Refused(refused),
            State::Ended => Step::Refused(Refused::Malformed("the exchange is over")),
        }
    }

    /// The user name of the attempt, as far as known, for back-off.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The user that the attempt claims, as far as known, for a log: beside [`user`](Self::user) that of a token that
    /// was not accepted, by whose name nobody must be made to wait.
    #[must_use]
    pub fn claimed(&self) -> Option<&str> {
        self.user.as_deref().or(self.claimed.as_deref())
    }

    fn initial(&mut self, mechanism: Mechanism, message: &[u8]) -> Step {
        let bindings: Vec<ChannelBinding> = self.context.bindings().collect();
        match mechanism {
            Mechanism::External => self.external(message),
            Mechanism::ScramPlus(hash) => {
                self.client_first(hash, ClientFirst::parse_bound(message, &Binding::Required(&bindings)))
            }
            Mechanism::Scram(hash) => {
                let binding = if bindings.is_empty() { Binding::Absent } else { Binding::Declined };
                self.client_first(hash, ClientFirst::parse_bound(message, &binding))
            }
            Mechanism::OAuthBearer => self.bearer(message),
            Mechanism::Plain => self.plain(message),
            Mechanism::Anonymous => anonymous(message),
        }
    }

    fn client_first(&mut self, hash: ScramHash, first: Result<ClientFirst, ScramError>) -> Step {
        match first {
            Ok(first) => {
                self.user = Some(first.user().into());
                // Read before the keys, so that a password changed in between is not taken for the proven one.
                let user = self.authority.principal(first.user());
                let keys = self.authority.scram_keys(hash, first.user());
                let (server, challenge) = first.challenge(keys, &STANDARD_NO_PAD.encode(random::<18>()));
                self.state = State::AwaitingClientFinal(Box::new((server, user)));
                Step::Challenge(challenge)
            }
            Err(error) => Step::Refused(error.into()),
        }
    }

    fn client_final(&mut self, server: AwaitingClientFinal, user: Option<Principal>, message: &[u8]) -> Step {
        let own_identity = self.context.is_self(server.authzid(), server.user());
        match server.client_final(message) {
            Ok(_) if !own_identity => Step::Refused(Refused::Identity),
            Ok(data) => match user.filter(|user| self.authority.admits(user)) {
                Some(principal) => Step::done(principal.into(), Some(data)),
                None => Step::Refused(Refused::Credentials),
            },
            Err(error) => Step::Refused(error.into()),
        }
    }

    /// XEP-0178: the certificate was proven below; what is left to say is an identity, which has to be its own.
    fn external(&mut self, message: &[u8]) -> Step {
        let Some(principal) = self.context.channel.certificate.clone() else {
            return Step::Refused(Refused::Mechanism);
        };
        self.user = Some((&*principal.name).into());
        match std::str::from_utf8(message) {
            Ok(authzid) if authzid.len() <= 1023 && !authzid.contains('\0') => {
                let own_identity = self.context.is_self(Some(authzid), &principal.name);
                // It was looked up when the connection came; the rules may have changed since.
                match own_identity {
                    true if self.authority.admits(&principal) => Step::done(principal.into(), None),
                    true => Step::Refused(Refused::Credentials),
                    false => Step::Refused(Refused::Identity),
                }
            }
            Ok(_) | Err(_) => Step::Refused(Refused::Malformed("authorisation identity")),
        }
    }

    fn bearer(&mut self, message: &[u8]) -> Step {
        let verified = Bearer::parse(message).and_then(|bearer| {
            self.claimed = self.authority.claimed_user(bearer.token).map(String::into_boxed_str);
            let verified = self.authority.token(bearer.token, self.context.now_unix_s)?;
            let own_identity = self.context.is_self(bearer.authzid.as_deref(), &verified.principal.name);
            if own_identity { Ok(verified) } else { Err(Refused::Identity) }
        });
        match verified {
            Ok(verified) => {
                self.user = Some((&*verified.principal.name).into());
                Step::done(verified, None)
            }
            Err(refused @ (Refused::Malformed("OAUTHBEARER message") | Refused::ChannelBinding)) => {
                Step::Refused(refused)
            }
            Err(refused) => {
                self.state = State::AwaitingKiss(refused);
                Step::Challenge(bearer::INVALID_TOKEN.to_vec())
            }
        }
    }

    fn plain(&mut self, message: &[u8]) -> Step {
        let Some(plain) = Plain::parse(message) else {
            return Step::Refused(Refused::Malformed("PLAIN message"));
        };
        let prepared = prepare_text(plain.user);
        let user = prepared.as_deref().unwrap_or(plain.user);
        self.user = Some(user.into());
        if !self.context.is_self(Some(plain.authzid), user) {
            return Step::Refused(Refused::Identity);
        }
        let Context { sources, now_unix_s, .. } = self.context;
        match self.authority.log_in(sources, user, plain.password, now_unix_s) {
            LogIn::Known(Ok(verified)) => Step::done(verified, None),
            LogIn::Known(Err(refused)) => Step::Refused(refused),
            LogIn::Check(check) => Step::Check(check),
            LogIn::Ask(check) => Step::Ask { check, user: user.into(), password: plain.password.into() },
        }
    }
}

/// ANONYMOUS carries at most 255 characters of trace information, which is not kept (RFC 4505 §2).
fn anonymous(message: &[u8]) -> Step {
    match std::str::from_utf8(message) {
        Ok(trace) if trace.chars().count() <= 255 => Step::done(Principal::anonymous().into(), None),
        Ok(_) | Err(_) => Step::Refused(Refused::Malformed("ANONYMOUS trace")),
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
