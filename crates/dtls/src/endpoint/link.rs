//! The differences between the versions, under one roof: the session of an association, and its handshake.

use std::time::Duration;

use crate::{
    Alert, Refused,
    hello::Verified,
    server, session,
    suite::Wear,
    v13,
    wire::{Cid, ContentType},
};

/// A session of either version.
pub(crate) enum Link {
    /// In place: records of 1.2 are a measured path.
    V12(session::Session),
    V13(Box<v13::Session>),
}

impl Link {
    /// Appends a record with data.
    pub(super) fn seal(&mut self, data: &[u8], out: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::V12(session) => session.seal(ContentType::ApplicationData, data, out),
            Self::V13(session) => session.seal(data, out),
        }
    }

    /// The most bytes of data in a record.
    pub(super) fn data_max(&self) -> usize {
        match self {
            Self::V12(session) => session.data_max(),
            Self::V13(session) => session.data_max(),
        }
    }

    pub(super) fn put_alert(&mut self, alert: Alert, out: &mut Vec<u8>) {
        match self {
            Self::V12(session) => session.put_alert(alert, out),
            Self::V13(session) => session.put_alert(alert, out),
        }
    }

    /// How much its keys are used up.
    pub(super) fn wear(&self) -> Wear {
        match self {
            Self::V12(session) if session.is_spent() => Wear::Spent,
            Self::V12(_) => Wear::Fresh,
            Self::V13(session) => session.wear(),
        }
    }

    /// The identifier under which its records come.
    pub(super) fn identifier(&self) -> Option<&Cid> {
        match self {
            Self::V12(session) => session.identifier(),
            Self::V13(session) => session.identifier(),
        }
    }

    /// Lets go of what can be computed again.
    pub(super) fn rest(&mut self) {
        match self {
            Self::V12(session) => session.rest(),
            Self::V13(session) => session.rest(),
        }
    }

    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        match self {
            Self::V12(session) => session.is_at_rest(),
            Self::V13(session) => session.is_at_rest(),
        }
    }
}

/// A handshake of either version.
pub(super) enum Shake {
    V12(Box<server::Handshake>),
    V13(Box<v13::Handshake>),
}

impl Shake {
    pub(super) fn send(&mut self, now: Duration, send: &mut dyn FnMut(&[u8])) {
        match self {
            Self::V12(handshake) => handshake.send(now, send),
            Self::V13(handshake) => handshake.send(now, send),
        }
    }

    pub(super) fn resend(&mut self, now: Duration, send: &mut dyn FnMut(&[u8])) {
        match self {
            Self::V12(handshake) => handshake.resend(now, send),
            Self::V13(handshake) => handshake.resend(now, send),
        }
    }

    pub(super) fn again_at(&self) -> Option<Duration> {
        match self {
            Self::V12(handshake) => handshake.again_at(),
            Self::V13(handshake) => handshake.again_at(),
        }
    }

    pub(super) const fn began(&self) -> Duration {
        match self {
            Self::V12(handshake) => handshake.began(),
            Self::V13(handshake) => handshake.began(),
        }
    }

    /// Whether this is the ClientHello that began it, once more.
    pub(super) fn is_repeated(&self, verified: &Verified<'_>) -> bool {
        match self {
            Self::V12(handshake) => handshake.is_repeated(verified),
            Self::V13(handshake) => handshake.is_repeated(verified),
        }
    }

    pub(super) fn put_alert(&mut self, alert: Alert, out: &mut Vec<u8>) {
        match self {
            Self::V12(handshake) => handshake.put_alert(alert, out),
            Self::V13(handshake) => handshake.put_alert(alert, out),
        }
    }

    /// The credential that did not hold.
    pub(super) fn take_refused(&mut self) -> Option<Refused> {
        match self {
            Self::V12(handshake) => handshake.take_refused(),
            Self::V13(handshake) => handshake.take_refused(),
        }
    }

    /// Whether records came under another key than ours, or were forged.
    pub(super) const fn is_doubted(&self) -> bool {
        match self {
            Self::V12(handshake) => handshake.is_doubted(),
            Self::V13(_) => false,
        }
    }

    pub(super) fn identifier(&self) -> Option<&Cid> {
        match self {
            Self::V12(handshake) => handshake.identifier(),
            Self::V13(handshake) => handshake.identifier(),
        }
    }
}
