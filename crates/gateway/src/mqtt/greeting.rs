//! CONNACK waits until the store knows that the client is connected, and has forgotten the session before that
//! (ADR 0042).

use std::{sync::Arc, time::Duration};

use fogmux_bus::{Completion, Slot};
use fogmux_mqtt::{ReasonCode, refuse};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    time::{Instant, timeout, timeout_at},
};

use super::{
    connection::{Connection, End},
    mailbox::MqttMailbox,
    output::Output,
};
use crate::shown::shown_client;

/// The longest wait for the store. A disk that takes longer than this is failing.
const WAIT: Duration = Duration::from_secs(10);
/// How long the refusal may take.
const REFUSAL: Duration = Duration::from_secs(2);

/// The changes in the store that CONNACK waits for. Ready for a session that ends with its connection.
#[derive(Debug)]
pub(super) struct Waits {
    /// The session's own record.
    pub(super) committed: Completion,
    /// The session that it replaces.
    pub(super) replaced: Option<Arc<Slot<MqttMailbox>>>,
    /// The session existed before.
    pub(super) present: bool,
}

fn take_ended(slot: &Slot<MqttMailbox>) -> Completion {
    slot.with(|mailbox| mailbox.ended.take()).map_or(Completion::Ready, |ended| *ended)
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Waits for the store. If that fails, the client is refused, unless it has had its session before: that goes on,
    /// so that it may take what waits for it.
    pub(super) async fn wait_to_greet(&mut self, waits: Box<Waits>) -> Result<(), End> {
        let Waits { committed, replaced, present } = *waits;
        let replaced = replaced.as_deref().map_or(Completion::Ready, take_ended);
        let own = if self.facts.durable { Completion::Ready } else { take_ended(&self.mailbox.slot) };
        let deadline = Instant::now() + WAIT;
        let mut kept = true;
        for completion in [replaced, own, committed] {
            if !completion.is_ready() {
                kept &= timeout_at(deadline, completion).await == Ok(Ok(()));
            }
        }
        // Clients wait for CONNACK before they send.
        self.now = self.ctx.now();
        self.reading.last_read = self.running();
        self.withhold_releases();
        if kept {
            return Ok(());
        }
        if present {
            let client = shown_client(&self.client.publisher.client);
            tracing::warn!(client, "the store did not take that the client is connected");
            // If the connection is displaced already, its first turn notices.
            let _ = self.mailbox.with(MqttMailbox::note_connect_refused);
            return Ok(());
        }
        self.refuse_greeting().await;
        Err(End::Closed)
    }

    async fn refuse_greeting(&mut self) {
        let (mut answer, why) = (Vec::new(), "the store takes nothing");
        refuse(self.facts.version, ReasonCode::QUOTA_EXCEEDED, Some(why), self.facts.packet_bytes_max, &mut answer);
        // A session that was not promised ends now.
        self.cancel_will();
        (self.output, self.facts.session_expiry) = (Output::default(), 0);
        let _ = timeout(REFUSAL, self.stream.write_all(&answer)).await;
    }
}
