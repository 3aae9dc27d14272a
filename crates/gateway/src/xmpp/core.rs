//! A bound connection without its socket: its state, and the stanzas of a turn.

use std::{net::SocketAddr, rc::Rc, sync::Arc};

use fogmux_bus::{DELIVERIES_PER_TURN, Publisher};
use fogmux_fair::Owner;
use fogmux_xmpp::{Jid, ServerEvent, ServerStream};

use super::{
    XmppDoor,
    access::Gate,
    accounts::Inbox,
    context::XmppContext,
    control::Control,
    fill::{OUT_BYTES_HIGH, Replay, Why},
    held::Held,
    held_back::HeldBack,
    presence::{PRESENCE_PER_READ, Said},
};
use crate::{delivery_times::Marks, recheck::Recheck, turn::Deliveries, unfinished};

/// Stanzas taken in one go; their publications are one batch.
const STANZAS_PER_BATCH: usize = 64;
/// Requests that read something which are answered before others of the worker have their turn.
const READS_PER_TURN: u32 = 16;

/// The client.
#[derive(Debug)]
pub(super) struct Me {
    pub(super) jid: Jid,
    pub(super) gate: Arc<Gate>,
    pub(super) publisher: Arc<Publisher>,
    pub(super) inbox: Inbox,
    pub(super) control: Arc<Control>,
}

/// A bound connection without its socket.
pub(super) struct Core {
    pub(super) ctx: Rc<XmppContext>,
    pub(super) machine: ServerStream,
    pub(super) me: Me,
    /// The output.
    pub(super) out: Vec<u8>,
    /// The deliveries in `out` that are timed.
    pub(super) marks: Marks,
    /// The answers in `out` that wait for the store. `out` is not written before all have what they wait for.
    pub(super) held: Held,
    /// The reasons for which this publisher is not read.
    pub(super) held_back: Option<Box<HeldBack>>,
    /// Retained messages that are still to be sent.
    pub(super) replays: Vec<Replay>,
    /// Whether deliveries may be left in the mailbox for which nothing will wake the task.
    pub(super) backlog: bool,
    /// The rules under which deliveries came into the mailbox.
    pub(super) recheck: Recheck,
    /// The reason to send the retained messages of all subscriptions again, after those being sent.
    pub(super) due: Option<Why>,
    /// Presence that the client has sent and that has not taken effect yet.
    pub(super) said: Option<Said>,
    /// How often presence may still take effect in this read.
    pub(super) presence_left: u16,
    /// There was no room for the answers to all that was read, or it was too much for one turn.
    pub(super) stopped: bool,
    /// Deliveries of publications in this turn.
    pub(super) deliveries: Deliveries,
}

impl Drop for Core {
    fn drop(&mut self) {
        let shared = self.door().accounts.leave(self.ctx.bus(), &self.me.jid, &self.me.inbox);
        if !shared.is_empty() {
            let left = self.me.inbox.with(fogmux_bus::FifoMailbox::take_shared);
            let left = left.into_iter().map(|one| (one.tag, one.message)).collect();
            crate::left::hand_on_tagged(&self.ctx, left, |tag| shared.get(&tag).cloned());
        }
        self.ctx.bus().close(&self.me.inbox);
    }
}

impl Core {
    /// The owner of what it makes the gateway keep.
    pub(super) fn owner(&self) -> Owner {
        let access = self.me.gate.access();
        let peer = access.peer().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
        unfinished::owner(access.principal(), peer)
    }

    /// The principal of the client: its requests count for nobody else.
    pub(super) fn principal(&self) -> &Arc<str> {
        &self.me.gate.access().principal().name
    }

    pub(super) fn new(ctx: Rc<XmppContext>, machine: ServerStream, me: Me, out: Vec<u8>) -> Self {
        // The mailbox may have taken deliveries since it was attached.
        let (held, replays, backlog) = (Held::default(), Vec::new(), true);
        let recheck = Recheck::new(rules(&ctx));
        Self {
            ctx,
            machine,
            me,
            out,
            marks: Marks::default(),
            held,
            held_back: None,
            replays,
            backlog,
            recheck,
            due: None,
            said: None,
            presence_left: 0,
            stopped: false,
            deliveries: Deliveries::default(),
        }
    }

    /// Notes the rules, those of owners among them, under which deliveries come from now on.
    pub(super) fn note_rules(&mut self) {
        self.recheck.note(rules(&self.ctx));
    }

    pub(super) fn door(&self) -> &XmppDoor {
        &self.ctx.door
    }

    /// Takes bytes; how many are done with. Stops before the end when the output is full, as a request of a hundred
    /// bytes may have an answer of a megabyte, or when others have to have their turn.
    pub(super) fn take(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        let mut ended = false;
        let mut reads = 0;
        self.stopped = false;
        self.deliveries = Deliveries::default();
        self.presence_left = PRESENCE_PER_READ;
        // Output of the machine itself goes behind the answers to earlier stanzas.
        let mut tail = Vec::new();
        let mut spare = self.ctx.stanzas.take();
        let mut stanzas = Vec::new();
        while !ended {
            let managed = self.machine.management().is_enabled();
            let mut work = 0;
            while stanzas.len() < STANZAS_PER_BATCH && work < DELIVERIES_PER_TURN {
                let rest = bytes.get(used..).unwrap_or_default();
                let (taken, event) = self.machine.handle_with(rest, &mut tail, &mut spare);
                used += taken;
                match event {
                    Some(ServerEvent::Stanza(stanza)) => {
                        let reads_something = stanza.name == "iq" && stanza.attr("type") == Some("get");
                        work += self.work(&stanza);
                        stanzas.push(stanza);
                        if reads_something {
                            // Its answer may be the last that there is room for.
                            reads += 1;
                            break;
                        }
                    }
                    Some(ServerEvent::Failed(error)) => {
                        tracing::debug!(%error, "stream failed");
                        self.ctx.shared.metrics.xmpp.misbehaved.increment();
                        ended = true;
                        break;
                    }
                    // Other events belong to the login.
                    Some(
                        ServerEvent::Ended
                        | ServerEvent::StartTls
                        | ServerEvent::Authenticate { .. }
                        | ServerEvent::Response(_)
                        | ServerEvent::Aborted
                        | ServerEvent::Bind(_),
                    )
                    | None => {
                        ended = true;
                        break;
                    }
                }
            }
            self.handle_all(&stanzas);
            stanzas.drain(..).for_each(|stanza| spare.recycle(stanza));
            match self.divided_mut() {
                Some(divided) => divided.tail.append(&mut tail),
                None => self.out.append(&mut tail),
            }
            let has_worked = reads >= READS_PER_TURN || self.deliveries.are_enough() || self.divided().is_some();
            if !ended && (self.out.len() >= OUT_BYTES_HIGH || has_worked) {
                self.stopped = used < bytes.len();
                ended = true;
            }
            if self.machine.management().is_enabled() && !managed {
                self.door().accounts.acknowledges(self.ctx.bus(), &self.me.jid);
            }
        }
        self.ctx.stanzas.replace(spare);
        self.apply_presence();
        used
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

/// The generation of the rules and of the nodes' configurations.
fn rules(ctx: &XmppContext) -> u64 {
    ctx.authority().generation().wrapping_add(ctx.door.nodes.changes())
}
