//! The decision of the rules about an action, in words: for `fogmux acl test` and the API.

use std::sync::Arc;

use super::{ANONYMOUS, Action, Authority, Door, Principal, Reach, Refused, RuleRef};

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
        if !is_valid(topic) {
            return Err(NoTopic::Invalid);
        }
        let is_filter = topic.split('/').any(|level| level == "+" || level == "#");
        // The rules apply to the filter of a shared subscription (MQTT 5.0 §4.8.2).
        let shared = topic.strip_prefix("$share/").and_then(|rest| rest.split_once('/')).map(|(_, filter)| filter);
        if action == Action::Read
            && let Some(filter) = shared
        {
            return Ok(reach(&self.access(principal, client, door).may_subscribe(filter)));
        }
        match action {
            Action::Write if is_filter => Err(NoTopic::Filter),
            Action::Read if is_filter => Ok(reach(&self.access(principal, client, door).may_subscribe(topic))),
            Action::Read | Action::Write => {
                let decision = self.may(principal, client, action, door, topic);
                Ok(Explained { allowed: decision.allowed, text: decision.to_string(), rule: decision.rule })
            }
        }
    }

    /// The principal of a name: `anonymous`, a user, `user:NAME`, `psk:IDENTITY` or `oscore:USER`. `None` if there is
    /// no such user; one who is disabled is refused.
    #[must_use]
    pub fn named(&self, who: &str) -> Option<Result<Principal, Refused>> {
        let user = |name: &str| {
            let barred = || self.is_disabled(name).then_some(Err(Refused::Barred));
            self.principal(name).map(Ok).or_else(barred)
        };
        match who.split_once(':').unwrap_or(("", who)) {
            ("psk", identity) => Some(self.psk_user(identity.as_bytes())),
            ("oscore", user) => Some(self.oscore(user)),
            ("user", name) => user(name),
            _ if who == ANONYMOUS => Some(Ok(Principal::anonymous())),
            _ => user(who),
        }
    }

    /// Whether there is a user of that name who may not log in.
    #[must_use]
    pub fn is_disabled(&self, name: &str) -> bool {
        self.rules().users.is_disabled(name)
    }
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
