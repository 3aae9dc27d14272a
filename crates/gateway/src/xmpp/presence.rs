//! The presence of a connected resource, as far as it affects delivery (RFC 6121 §8.5.2).

use fogmux_xmpp::{Element, Writer, ns};

use super::{accounts::Presence, core::Core, fill::Why};

/// How often presence may take effect within one read.
pub(super) const PRESENCE_PER_READ: u16 = 8;

/// Presence that a client has sent in one read. It takes effect once for all of it, or before a request, but at most
/// [`PRESENCE_PER_READ`] times, because each time moves all subscriptions of the account.
pub(super) struct Said {
    /// Whether it was unavailable in between.
    unavailable: bool,
    last: Presence,
}

impl Core {
    /// Handles presence. The client's own decides whether messages to its bare address reach it, and is shown to
    /// nobody. A request to see the presence of another entity is refused (RFC 6121 §3.1.3 and §4.3.2), so that the
    /// client does not wait.
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

    /// Applies the presence. A resource that becomes available is sent the last items of its subscriptions (XEP-0060
    /// §4.3).
    pub(super) fn apply_presence(&mut self) {
        let Some(Said { unavailable, last }) = self.said.take() else { return };
        let (accounts, bus) = (&self.door().accounts, self.ctx.bus());
        if unavailable {
            accounts.set_presence(bus, &self.me.jid, Presence::Unavailable);
        }
        let before = accounts.set_presence(bus, &self.me.jid, last);
        if last.is_available() && !before.is_available() {
            // Making up for lost deliveries sends more than presence would.
            self.due.get_or_insert(Why::Present);
        }
    }
}
