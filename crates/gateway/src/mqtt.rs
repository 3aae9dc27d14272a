//! The MQTT door: 3.1, 3.1.1 and 5.0 over any byte stream.
//!
//! A connection is one task on one worker. It reads a turn's bytes into the worker's buffer, publishes all messages in
//! it as one batch, and writes acknowledgements and deliveries with one write. Publishers on any worker encode
//! straight into a connection's mailbox ([`mailbox`]). What the protocol says is decided in `fogmux-mqtt`; what is
//! kept, dropped and refused is listed in `docs/protocols/mqtt.md`.

mod access;
mod config;
mod connection;
mod login;
mod mailbox;
mod output;
mod publish;
mod receive;
mod retained;
mod session;
mod subscribe;
#[cfg(test)]
mod tests;
mod translate;
mod will;

use std::{rc::Rc, time::Duration};

pub use config::MqttConfig;
pub use session::MqttDoor;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Peer, WorkerContext};

/// How often expired sessions and due wills are looked for; both are said in seconds.
const TICK: Duration = Duration::from_secs(1);

/// Serves one connection until it ends.
pub async fn serve<S>(ctx: Rc<WorkerContext>, stream: S, peer: Peer)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // Boxed: what is only needed to log in, or to say goodbye, is no part of an idle connection.
    let Some(mut connection) = Box::pin(login::login(ctx, stream, peer)).await else { return };
    let end = std::future::poll_fn(|cx| connection.poll(cx)).await;
    Box::pin(connection.close(end)).await;
}

/// Ends sessions that have expired and publishes wills whose delay is over; one worker runs it. When the gateway
/// drains it sends the wills that still wait and wakes every connection.
pub async fn housekeeping(ctx: Rc<WorkerContext>) {
    let door = &ctx.shared.mqtt;
    let mut drain = std::pin::pin!(ctx.drain());
    let mut ticks = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            biased;
            () = &mut drain => break,
            _ = ticks.tick() => {
                let now = ctx.now();
                for (key, slot) in door.sessions.expire(now) {
                    door.end_session(&ctx, &slot);
                    door.publish_will_of(&ctx, &key);
                }
                door.publish_due_wills(&ctx, now);
            }
        }
    }
    door.publish_due_wills(&ctx, fogmux_bus::Timestamp::NEVER);
    door.wake_all();
}
