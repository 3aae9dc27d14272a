//! Access checks of a connection: the gateway's rules first, then the restrictions by owners of nodes.

use std::sync::Arc;

use fogmux_auth::Access;
use fogmux_bus::ReadGate;

use super::nodes::Nodes;

/// Permissions of one connection, as it and the bus ask for them.
pub(super) struct Gate {
    access: Access,
    nodes: Arc<Nodes>,
    affiliate: Arc<str>,
}

impl Gate {
    pub(super) fn new(access: Access, nodes: &Arc<Nodes>, affiliate: &Arc<str>) -> Self {
        Self { access, nodes: Arc::clone(nodes), affiliate: Arc::clone(affiliate) }
    }

    pub(super) fn access(&self) -> &Access {
        &self.access
    }

    /// The address by which affiliations name the connection: the bare one; one for all who are anonymous.
    pub(super) fn affiliate(&self) -> &Arc<str> {
        &self.affiliate
    }

    pub(super) fn may_write(&self, topic: &str) -> bool {
        self.access.may_write(topic)
    }
}

impl ReadGate for Gate {
    fn may_read(&self, topic: &str) -> bool {
        self.access.may_read(topic) && self.nodes.may_read(topic, &self.affiliate)
    }

    fn principal(&self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.access.principal().name))
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}
