//! The MQTT door: 3.1, 3.1.1 and 5.0 over any byte stream.
//!
//! A connection is one task on one worker. A turn reads bytes into the worker's buffer, publishes all messages in them
//! as one batch, and writes acknowledgements and deliveries with one write. Publishers on any worker encode straight
//! into a connection's mailbox (`mailbox.rs`). `fogmux-mqtt` decides by the protocol; `docs/protocols/mqtt.md` lists
//! what is mapped, dropped and refused.

mod access;
mod announced;
mod attach;
mod authenticate;
mod boundary;
mod bounds;
mod claimed;
mod close;
mod config;
mod connection;
mod context;
mod deadline;
mod durable;
mod early;
mod ending;
mod farewell;
mod filters;
mod greeting;
#[cfg(feature = "http")]
mod held;
mod kept;
mod leaving;
mod linked;
mod login;
mod mailbox;
mod mark;
mod output;
mod owed;
mod pace;
mod promises;
mod publish;
mod reauthenticate;
mod receive;
mod recent;
mod reclaim;
mod repeated;
mod restore;
mod retained;
mod send;
mod session;
mod set_aside;
mod subscribe;
mod takeover;
#[cfg(test)]
mod tests;
mod translate;
mod transport;
mod unkept;
mod unreadable;
mod wheel;
mod will;
mod withheld;

use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

pub use config::{ClientIdentifiers, MqttConfig, SlowSubscriber};
use connection::Connection;
pub use context::MqttContext;
pub use fogmux_bus::durable::SessionStore;
use fogmux_bus::{ClockSet, Timestamp};
use reclaim::Reclaim;
pub use session::MqttDoor;
use tokio::task::spawn_local;

use crate::{
    Peer,
    door::{self, DoorService},
    handshake::handshake,
    tasks::Tasks,
    transport::Transport,
    turn::Portion,
};

impl DoorService for Rc<MqttContext> {
    fn serve(&self, connection: door::Connection, tasks: &Tasks) {
        let door::Connection { listener, stream, peer, tls, seat } = connection;
        let ctx = Self::clone(self);
        let Some(tls) = tls else { return tasks.spawn_flat(serve(ctx, stream, peer), seat) };
        let after = tasks.clone();
        tasks.spawn(async move {
            let Some((stream, peer)) = handshake(&ctx, listener, stream, &tls, peer).await else { return };
            // A task of its own, so that an idle connection does not pay for the size of a handshake.
            after.spawn_flat(serve(ctx, stream, peer), seat);
        });
    }

    fn keep_house(&self) {
        spawn_local(housekeeping(Self::clone(self)));
    }
}

/// Serves one connection until it ends.
pub fn serve<'s, S>(ctx: Rc<MqttContext>, stream: S, peer: Peer) -> Serve<'s, S>
where
    S: Transport + 's,
{
    Serve(Stage::Apart(Box::pin(login::login(ctx, stream, peer))))
}

/// The life of a connection. A hand-written future in boxes, so that an idle connection does not hold the state of
/// login and close.
pub struct Serve<'s, S>(Stage<'s, S>);

/// The login, which may lead to an open connection, or the close, which does not.
type Apart<'s, S> = Pin<Box<dyn Future<Output = Option<Box<Connection<S>>>> + 's>>;

/// Two words, so that the task stays small: see `Tasks::spawn_flat`.
enum Stage<'s, S> {
    Apart(Apart<'s, S>),
    Open(Box<Connection<S>>),
}

impl<'s, S: Transport + 's> Future for Serve<'s, S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.0 {
                Stage::Apart(work) => match ready!(work.as_mut().poll(cx)) {
                    Some(connection) => self.0 = Stage::Open(connection),
                    None => return Poll::Ready(()),
                },
                Stage::Open(connection) => {
                    let end = ready!(connection.poll(cx));
                    // A box of nothing, which takes no memory.
                    let nothing = Stage::Apart(Box::pin(std::future::pending()));
                    let Stage::Open(connection) = std::mem::replace(&mut self.0, nothing) else { continue };
                    self.0 = Stage::Apart(Box::pin(async move {
                        connection.close(end).await;
                        None
                    }));
                }
            }
        }
    }
}

impl<S> std::fmt::Debug for Serve<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serve").finish_non_exhaustive()
    }
}

/// Ends expired sessions, publishes delayed wills, and wakes connections whose alarm is due; all of them when the rules
/// have changed. One worker runs it; it sleeps until the next of these is due, a second at most. During a shutdown it
/// publishes the remaining wills and wakes connections until all have ended.
pub async fn housekeeping(ctx: Rc<MqttContext>) {
    let door = &ctx.door;
    let mut drain = std::pin::pin!(ctx.drain());
    let mut rules = ctx.authority().changes();
    let mut reclaim = Reclaim::new(door.config.queue_bytes_max);
    let mut portion = Portion::new();
    let mut before_unix_ms = ctx.unix_ms(Timestamp::ZERO);
    loop {
        let next = ctx.shared.clock.instant(door.plan(ctx.now()));
        tokio::select! {
            biased;
            () = &mut drain => break,
            () = door.planned_earlier() => continue,
            Ok(()) = rules.changed() => {
                door.ring_all();
                continue;
            }
            () = tokio::time::sleep_until(next) => {}
        }
        let (now, origin_unix_ms) = (ctx.now(), ctx.unix_ms(Timestamp::ZERO));
        if origin_unix_ms != before_unix_ms {
            door.restamp(ClockSet { before_unix_ms, origin_unix_ms }, now);
            before_unix_ms = origin_unix_ms;
        }
        door.end_expired(&ctx, now, &mut portion).await;
        door.publish_due_wills(&ctx, now, &mut portion).await;
        door.ring(now);
        reclaim.run(&ctx).await;
    }
    door.publish_due_wills(&ctx, Timestamp::NEVER, &mut portion).await;
    // Once for their wills, then repeatedly until all have ended.
    door.ring_all();
    ctx.emptying().await;
    while !ctx.shared.shutdown.is_over() {
        door.ring_all();
        tokio::time::sleep(crate::shutdown::DRAIN_TICK).await;
    }
}
