//! Attaching a client to its session, and CONNACK.

use std::{rc::Rc, sync::Arc};

use fogmux_auth::{Principal, Verified};
use fogmux_bus::{Account, Asked, AttachError, Attached, Completion, Door, Publisher, SessionKey};
use fogmux_mqtt::{Authentication, Connect, Negotiation, OutboundConfig, PropertyBuffer, ReasonCode};

use super::{
    access::Gate,
    authenticate::Admitted,
    claimed::Claimed,
    context::MqttContext,
    durable::Durable,
    greeting::Waits,
    login::Refusal,
    mailbox::MqttMailbox,
    reauthenticate::Extended,
    session::session_key,
    takeover::{Follows, Previous, succeed},
    unreadable,
    will::Will,
};
use crate::{
    Peer,
    clients::Listed,
    credential::{Expiry, Handshake},
    shares::Table,
    unfinished,
};

/// The result of a login.
pub(super) struct Granted {
    pub(super) negotiation: Negotiation,
    pub(super) mailbox: Claimed,
    pub(super) gate: Arc<Gate>,
    pub(super) publisher: Arc<Publisher>,
    pub(super) will: Option<Will>,
    pub(super) greeting: Vec<u8>,
    /// When the credential expires.
    pub(super) expires: Option<Expiry>,
    /// The credential of the handshake, if it has shown one.
    pub(super) handshake: Option<Handshake>,
    /// The generation of the rules under which the client was admitted.
    pub(super) generation: u64,
    /// The state for re-authentication, if the client may ask for one.
    pub(super) extended: Option<Extended>,
    /// The previous connections, if they may still publish.
    pub(super) follows: Option<Follows>,
    /// Whether the session has records in the store.
    pub(super) durable: bool,
    /// The changes in the store that CONNACK waits for.
    pub(super) waits: Option<Box<Waits>>,
    /// Its place in the list of connections.
    pub(super) listed: Listed,
}

/// Attaches the client to its session and encodes CONNACK.
pub(super) fn attach(
    ctx: &Rc<MqttContext>,
    peer: &Peer,
    connect: &Connect<'_>,
    negotiation: &Negotiation,
    admitted: Admitted,
    generation: u64,
) -> Result<Granted, Refusal> {
    let door = &ctx.door;
    let Admitted { who: Verified { principal, expires_unix_s }, last } = admitted;
    let assigned = if negotiation.assign_client_id { Some(make_client_id()?) } else { None };
    let client: Arc<str> = Arc::from(assigned.as_deref().unwrap_or(connect.client_id));
    let key = session_key(door.config.client_identifiers, &principal.name, &client);
    let access = ctx.authority().access(&principal, Arc::clone(&client), Door::Mqtt).of_peer(peer.address);
    let gate = Arc::new(Gate::new(access));
    let config = outbound(negotiation);
    let publisher = |slot| {
        let principal = Arc::clone(&principal.name);
        Arc::new(Publisher { principal, client: Arc::clone(&client), door: Some(Door::Mqtt), slot })
    };
    // Checked before anything changes: a will that is refused must not cost the client its session.
    let will = connect.will.as_ref().map(|will| Will::new(ctx, will, &gate, &publisher(None))).transpose();
    let mut will = will.map_err(|reason| (reason, "the will is refused"))?;
    // The client must be able to accept the CONNACK, whichever session it gets ([MQTT-3.1.2-24]).
    let said = last.as_ref().map(|last| Authentication { method: &last.method, data: last.data.as_deref() });
    let greet = |present| {
        let mut greeting = Vec::new();
        let list = &mut PropertyBuffer::new();
        let accepted = negotiation.accept(present, assigned.as_deref(), said.as_ref(), list, &mut greeting);
        accepted.map(|()| greeting)
    };
    let no_room = |_| (ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR, "the Maximum Packet Size is too small for CONNACK");
    greet(false).map_err(no_room)?;
    let account = || ctx.bus().memory().account(unfinished::owner(&principal, peer.address));
    let make =
        || ctx.bus().slot(MqttMailbox::new(config, Arc::clone(&gate), door.bounds(&ctx.shared), account()), ctx.id);
    let asked = Asked { fresh: negotiation.clean_start, transient: negotiation.session_expiry == 0 };
    let attached = door.sessions.attach(&key, &principal.name, asked, ctx.id, make);
    let attached = attached.map_err(|error| not_attached(ctx, &principal.name, error))?;
    let Attached { slot, claim, present, ended, gave_way, behind } = attached;
    let mailbox = Claimed { slot, claim };
    if let Some(gone) = gave_way {
        door.give_way(ctx, &gone);
    }
    let replaced = ended.clone();
    let follows = succeed(ctx, &key, &mailbox, Previous { ended, behind });
    let gate = if present { resume(ctx, &mailbox, (config, account()), gate) } else { gate };
    if let Some(will) = &mut will {
        will.gate = Arc::clone(&gate);
    }
    let owned = Owned { key: &key, principal: &principal, seconds: negotiation.session_expiry };
    let committed = keep(ctx, &mailbox, &owned, present, will.as_mut());
    let durable = committed.is_some();
    let waits = || Box::new(Waits { committed: committed.unwrap_or_default(), replaced, present });
    let waits = door.config.store.is_some().then(waits);
    let greeting = greet(present).map_err(no_room)?;
    let publisher = publisher(Some(mailbox.slot.id()));
    let expires = expires_unix_s.map(|unix_s| Expiry::new(ctx, unix_s));
    let extended = last.map(|last| Extended::new(last.method, peer));
    let negotiation = *negotiation;
    let listed = ctx.enter(Door::Mqtt, peer, &publisher);
    let handshake = Handshake::of(peer);
    Ok(Granted {
        negotiation,
        mailbox,
        gate,
        publisher,
        will,
        greeting,
        expires,
        handshake,
        generation,
        extended,
        follows,
        durable,
        waits,
        listed,
    })
}

fn not_attached(ctx: &MqttContext, principal: &Arc<str>, error: AttachError) -> Refusal {
    match error {
        AttachError::NotYours => (ReasonCode::NOT_AUTHORIZED, "the session belongs to someone else"),
        AttachError::Full => {
            ctx.shared.metrics.shares.refused(Table::Sessions, principal, ctx.now());
            (ReasonCode::QUOTA_EXCEEDED, "too many sessions")
        }
    }
}

/// Goes on with a session that was there. Returns its gate, with the permissions of the present credential.
fn resume(
    ctx: &Rc<MqttContext>,
    claimed: &Claimed,
    (config, account): (OutboundConfig, Arc<Account>),
    shown: Arc<Gate>,
) -> Arc<Gate> {
    // If the connection is displaced already, its first turn notices.
    let resumed = claimed.slot.with_account(claimed.claim, |mailbox| {
        // Clients without a name are told apart by their addresses, which the store does not have.
        mailbox.give_to(account);
        let refused = mailbox.resume(config, ctx.now());
        ctx.bus().counters().full(u64::from(refused));
        Arc::clone(&mailbox.gate)
    });
    let Ok(held) = resumed else { return shown };
    let gate = renewed(ctx, held, &shown);
    // The connection holds all PUBRELs back for which it has to wait, these among them.
    drop(unreadable::drop_from(ctx, claimed, &gate));
    gate
}

/// The properties of a session that are stored.
struct Owned<'a> {
    key: &'a SessionKey,
    principal: &'a Principal,
    /// Seconds from the end of a connection to the end of the session.
    seconds: u32,
}

/// Notes in the store that the client of a session is connected, with its will. Returns what CONNACK waits for, or
/// `None` if the session has no records.
fn keep(
    ctx: &MqttContext,
    claimed: &Claimed,
    owned: &Owned<'_>,
    present: bool,
    will: Option<&mut Will>,
) -> Option<Completion> {
    let store = ctx.door.config.store.as_ref()?;
    let kept = claimed.with(|mailbox| {
        let (has_away, mark) = (mailbox.has_away(), mailbox.mark());
        match &mut mailbox.durable {
            // It ends with its connection now. What is in the store only has to be read first.
            Some(durable) if owned.seconds == 0 && !has_away => {
                durable.cancel_delayed_will();
                mailbox.ended = Some(Box::new(mailbox.end_durable()));
                return None;
            }
            Some(durable) => {
                durable.cancel_delayed_will();
                durable.connect(owned.principal, owned.seconds, mark);
            }
            none if owned.seconds > 0 && !present => {
                let store = Arc::clone(store);
                *none = Some(Durable::begin(store, owned.key.clone(), owned.principal, owned.seconds));
            }
            None => return None,
        }
        if let (Some(will), Some(durable)) = (will, &mut mailbox.durable) {
            let record = durable.set_will(will.delay, will.stored(ctx.unix_ms(ctx.now())));
            will.record = Some((Some(Arc::clone(&claimed.slot)), record));
        }
        Some(mailbox.append())
    });
    kept.ok().flatten()
}

fn outbound(negotiation: &Negotiation) -> OutboundConfig {
    OutboundConfig {
        version: negotiation.version,
        window: negotiation.window,
        packet_bytes_max: usize::try_from(negotiation.packet_bytes_max).unwrap_or(usize::MAX),
        topic_alias_maximum: negotiation.topic_alias_maximum,
    }
}

fn renewed(ctx: &MqttContext, held: Arc<Gate>, shown: &Gate) -> Arc<Gate> {
    if held.renew(shown.access()) {
        ctx.bus().invalidate();
    }
    held
}

/// An identifier nobody else has ([MQTT-3.1.3-6]).
fn make_client_id() -> Result<String, Refusal> {
    let mut random = [0; 12];
    getrandom::fill(&mut random).map_err(|_| (ReasonCode::SERVER_UNAVAILABLE, "no random numbers"))?;
    let mut id = String::from("fogmux-");
    for byte in random {
        id.extend([byte >> 4, byte & 15].map(|digit| char::from_digit(u32::from(digit), 16).unwrap_or('0')));
    }
    Ok(id)
}
