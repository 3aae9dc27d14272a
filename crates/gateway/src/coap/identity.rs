//! Who asks: on plain CoAP nobody in particular, where that is allowed.

use std::sync::Arc;

use fogmux_auth::{Access, Action};
use fogmux_bus::{Publisher, ReadGate, SlotId};
use fogmux_coap::Code;

use crate::WorkerContext;

/// Permissions, as the bus asks for them.
pub(super) struct Gate(Access);

impl ReadGate for Gate {
    fn may_read(&self, topic: &str) -> bool {
        self.0.may_read(topic)
    }
}

/// Somebody who may ask, with what the bus wants to know of a publisher.
pub(super) struct Identity {
    pub(super) gate: Arc<Gate>,
    pub(super) publisher: Arc<Publisher>,
}

/// Who is let in by this socket, looked up again when the rules change.
pub(super) struct Admission {
    anonymous: bool,
    is_loopback: bool,
    slot: SlotId,
    known: Option<(u64, Option<Arc<Identity>>)>,
}

impl Admission {
    pub(super) const fn new(anonymous: bool, is_loopback: bool, slot: SlotId) -> Self {
        Self { anonymous, is_loopback, slot, known: None }
    }

    /// Nobody in particular, or nobody at all: 4.01.
    pub(super) fn identity(&mut self, ctx: &WorkerContext) -> Option<Arc<Identity>> {
        let generation = ctx.authority().generation();
        match &self.known {
            Some((known, identity)) if *known == generation => identity.clone(),
            Some(_) | None => {
                let identity = self.look_up(ctx);
                self.known = Some((generation, identity.clone()));
                identity
            }
        }
    }

    fn look_up(&self, ctx: &WorkerContext) -> Option<Arc<Identity>> {
        let principal = ctx.authority().anonymous(self.is_loopback).filter(|_| self.anonymous)?;
        let publisher = Publisher {
            principal: Arc::clone(&principal.name),
            client: Arc::from(""),
            door: fogmux_bus::Door::Coap,
            slot: Some(self.slot),
        };
        let access = ctx.authority().access(&principal, "", fogmux_auth::Door::Coap);
        Some(Arc::new(Identity { gate: Arc::new(Gate(access)), publisher: Arc::new(publisher) }))
    }
}

impl Identity {
    /// Nothing when the action is allowed; 4.03 when it is not.
    pub(super) fn refusal(&self, ctx: &WorkerContext, action: Action, topic: &str) -> Option<Code> {
        let allowed = match action {
            Action::Read => self.gate.0.may_read(topic),
            Action::Write => self.gate.0.may_write(topic),
        };
        if allowed {
            return None;
        }
        ctx.shared.metrics.coap.unauthorized.increment();
        Some(Code::FORBIDDEN)
    }

    /// Whether nothing that the filter matches may be read.
    pub(super) fn may_read_nothing(&self, ctx: &WorkerContext, filter: &str) -> bool {
        let nothing = matches!(self.gate.0.may_subscribe(filter), fogmux_auth::Reach::Nothing(_));
        if nothing {
            ctx.shared.metrics.coap.unauthorized.increment();
        }
        nothing
    }
}
