//! The permissions of one connection: the rules resolved for its principal, resolved again when the rules change.

use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, PoisonError, RwLock},
};

use crate::{
    acl::{Action, Decision, Door, Reach, View},
    authority::Authority,
    principal::Principal,
};

/// One principal's permissions by one door under one client identifier. Cheap to ask; `Send + Sync`.
pub struct Access {
    authority: Arc<Authority>,
    principal: Principal,
    client: Arc<str>,
    door: Door,
    /// Only named in the log.
    peer: Option<SocketAddr>,
    held: RwLock<Held>,
}

/// The client identifier as `%c` in rules means it: MQTT's. An XMPP resource is a name that a client gives itself anew
/// at each login.
pub(crate) fn of_rules(client: &str, door: Door) -> &str {
    if door == Door::Mqtt { client } else { "" }
}

struct Held {
    generation: u64,
    view: Arc<View>,
}

impl Authority {
    /// The permissions of a connection. To be kept with the connection; they follow reloads.
    #[must_use]
    pub fn access(self: &Arc<Self>, principal: &Principal, client: impl Into<Arc<str>>, door: Door) -> Access {
        Access::new(self, principal, client.into(), door)
    }
}

impl Access {
    fn new(authority: &Arc<Authority>, principal: &Principal, client: Arc<str>, door: Door) -> Self {
        let (generation, view) = authority.view(principal, of_rules(&client, door), door);
        Self {
            authority: Arc::clone(authority),
            principal: principal.clone(),
            // That of all without one takes no memory.
            client: if client.is_empty() { Arc::default() } else { client },
            door,
            peer: None,
            held: RwLock::new(Held { generation, view }),
        }
    }

    /// The same permissions, with the address that the log names beside a refusal.
    #[must_use]
    pub fn of_peer(self, peer: SocketAddr) -> Self {
        Self { peer: Some(peer), ..self }
    }

    /// The principal.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The client identifier, or `""`.
    #[must_use]
    pub fn client(&self) -> &str {
        &self.client
    }

    /// The door that the client came in by.
    #[must_use]
    pub fn door(&self) -> Door {
        self.door
    }

    /// The client's address, if it has one only.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Whether `topic` may be read.
    #[must_use]
    pub fn may_read(&self, topic: &str) -> bool {
        self.with(|view| view.allows(Action::Read, topic))
    }

    /// Whether `topic` may be written. Below `$SYS` only the state of a bridge may be: by the rules or, without rules,
    /// the client's own.
    #[must_use]
    pub fn may_write(&self, topic: &str) -> bool {
        self.with(|view| view.allows(Action::Write, topic) || view.is_own_state(topic, &self.client, self.door))
    }

    /// The decision with its reason, for refusals that can say why.
    #[must_use]
    pub fn decide(&self, action: Action, topic: &str) -> Decision {
        self.with(|view| view.decide_for(action, topic, of_rules(&self.client, self.door), self.door))
    }

    /// How much of what `filter` matches may be read: nothing (refuse the subscription), some (ask for each topic), or
    /// everything (no need to ask). The filter comes without its `$share/…/`. The answer holds until
    /// [`Authority::generation`] grows: a door that sets no gate on a subscription because of [`Reach::Everything`] has
    /// to ask again then.
    #[must_use]
    pub fn may_subscribe(&self, filter: &str) -> Reach {
        self.with(|view| view.reach(filter))
    }

    /// Whether every topic that does not begin with `$` is allowed, so that a door need not ask for those.
    #[must_use]
    pub fn is_everything_allowed(&self, action: Action) -> bool {
        self.with(|view| view.is_open(action))
    }

    fn with<T>(&self, ask: impl FnOnce(&View) -> T) -> T {
        let current = self.authority.generation();
        {
            let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
            if held.generation == current {
                return ask(&held.view);
            }
        }
        let (generation, view) = self.authority.view(&self.principal, of_rules(&self.client, self.door), self.door);
        let answer = ask(&view);
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = Held { generation, view };
        answer
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("door", &self.door).finish_non_exhaustive()
    }
}
