//! The rules as one principal meets them: placeholders filled, everybody else's rules left out.

use std::sync::LazyLock;

use super::{
    Acl, Action, Decision, Door, Effect, Rule, RuleRef, filter,
    known::{Known, OWN_SLOTS, SHARED_SLOTS},
    pattern::Names,
};
use crate::principal::Principal;

/// What one principal may do by one door.
#[derive(Debug)]
pub(crate) struct View {
    read: Rules,
    write: Rules,
    known: Known,
}

/// The rules about one action.
#[derive(Debug, Default)]
struct Rules {
    deny: Vec<Resolved>,
    allow: Vec<Resolved>,
    /// There are no rules: all topics are allowed unless denied.
    all: bool,
    /// Every topic that does not begin with `$` is allowed.
    open: bool,
}

#[derive(Debug)]
struct Resolved {
    filter: Box<str>,
    /// The bytes before the first wildcard, which every match begins with.
    prefix_bytes: usize,
    reference: RuleRef,
}

/// How far a subscription may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Nothing that the filter matches may be read.
    Nothing(Decision),
    /// Some of it may be: each topic must be asked about.
    Some,
    /// All that the filter matches may be read.
    Everything,
}

impl Reach {
    /// Whether to accept the subscription.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        match self {
            Self::Some | Self::Everything => true,
            Self::Nothing(_) => false,
        }
    }
}

/// Rules that stand before every file.
static BUILT_IN: LazyLock<[Resolved; 2]> = LazyLock::new(|| {
    let file = std::path::Path::new("").into();
    ["$SYS/#", "$SYS"].map(|filter| {
        Resolved::new(filter.into(), RuleRef::new(&file, 0, "the built-in rule that nobody writes to $SYS".into()))
    })
});

/// Stands in the place of a file that is not there.
static OWN_STATE: LazyLock<RuleRef> = LazyLock::new(|| {
    let file = std::path::Path::new("").into();
    RuleRef::new(&file, 0, "default: there is no access file, and a bridge announces its own state".into())
});

/// The name in `$SYS/broker/connection/<name>/state`: where a bridge of Mosquitto's kind, of that client identifier,
/// announces whether it is connected. The only topics below `$SYS` that clients may write, if the rules allow it.
fn bridge_of_state(topic: &str) -> Option<&str> {
    let name = topic.strip_prefix("$SYS/broker/connection/")?.strip_suffix("/state")?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// The built-in rule that forbids writing `topic`.
fn forbidden(topic: &str) -> Option<&'static Resolved> {
    first_match(&*BUILT_IN, topic).filter(|_| bridge_of_state(topic).is_none())
}

impl View {
    /// Without an access file: read everything, write everything that does not begin with `$`.
    pub(crate) fn unruled() -> Self {
        let read = Rules { all: true, open: true, ..Rules::default() };
        let anywhere = Resolved::new(
            "#".into(),
            RuleRef::new(&std::path::Path::new("").into(), 0, "default: there is no access file".into()),
        );
        let write = Rules { allow: vec![anywhere], open: true, ..Rules::default() };
        Self { read, write, known: Known::new(OWN_SLOTS) }
    }

    /// For somebody who is no longer admitted.
    pub(crate) fn closed() -> Self {
        Self { read: Rules::default(), write: Rules::default(), known: Known::new(OWN_SLOTS) }
    }

    /// `shared`: whether every connection of the principal has this one.
    pub(crate) fn new(acl: &Acl, principal: &Principal, client: &str, door: Door, shared: bool) -> Self {
        let names = Names {
            user: (!principal.anonymous).then_some(&principal.name),
            client,
            groups: &principal.groups,
            variables: principal.variables.as_deref(),
        };
        let rules = |action| Rules::new(acl.applying(principal, door), action, &names);
        // 8 KiB for each of ten thousand devices with a name of its own would be 80 MiB.
        let slots = if shared && principal.anonymous { SHARED_SLOTS } else { OWN_SLOTS };
        Self { read: rules(Action::Read), write: rules(Action::Write), known: Known::new(slots) }
    }

    fn rules(&self, action: Action) -> &Rules {
        match action {
            Action::Read => &self.read,
            Action::Write => &self.write,
        }
    }

    pub(crate) fn decide(&self, action: Action, topic: &str) -> Decision {
        if let (Action::Write, Some(rule)) = (action, forbidden(topic)) {
            return Decision { allowed: false, rule: Some(rule.reference.clone()) };
        }
        let rules = self.rules(action);
        if let Some(rule) = first_match(&rules.deny, topic) {
            return Decision { allowed: false, rule: Some(rule.reference.clone()) };
        }
        let rule = first_match(&rules.allow, topic).map(|rule| rule.reference.clone());
        Decision { allowed: rules.all || rule.is_some(), rule }
    }

    /// [`Self::decide`] for a client that may have a state of its own to announce.
    pub(crate) fn decide_for(&self, action: Action, topic: &str, client: &str, door: Door) -> Decision {
        if action == Action::Write && self.is_own_state(topic, client, door) {
            return Decision { allowed: true, rule: Some(OWN_STATE.clone()) };
        }
        self.decide(action, topic)
    }

    /// Whether `topic` is where this client may announce its state as a bridge because there is no access file.
    pub(crate) fn is_own_state(&self, topic: &str, client: &str, door: Door) -> bool {
        self.read.all && door == Door::Mqtt && bridge_of_state(topic) == Some(client)
    }

    /// [`Self::decide`] without the reason.
    pub(crate) fn allows(&self, action: Action, topic: &str) -> bool {
        let rules = self.rules(action);
        if rules.open && !topic.starts_with('$') {
            return true;
        }
        let mark = Known::mark(action, topic);
        self.known.recall(mark).unwrap_or_else(|| {
            let allowed = self.walk(action, topic);
            self.known.remember(mark, allowed);
            allowed
        })
    }

    fn walk(&self, action: Action, topic: &str) -> bool {
        let rules = self.rules(action);
        let built_in = action == Action::Write && forbidden(topic).is_some();
        !built_in
            && first_match(&rules.deny, topic).is_none()
            && (rules.all || first_match(&rules.allow, topic).is_some())
    }

    /// Whether every topic that does not begin with `$` is allowed.
    pub(crate) fn is_open(&self, action: Action) -> bool {
        self.rules(action).open
    }

    /// How much of what `wanted` matches may be read.
    pub(crate) fn reach(&self, wanted: &str) -> Reach {
        let rules = &self.read;
        if filter::is_exact(wanted) {
            let decision = self.decide(Action::Read, wanted);
            return if decision.allowed { Reach::Everything } else { Reach::Nothing(decision) };
        }
        if rules.all || (rules.open && !wanted.starts_with('$')) {
            return Reach::Everything;
        }
        if let Some(rule) = rules.deny.iter().find(|rule| filter::covers(&rule.filter, wanted)) {
            return Reach::Nothing(Decision { allowed: false, rule: Some(rule.reference.clone()) });
        }
        if !rules.allow.iter().any(|rule| filter::overlaps(&rule.filter, wanted)) {
            return Reach::Nothing(Decision { allowed: false, rule: None });
        }
        let denied_in_part = rules.deny.iter().any(|rule| filter::overlaps(&rule.filter, wanted));
        if !denied_in_part && rules.allow.iter().any(|rule| filter::covers(&rule.filter, wanted)) {
            return Reach::Everything;
        }
        Reach::Some
    }
}

impl Rules {
    fn new<'a>(applying: impl Iterator<Item = &'a Rule>, action: Action, names: &Names<'_>) -> Self {
        let mut rules = Self::default();
        for rule in applying.filter(|rule| rule.actions.include(action)) {
            let (list, filters) = match rule.effect {
                Effect::Allow => (&mut rules.allow, rule.pattern.allowed(names)),
                Effect::Deny => (&mut rules.deny, rule.pattern.denied(names)),
            };
            let filters = filters.into_iter();
            list.extend(filters.map(|filter| Resolved::new(filter, rule.reference.clone())));
        }
        rules.open = rules.allow.iter().any(|rule| &*rule.filter == "#")
            && rules.deny.iter().all(|rule| rule.filter.starts_with('$'));
        rules
    }
}

impl Resolved {
    fn new(filter: String, reference: RuleRef) -> Self {
        let wildcard = filter.find(['+', '#']).unwrap_or(filter.len());
        // `a/#` also matches `a`, so its separator is no part of the prefix.
        let prefix_bytes = if filter.ends_with("/#") { wildcard.min(filter.len() - 2) } else { wildcard };
        Self { filter: filter.into(), prefix_bytes, reference }
    }

    fn matches(&self, topic: &str) -> bool {
        let prefix = self.filter.as_bytes().get(..self.prefix_bytes).unwrap_or_default();
        topic.as_bytes().starts_with(prefix) && filter::matches(&self.filter, topic)
    }
}

fn first_match<'a>(rules: &'a [Resolved], topic: &str) -> Option<&'a Resolved> {
    rules.iter().find(|rule| rule.matches(topic))
}

impl Acl {
    /// The rules about a principal, whatever they say.
    fn applying<'a>(&'a self, principal: &'a Principal, door: Door) -> impl Iterator<Item = &'a Rule> {
        self.rules.iter().filter(move |rule| rule.doors.include(door) && rule.who.includes(principal))
    }

    /// Whether a principal's view depends on the client identifier.
    pub(crate) fn depends_on_client(&self, principal: &Principal, door: Door) -> bool {
        self.applying(principal, door).any(|rule| rule.pattern.names_client())
    }
}

impl super::Who {
    fn includes(&self, principal: &Principal) -> bool {
        if principal.anonymous {
            return self.anonymous;
        }
        self.authenticated
            || self.users.iter().any(|user| **user == *principal.name)
            || principal.groups.iter().any(|group| self.groups.iter().any(|named| **named == **group))
    }
}
