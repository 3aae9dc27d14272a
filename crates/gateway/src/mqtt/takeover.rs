//! Taking a session over: CONNACK waits for the previous connection, so that nothing it still publishes, its will
//! included, follows the new connection's messages (§3.1.2.5, [MQTT-3.1.4-3]).

use std::{
    future::{pending, poll_fn},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use fogmux_bus::{SessionKey, Slot, Timestamp};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, timeout_at},
};

use super::{
    claimed::Claimed,
    connection::{Connection, End},
    context::MqttContext,
    mailbox::MqttMailbox,
};
use crate::{shown::shown_client, unfinished::SMALL_BYTES};

/// The longest wait. A displaced connection takes a few turns to end, and [`LINGER`](super::farewell::LINGER) if input
/// of it is unread or may be under way; one that takes longer must not keep its owner out.
const WAIT: Duration = Duration::from_secs(3);

/// Previous connections under the key of a connection, which may still publish.
#[derive(Clone, Copy, Debug)]
pub(super) struct Follows {
    /// Whether it ended their session.
    fresh: bool,
}

/// The previous connections under a key, as the registry of sessions knows them.
pub(super) struct Previous {
    /// The session that a fresh one replaces.
    pub(super) ended: Option<Arc<Slot<MqttMailbox>>>,
    /// Whether they may still publish.
    pub(super) behind: bool,
}

/// Ends the session that was replaced and settles its delayed will, unless that has to wait.
pub(super) fn succeed(
    ctx: &Rc<MqttContext>,
    key: &SessionKey,
    mailbox: &Claimed,
    Previous { ended, behind }: Previous,
) -> Option<Follows> {
    let fresh = ended.is_some();
    if let Some(ended) = ended {
        ctx.door.end_session(ctx, key, &ended);
    }
    // It waits already, so it is not that of a connection that is still to end.
    settle_will(ctx, key, fresh, ctx.now());
    // A will whose delay is just over may be on its way, and a session with many subscriptions is still to end.
    (behind || ctx.door.sessions.is_behind(key, &mailbox.slot, mailbox.claim)).then_some(Follows { fresh })
}

/// Handles the delayed will of the previous connection: its client has returned in time, unless the delay was over when
/// it `came`, or the session was to be a fresh one ([MQTT-3.1.3-9]).
fn settle_will(ctx: &MqttContext, key: &SessionKey, fresh: bool, came: Timestamp) {
    if fresh {
        ctx.door.publish_will_of(ctx, key);
    } else {
        ctx.door.settle_will_of(ctx, key, came);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Waits until the previous connections have published what they had left. What the client has sent behind CONNECT
    /// counts as unfinished meanwhile, and may have to give way with its connection.
    pub(super) async fn follow(&mut self, Follows { fresh }: Follows) -> Result<(), End> {
        let bytes = self.reading.input.counted();
        let waiter = (bytes > SMALL_BYTES).then(|| Arc::clone(self.count_input(bytes, 0).1.waiter()));
        let gave_way = async {
            match waiter {
                Some(waiter) => waiter.gave_way().await,
                None => pending().await,
            }
        };
        let key = self.key();
        let (came, deadline) = (self.now, Instant::now() + WAIT);
        let departures = async {
            self.wait_for_departures(&key, deadline).await;
            // Its delay may have begun meanwhile; and if it was just over, the will is being published.
            settle_will(&self.ctx, &key, fresh, came);
            self.wait_for_departures(&key, deadline).await;
        };
        tokio::select! {
            biased;
            () = gave_way => return Err(self.too_much_unfinished()),
            () = departures => {}
        }
        self.now = self.ctx.now();
        // Clients wait for CONNACK before they send.
        self.reading.last_read = self.running();
        Ok(())
    }

    async fn wait_for_departures(&self, key: &SessionKey, deadline: Instant) {
        let sessions = &self.ctx.door.sessions;
        let over = poll_fn(|cx| sessions.poll_departures(key, &self.mailbox.slot, self.mailbox.claim, cx));
        if timeout_at(deadline, over).await.is_err() {
            tracing::debug!(
                client = shown_client(&self.client.publisher.client),
                "the previous connection takes too long to end"
            );
            sessions.forget_departures(key, &self.mailbox.slot, self.mailbox.claim);
        }
    }
}
