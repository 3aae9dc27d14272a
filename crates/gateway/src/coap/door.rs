//! One worker's CoAP: the loop over socket, mailbox, deadlines and completions.

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use fogmux_bus::Timestamp;
use fogmux_coap::{ServerConfig, server::Room};
use tokio::{task::unconstrained, time::Sleep};

use super::{
    context::CoapContext,
    core::Core,
    transport::{Listener, Transport},
};
use crate::turn::Deliveries;

/// Turns before other tasks of the worker have theirs.
const TURNS_MAX: usize = 2;

/// A worker's CoAP.
pub(super) struct Door<T> {
    transport: T,
    core: Core,
    /// The decrypted requests of a turn.
    room: Room,
    sleep: Pin<Box<Sleep>>,
    armed: Option<Timestamp>,
}

impl<T: Transport> Door<T> {
    fn open(ctx: Rc<CoapContext>, transport: T, listener: Listener) -> io::Result<Self> {
        let config = &ctx.door.config;
        // With the reserve, which the door gives to those who have little.
        let observers_max = ctx.bus().room(config.observers_max).left(0);
        let machine = ServerConfig { observers_max, ..config.machine() };
        let core = Core::new(ctx, machine, listener)?;
        let sleep = Box::pin(tokio::time::sleep(Duration::ZERO));
        Ok(Self { transport, core, room: Room::default(), sleep, armed: None })
    }

    /// Works for a few turns. Ready with `true` when there is more to do, with `false` when the socket has failed.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        // Whether all but the socket waits.
        let mut quiet = false;
        self.core.deliveries = Deliveries::default();
        for _ in 0..TURNS_MAX {
            if self.flush(cx).is_pending() {
                return Poll::Pending;
            }
            let polled = self.transport.poll_receive(cx);
            if quiet && polled.is_pending() {
                self.core.check_sleep();
                return Poll::Pending;
            }
            let now = self.core.ctx.now();
            let received = match polled {
                Poll::Ready(Ok(())) => {
                    while let Some(change) = self.transport.poll_change() {
                        self.core.change(change);
                    }
                    self.core.receive(now, &self.transport, &self.room);
                    self.room.clear();
                    while let Some(path) = self.core.server.poll_validated() {
                        self.transport.validate(path);
                    }
                    // Clients that have been answered go on while the rest is handled.
                    if self.flush(cx).is_pending() {
                        return Poll::Pending;
                    }
                    true
                }
                Poll::Ready(Err(error)) => {
                    tracing::error!(%error, "the CoAP socket cannot be read");
                    return Poll::Ready(false);
                }
                Poll::Pending => false,
            };
            let mut busy = self.core.notify(cx);
            busy |= self.core.complete(cx);
            busy |= self.poll_deadline(now, cx);
            self.core.settle();
            let Core { ctx, admission, .. } = &self.core;
            busy |= self.transport.review(&mut |association| admission.may_go_on(ctx, association));
            busy |= !self.core.watches.ready.is_empty();
            if !received && !busy && self.core.out.is_empty() {
                self.core.check_sleep();
                return Poll::Pending;
            }
            quiet = !busy;
            if self.core.deliveries.are_enough() {
                break;
            }
        }
        Poll::Ready(true)
    }

    /// Ends all observations with 5.03, because the gateway shuts down.
    fn close(&mut self) {
        self.core.say_goodbye();
    }

    /// Sends what the socket takes at once.
    fn poll_goodbye(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let _ = self.flush(cx);
        self.transport.goodbye(cx);
        Poll::Ready(())
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.core.out.is_empty() {
            return Poll::Ready(());
        }
        self.transport
            .poll_send(cx, &mut self.core.out)
            .map(|bytes| self.core.ctx.shared.metrics.coap.bytes_out.add(bytes))
    }

    /// Does what is due; sets the alarm otherwise.
    fn poll_deadline(&mut self, now: Timestamp, cx: &mut Context<'_>) -> bool {
        let Some(at) = self.core.next_timeout() else { return false };
        if now < at {
            if self.armed == Some(at) {
                return false;
            }
            self.armed = Some(at);
            self.sleep.as_mut().reset(self.core.ctx.shared.clock.instant(at));
            // A task that has used up its budget would be polled again, and miss the alarm.
            if pin!(unconstrained(self.sleep.as_mut())).poll(cx).is_pending() {
                return false;
            }
        }
        self.armed = None;
        self.core.handle_timeout();
        true
    }
}

/// Serves one worker's socket until drain.
pub(crate) async fn run<T: Transport>(ctx: Rc<CoapContext>, transport: T, listener: Listener) {
    let mut drain = Box::pin(ctx.closing());
    // This task is woken for each datagram: it asks for the shutdown only when it may have come.
    let mut phases = ctx.phases();
    let mut door = match Door::open(ctx, transport, listener) {
        Ok(door) => door,
        Err(error) => {
            tracing::error!(%error, "the CoAP socket cannot be used");
            return;
        }
    };
    // Between turns the runtime polls the other sockets: a task that only wakes itself is run dozens of times first.
    while poll_fn(|cx| {
        if phases.is_news() && drain.as_mut().poll(cx).is_ready() {
            return Poll::Ready(false);
        }
        door.poll(cx)
    })
    .await
    {
        tokio::task::yield_now().await;
    }
    door.close();
    // The final notifications, as far as the socket takes them at once.
    poll_fn(|cx| door.poll_goodbye(cx)).await;
}

#[cfg(test)]
mod tests;
