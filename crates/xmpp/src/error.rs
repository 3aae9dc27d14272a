//! Stream errors (RFC 6120 §4.9), stanza errors (§8.3) and the conditions XEP-0060 adds to them.

use crate::ns;
use crate::writer::Writer;
use std::borrow::Cow;

/// Makes an enum whose variants know the element name of their condition.
macro_rules! conditions {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* #[doc = concat!("`<", $text, "/>`")] $variant,)* }

        impl $name {
            /// Every condition, in the order of the standard.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name of the condition's element.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The condition with this element name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|c| c.as_str() == name)
            }
        }
    };
}

conditions! {
    /// RFC 6120 §4.9.3
    StreamCondition {
        BadFormat = "bad-format",
        BadNamespacePrefix = "bad-namespace-prefix",
        Conflict = "conflict",
        ConnectionTimeout = "connection-timeout",
        HostGone = "host-gone",
        HostUnknown = "host-unknown",
        ImproperAddressing = "improper-addressing",
        InternalServerError = "internal-server-error",
        InvalidFrom = "invalid-from",
        InvalidNamespace = "invalid-namespace",
        InvalidXml = "invalid-xml",
        NotAuthorized = "not-authorized",
        NotWellFormed = "not-well-formed",
        PolicyViolation = "policy-violation",
        RemoteConnectionFailed = "remote-connection-failed",
        Reset = "reset",
        ResourceConstraint = "resource-constraint",
        RestrictedXml = "restricted-xml",
        SeeOtherHost = "see-other-host",
        SystemShutdown = "system-shutdown",
        UndefinedCondition = "undefined-condition",
        UnsupportedEncoding = "unsupported-encoding",
        UnsupportedFeature = "unsupported-feature",
        UnsupportedStanzaType = "unsupported-stanza-type",
        UnsupportedVersion = "unsupported-version",
    }
}

conditions! {
    /// RFC 6120 §8.3.3
    StanzaCondition {
        BadRequest = "bad-request",
        Conflict = "conflict",
        FeatureNotImplemented = "feature-not-implemented",
        Forbidden = "forbidden",
        Gone = "gone",
        InternalServerError = "internal-server-error",
        ItemNotFound = "item-not-found",
        JidMalformed = "jid-malformed",
        NotAcceptable = "not-acceptable",
        NotAllowed = "not-allowed",
        NotAuthorized = "not-authorized",
        PolicyViolation = "policy-violation",
        RecipientUnavailable = "recipient-unavailable",
        Redirect = "redirect",
        RegistrationRequired = "registration-required",
        RemoteServerNotFound = "remote-server-not-found",
        RemoteServerTimeout = "remote-server-timeout",
        ResourceConstraint = "resource-constraint",
        ServiceUnavailable = "service-unavailable",
        SubscriptionRequired = "subscription-required",
        UndefinedCondition = "undefined-condition",
        UnexpectedRequest = "unexpected-request",
    }
}

conditions! {
    /// XEP-0060 §16.3, the schema of `pubsub#errors`
    PubsubCondition {
        ClosedNode = "closed-node",
        ConfigurationRequired = "configuration-required",
        InvalidJid = "invalid-jid",
        InvalidOptions = "invalid-options",
        InvalidPayload = "invalid-payload",
        InvalidSubid = "invalid-subid",
        ItemForbidden = "item-forbidden",
        ItemRequired = "item-required",
        JidRequired = "jid-required",
        MaxItemsExceeded = "max-items-exceeded",
        MaxNodesExceeded = "max-nodes-exceeded",
        NodeidRequired = "nodeid-required",
        NotInRosterGroup = "not-in-roster-group",
        NotSubscribed = "not-subscribed",
        PayloadTooBig = "payload-too-big",
        PayloadRequired = "payload-required",
        PendingSubscription = "pending-subscription",
        PreconditionNotMet = "precondition-not-met",
        PresenceSubscriptionRequired = "presence-subscription-required",
        SubidRequired = "subid-required",
        TooManySubscriptions = "too-many-subscriptions",
        Unsupported = "unsupported",
    }
}

conditions! {
    /// The type of a stanza error: the action that its recipient should take (RFC 6120 §8.3.2)
    ErrorKind {
        Auth = "auth",
        Cancel = "cancel",
        Continue = "continue",
        Modify = "modify",
        Wait = "wait",
    }
}

/// Why a stream ends. The condition goes to the peer, the detail too: it never quotes what the peer sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", condition.as_str())]
pub struct StreamError {
    /// The defined condition.
    pub condition: StreamCondition,
    /// One phrase for people; empty for none.
    pub detail: &'static str,
}

impl StreamError {
    /// An error with a phrase for people.
    #[must_use]
    pub const fn new(condition: StreamCondition, detail: &'static str) -> Self {
        Self { condition, detail }
    }

    /// Appends `<stream:error>…</stream:error>`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut w = Writer::new(out);
        w.start("stream:error");
        w.start_ns(self.condition.as_str(), ns::STREAM_ERRORS).end(self.condition.as_str());
        if !self.detail.is_empty() {
            w.start_ns("text", ns::STREAM_ERRORS).text(self.detail).end("text");
        }
        w.end("stream:error");
    }
}

/// A stanza error (RFC 6120 §8.3).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", condition.as_str())]
pub struct StanzaError {
    /// The type of the error.
    pub kind: ErrorKind,
    /// The defined condition.
    pub condition: StanzaCondition,
    /// The additional condition of XEP-0060.
    pub pubsub: Option<PubsubCondition>,
    /// The feature that an `<unsupported/>` names (XEP-0060 §10).
    pub feature: Option<&'static str>,
    /// A human-readable description.
    pub text: Option<Cow<'static, str>>,
}

impl StanzaError {
    /// An error with the type that RFC 6120 §8.3.3 recommends for the condition.
    #[must_use]
    pub const fn new(condition: StanzaCondition) -> Self {
        Self { kind: usual_kind(condition), condition, pubsub: None, feature: None, text: None }
    }

    /// `<bad-request/>`
    #[must_use]
    pub const fn bad_request() -> Self {
        Self::new(StanzaCondition::BadRequest)
    }

    /// `<feature-not-implemented/>` with `<unsupported feature='…'/>` (XEP-0060 §10).
    #[must_use]
    pub const fn unsupported(feature: &'static str) -> Self {
        let mut error = Self::new(StanzaCondition::FeatureNotImplemented);
        error.pubsub = Some(PubsubCondition::Unsupported);
        error.feature = Some(feature);
        error
    }

    /// The same with a condition of XEP-0060 beside it.
    #[must_use]
    pub const fn with(mut self, pubsub: PubsubCondition) -> Self {
        self.pubsub = Some(pubsub);
        self
    }

    /// The same with another type.
    #[must_use]
    pub const fn of_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// The same with a phrase for people.
    #[must_use]
    pub fn because(mut self, text: impl Into<Cow<'static, str>>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// Appends `<error>…</error>`.
    pub fn write(&self, w: &mut Writer<'_>) {
        w.start("error").attr("type", self.kind.as_str());
        w.start_ns(self.condition.as_str(), ns::STANZA_ERRORS).end(self.condition.as_str());
        if let Some(text) = &self.text {
            w.start_ns("text", ns::STANZA_ERRORS).text(text).end("text");
        }
        if let Some(pubsub) = self.pubsub {
            w.start_ns(pubsub.as_str(), ns::PUBSUB_ERRORS).attr_opt("feature", self.feature).end(pubsub.as_str());
        }
        w.end("error");
    }
}

const fn usual_kind(condition: StanzaCondition) -> ErrorKind {
    use StanzaCondition as C;
    match condition {
        C::BadRequest | C::JidMalformed | C::NotAcceptable | C::PolicyViolation | C::Redirect => ErrorKind::Modify,
        C::Forbidden | C::NotAuthorized | C::RegistrationRequired | C::SubscriptionRequired => ErrorKind::Auth,
        C::RecipientUnavailable | C::RemoteServerTimeout | C::ResourceConstraint | C::UnexpectedRequest => {
            ErrorKind::Wait
        }
        C::Conflict
        | C::FeatureNotImplemented
        | C::Gone
        | C::InternalServerError
        | C::ItemNotFound
        | C::NotAllowed
        | C::RemoteServerNotFound
        | C::ServiceUnavailable
        | C::UndefinedCondition => ErrorKind::Cancel,
    }
}
