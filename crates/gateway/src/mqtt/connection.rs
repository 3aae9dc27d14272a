//! The task of a connection: read a turn, drain the mailbox, write once, sleep. Polled by hand, so that an idle
//! connection is no larger than the state it must keep.

mod reading;

use std::{
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use fogmux_bus::{Publisher, SessionKey, Timestamp};
use fogmux_mqtt::{Inbound, InboundConfig, Limits, ReasonCode, Role, Version};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    access::{Gate, WriteCache},
    attach::Granted,
    boundary::Boundary,
    claimed::Claimed,
    context::MqttContext,
    output::Output,
    owed::Pending,
    reauthenticate::Extended,
    receive::Input,
    recent::Recent,
    retained::Pulls,
    session::session_key,
    set_aside::SetAside,
    unreadable,
    wheel::Entry,
    will::Will,
    withheld::Withheld,
};
use crate::{
    clients::Listed,
    credential::{self, Expiry, Handshake},
    egress::Egress,
    fan_out::FanOut,
    liveness::check_sleep,
    pause::Pause,
    shutdown::Written,
    stops::Running,
    turn::{self, Deliveries},
    unfinished::Place,
};

/// Turns a connection takes before others get theirs.
pub(super) const TURNS: usize = 4;
/// Bytes a connection reads before others get their turn.
const TURN_BYTES: u32 = 32 << 10;
/// Retained messages that are looked at for a connection, whether they match or not, before others get their turn.
pub(super) const LOOKS_PER_TURN: u16 = 1024;
/// Unwritten bytes above which nothing more is drained or read, because the peer is not reading.
pub(super) const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Acknowledgements that wait for the store above which nothing more is read.
const PENDING_MAX: usize = 64;

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The stream is closed or broken.
    Closed,
    /// The client sent DISCONNECT; `will`: its will is published nevertheless (§3.14.2.1).
    Disconnected {
        /// Reason 0x04, or any other but 0x00.
        will: bool,
    },
    /// The client broke the protocol.
    Misbehaved(ReasonCode),
    /// The client exceeded its keep alive ([MQTT-3.1.2-22]).
    Silent,
    /// The client read nothing of its output for too long.
    Stalled,
    /// The client's host acknowledged no TCP segment for too long.
    Unreachable,
    /// The client's queue of QoS 1 and 2 messages is full.
    Overrun,
    /// Another connection took the session over.
    Displaced,
    /// The session has ended for one of another principal.
    GaveWay,
    /// A message was refused, and the client cannot be told otherwise.
    Refused,
    /// A rule refused a message, and the client cannot be told otherwise.
    Forbidden,
    /// An administrator has ended it.
    Kicked,
    /// An administrator has ended its session.
    Removed,
    /// The credential has expired.
    Expired,
    /// The client failed to re-authenticate.
    Unauthorized,
    /// The client's credential is not accepted any more.
    Withdrawn,
    /// The gateway shuts down.
    Draining,
}

/// One client's connection.
pub(super) struct Connection<S> {
    pub(super) ctx: Rc<MqttContext>,
    pub(super) stream: S,
    pub(super) mailbox: Claimed,
    pub(super) client: Client,
    pub(super) facts: Facts,
    pub(super) inbound: Inbound,
    pub(super) reading: Reading,
    pub(super) output: Output,
    pub(super) egress: Egress,
    pub(super) rare: Option<Box<Rare>>,
    pub(super) writable: Option<Box<WriteCache>>,
    pub(super) will: Option<Box<Will>>,
    pub(super) now: Timestamp,
    pub(super) work: Work,
    pub(super) wakes: Wakes,
    /// The shutdown of the connection, once it has begun.
    pub(super) draining: Option<Written>,
}

/// The client of a connection, and its permissions; [`Wakes::listed`] has its address.
pub(super) struct Client {
    pub(super) publisher: Arc<Publisher>,
    pub(super) gate: Arc<Gate>,
    /// The generation of the rules under which it was last checked.
    pub(super) generation: u64,
}

/// The terms that CONNECT and CONNACK have agreed on, and how the client stands.
pub(super) struct Facts {
    pub(super) version: Version,
    /// Whether the client is a bridge of 3.1 or 3.1.1, whose subscriptions have options that those versions cannot
    /// express.
    pub(super) bridge: bool,
    /// Reason strings may be sent in every packet ([MQTT-3.1.2-29]).
    pub(super) problem_information: bool,
    /// Whether the session has records in the store.
    pub(super) durable: bool,
    /// The client owes acknowledgements, so it is read even when memory is tight.
    pub(super) awaiting: bool,
    /// Whether the last turn had a PUBLISH in it.
    pub(super) publishes: bool,
    /// Seconds, 0 for none.
    pub(super) keep_alive: u16,
    /// The client's Maximum Packet Size.
    pub(super) packet_bytes_max: u32,
    /// Seconds that the session outlives the connection; DISCONNECT may change it (§3.14.2.2.2).
    pub(super) session_expiry: u32,
}

/// The bytes that were read and not handled yet, and when the client was read.
pub(super) struct Reading {
    pub(super) input: Input,
    pub(super) boundary: Boundary,
    /// Bytes read in the last second.
    pub(super) recent: Recent,
    pub(super) last_read: Running,
    /// Since when the client is not read, for our own reasons: such time is none of its silence.
    pub(super) unread_since: Running,
    /// Its place among the unfinished packets of all clients, once it has had more than a little of them.
    pub(super) unfinished: Option<Box<Place>>,
}

/// The work done for a connection since its task was woken.
#[derive(Default)]
pub(super) struct Work {
    /// Bytes read.
    pub(super) read_bytes: u32,
    /// Retained messages looked at.
    pub(super) looks: u16,
    /// Deliveries of its messages.
    pub(super) deliveries: Deliveries,
}

/// The lists of the door by which the task of a connection is woken.
pub(super) struct Wakes {
    pub(super) entry: Option<Entry>,
    /// When the door wakes the task at the latest.
    pub(super) alarm: Timestamp,
    /// Its place in the list of connections.
    pub(super) listed: Listed,
}

/// State that most connections do not have most of the time.
#[derive(Default)]
pub(super) struct Rare {
    /// Acknowledgements that wait for the store.
    pub(super) pending: VecDeque<Pending>,
    /// Answers that wait for the store of sessions.
    pub(super) withheld: VecDeque<Withheld>,
    /// Subscriptions whose retained messages have not all been sent.
    pub(super) pulls: Pulls,
    /// The text for DISCONNECT besides the reason code.
    pub(super) why: Option<Box<str>>,
    /// When the credential expires.
    pub(super) expires: Option<Expiry>,
    /// The credential of the handshake.
    handshake: Option<Handshake>,
    /// The state for re-authentication.
    pub(super) extended: Option<Box<Extended>>,
    /// A pause of this publisher, for a subscriber to catch up.
    pause: Option<Box<Pause>>,
    /// Bytes to read at most in the next turn of this publisher, so that its pauses are short.
    pub(super) turn_bytes: Option<usize>,
    /// The last publication, while its subscribers are being woken.
    pub(super) fan_out: Option<FanOut>,
    /// The rest of a batch with very many deliveries.
    pub(super) set_aside: Option<Box<SetAside>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(ctx: Rc<MqttContext>, stream: S, granted: Granted, rest: Vec<u8>) -> Self {
        let config = &ctx.door.config;
        let negotiation = granted.negotiation;
        let inbound = InboundConfig {
            role: Role::Server,
            receive_maximum: negotiation.receive_maximum(),
            topic_alias_maximum: config.topic_alias_maximum,
            alias_bytes_max: config.alias_bytes_max,
        };
        let now = ctx.now();
        ctx.shared.shutdown.opened();
        let mut output = Output::default();
        output.buffer(&ctx).extend_from_slice(&granted.greeting);
        let (expires, handshake, extended) = (granted.expires, granted.handshake, granted.extended.map(Box::new));
        let few = expires.is_some() || handshake.is_some() || extended.is_some();
        let mut boundary = Boundary::default();
        boundary.read(rest.len());
        Self {
            stream,
            mailbox: granted.mailbox,
            client: Client { publisher: granted.publisher, gate: granted.gate, generation: granted.generation },
            facts: Facts {
                version: negotiation.version,
                bridge: negotiation.bridge,
                problem_information: negotiation.problem_information,
                durable: granted.durable,
                awaiting: false,
                publishes: false,
                keep_alive: negotiation.keep_alive,
                packet_bytes_max: negotiation.packet_bytes_max,
                session_expiry: negotiation.session_expiry,
            },
            inbound: Inbound::new(negotiation.version, inbound),
            reading: Reading {
                input: Input::new(rest),
                boundary,
                recent: Recent::default(),
                last_read: ctx.running_at(now),
                unread_since: Running::NEVER,
                unfinished: None,
            },
            output,
            egress: Egress::new(),
            rare: few.then(|| Box::new(Rare { expires, handshake, extended, ..Rare::default() })),
            writable: None,
            will: granted.will.map(Box::new),
            now,
            work: Work::default(),
            wakes: Wakes { entry: None, alarm: Timestamp::NEVER, listed: granted.listed },
            draining: None,
            ctx,
        }
    }

    pub(super) fn limits(&self) -> Limits {
        let max = self.ctx.door.config.packet_bytes_max;
        Limits { packet_bytes_max: usize::try_from(max).unwrap_or(usize::MAX) }
    }

    /// The rare state, created if missing.
    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Acknowledgements and other answers that wait for the store.
    pub(super) fn pending(&self) -> usize {
        self.rare.as_ref().map_or(0, |rare| rare.pending.len() + rare.withheld.len())
    }

    /// Subscriptions whose retained messages have not all been sent.
    pub(super) fn pulls(&self) -> usize {
        self.rare.as_ref().map_or(0, |rare| rare.pulls.len())
    }

    /// The session's key.
    pub(super) fn key(&self) -> SessionKey {
        let Publisher { principal, client, .. } = &*self.client.publisher;
        session_key(self.ctx.door.config.client_identifiers, principal, client)
    }

    /// Runs the connection; ready when it has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.now = self.ctx.now();
        self.work = Work::default();
        if self.wakes.entry.is_none() {
            self.wakes.entry = self.ctx.door.register(cx.waker());
            self.wakes.listed.register(cx.waker());
        }
        if self.wakes.listed.is_kicked() {
            return Poll::Ready(End::Kicked);
        }
        if self.client.generation != self.ctx.authority().generation()
            && let Err(end) = self.follow_rules()
        {
            return Poll::Ready(end);
        }
        let more = self.turns(cx).and_then(|more| Ok(self.poll_unfinished(cx)? || more));
        match more {
            Ok(true) => {
                turn::again(cx);
                Poll::Pending
            }
            Ok(false) => {
                check_sleep(&self.ctx, "mqtt", || self.missed_wake());
                if self.is_drained() { Poll::Ready(End::Draining) } else { self.poll_deadline(cx) }
            }
            Err(end) => Poll::Ready(end),
        }
    }

    /// Checks whether the client is still admitted, after the rules have changed or the clock was set.
    #[cold]
    fn follow_rules(&mut self) -> Result<(), End> {
        self.client.generation = self.ctx.authority().generation();
        if let Some(rare) = &mut self.rare {
            rare.expires = rare.expires.map(|expires| expires.look_again(&self.ctx));
        }
        let access = self.client.gate.access();
        let handshake = self.rare.as_ref().and_then(|rare| rare.handshake.as_ref());
        if !credential::holds(&self.ctx, handshake, access.principal()) {
            return Err(End::Withdrawn);
        }
        let (released, committed) = unreadable::drop_from(&self.ctx, &self.mailbox, &self.client.gate);
        self.withhold_pubrels(&released, committed);
        Ok(())
    }

    /// Takes turns while there is work. Returns whether there still is.
    fn turns(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if self.ctx.is_draining() {
            self.begin_drain()?;
        }
        for turn in 0..TURNS {
            let held_back = self.is_held_back();
            let reads = self.may_read(cx);
            self.note_reading(reads);
            let mut progress =
                if reads { self.poll_receive(cx)?.is_ready() } else { self.pauses_long() && self.poll_control(cx)? };
            if self.pending() > 0 {
                progress |= self.poll_pending(cx)?;
                progress |= self.poll_withheld(cx)?;
            }
            if progress || turn == 0 || self.egress.is_runnable() {
                self.poll_send(cx)?;
            }
            // The stream was not polled for input in this turn, so it would not wake the task for it.
            progress |= held_back && !self.is_held_back();
            if !progress && !self.egress.is_runnable() {
                return Ok(false);
            }
            if self.work.read_bytes >= TURN_BYTES
                || self.work.looks >= LOOKS_PER_TURN
                || self.work.deliveries.are_enough()
            {
                break;
            }
        }
        Ok(true)
    }
}
