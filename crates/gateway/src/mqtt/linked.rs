//! The sessions of links to other brokers, whose queues are what waits for those.

use std::sync::Arc;

use super::session::{MqttDoor, client_of, session_key};
use crate::links::{CLIENT, LinkSessions, Queue};

impl LinkSessions for MqttDoor {
    fn queue(&self, principal: &str, client: &str) -> Option<Queue> {
        let slot = self.sessions.get(&session_key(self.config.client_identifiers, principal, &client.into()))?;
        let holds = slot.with(|mailbox| mailbox.describe());
        Some(Queue { messages: holds.queued + holds.inflight, bytes: holds.queued_bytes + holds.inflight_bytes })
    }

    fn filters(&self, principal: &str, client: &str) -> Vec<String> {
        let slot = self.sessions.get(&session_key(self.config.client_identifiers, principal, &client.into()));
        let subscribed = slot.map(|slot| slot.with(|mailbox| mailbox.subscribed())).unwrap_or_default();
        subscribed.iter().map(|one| one.filter.as_str().to_owned()).collect()
    }

    fn is_announcing(&self, principal: &str, client: &str) -> bool {
        let slot = self.sessions.get(&session_key(self.config.client_identifiers, principal, &client.into()));
        slot.is_some_and(|slot| slot.with(|mailbox| mailbox.is_announcing()))
    }

    fn goes_on_announcing(&self, principal: &str, client: &str) -> bool {
        let slot = self.sessions.get(&session_key(self.config.client_identifiers, principal, &client.into()));
        slot.is_some_and(|slot| slot.with(|mailbox| mailbox.goes_on_announcing()))
    }

    fn names(&self) -> Vec<(String, Arc<str>)> {
        /// Sessions looked at under one lock of the registry.
        const PAGE: usize = 1024;
        let (mut names, mut after) = (Vec::new(), 0);
        loop {
            let (page, more) = self.sessions.page(after, PAGE);
            after = page.last().map_or(after, |last| last.number);
            let links = page.iter().filter_map(|listed| {
                let name = client_of(&listed.key).strip_prefix(CLIENT)?;
                Some((name.to_owned(), Arc::clone(&listed.principal)))
            });
            names.extend(links);
            if !more {
                return names;
            }
        }
    }
}
