//! Answers that wait for the store of sessions: PUBREL, PUBCOMP, SUBACK and UNSUBACK of a session that outlives its
//! connection (ADR 0042). Those of other sessions are sent at once.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use fogmux_bus::{Completion, Subscription};
use fogmux_mqtt::{Ack, PacketId, PacketType};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Sleep, sleep},
};

use super::connection::{Connection, End};

/// The time after which changes are appended again that the store has not taken.
const AGAIN: Duration = Duration::from_secs(1);

/// The fate of an answer when the store has not taken what it promises.
#[derive(Debug)]
pub(super) enum Otherwise {
    /// The exchange cannot go on without it, so it is tried again. The session remembers what.
    Again,
    /// SUBACK refuses: these bytes are sent, and the subscriptions that were new are removed.
    Refuse(Vec<u8>, Vec<Subscription>),
    /// The connection ends.
    End,
}

/// An answer that waits.
#[derive(Debug)]
pub(super) struct Withheld {
    completion: Completion,
    bytes: Vec<u8>,
    otherwise: Otherwise,
    /// When it is tried again.
    again: Option<Pin<Box<Sleep>>>,
    /// It was tried again.
    tried: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Sends an answer when the store has what it promises, and behind those before it.
    pub(super) fn withhold(&mut self, completion: Completion, bytes: Vec<u8>, otherwise: Otherwise) {
        if completion.is_ready() && self.rare.as_ref().is_none_or(|rare| rare.withheld.is_empty()) {
            self.output.buffer(&self.ctx).extend_from_slice(&bytes);
        } else if !bytes.is_empty() {
            self.rare().withheld.push_back(Withheld { completion, bytes, otherwise, again: None, tried: false });
        }
    }

    /// Sends the answers whose completions have resolved. Returns whether there were any.
    pub(super) fn poll_withheld(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut progress = false;
        while let Some(first) = self.rare().withheld.front_mut() {
            if let Some(again) = &mut first.again {
                if again.as_mut().poll(cx).is_pending() {
                    break;
                }
                first.again = None;
                self.try_again()?;
                continue;
            }
            let kept = match Pin::new(&mut first.completion).poll(cx) {
                Poll::Pending => break,
                Poll::Ready(kept) => kept,
            };
            if kept.is_err() && matches!(first.otherwise, Otherwise::Again) {
                // Behind one that the store has taken, it is tried at once: it was refused before that.
                if progress && !first.tried {
                    self.try_again()?;
                } else {
                    first.again = Some(Box::pin(sleep(AGAIN)));
                }
                continue;
            }
            let Some(first) = self.rare().withheld.pop_front() else { break };
            progress = true;
            match first.otherwise {
                _ if kept.is_ok() => self.output.buffer(&self.ctx).extend_from_slice(&first.bytes),
                Otherwise::Refuse(bytes, subscriptions) => {
                    for subscription in &subscriptions {
                        self.unsubscribe_from(Ok(subscription));
                    }
                    drop(self.leave_groups());
                    let _ = self.mailbox.with(|mailbox| drop(mailbox.append()));
                    self.output.buffer(&self.ctx).extend_from_slice(&bytes);
                }
                Otherwise::Again | Otherwise::End => return Err(End::Refused),
            }
        }
        Ok(progress)
    }

    /// Has the session make the changes again that the store has not taken, those of the first answer among them.
    #[cold]
    fn try_again(&mut self) -> Result<(), End> {
        let appended =
            self.mailbox.with(|mailbox| mailbox.durable.as_mut().map_or(Completion::Ready, |durable| durable.again()));
        let completion = appended.map_err(|_| End::Displaced)?;
        if let Some(first) = self.rare.as_mut().and_then(|rare| rare.withheld.front_mut()) {
            (first.completion, first.tried) = (completion, true);
        }
        Ok(())
    }

    /// Sends PUBRELs that the connection before left, each when the store has its release: not before, or the client
    /// could not tell the message from a new one after a restart.
    pub(super) fn withhold_releases(&mut self) {
        let held = self.mailbox.with(|mailbox| Some(mailbox.durable.as_mut()?.hold_back()));
        let Ok(Some((ids, completion))) = held else { return };
        self.withhold_pubrels(&ids, completion);
    }

    /// Sends PUBRELs of messages in flight that were given up, when the store has the releases.
    pub(super) fn withhold_pubrels(&mut self, ids: &[PacketId], completion: Completion) {
        if ids.is_empty() {
            return;
        }
        let mut bytes = Vec::new();
        for id in ids {
            // Without properties it always fits.
            let _ = Ack::success(*id).encode(PacketType::Pubrel, self.facts.version, &mut bytes);
        }
        self.withhold(completion, bytes, Otherwise::Again);
    }
}
