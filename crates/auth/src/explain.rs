//! The decision of the rules about an action, in words: for `fogmux acl test` and the API.

use std::sync::Arc;

use crate::{
    acl::{Action, Door, Reach, RuleRef},
    authority::Authority,
    principal::{ANONYMOUS, LINK, Principal},
    refused::Refused,
    rules::Rules,
    source::{Grant, SourceKind},
    users::{checked_name, checked_user},
};

/// A decision with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Whether the action is allowed, in part at least.
    pub allowed: bool,
    /// The decision in words.
    pub text: String,
    /// The rule that decided, if one did.
    pub rule: Option<RuleRef>,
}

/// A question about something that no door takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTopic {
    /// Only a topic can be written.
    #[error("write needs a topic, not a filter")]
    Filter,
    /// It is neither topic nor filter ([MQTT-4.7.3-1] to [MQTT-4.7.3-3], [MQTT-4.7.1-1], [MQTT-4.7.1-2]).
    #[error("a topic has 1 to 65535 bytes and no U+0000; a wildcard is a level of its own, and # the last one")]
    Invalid,
}

impl NoTopic {
    /// Checks that an action may be asked about a topic, whoever it is for.
    ///
    /// # Errors
    /// [`NoTopic`] if a filter is to be written, or there is no such topic or filter.
    pub fn check(action: Action, topic: &str) -> Result<(), Self> {
        match action {
            _ if !is_valid(topic) => Err(Self::Invalid),
            Action::Write if is_filter(topic) => Err(Self::Filter),
            Action::Read | Action::Write => Ok(()),
        }
    }
}

/// The longest topic, in bytes ([MQTT-4.7.3-3]).
const TOPIC_BYTES_MAX: usize = 65_535;

impl Authority {
    /// Decides about a topic, or about a subscription to a filter.
    ///
    /// # Errors
    /// [`NoTopic`] if a filter is to be written, or there is no such topic or filter.
    pub fn explain(
        self: &Arc<Self>,
        principal: &Principal,
        client: &str,
        action: Action,
        door: Door,
        topic: &str,
    ) -> Result<Explained, NoTopic> {
        NoTopic::check(action, topic)?;
        // The rules apply to the filter of a shared subscription (MQTT 5.0 §4.8.2).
        let shared = topic.strip_prefix("$share/").and_then(|rest| rest.split_once('/')).map(|(_, filter)| filter);
        if action == Action::Read
            && let Some(filter) = shared
        {
            return Ok(reach(&self.access(principal, client, door).may_subscribe(filter)));
        }
        match action {
            Action::Read if is_filter(topic) => Ok(reach(&self.access(principal, client, door).may_subscribe(topic))),
            Action::Read | Action::Write => {
                let decision = self.may(principal, client, action, door, topic);
                Ok(Explained { allowed: decision.allowed, text: decision.to_string(), rule: decision.rule })
            }
        }
    }

    /// Returns the principal of a name, as rules and the log name it: `anonymous`, a user, `link:NAME`, or an identity
    /// of a certificate, a token or the callback, which need be in no file. `user:NAME` is such a name whatever it
    /// begins with, and `psk:IDENTITY` and `oscore:USER` are credentials.
    ///
    /// `groups` are those that the credential gives; if there are none, those that `certificates.toml` gives the name.
    /// `link` returns the principal of a configured link.
    ///
    /// # Errors
    /// Nobody can have that name or those groups, or nobody is let in by it.
    pub fn named(
        &self,
        who: &str,
        groups: &[String],
        link: impl Fn(&str) -> Option<Arc<str>>,
    ) -> Result<Named, NotNamed> {
        let rules = self.rules();
        let kind = who.split_once(':');
        if let Some(("user", name)) = kind {
            return rules.named(name, groups);
        }
        let named = match kind {
            Some(("psk", identity)) => self.psk_user(identity.as_bytes())?.into(),
            Some(("oscore", user)) => self.oscore(user)?.into(),
            Some(("link", name)) => self.link(name, link(name))?,
            _ if who == ANONYMOUS => Principal::anonymous().into(),
            _ => return rules.named(who, groups),
        };
        if groups.is_empty() { Ok(named) } else { Err(NotNamed::Groups) }
    }

    /// The principal of a link, whose configured one is `principal`.
    fn link(&self, name: &str, principal: Option<Arc<str>>) -> Result<Named, NotNamed> {
        match principal {
            Some(user) if !user.starts_with(LINK) => {
                let note = format!("the link {name} has the rights of the user {user}");
                let principal = self.principal(&user).ok_or(NotNamed::NoUser(user))?;
                Ok(Named { principal, note: Some(note) })
            }
            Some(_) => Ok(Principal::link(name).into()),
            None => {
                let note = format!("no link {name:?} is configured; asked as one that has its own rights");
                Ok(Named { principal: Principal::link(name), note: Some(note) })
            }
        }
    }
}

/// A principal to test rules for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The principal.
    pub principal: Principal,
    /// The assumption of the answer, if no file says who the principal is, or files say more than one thing.
    pub note: Option<String>,
}

impl From<Principal> for Named {
    fn from(principal: Principal) -> Self {
        Self { principal, note: None }
    }
}

/// Why there is no principal to test rules for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotNamed {
    /// The credential is not accepted.
    #[error("the credential is not accepted: {0}")]
    Refused(#[from] Refused),
    /// The user is shut out, whatever the credential.
    #[error("the user is disabled")]
    Disabled,
    /// A link acts as a user of the users file who is not there, or is disabled.
    #[error("the link acts as the user {0}, who is not there or is disabled")]
    NoUser(Arc<str>),
    /// No user, group or identity can be called so.
    #[error("a name has 1 to 255 bytes and no control characters, and spaces only inside")]
    Name,
    /// This credential gives no groups.
    #[error("only certificates, tokens and the callback give groups of their own")]
    Groups,
}

impl Rules {
    /// The principal of a name that is a user's, or of an identity that another source vouches for.
    fn named(&self, name: &str, groups: &[String]) -> Result<Named, NotNamed> {
        let name = checked_user(name).map_err(|_| NotNamed::Name)?;
        let given: Result<Vec<Arc<str>>, _> = groups.iter().map(|group| checked_name(group).map(Arc::from)).collect();
        let given = given.map_err(|_| NotNamed::Name)?;
        let known = self.users.get(&name);
        if known.is_some_and(|user| user.disabled) {
            return Err(NotNamed::Disabled);
        }
        let of_users = known.map(|user| &user.principal);
        let of_certificates = if given.is_empty() { self.certificates.groups_of(&name) } else { Vec::new() };
        let (source, kinds) = self.vouching(&name);
        match (of_users, &*of_certificates) {
            (Some(user), []) if given.is_empty() => Ok(user.clone().into()),
            (Some(user), [_, ..]) => {
                let note = format!("with a certificate the user is also {}", listed(&of_certificates));
                Ok(Named { principal: user.clone(), note: Some(note) })
            }
            (of_users, of_certificates) => {
                let groups = of_certificates.first().map_or(given, |groups| groups.to_vec());
                let principal = Principal::vouched(&name, source, Grant { groups, variables: None }, of_users);
                let mut note = format!("{name:?} is not a user of the file; asked as an identity of {kinds}");
                if let [first, others @ ..] = of_certificates {
                    note += &format!(", {} as certificates.toml has it", listed(&[*first]));
                    note += &others.iter().map(|set| format!("; others are {}", listed(&[*set]))).collect::<String>();
                }
                Ok(Named { principal, note: of_users.is_none().then_some(note) })
            }
        }
    }

    /// A source that admits identities of that name, and all such in words.
    fn vouching(&self, name: &str) -> (SourceKind, String) {
        let kinds = [
            (SourceKind::Certificate, "a certificate", !self.certificates.users_only || self.users.contains(name)),
            (SourceKind::Token, "a token", self.takes_tokens()),
            (SourceKind::Callback, "the callback", self.callback.is_some()),
            (SourceKind::Psk, "a pre-shared key", self.psks.identities().any(|(_, user)| user == name)),
            // Contexts are kept where OSCORE is spoken.
            (SourceKind::Oscore, "an OSCORE context", true),
        ];
        let mut kinds = kinds.into_iter().filter(|(_, _, admits)| *admits).map(|(kind, words, _)| (kind, words));
        let (source, first) = kinds.next().unwrap_or((SourceKind::Oscore, "an OSCORE context"));
        let words = kinds.fold(first.to_owned(), |before, (_, words)| format!("{before} or {words}"));
        (source, words)
    }
}

/// Sets of groups in words.
fn listed(sets: &[&[Arc<str>]]) -> String {
    let of = |set: &&[Arc<str>]| if set.is_empty() { "in no group".into() } else { format!("in {}", set.join(", ")) };
    sets.iter().map(of).collect::<Vec<String>>().join(" or ")
}

fn is_filter(topic: &str) -> bool {
    topic.split('/').any(|level| level == "+" || level == "#")
}

fn is_valid(topic: &str) -> bool {
    let mut levels = topic.split('/').peekable();
    let mut fits = || {
        let level = levels.next()?;
        Some(level == "+" || (level == "#" && levels.peek().is_none()) || !level.contains(['+', '#', '\0']))
    };
    (1..=TOPIC_BYTES_MAX).contains(&topic.len()) && std::iter::from_fn(&mut fits).all(|fits| fits)
}

fn reach(reach: &Reach) -> Explained {
    let (allowed, text, rule) = match reach {
        Reach::Everything => (true, "allowed: everything that the filter matches".to_owned(), None),
        Reach::Some => (true, "allowed in part: only messages on topics that a rule allows are sent".to_owned(), None),
        Reach::Nothing(decision) => (false, decision.to_string(), decision.rule.clone()),
    };
    Explained { allowed, text, rule }
}
