//! The access of a principal, as a mailbox and a request ask for it.

use std::sync::Arc;

use fogmux_auth::{Access, Action, Decision};
use fogmux_bus::ReadGate;
use fogmux_http::{Kind, Problem};

use super::super::context::HttpContext;
use crate::audit;

/// Permissions in the form that the bus asks for.
pub(in crate::http) struct Gate(pub(super) Access);

impl Gate {
    pub(in crate::http) fn access(&self) -> &Access {
        &self.0
    }

    /// Whether the action is allowed; 403 with the rule that refuses it.
    pub(in crate::http) fn check(
        &self,
        ctx: &HttpContext,
        action: Action,
        topic: &str,
    ) -> Result<(), Problem<'static>> {
        let allowed = match action {
            Action::Read => self.0.may_read(topic),
            Action::Write => self.0.may_write(topic),
        };
        if allowed { Ok(()) } else { Err(self.forbidden(ctx, action, topic, &self.0.decide(action, topic))) }
    }

    /// 403 with the reason.
    #[cold]
    pub(in crate::http) fn forbidden(
        &self,
        ctx: &HttpContext,
        action: Action,
        topic: &str,
        decision: &Decision,
    ) -> Problem<'static> {
        ctx.shared.metrics.http.unauthorized.increment();
        audit::refused_action(ctx, &self.0, None, action, topic, decision);
        Problem::new(Kind::Forbidden).detail(decision.to_string())
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("principal", self.0.principal()).finish_non_exhaustive()
    }
}

impl ReadGate for Gate {
    fn may_read(&self, topic: &str) -> bool {
        self.0.may_read(topic)
    }

    fn principal(&self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.0.principal().name))
    }
}
