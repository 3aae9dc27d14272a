//! Credentials to a principal, rules to a decision, and the SASL core.
//!
//! [`Authority`] is what doors hold: it lets people in ([`Authority::anonymous`], [`Authority::password`],
//! [`sasl::Exchange`]) and answers what they may do ([`Authority::access`]). It knows no socket and no protocol; files are
//! read only by [`Rules::load`] and written only by [`Users::save`]. Passwords are never kept, logged or put in an error.

mod access;
mod acl;
mod authority;
mod backoff;
mod password;
mod principal;
mod problem;
mod remembered;
pub mod sasl;
pub mod scram;
mod users;

pub use access::Access;
pub use acl::{Acl, Action, Decision, Door, Reach, RuleRef};
pub use authority::{AnonymousPolicy, Authority, Refused, Rules, Sources, Stamp};
pub use backoff::{Backoff, BackoffConfig};
pub use password::PasswordError;
pub use principal::{ANONYMOUS, Principal};
pub use problem::{Problem, Problems};
pub use users::{UserError, Users};
