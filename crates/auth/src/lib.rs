//! Credentials to a principal, rules to a decision, and the SASL core.
//!
//! [`Authority`] is the interface for doors: it admits clients by their credentials – [`Authority::anonymous`],
//! [`Authority::log_in`], [`Authority::certificate`], [`Authority::psk`], [`Authority::oscore`], [`Authority::token`],
//! [`sasl::Exchange`] – and decides what they may do ([`Authority::access`]). It knows no socket and no protocol. Files
//! are read only by [`Rules::load`] and written only by `save`. Secrets are never logged or put in an error.

mod access;
mod acl;
mod authority;
mod backoff;
mod edit;
mod explain;
mod guard;
mod login;
mod password;
mod prepare;
mod principal;
mod private_file;
mod problem;
mod queue;
mod random;
mod refusals;
mod refused;
mod remembered;
mod rules;
pub mod sasl;
pub mod scram;
mod source;
mod users;

pub use access::Access;
pub use acl::{Acl, Action, Decision, Door, Reach, RuleRef, filter_covers, filters_overlap};
pub use authority::Authority;
pub use backoff::{Backoff, BackoffConfig, Wait, WaitCause};
pub use edit::{EditError, Original, replace_file};
pub use explain::{Explained, Named, NoTopic, NotNamed};
pub use guard::{Attempt, LoginGuard};
pub use login::{CallbackCheck, LogIn, PasswordCheck};
pub use password::{HashedPassword, PasswordError, Scratch};
pub use principal::{ANONYMOUS, Principal};
pub use problem::{Problem, Problems};
pub use queue::{LoginQueue, QueueConfig};
pub use refusals::{ActionLimits, LineLimits, Refusals, Suppressed};
pub use refused::Refused;
pub use rules::{AnonymousPolicy, Draft, Rules, Sources};
pub use source::{
    SourceKind, SourceSet, Variables, Verified,
    callback::{Answer, Callback, NoAnswer, Question, Remote},
    certificate::{CertificateIdentity, CertificateRules},
    psk::{PskSecret, Psks},
    token::{TokenSettings, Tokens, holds_token, looks_like_token},
};
pub use users::{Account, UserError, Users, UsersLock, prepared_name};
