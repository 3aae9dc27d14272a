//! From a connection to a session: CONNECT within a deadline and a size, who it is, what is granted, CONNACK.

use std::{future::poll_fn, pin::Pin, rc::Rc, sync::Arc};

use fogmux_auth::{Door as AuthDoor, Principal, Refused};
use fogmux_bus::{AttachError, Attached, Door, Publisher, SessionKey};
use fogmux_mqtt::{
    Connect, DecodeError, Limits, Negotiation, OutboundConfig, Packet, PropertyBuffer, ReasonCode, ServerLimits,
    Version, decode, refuse, refuse_unreadable,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::{
    access::Gate,
    config::MqttConfig,
    connection::{Connection, Granted, linger},
    mailbox::MqttMailbox,
    will::Will,
};
use crate::{Peer, WorkerContext};

/// Bytes of an unfinished CONNECT that are taken even when memory is tight.
const SMALL_CONNECT_BYTES: usize = 2048;

/// Why nobody was logged in.
enum Failed {
    /// The peer is not worth an answer, or gone.
    Silently,
    /// What was sent is no CONNECT.
    Unreadable(DecodeError),
    /// The answer in the form of the version, and why.
    Refused(Version, Refusal),
}

/// A refused CONNECT: the code, and what to say beside it.
type Refusal = (ReasonCode, &'static str);

/// Logs a client in, or tells it why not.
pub(super) async fn login<S>(ctx: Rc<WorkerContext>, mut stream: S, peer: Peer) -> Option<Box<Connection<S>>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut buffer = Buffer { bytes: Vec::new(), ctx: Rc::clone(&ctx) };
    let deadline = ctx.shared.mqtt.config.login_deadline;
    let attempt = async {
        let used = read_connect(&ctx, &mut stream, &mut buffer).await?;
        grant(&ctx, peer, &buffer.bytes).await.map(|granted| (granted, used))
    };
    let result = tokio::select! {
        biased;
        () = ctx.drain() => Err(Failed::Silently),
        result = tokio::time::timeout(deadline, attempt) => result.unwrap_or_else(|_| {
            ctx.shared.metrics.mqtt.timed_out.increment();
            Err(Failed::Silently)
        }),
    };
    match result {
        Ok((granted, used)) => {
            let rest = buffer.bytes.get(used..).unwrap_or_default().to_vec();
            Some(Box::new(Connection::new(ctx, stream, granted, rest)))
        }
        Err(failed) => {
            say_no(&ctx, &mut stream, &buffer.bytes, &failed).await;
            None
        }
    }
}

/// The bytes of a login, counted among what the gateway holds.
struct Buffer {
    bytes: Vec<u8>,
    ctx: Rc<WorkerContext>,
}

impl Buffer {
    fn extend(&mut self, bytes: &[u8]) {
        let before = self.bytes.capacity();
        self.bytes.extend_from_slice(bytes);
        self.ctx.bus().memory().change(before, self.bytes.capacity());
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.ctx.bus().memory().change(self.bytes.capacity(), 0);
    }
}

/// Reads until a CONNECT is whole; gives its length. Any other first packet ends the connection ([MQTT-3.1.0-1]).
async fn read_connect<S>(ctx: &WorkerContext, stream: &mut S, buffer: &mut Buffer) -> Result<usize, Failed>
where
    S: AsyncRead + Unpin,
{
    let limits = Limits { packet_bytes_max: ctx.shared.mqtt.config.connect_bytes_max };
    loop {
        let more = poll_fn(|cx| {
            let mut shared = ctx.read_buffer.borrow_mut();
            let mut read = ReadBuf::new(&mut shared);
            Pin::new(&mut *stream).poll_read(cx, &mut read).map_ok(|()| {
                buffer.extend(read.filled());
                read.filled().len()
            })
        });
        if more.await.map_err(|_| Failed::Silently)? == 0 {
            return Err(Failed::Silently);
        }
        // Not even the beginning of a CONNECT: somebody speaks another protocol.
        if buffer.bytes.first().is_none_or(|first| *first != 0x10) {
            ctx.shared.metrics.mqtt.misbehaved.increment();
            return Err(Failed::Silently);
        }
        match decode(&buffer.bytes, Version::V5, &limits) {
            Ok(Some((_, used))) => return Ok(used),
            Ok(None) if ctx.bus().memory().pressure() && buffer.bytes.len() > SMALL_CONNECT_BYTES => {
                return Err(Failed::Silently);
            }
            Ok(None) => {}
            Err(error) => return Err(Failed::Unreadable(error)),
        }
    }
}

/// Decides about a CONNECT, which stands at the front of `bytes`.
async fn grant(ctx: &Rc<WorkerContext>, peer: Peer, bytes: &[u8]) -> Result<Granted, Failed> {
    let connect = match decode(bytes, Version::V5, &Limits::PROTOCOL) {
        Ok(Some((Packet::Connect(connect), _))) => connect,
        _ => return Err(Failed::Silently),
    };
    let refused = |refusal| Failed::Refused(connect.version, refusal);
    let config = &ctx.shared.mqtt.config;
    if connect.client_id.len() > config.client_id_bytes_max {
        return Err(refused((ReasonCode::CLIENT_IDENTIFIER_NOT_VALID, "the client identifier is too long")));
    }
    let negotiation = Negotiation::of(&connect, &server_limits(config));
    let negotiation = negotiation.map_err(|reason| refused((reason, "what is asked is not offered")))?;
    let principal = authenticate(ctx, peer, &connect).await.map_err(refused)?;
    attach(ctx, &connect, &negotiation, &principal).map_err(refused)
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

/// Who it is.
async fn authenticate(ctx: &WorkerContext, peer: Peer, connect: &Connect<'_>) -> Result<Principal, Refusal> {
    let door = &ctx.shared.mqtt;
    let (Some(user), Some(password)) = (connect.user, connect.password) else {
        if connect.user.is_some() || connect.password.is_some() {
            return Err((ReasonCode::BAD_USER_NAME_OR_PASSWORD, "a user name goes with a password"));
        }
        let anonymous = ctx.authority().anonymous(peer.anonymous);
        return anonymous.ok_or((ReasonCode::NOT_AUTHORIZED, "credentials are required here"));
    };
    if !peer.secure && !peer.is_loopback() && !door.config.password_without_tls {
        return Err((ReasonCode::NOT_AUTHORIZED, "passwords are taken over TLS only"));
    }
    let address = peer.address.ip();
    if door.backoff(ctx.now(), address, user).is_some() {
        return Err((ReasonCode::CONNECTION_RATE_EXCEEDED, "too many failed attempts, try later"));
    }
    if let Some(principal) = ctx.authority().recall(user, password) {
        return Ok(principal);
    }
    let (authority, name, secret) = (Arc::clone(ctx.authority()), user.to_owned(), password.to_vec());
    let verified = tokio::task::spawn_blocking(move || authority.password(&name, &secret)).await;
    match verified {
        Ok(Ok(principal)) => {
            door.login_was(true, ctx.now(), address, user);
            Ok(principal)
        }
        Ok(Err(Refused::Busy)) | Err(_) => Err((ReasonCode::SERVER_BUSY, "too many logins at once")),
        Ok(Err(
            Refused::Credentials
            | Refused::Mechanism
            | Refused::Malformed(_)
            | Refused::Identity
            | Refused::ChannelBinding,
        )) => {
            door.login_was(false, ctx.now(), address, user);
            Err((ReasonCode::BAD_USER_NAME_OR_PASSWORD, "not authorised"))
        }
    }
}

/// Gives the client its session, and writes CONNACK.
fn attach(
    ctx: &Rc<WorkerContext>,
    connect: &Connect<'_>,
    negotiation: &Negotiation,
    principal: &Principal,
) -> Result<Granted, Refusal> {
    let door = &ctx.shared.mqtt;
    let assigned = if negotiation.assign_client_id { Some(make_client_id()?) } else { None };
    let client: Arc<str> = Arc::from(assigned.as_deref().unwrap_or(connect.client_id));
    let key = SessionKey(Arc::clone(&client));
    let gate = Arc::new(Gate(ctx.authority().access(principal, &client, AuthDoor::Mqtt)));
    let config = OutboundConfig {
        version: negotiation.version,
        window: negotiation.window,
        packet_bytes_max: usize::try_from(negotiation.packet_bytes_max).unwrap_or(usize::MAX),
        topic_alias_maximum: negotiation.topic_alias_maximum,
    };
    let publisher = |slot| {
        let principal = Arc::clone(&principal.name);
        Arc::new(Publisher { principal, client: Arc::clone(&client), door: Door::Mqtt, slot })
    };
    // Looked at before anything changes: a will that is refused must not cost the client its session.
    let will = connect.will.as_ref().map(|will| Will::new(will, &gate, &publisher(None))).transpose();
    let will = will.map_err(|reason| (reason, "the will is refused"))?;
    let make = || ctx.bus().slot(MqttMailbox::new(config, Arc::clone(&gate), door.bounds(ctx)), ctx.id);
    let attached = door.sessions.attach(&key, &principal.name, negotiation.clean_start, ctx.id, make);
    let Attached { slot, claim, present, ended } = attached.map_err(|error| match error {
        AttachError::NotYours => (ReasonCode::NOT_AUTHORIZED, "the session belongs to someone else"),
        AttachError::Full => (ReasonCode::QUOTA_EXCEEDED, "too many sessions"),
    })?;
    match ended {
        Some(ended) => {
            door.end_session(ctx, &ended);
            door.publish_will_of(ctx, &key);
        }
        None => door.cancel_will_of(&key),
    }
    let gate = if present {
        // Displaced already? Then the first turn of the connection finds out.
        slot.with_claim(claim, |mailbox| {
            mailbox.resume(config);
            Arc::clone(&mailbox.gate)
        })
        .unwrap_or(gate)
    } else {
        gate
    };
    let mut greeting = Vec::new();
    let accepted = negotiation.accept(present, assigned.as_deref(), &mut PropertyBuffer::new(), &mut greeting);
    accepted.map_err(|_| (ReasonCode::UNSPECIFIED_ERROR, "no CONNACK"))?;
    let publisher = publisher(Some(slot.id()));
    Ok(Granted { negotiation: *negotiation, slot, claim, gate, publisher, will, greeting })
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

async fn say_no<S>(ctx: &WorkerContext, stream: &mut S, bytes: &[u8], failed: &Failed)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let metrics = &ctx.shared.metrics.mqtt;
    let mut answer = Vec::new();
    match failed {
        Failed::Silently => {}
        Failed::Unreadable(error) => {
            metrics.misbehaved.increment();
            tracing::debug!(%error, "no CONNECT");
            refuse_unreadable(bytes, error, &mut answer);
        }
        Failed::Refused(version, (reason, text)) => {
            if matches!(*reason, ReasonCode::BAD_USER_NAME_OR_PASSWORD | ReasonCode::NOT_AUTHORIZED) {
                metrics.unauthenticated.increment();
            }
            tracing::debug!(%reason, "CONNECT refused");
            refuse(*version, *reason, Some(text), &mut answer);
        }
    }
    if !answer.is_empty() && stream.write_all(&answer).await.is_err() {
        return;
    }
    linger(ctx, stream).await;
}
