//! Packets before the login: a CONNECT within a size, AUTH when it was asked for, and packets that come too early.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
};

use fogmux_fair::Owner;
use fogmux_mqtt::{AuthStep, DecodeError, Limits, Packet, ProtocolError, ReasonCode, Version, decode};
use tokio::io::{AsyncRead, ReadBuf};

use super::{context::MqttContext, login::Failed};
use crate::{
    Peer,
    deadline::in_time,
    stops::Running,
    unfinished::{Place, SMALL_BYTES, Waiter},
    worker::READ_BUFFER_BYTES,
};

/// Bytes of a login. Those of more than a little have a bound together (`logins_bytes_max`).
pub(super) struct Early {
    bytes: Vec<u8>,
    ctx: Rc<MqttContext>,
    /// When the client has to have said everything.
    deadline: Running,
    /// Its place among all logins under way.
    place: Place,
}

impl Early {
    /// Begins the login of a client, which has the time of the configuration for it.
    pub(super) fn new(ctx: Rc<MqttContext>, peer: &Peer) -> Self {
        let deadline = ctx.running() + ctx.door.config.login_deadline;
        let place = Place::new(ctx.door.logins(), Owner::nameless(peer.address.ip()));
        Self { bytes: Vec::new(), ctx, deadline, place }
    }

    /// Tells when the login has to end for others.
    pub(super) fn waiter(&self) -> Arc<Waiter> {
        Arc::clone(self.place.waiter())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes what stands behind `at` away from here.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let (ctx, place) = (Rc::clone(&self.ctx), self.place.beside());
        let mut rest = Self { bytes: Vec::new(), ctx, deadline: self.deadline, place };
        rest.extend(self.bytes.get(at..).unwrap_or_default());
        self.bytes.truncate(at);
        rest
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let counted = if self.bytes.len() <= SMALL_BYTES { 0 } else { self.bytes.capacity() };
        // If it has to end itself, its waiter tells.
        let _ = self.place.set(&self.ctx, counted, self.bytes.len());
    }

    /// Reads until a CONNECT is whole; gives its length. Any other first packet ends the connection ([MQTT-3.1.0-1]).
    pub(super) async fn read_connect<S: AsyncRead + Unpin>(&mut self, stream: &mut S) -> Result<usize, Failed> {
        loop {
            self.read(stream).await?;
            // Not even the beginning of a CONNECT: somebody speaks another protocol.
            if self.bytes.first().is_none_or(|first| *first != 0x10) {
                self.ctx.shared.metrics.mqtt.misbehaved.increment();
                return Err(Failed::Silently);
            }
            match decode(&self.bytes, Version::V5, &self.limits()) {
                Ok(Some((_, used))) => return Ok(used),
                Ok(None) => {}
                Err(error) => return Err(Failed::Unreadable(error)),
            }
        }
    }

    /// Reads the answer to an AUTH of ours. Until CONNACK only AUTH and DISCONNECT may come ([MQTT-3.1.2-30]).
    pub(super) async fn read_auth<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        method: &str,
    ) -> Result<Vec<u8>, Failed> {
        loop {
            if let Some((data, used)) = self.auth(method)? {
                self.bytes.drain(..used);
                return Ok(data);
            }
            self.read(stream).await?;
        }
    }

    fn auth(&self, method: &str) -> Result<Option<(Vec<u8>, usize)>, Failed> {
        let decoded = decode(&self.bytes, Version::V5, &self.limits()).map_err(|error| misbehaved(&error))?;
        let Some((packet, used)) = decoded else { return Ok(None) };
        if matches!(packet, Packet::Disconnect(_)) {
            return Err(Failed::Silently);
        }
        let Packet::Auth(auth) = packet else { return Err(broken(&ProtocolError::Unexpected(packet.kind()))) };
        match auth.step(Some(method), true).map_err(|error| broken(&error))? {
            AuthStep::Continue(data) => Ok(Some((data.unwrap_or_default().to_vec(), used))),
            AuthStep::Reauthenticate(_) => Err(broken(&ProtocolError::Unexpected(fogmux_mqtt::PacketType::Auth))),
        }
    }

    /// Waits for something as long as the peer stays; a little of what it sends meanwhile is taken, to see its end.
    pub(super) async fn while_there<S: AsyncRead + Unpin, T>(
        &mut self,
        stream: &mut S,
        work: impl Future<Output = T>,
    ) -> Result<T, Failed> {
        let mut work = pin!(work);
        while self.bytes.len() < SMALL_BYTES {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                read = self.read_some(stream, SMALL_BYTES) => read?,
            }
        }
        Ok(work.await)
    }

    fn limits(&self) -> Limits {
        Limits { packet_bytes_max: self.ctx.door.config.connect_bytes_max }
    }

    /// Waits for the client, but not beyond its deadline. The deadline is for the client alone: the time that a
    /// password takes to be verified is the gateway's, and has a bound of its own.
    pub(super) async fn in_time<T>(&self, step: impl Future<Output = T>) -> Result<T, Failed> {
        in_time(&self.ctx, self.deadline, step).await.map_err(|_| Failed::Late)
    }

    /// Reads once, before the deadline.
    async fn read<S: AsyncRead + Unpin>(&mut self, stream: &mut S) -> Result<(), Failed> {
        let (ctx, deadline) = (Rc::clone(&self.ctx), self.deadline);
        in_time(&ctx, deadline, self.read_some(stream, READ_BUFFER_BYTES)).await.map_err(|_| Failed::Late)?
    }

    /// Reads once, so many bytes at most; an error at the end.
    async fn read_some<S: AsyncRead + Unpin>(&mut self, stream: &mut S, bytes_max: usize) -> Result<(), Failed> {
        let ctx = Rc::clone(&self.ctx);
        let more = poll_fn(|cx| {
            let mut shared = ctx.read_buffer.borrow_mut();
            let mut read = ReadBuf::new(shared.get_mut(..bytes_max).unwrap_or_default());
            Pin::new(&mut *stream).poll_read(cx, &mut read).map_ok(|()| {
                self.extend(read.filled());
                read.filled().len()
            })
        });
        match more.await {
            Ok(1..) => Ok(()),
            Ok(_) | Err(_) => Err(Failed::Silently),
        }
    }
}

fn misbehaved(error: &DecodeError) -> Failed {
    tracing::debug!(%error, "no AUTH");
    Failed::Refused(Version::V5, (error.reason(), "that is no AUTH"))
}

fn broken(error: &ProtocolError) -> Failed {
    tracing::debug!(%error, "client misbehaved before it was logged in");
    Failed::Refused(Version::V5, (ReasonCode::PROTOCOL_ERROR, "an AUTH of the same method is awaited"))
}
