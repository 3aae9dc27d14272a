//! Attaching a client to its session, and CONNACK.

use std::{rc::Rc, sync::Arc};

use fogmux_auth::Verified;
use fogmux_bus::{Asked, AttachError, Attached, Door, Publisher};
use fogmux_mqtt::{Authentication, Connect, Negotiation, OutboundConfig, PropertyBuffer, ReasonCode};

use super::{
    access::Gate,
    authenticate::Admitted,
    connection::Granted,
    context::MqttContext,
    login::Refusal,
    mailbox::MqttMailbox,
    reauthenticate::Extended,
    session::session_key,
    takeover::{Previous, succeed},
    will::Will,
};
use crate::{Peer, credential::Expiry, shares::Table, unfinished};

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
    let access = ctx.authority().access(&principal, &client, Door::Mqtt).of_peer(peer.address);
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
    let make = || ctx.bus().slot(MqttMailbox::new(config, Arc::clone(&gate), door.bounds(ctx), account()), ctx.id);
    let asked = Asked { fresh: negotiation.clean_start, transient: negotiation.session_expiry == 0 };
    let attached = door.sessions.attach(&key, &principal.name, asked, ctx.id, make);
    let Attached { slot, claim, present, ended, gave_way, behind } = attached.map_err(|error| match error {
        AttachError::NotYours => (ReasonCode::NOT_AUTHORIZED, "the session belongs to someone else"),
        AttachError::Full => {
            ctx.shared.metrics.shares.refused(Table::Sessions, &principal.name, ctx.now());
            (ReasonCode::QUOTA_EXCEEDED, "too many sessions")
        }
    })?;
    if let Some(gone) = gave_way {
        door.give_way(ctx, &gone);
    }
    let follows = succeed(ctx, &key, &slot, claim, Previous { ended, behind });
    let gate = if present {
        // If the connection is displaced already, its first turn notices.
        let resumed = slot.with_claim(claim, |mailbox| {
            mailbox.resume(config, ctx.now());
            Arc::clone(&mailbox.gate)
        });
        resumed.map_or_else(|_| Arc::clone(&gate), |held| renewed(ctx, held, &gate))
    } else {
        gate
    };
    if let Some(will) = &mut will {
        will.gate = Arc::clone(&gate);
    }
    let greeting = greet(present).map_err(no_room)?;
    let publisher = publisher(Some(slot.id()));
    let expires = expires_unix_s.map(|unix_s| Expiry::new(ctx, unix_s));
    let extended = last.map(|last| Extended::new(last.method, peer));
    let negotiation = *negotiation;
    let peer = peer.address;
    Ok(Granted {
        negotiation,
        slot,
        claim,
        gate,
        publisher,
        peer,
        will,
        greeting,
        expires,
        generation,
        extended,
        follows,
    })
}

fn outbound(negotiation: &Negotiation) -> OutboundConfig {
    OutboundConfig {
        version: negotiation.version,
        window: negotiation.window,
        packet_bytes_max: usize::try_from(negotiation.packet_bytes_max).unwrap_or(usize::MAX),
        topic_alias_maximum: negotiation.topic_alias_maximum,
    }
}

/// The gate of a continued session, with the permissions of the present credential.
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
