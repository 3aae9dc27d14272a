//! The reader's right to a stream, which may end while the stream is open. The audit log says whose ended, and why.

use fogmux_auth::{Action, Reach};
use fogmux_bus::Subscription;

use super::{super::state, Follow};
use crate::audit;

impl Follow {
    /// Whether the reader's credential is still valid and it may still read something. Single messages are checked by
    /// its gate.
    pub(in crate::http) fn may_go_on(&mut self) -> bool {
        if !self.is_over
            && let Some(reason) = self.why_over()
        {
            self.lose_right(reason);
        }
        !self.is_over
    }

    /// Notes that the stream ends.
    pub(super) fn lose_right(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.is_over, true) {
            audit::stream_ended(&self.conn.ctx, self.identity.gate.access(), reason);
        }
    }

    fn why_over(&mut self) -> Option<&'static str> {
        let ctx = &self.conn.ctx;
        let over = self.identity.why_over(ctx, &self.conn.peer);
        let generation = ctx.authority().generation();
        if over.is_some() || generation == self.generation {
            return over;
        }
        self.generation = generation;
        if self.names_origin && state::check_admin(&self.conn, &self.identity, Action::Read).is_err() {
            return Some("the rules do not let it administer any more, so that it is not told of publishers");
        }
        let gate = &self.identity.gate;
        let refused = |subscription: &Subscription| match gate.access().may_subscribe(&subscription.filter) {
            Reach::Nothing(decision) => Some(decision),
            Reach::Some | Reach::Everything => None,
        };
        let subscriptions = &self.stream.subscriptions;
        // Some, if each is refused.
        let refused: Vec<_> = subscriptions.iter().map(refused).collect::<Option<_>>()?;
        for (subscription, decision) in subscriptions.iter().zip(&refused) {
            // The stream ends; a client that comes back is told.
            let _ = gate.forbidden(ctx, Action::Read, &subscription.filter, decision);
        }
        Some("the rules do not let it read any of its filters")
    }
}
