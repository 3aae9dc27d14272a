//! A client with a session of its own that it never loses (§4.3, §4.4).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Packet;

/// A message that the client has published and that is not finished.
#[derive(Debug)]
struct Sent {
    id: u16,
    message: u64,
    exactly_once: bool,
    released: bool,
}

#[derive(Debug, Default)]
pub(super) struct Client {
    /// In the order in which they were published.
    sent: VecDeque<Sent>,
    /// Identifiers that wait for PUBREL, with their messages.
    received: BTreeMap<u16, u64>,
    /// Messages in the order in which they were handed to the application.
    pub(super) got: Vec<u64>,
}

impl Client {
    /// Publishes with the least identifier that is free: they are used again as soon as may be.
    pub(super) fn publish(&mut self, message: u64, exactly_once: bool, out: &mut VecDeque<Packet>) {
        let used: BTreeSet<u16> = self.sent.iter().map(|sent| sent.id).collect();
        let id = (1..).find(|id| !used.contains(id)).unwrap();
        self.sent.push_back(Sent { id, message, exactly_once, released: false });
        out.push_back(Packet::Publish { id, exactly_once, dup: false, message });
    }

    /// Sends what is not finished again, in order ([MQTT-4.4.0-1]).
    pub(super) fn resume(&self, out: &mut VecDeque<Packet>) {
        out.extend(self.sent.iter().map(|sent| match *sent {
            Sent { id, released: true, .. } => Packet::Pubrel(id),
            Sent { id, message, exactly_once, .. } => Packet::Publish { id, exactly_once, dup: true, message },
        }));
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.sent.is_empty() || !self.received.is_empty()
    }

    pub(super) fn handle(&mut self, packet: Packet, out: &mut VecDeque<Packet>) -> Result<(), String> {
        match packet {
            Packet::Publish { id, exactly_once: false, message, .. } => {
                self.got.push(message);
                out.push_back(Packet::Puback(id));
            }
            Packet::Publish { id, exactly_once: true, dup, message } => {
                match self.received.insert(id, message) {
                    None => self.got.push(message),
                    Some(before) if before == message && dup => {}
                    Some(before) => return Err(format!("identifier {id} of message {before} was used for {message}")),
                }
                out.push_back(Packet::Pubrec(id));
            }
            Packet::Pubrel(id) => {
                self.received.remove(&id);
                out.push_back(Packet::Pubcomp(id));
            }
            Packet::Puback(id) | Packet::Pubcomp(id) => self.sent.retain(|sent| sent.id != id),
            Packet::Pubrec(id) => {
                // One that comes twice, because the message was sent twice, is answered twice.
                if let Some(sent) = self.sent.iter_mut().find(|sent| sent.id == id) {
                    sent.released = true;
                }
                out.push_back(Packet::Pubrel(id));
            }
        }
        Ok(())
    }
}
