//! CoAP observers: every retained message of a filter, the newest value, the end of an observation.

mod catch_up;
mod commands;
mod ends;
mod formats;
mod many;
mod newest;
mod oscore;
mod slow;
mod versions;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fogmux_tests::coap::{self, ACK, CON, FETCH, GET, Message, OBSERVE, URI_PATH, URI_QUERY};
use fogmux_tests::mqtt;
use fogmux_tests::suite::Case;
use fogmux_tests::tcp;

pub(crate) const CASES: &[Case] = &[
    Case { name: "coap oscore numbers of an old journal are not used again", run: oscore::old_journal },
    Case { name: "coap udp small receive buffer gets every retained message", run: catch_up::small_buffer },
    Case { name: "coap udp late acknowledgements get every retained message", run: catch_up::late },
    Case { name: "coap udp observer that never acknowledges is ended", run: catch_up::never },
    Case { name: "coap fogmux sub gets 5000 retained messages over udp", run: catch_up::command_udp },
    Case { name: "coap fogmux sub gets large messages of many topics, not retained", run: catch_up::command_events },
    Case {
        name: "coap fogmux sub gets more large messages than there is room for",
        run: catch_up::command_large_events,
    },
    Case { name: "coap fogmux sub gets 1000 retained messages over dtls", run: catch_up::command_dtls },
    Case { name: "coap tcp observer that pauses ends on the newest of 64 topics", run: newest::pause },
    Case { name: "coap tcp filter observer that pauses ends on the newest of 200 topics", run: newest::filter },
    Case { name: "coap websocket observer that pauses ends on the newest of 64 topics", run: newest::pause_websocket },
    Case { name: "coap websocket filter observer that pauses ends on the newest", run: newest::filter_websocket },
    Case { name: "coap udp observers end on the newest value after bursts", run: newest::bursts },
    Case { name: "coap observer that holds too much is ended with 5.03 and harms no other", run: ends::hog },
    Case { name: "coap observation keeps its content format or ends with 4.06", run: ends::format },
    Case { name: "coap observed value that expires brings a final 4.04", run: ends::expiry },
    Case { name: "coap loose content formats satisfy accept", run: ends::loose },
    Case { name: "coap udp uploads side by side all end well", run: many::uploads },
    Case { name: "coap udp uploads without room for all leave some to end", run: many::uploads_without_room },
    Case { name: "coap one connection observes 1000 topics", run: many::observations },
    Case { name: "coap dtls versions are those of the configuration", run: versions::offered },
    Case {
        name: "coap tcp client that is slow to read is not cut for a Ping that it could not answer",
        run: slow::unread,
    },
    Case { name: "coap tcp client that is slow to read gets its answers during a shutdown", run: slow::shutdown },
    Case {
        name: "coap fogmux pub sends each block once, however often it is told to go on",
        run: commands::continue_for_ever,
    },
    Case { name: "coap an observation keeps its Content-Format, also for empty values", run: formats::kept },
    Case { name: "coap fogmux sub fetches sixteen large messages at a time and loses none", run: commands::many_rests },
    Case { name: "coap fogmux sub registers again after 5.03 with Max-Age", run: commands::unavailable_for_a_while },
    Case { name: "coap connections gauge counts observing endpoints", run: ends::gauge },
];

/// How long a case waits for one more message.
const PATIENCE: Duration = Duration::from_secs(10);

/// Retains a message for each topic, by one MQTT connection.
fn retain(gateway: &fogmux_tests::gateway::Gateway, messages: impl Iterator<Item = (String, Vec<u8>)>) -> Result<()> {
    publish(gateway, messages, true)
}

/// Publishes messages in their order; the last is acknowledged, so that all before have been taken.
fn publish(
    gateway: &fogmux_tests::gateway::Gateway,
    messages: impl Iterator<Item = (String, Vec<u8>)>,
    retain: bool,
) -> Result<()> {
    let mut client = mqtt::Connection::open(gateway.address("mqtt")?, 4, "publisher")?;
    let mut bytes = Vec::new();
    for (topic, payload) in messages {
        bytes.extend(mqtt::publish(4, topic.as_bytes(), &payload, 0, retain, 0));
        if bytes.len() > 256 << 10 {
            client.stream.write_all(&std::mem::take(&mut bytes))?;
        }
    }
    bytes.extend(mqtt::publish(4, b"end/of/batch", b"x", 1, false, 7));
    client.stream.write_all(&bytes)?;
    ensure!(client.read()?.0 == 0x40, "no PUBACK");
    Ok(())
}

/// An observer by hand over UDP.
struct Observer {
    socket: UdpSocket,
    newest: BTreeMap<String, Vec<u8>>,
    last: Option<Message>,
}

impl Observer {
    /// Observes a topic, or with `filter` all that it matches.
    fn register(server: SocketAddr, topic: &str, filter: Option<&str>, options: &[(u16, &[u8])]) -> Result<Self> {
        Self::register_by(coap::endpoint(server)?, topic, filter, options)
    }

    fn register_by(socket: UdpSocket, topic: &str, filter: Option<&str>, options: &[(u16, &[u8])]) -> Result<Self> {
        let query = filter.map(|filter| format!("filter={filter}"));
        let mut all: Vec<(u16, &[u8])> = vec![(OBSERVE, b""), (URI_PATH, b"ps")];
        all.extend(topic.split('/').filter(|level| !level.is_empty()).map(|level| (URI_PATH, level.as_bytes())));
        all.extend(query.as_ref().map(|query| (URI_QUERY, query.as_bytes())));
        all.extend(options);
        all.sort_by_key(|(number, _)| *number);
        let code = if filter.is_some() { FETCH } else { GET };
        let request = coap::message(CON, code, 1, b"t", &all, b"");
        socket.send(&request)?;
        let mut observer = Self { socket, newest: BTreeMap::new(), last: None };
        // Notifications may overtake the answer.
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let Some(message) = observer.receive(PATIENCE)? else { break };
            observer.note(&message)?;
            if message.kind == ACK {
                ensure!(message.code == 0x45, "the answer is {:#x}", message.code);
                return Ok(observer);
            }
        }
        anyhow::bail!("no answer");
    }

    fn receive(&self, patience: Duration) -> Result<Option<Message>> {
        coap::receive(&self.socket, patience)?.map(|datagram| Message::of_datagram(&datagram)).transpose()
    }

    fn acknowledge(&self, message: &Message) -> Result<()> {
        self.socket.send(&coap::message(ACK, 0, message.id, b"", &[], b""))?;
        Ok(())
    }

    /// Keeps what a message says, and acknowledges it.
    fn note(&mut self, message: &Message) -> Result<()> {
        if message.kind == CON {
            self.acknowledge(message)?;
        }
        if !message.payload.is_empty() {
            self.newest.insert(message.topic(), message.payload.clone());
        }
        self.last = Some(message.clone());
        Ok(())
    }

    /// Takes what comes until `done`, or until nothing has come for a while.
    fn follow(&mut self, done: impl Fn(&Self) -> bool) -> Result<bool> {
        while !done(self) {
            let Some(message) = self.receive(PATIENCE)? else { return Ok(false) };
            self.note(&message)?;
        }
        Ok(true)
    }

    /// Ends the observation.
    fn deregister(self) -> Result<()> {
        let reset = coap::message(CON, GET, 2, b"t", &[(OBSERVE, &[1]), (URI_PATH, b"ps")], b"");
        self.socket.send(&reset)?;
        while let Some(message) = self.receive(tcp::PATIENCE)? {
            if message.kind == ACK && message.id == 2 {
                break;
            }
        }
        Ok(())
    }
}
