//! The rules that apply to one principal, with placeholders filled.

use std::sync::{Arc, LazyLock};

use super::{
    Acl, Action, Decision, Door, Effect, Rule, RuleRef, filter,
    index::{Index, Resolved},
    known::{Known, OWN_SLOTS, SHARED_SLOTS},
    pattern::Names,
};
use crate::principal::Principal;

/// The permissions of one principal by one door.
#[derive(Debug)]
pub(crate) struct View {
    read: Rules,
    write: Rules,
    /// The rules that all principals with the same groups share.
    common: Arc<Common>,
    known: Known,
}

/// The rules without user names and placeholders, which all principals with the same groups share at one door.
#[derive(Debug, Default)]
pub(crate) struct Common {
    read: Lists,
    write: Lists,
}

#[derive(Debug, Default)]
struct Lists {
    deny: Index,
    allow: Index,
}

/// The rules for one action.
#[derive(Debug, Default)]
struct Rules {
    own: Lists,
    /// There are no rules: all topics are allowed unless denied.
    all: bool,
    /// Every topic that does not begin with `$` is allowed.
    open: bool,
}

/// How far a subscription may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Nothing that the filter matches may be read.
    Nothing(Decision),
    /// Some of it may be: each topic must be asked about. Said of a filter with wildcards in the place of hundreds of
    /// names as well, without having found one.
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

/// The rule that precedes every file.
static BUILT_IN: LazyLock<RuleRef> = LazyLock::new(|| {
    let file = std::path::Path::new("").into();
    RuleRef::new(&file, 0, "the built-in rule that nobody writes to $SYS".into())
});

/// The rule for a bridge's own state when there is no access file.
static OWN_STATE: LazyLock<RuleRef> = LazyLock::new(|| {
    let file = std::path::Path::new("").into();
    RuleRef::new(&file, 0, "default: there is no access file, and a bridge announces its own state".into())
});

/// The name in `$SYS/broker/connection/<name>/state`, where a Mosquitto bridge with that client identifier announces
/// whether it is connected. Clients may write no other topic below `$SYS`, and these only if the rules allow it.
fn bridge_of_state(topic: &str) -> Option<&str> {
    let name = topic.strip_prefix("$SYS/broker/connection/")?.strip_suffix("/state")?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// Whether the built-in rule denies this action on this topic.
fn is_built_in(action: Action, topic: &str) -> bool {
    let below = topic.strip_prefix("$SYS").filter(|rest| rest.is_empty() || rest.starts_with('/'));
    action == Action::Write && below.is_some() && bridge_of_state(topic).is_none()
}

impl View {
    /// Without an access file: read everything, write everything that does not begin with `$`.
    pub(crate) fn unruled() -> Self {
        let read = Rules { all: true, open: true, ..Rules::default() };
        let nowhere = std::path::Path::new("").into();
        let reference = RuleRef::new(&nowhere, 0, "default: there is no access file".into());
        let mut write = Rules { open: true, ..Rules::default() };
        write.own.allow.push(Resolved { filter: "#".into(), place: 0, reference });
        Self { read, write, common: Arc::default(), known: Known::new(OWN_SLOTS) }
    }

    /// For a principal that is no longer admitted.
    pub(crate) fn closed() -> Self {
        let (read, write) = (Rules::default(), Rules::default());
        Self { read, write, common: Arc::default(), known: Known::new(OWN_SLOTS) }
    }

    /// `shared`: whether all connections of the principal use this view. `common` is the result of [`Acl::common`].
    pub(crate) fn new(
        acl: &Acl,
        principal: &Principal,
        client: &str,
        door: Door,
        shared: bool,
        common: Arc<Common>,
    ) -> Self {
        let names = Names {
            user: (!principal.anonymous).then_some(&principal.name),
            client,
            groups: &principal.groups,
            variables: principal.variables.as_deref(),
        };
        let own: Vec<(u32, &Rule)> = acl.own(principal, door).collect();
        let rules = |action, common: &Lists| {
            let mut lists = Lists::default();
            for (place, rule) in own.iter().filter(|(_, rule)| rule.actions.include(action)) {
                lists.push(*place, rule, &names);
            }
            Rules { open: lists.are_open_with(common), own: lists, all: false }
        };
        // 8 KiB for each of ten thousand devices with a name of its own would be 80 MiB.
        let slots = if shared && principal.anonymous { SHARED_SLOTS } else { OWN_SLOTS };
        let (read, write) = (rules(Action::Read, &common.read), rules(Action::Write, &common.write));
        Self { read, write, common, known: Known::new(slots) }
    }

    fn rules(&self, action: Action) -> &Rules {
        match action {
            Action::Read => &self.read,
            Action::Write => &self.write,
        }
    }

    /// The deny rules: the principal's own and the common ones.
    fn deny(&self, action: Action) -> [&Index; 2] {
        match action {
            Action::Read => [&self.read.own.deny, &self.common.read.deny],
            Action::Write => [&self.write.own.deny, &self.common.write.deny],
        }
    }

    /// The allow rules: the principal's own and the common ones.
    fn allow(&self, action: Action) -> [&Index; 2] {
        match action {
            Action::Read => [&self.read.own.allow, &self.common.read.allow],
            Action::Write => [&self.write.own.allow, &self.common.write.allow],
        }
    }

    pub(crate) fn decide(&self, action: Action, topic: &str) -> Decision {
        if is_built_in(action, topic) {
            return Decision { allowed: false, rule: Some(BUILT_IN.clone()) };
        }
        if let Some(rule) = first_match(self.deny(action), topic) {
            return Decision { allowed: false, rule: Some(rule.reference.clone()) };
        }
        let rule = first_match(self.allow(action), topic).map(|rule| rule.reference.clone());
        Decision { allowed: self.rules(action).all || rule.is_some(), rule }
    }

    /// As [`Self::decide`], for a client that may announce a bridge's state of its own.
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
        let matches = |rules: [&Index; 2]| rules.iter().any(|index| index.first_match(topic).is_some());
        !is_built_in(action, topic)
            && !matches(self.deny(action))
            && (self.rules(action).all || matches(self.allow(action)))
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
        let (deny, allow) = (self.deny(Action::Read), self.allow(Action::Read));
        if let Some(rule) = first_match(deny, wanted) {
            return Reach::Nothing(Decision { allowed: false, rule: Some(rule.reference.clone()) });
        }
        let overlaps = |rules: [&Index; 2]| rules.iter().any(|index| index.overlaps(wanted));
        if !overlaps(allow) {
            return Reach::Nothing(Decision { allowed: false, rule: None });
        }
        if !overlaps(deny) && first_match(allow, wanted).is_some() {
            return Reach::Everything;
        }
        Reach::Some
    }
}

impl Lists {
    fn push(&mut self, place: u32, rule: &Rule, names: &Names<'_>) {
        let (list, filters) = match rule.effect {
            Effect::Allow => (&mut self.allow, rule.pattern.allowed(names)),
            Effect::Deny => (&mut self.deny, rule.pattern.denied(names)),
        };
        for filter in filters {
            list.push(Resolved { filter: filter.into(), place, reference: rule.reference.clone() });
        }
    }

    /// Whether every topic that does not begin with `$` is allowed by these rules and those.
    fn are_open_with(&self, other: &Self) -> bool {
        self.allow.iter().chain(other.allow.iter()).any(|rule| &*rule.filter == "#")
            && self.deny.iter().chain(other.deny.iter()).all(|rule| rule.filter.starts_with('$'))
    }
}

/// The first in the order of the file that matches a topic, or covers a filter.
fn first_match<'a>(rules: [&'a Index; 2], topic: &str) -> Option<&'a Resolved> {
    rules.into_iter().filter_map(|index| index.first_match(topic)).min_by_key(|rule| rule.place)
}

impl Acl {
    /// The rules that a principal shares with all others in its groups at that door.
    pub(crate) fn common(&self, principal: &Principal, door: Door) -> Common {
        let nobody = Names { user: None, client: "", groups: &[], variables: None };
        let mut common = Common::default();
        for (place, rule) in (0_u32..).zip(&self.rules) {
            if rule.doors.include(door) && rule.is_common(principal) {
                for (action, lists) in [(Action::Read, &mut common.read), (Action::Write, &mut common.write)] {
                    if rule.actions.include(action) {
                        lists.push(place, rule, &nobody);
                    }
                }
            }
        }
        common
    }

    /// The other rules that apply to a principal, with their places in the file.
    fn own<'a>(&'a self, principal: &'a Principal, door: Door) -> impl Iterator<Item = (u32, &'a Rule)> {
        let named = self.by_user.get(&*principal.name).filter(|_| !principal.anonymous);
        let mut places: Vec<u32> = named.into_iter().flatten().chain(&self.patterns).copied().collect();
        places.sort_unstable();
        places.dedup();
        let rules = places.into_iter().filter_map(|place| Some((place, self.rules.get(usize::try_from(place).ok()?)?)));
        rules.filter(move |(_, rule)| {
            rule.doors.include(door) && rule.who.includes(principal) && !rule.is_common(principal)
        })
    }

    /// Whether a principal's view depends on the client identifier.
    pub(crate) fn depends_on_client(&self, principal: &Principal, door: Door) -> bool {
        self.own(principal, door).any(|(_, rule)| rule.pattern.names_client())
    }
}

impl Rule {
    /// Whether the rule applies to all principals with the same groups in the same way.
    fn is_common(&self, principal: &Principal) -> bool {
        !self.pattern.has_placeholders() && self.who.includes_groups(principal)
    }
}

impl super::Who {
    fn includes(&self, principal: &Principal) -> bool {
        let named = || !principal.anonymous && self.users.iter().any(|user| **user == *principal.name);
        self.includes_groups(principal) || named()
    }

    /// Whether it applies to the principal whatever its name is.
    fn includes_groups(&self, principal: &Principal) -> bool {
        if principal.anonymous {
            return self.anonymous;
        }
        self.authenticated || principal.groups.iter().any(|group| self.groups.iter().any(|named| **named == **group))
    }
}

#[cfg(test)]
mod tests;
