//! XMPP pubsub subscribers: retained items, events, presence.

mod answers;
mod events;
mod idle;
mod ids;
mod kept;
mod options;
mod retained;

use std::net::TcpStream;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{self, Connection, V4};
use fogmux_tests::suite::Case;
use fogmux_tests::xmpp::{Session, Via, form};
use fogmux_tests::{tcp, tls};
use rustls::ClientConfig;

pub(crate) const CASES: &[Case] = &[
    Case { name: "xmpp: a filter finds any number of retained items", run: retained::any_number },
    Case { name: "xmpp: large retained items arrive over every transport", run: retained::large },
    Case { name: "xmpp: a paused reader with a small buffer gets every retained item", run: retained::paused },
    Case { name: "xmpp: stream management paces retained items and loses none", run: retained::acknowledged },
    Case { name: "xmpp: a client that leaves IQ results out of its count is not held up", run: retained::miscounted },
    Case { name: "xmpp: a reader that lost events ends on the retained values", run: retained::converges },
    Case { name: "xmpp: readers that pause, join and return end on the retained values", run: retained::many_readers },
    Case { name: "xmpp: fogmux sub prints a thousand retained items", run: retained::command },
    Case { name: "xmpp: no two messages of a node have one identifier, whatever was restarted", run: ids::distinct },
    Case { name: "xmpp: lists of long names come in pages of bounded size", run: answers::lists },
    Case { name: "xmpp: a large message for many slow readers ends none of them", run: answers::crowd },
    Case { name: "xmpp: answers that are not taken end for others", run: answers::untaken },
    Case { name: "xmpp: large answers to many requests are made in turn", run: answers::pipelined },
    Case { name: "xmpp: the result of a subscription comes before its events", run: events::result_first },
    Case { name: "xmpp: an empty retained value is an item, a cleared topic is not", run: events::empty_value },
    Case { name: "xmpp: publishers' item ids are kept", run: events::item_ids },
    Case { name: "xmpp: items fit the event type of their node", run: events::event_types },
    Case { name: "xmpp: a node's configuration holds for its latest item", run: events::reconfigured },
    Case { name: "xmpp: available presence brings the last items", run: events::presence },
    Case { name: "xmpp: a negative priority gets nothing for the bare address", run: events::negative_priority },
    Case { name: "xmpp: a flood of presence costs nothing to speak of", run: events::presence_flood },
    Case { name: "xmpp: disco names what works", run: options::features },
    Case { name: "xmpp: unknown and unsupported fields are refused", run: options::refused },
    Case { name: "xmpp: include_body shows values to people", run: options::include_body },
    Case { name: "xmpp: leases end subscriptions", run: options::leases },
    Case { name: "xmpp: an idle connection holds little memory", run: idle::memory },
    Case { name: "xmpp: affiliations of the largest size are bounded in bytes", run: kept::affiliations },
    Case { name: "xmpp: names and configurations of nodes are bounded in bytes", run: kept::names },
    Case { name: "xmpp: subscriptions of nobody who is connected are bounded in bytes", run: kept::subscriptions },
    Case { name: "xmpp: parts of addresses have as many bytes as the standard allows", run: kept::addresses },
    Case { name: "xmpp: each connection is counted once, refused ones too", run: events::counted },
];

/// A gateway and what its clients need.
struct Setup {
    gateway: Gateway,
    tls: Arc<ClientConfig>,
}

impl Setup {
    fn start(settings: &[&str]) -> Result<Self> {
        Self::over(Gateway::start(settings)?)
    }

    fn over(gateway: Gateway) -> Result<Self> {
        let tls = tls::config(gateway.ca())?;
        Ok(Self { gateway, tls })
    }

    fn session(&self, via: Via) -> Result<Session> {
        self.session_over(tcp::connect(self.gateway.address(via.listener())?)?, via)
    }

    /// A session of a client that reads into a small buffer.
    fn narrow_session(&self, via: Via) -> Result<Session> {
        self.session_over(tcp::connect_narrow(self.gateway.address(via.listener())?, 4096)?, via)
    }

    fn session_over(&self, stream: TcpStream, via: Via) -> Result<Session> {
        Session::over(stream, &self.tls, via).with_context(|| format!("{via:?}"))
    }

    /// Publishes retained messages by MQTT with QoS 0, and waits until the gateway has them.
    fn retain<'a>(&self, messages: impl Iterator<Item = (String, &'a [u8])>) -> Result<()> {
        use std::io::Write as _;
        let mut connection = Connection::open(self.gateway.address("mqtt")?, V4, "retainer")?;
        let mut packets = Vec::new();
        for (topic, payload) in messages {
            packets.extend(mqtt::publish(V4, topic.as_bytes(), payload, 0, true, 0));
        }
        packets.extend(mqtt::packet(0xc0, &[]));
        connection.stream.write_all(&packets)?;
        let (first, _) = connection.read()?;
        ensure!(first == 0xd0, "{first:#x} instead of PINGRESP");
        Ok(())
    }

    /// Waits until the gateway has written to its XMPP clients all that they take now.
    fn wait_until_stuck(&self) -> Result<f64> {
        let written = || -> Result<f64> {
            let metrics = self.gateway.metrics()?;
            let found = metrics
                .iter()
                .find(|(name, _)| name.starts_with("fogmux_door_written_bytes") && name.contains("door=\"xmpp\""));
            found.map(|(_, value)| *value).context("no written_bytes of xmpp in /metrics")
        };
        let mut last = -1.0;
        loop {
            let now = written()?;
            #[expect(clippy::float_cmp, reason = "a counter of whole bytes")]
            if now == last {
                return Ok(now);
            }
            last = now;
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    }
}

/// Subscribes to a filter by bare address.
fn follow(session: &mut Session, filter: &str) -> Result<String> {
    let options = form("subscribe_options", &[("{urn:fogmux:0}filter", "true")]);
    let (jid, filter) = (session.bare(), filter);
    session.entity("set", &format!("<subscribe node='{filter}' jid='{jid}'/><options>{options}</options>"))
}

/// Subscribes to a node by bare address.
fn subscribe(session: &mut Session, node: &str) -> Result<String> {
    let jid = session.bare();
    session.entity("set", &format!("<subscribe node='{node}' jid='{jid}'/>"))
}

/// The nodes of the events in `text`, in order.
fn nodes(text: &str) -> Vec<&str> {
    let starts = text.split("<items node='").skip(1);
    starts.filter_map(|rest| rest.split('\'').next()).collect()
}

fn expect_in(text: &str, fragment: &str) -> Result<()> {
    ensure!(text.contains(fragment), "no {fragment:?} in {text:?}");
    Ok(())
}

fn expect_not_in(text: &str, fragment: &str) -> Result<()> {
    ensure!(!text.contains(fragment), "{fragment:?} in {text:?}");
    Ok(())
}

/// Asks something harmless; the text that came before and with the answer.
fn ping(session: &mut Session) -> Result<String> {
    session.ask("get", "<ping xmlns='urn:xmpp:ping'/>")
}
