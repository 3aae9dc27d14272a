//! Logging in: CONNECT within a deadline and a size, authentication, session, CONNACK.

use std::rc::Rc;

use fogmux_mqtt::{
    DecodeError, Limits, Negotiation, Packet, ReasonCode, SESSION_NEVER_EXPIRES, ServerLimits, Version, decode, refuse,
    refuse_unreadable,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::{
    attach::{Granted, attach},
    authenticate::Login,
    close::linger,
    config::MqttConfig,
    connection::Connection,
    context::MqttContext,
    early::Early,
    transport::user_timeout,
};
use crate::{
    Peer,
    links::{CLIENT as LINK, MARK},
    transport::Transport,
};

/// Why a login failed.
pub(super) enum Failed {
    /// The peer gets no answer, or is gone.
    Silently,
    /// The client has not said in time what a login needs.
    Late,
    /// The first packet is no valid CONNECT.
    Unreadable(DecodeError),
    /// The CONNACK that refuses, with its version.
    Refused(Version, Refusal),
}

/// The reason code and text of a refused CONNECT.
pub(super) type Refusal = (ReasonCode, &'static str);

/// Logs a client in, or answers why not.
pub(super) async fn login<S>(ctx: Rc<MqttContext>, mut stream: S, peer: Peer) -> Option<Box<Connection<S>>>
where
    S: Transport,
{
    let mut early = Early::new(Rc::clone(&ctx), &peer);
    let waiter = early.waiter();
    let attempt = async {
        let used = early.read_connect(&mut stream).await?;
        ctx.shared.metrics.mqtt_only.connects.increment();
        ctx.shared.metrics.mqtt_only.control_in.increment();
        let mut rest = early.split_off(used);
        let granted = grant(&ctx, &mut stream, &peer, early.bytes(), &mut rest).await?;
        Ok((granted, rest.bytes().to_vec()))
    };
    let result = tokio::select! {
        biased;
        () = ctx.drain() => Err(Failed::Silently),
        () = waiter.gave_way() => {
            ctx.shared.metrics.mqtt_only.logins_gave_way.increment();
            Err(Failed::Silently)
        }
        result = attempt => result,
    };
    match result {
        Ok((mut granted, rest)) => {
            stream.set_user_timeout(user_timeout(&ctx.door.config, granted.negotiation.keep_alive));
            ctx.shared.metrics.mqtt_only.control_out.increment();
            drop(early);
            let (follows, waits) = (granted.follows, granted.waits.take());
            let mut connection = Box::new(Connection::new(ctx, stream, granted, rest));
            connection.resume_announcing();
            if let Some(previous) = follows
                && let Err(end) = connection.follow(previous).await
            {
                connection.close(end).await;
                return None;
            }
            if let Some(waits) = waits
                && let Err(end) = connection.wait_to_greet(waits).await
            {
                connection.close(end).await;
                return None;
            }
            Some(connection)
        }
        Err(failed) => {
            say_no(&ctx, &mut stream, early.bytes(), &failed).await;
            None
        }
    }
}

/// Decides about the CONNECT in `bytes`; input before CONNACK is read into `rest`.
async fn grant<S>(
    ctx: &Rc<MqttContext>,
    stream: &mut S,
    peer: &Peer,
    bytes: &[u8],
    rest: &mut Early,
) -> Result<Granted, Failed>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let connect = match decode(bytes, Version::V5, &Limits::PROTOCOL) {
        Ok(Some((Packet::Connect(connect), _))) => connect,
        _ => return Err(Failed::Silently),
    };
    let refused = |refusal| Failed::Refused(connect.version, refusal);
    let config = &ctx.door.config;
    if connect.client_id.len() > config.client_id_bytes_max {
        return Err(refused((ReasonCode::CLIENT_IDENTIFIER_NOT_VALID, "the client identifier is too long")));
    }
    if connect.client_id.starts_with(LINK) && peer.link.is_none() {
        return Err(refused((ReasonCode::CLIENT_IDENTIFIER_NOT_VALID, "the client identifier is one of our own")));
    }
    if let Some(mark) = ctx.shared.links.mark()
        && connect.properties.user().any(|property| property == (MARK, mark))
    {
        // Its messages would come back for ever: No Local does not hold between its two sessions.
        return Err(refused((
            ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR,
            "the link leads to the gateway that it is of",
        )));
    }
    let mut limits = server_limits(config);
    if peer.link.is_some() {
        // Messages for another broker wait as long as that is away.
        (limits.session_expiry_max, limits.keep_alive_max) = (SESSION_NEVER_EXPIRES, 0);
        // The other broker was told how many it may have under way. Mosquitto 2.0 sends more when it reconnects.
        limits.receive_maximum = u16::MAX;
    }
    let negotiation = Negotiation::of(&connect, &limits);
    let negotiation = negotiation.map_err(|reason| refused((reason, "what is asked is not offered")))?;
    // Read before the credentials are judged, so that rules replaced meanwhile are checked again.
    let generation = ctx.authority().generation();
    let admitted = Login { ctx, peer, connect: &connect, stream, rest }.authenticate().await?;
    attach(ctx, peer, &connect, &negotiation, admitted, generation).map_err(refused)
}

const fn server_limits(config: &MqttConfig) -> ServerLimits {
    ServerLimits {
        session_expiry_max: config.session_expiry_max,
        receive_maximum: config.receive_maximum,
        packet_bytes_max: config.packet_bytes_max,
        topic_alias_maximum: config.topic_alias_maximum,
        keep_alive_max: config.keep_alive_max,
        window_max: config.max_inflight,
        outgoing_alias_maximum: config.outgoing_alias_maximum,
    }
}

async fn say_no<S>(ctx: &MqttContext, stream: &mut S, bytes: &[u8], failed: &Failed)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let metrics = &ctx.shared.metrics.mqtt;
    let mut answer = Vec::new();
    match failed {
        Failed::Silently => {}
        Failed::Late => metrics.timed_out.increment(),
        Failed::Unreadable(error) => {
            metrics.misbehaved.increment();
            tracing::debug!(%error, "no CONNECT");
            refuse_unreadable(bytes, error, &mut answer);
        }
        Failed::Refused(version, (reason, text)) => {
            if is_about_identity(*reason) {
                metrics.unauthenticated.increment();
            }
            tracing::debug!(%reason, "CONNECT refused");
            refuse(*version, *reason, Some(text), packet_bytes_max(bytes), &mut answer);
        }
    }
    if !answer.is_empty() && stream.write_all(&answer).await.is_err() {
        return;
    }
    linger(ctx, stream).await;
}

/// The Maximum Packet Size of a CONNECT.
fn packet_bytes_max(bytes: &[u8]) -> u32 {
    match decode(bytes, Version::V5, &Limits::PROTOCOL) {
        Ok(Some((Packet::Connect(connect), _))) => connect.packet_bytes_max(),
        _ => u32::MAX,
    }
}

const fn is_about_identity(reason: ReasonCode) -> bool {
    matches!(
        reason,
        ReasonCode::BAD_USER_NAME_OR_PASSWORD | ReasonCode::NOT_AUTHORIZED | ReasonCode::BAD_AUTHENTICATION_METHOD
    )
}
