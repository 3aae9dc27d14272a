//! The presence of a connected resource, as far as it decides what reaches it (RFC 6121 §8.5.2).

use fogmux_xmpp::{Element, Writer, ns};

use super::{core::Core, fill::Why};

/// How often presence takes effect before the requests of one read.
pub(super) const PRESENCE_PER_READ: u32 = 8;

/// The presence of a resource, as far as it decides what messages to the bare address reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Presence {
    /// None was sent. Devices mostly send none; they are reached.
    #[default]
    Unsaid,
    /// Available, with a priority of 0 or more.
    Available,
    /// Available, with a negative priority (RFC 6121 §8.5.2.1.1).
    Negative,
    /// It said that it is not available.
    Unavailable,
}

impl Presence {
    /// Whether messages to the bare address are delivered to the resource.
    pub(super) const fn takes_bare(self) -> bool {
        match self {
            Self::Unsaid | Self::Available => true,
            Self::Negative | Self::Unavailable => false,
        }
    }

    /// Whether the resource is available (RFC 6121 §4.2).
    pub(super) const fn is_available(self) -> bool {
        match self {
            Self::Available | Self::Negative => true,
            Self::Unsaid | Self::Unavailable => false,
        }
    }
}

/// What a client has said of its presence in one read. It takes effect once for all of it, or before a request, but not
/// more often than [`PRESENCE_PER_READ`]: each time moves all subscriptions of the account.
pub(super) struct Said {
    /// It was unavailable in between.
    unavailable: bool,
    last: Presence,
}

impl Core {
    /// The client's own presence decides whether messages to its bare address reach it. Nobody else is shown it: a client
    /// that asks to see somebody's is told that there is nothing to see (RFC 6121 §3.1.3 and §4.3.2), so that it does not
    /// wait.
    pub(super) fn handle_presence(&mut self, presence: &Element<'_>) {
        let to = match (presence.attr("to"), presence.attr("type")) {
            (None, None) => return self.become_present(presence),
            (None, Some("unavailable")) => {
                self.said = Some(Said { unavailable: true, last: Presence::Unavailable });
                return;
            }
            (Some(to), Some("subscribe" | "probe")) => to,
            (None | Some(_), _) => return,
        };
        let mut w = Writer::new(&mut self.out);
        w.start("presence").attr("type", "unsubscribed").attr_opt("id", presence.attr("id"));
        w.attr("from", to).attr("to", self.me.jid.bare_str()).end("presence");
        self.machine.sent(1, &mut self.out);
    }

    fn become_present(&mut self, presence: &Element<'_>) {
        let priority = presence.child(ns::CLIENT, "priority").and_then(|priority| priority.text().trim().parse().ok());
        // RFC 6121 §4.7.2.3: from -128 to 127, and 0 when there is none.
        let negative = priority.is_some_and(|priority: i8| priority < 0);
        let last = if negative { Presence::Negative } else { Presence::Available };
        let unavailable = self.said.take().is_some_and(|said| said.unavailable);
        self.said = Some(Said { unavailable, last });
    }

    /// A resource that becomes available is sent the last items of what it follows (XEP-0060 §4.3).
    pub(super) fn apply_presence(&mut self) {
        let Some(Said { unavailable, last }) = self.said.take() else { return };
        let (accounts, bus) = (&self.door().accounts, self.ctx.bus());
        if unavailable {
            accounts.set_presence(bus, &self.me.jid, Presence::Unavailable);
        }
        let before = accounts.set_presence(bus, &self.me.jid, last);
        if last.is_available() && !before.is_available() {
            // Deliveries that were lost are made up for by more than presence brings.
            self.due.get_or_insert(Why::Present);
        }
    }
}
