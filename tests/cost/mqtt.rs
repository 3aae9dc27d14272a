//! W1 to W6: MQTT 3.1.1 from publishers to subscribers.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Result, ensure};
use fogmux_tests::mqtt::{Connection, V4, publish};

use crate::meter::Meter;

/// Rounds before anything is counted.
const WARM: usize = 3;

/// A flow of messages.
struct Flow {
    publishers: usize,
    subscribers: usize,
    /// Publisher i and subscriber i use topic i modulo this.
    topics: usize,
    qos: u8,
    bytes: usize,
    /// Messages of each publisher in one round.
    batch: u16,
    rounds: usize,
}

pub(crate) fn w1(meter: &mut Meter) -> Result<u32> {
    let flow = Flow { publishers: 1, subscribers: 1, topics: 1, qos: 0, bytes: 10, batch: 500, rounds: 60 };
    flow.run(meter)
}

pub(crate) fn w2(meter: &mut Meter) -> Result<u32> {
    let flow = Flow { publishers: 1, subscribers: 1, topics: 1, qos: 1, bytes: 10, batch: 100, rounds: 150 };
    flow.run(meter)
}

pub(crate) fn w3(meter: &mut Meter) -> Result<u32> {
    let flow = Flow { publishers: 1, subscribers: 1, topics: 1, qos: 2, bytes: 10, batch: 100, rounds: 100 };
    flow.run(meter)
}

pub(crate) fn w4(meter: &mut Meter) -> Result<u32> {
    let flow = Flow { publishers: 10, subscribers: 10, topics: 10, qos: 0, bytes: 64, batch: 100, rounds: 30 };
    flow.run(meter)
}

pub(crate) fn w5(meter: &mut Meter) -> Result<u32> {
    let flow = Flow { publishers: 1, subscribers: 100, topics: 1, qos: 0, bytes: 64, batch: 50, rounds: 20 };
    flow.run(meter)
}

pub(crate) fn w6(meter: &mut Meter) -> Result<u32> {
    let flow = Flow { publishers: 10, subscribers: 10, topics: 10, qos: 1, bytes: 1024, batch: 50, rounds: 30 };
    flow.run(meter)
}

/// A packet that consists of a type and an identifier.
pub(crate) fn ack(first: u8, id: [u8; 2]) -> [u8; 4] {
    [first, 2, id[0], id[1]]
}

pub(crate) const PUBACK: u8 = 0x40;
const PUBREC: u8 = 0x50;
const PUBREL: u8 = 0x62;
const PUBCOMP: u8 = 0x70;

/// A publisher or subscriber, and what it sends when the gateway stands still.
pub(crate) struct Client {
    stream: TcpStream,
    pub(crate) out: Vec<u8>,
}

impl Client {
    pub(crate) fn of(connection: Connection) -> Self {
        Self { stream: connection.stream, out: Vec::new() }
    }

    fn flush(&mut self) -> Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Reads packets of one length, so many, and queues the answer to each.
    pub(crate) fn read(
        &mut self,
        count: usize,
        length: usize,
        answer: impl Fn(&[u8]) -> Option<[u8; 4]>,
    ) -> Result<()> {
        let mut bytes = vec![0; count * length];
        self.stream.read_exact(&mut bytes)?;
        for packet in bytes.chunks(length) {
            self.out.extend(answer(packet).into_iter().flatten());
        }
        Ok(())
    }

    /// The same for acknowledgements of one kind.
    pub(crate) fn read_acks(&mut self, count: usize, kind: u8, next: Option<u8>) -> Result<()> {
        let mut right = 0;
        let mut bytes = vec![0; count * 4];
        self.stream.read_exact(&mut bytes)?;
        for packet in bytes.as_chunks::<4>().0 {
            right += usize::from(packet[0] == kind);
            self.out.extend(next.into_iter().flat_map(|first| ack(first, [packet[2], packet[3]])));
        }
        ensure!(right == count, "{right} of {count} packets are of kind {kind:#x}");
        Ok(())
    }
}

impl Flow {
    fn run(&self, meter: &mut Meter) -> Result<u32> {
        let address = meter.gateway.address("mqtt")?;
        let topic = |index: usize| format!("cost/{}", index % self.topics);
        let mut subscribers = Vec::new();
        for index in 0..self.subscribers {
            let mut connection = Connection::open(address, V4, &format!("s{index}"))?;
            let granted = connection.subscribe(1, &[&topic(index)], self.qos)?;
            ensure!(granted == [self.qos], "SUBACK {granted:?}");
            subscribers.push(Client::of(connection));
        }
        let mut publishers = Vec::new();
        for index in 0..self.publishers {
            publishers.push(Client::of(Connection::open(address, V4, &format!("p{index}"))?));
        }
        let mut delivered = 0;
        for round in 0..WARM + self.rounds {
            if round == WARM {
                meter.begin()?;
                delivered = 0;
            }
            delivered += self.round(meter, &mut publishers, &mut subscribers)?;
        }
        meter.end()?;
        Ok(u32::try_from(delivered)?)
    }

    /// Sends a batch from each publisher, and goes on until everything is delivered and acknowledged. The last
    /// acknowledgements of subscribers are sent with the next batch.
    fn round(&self, meter: &Meter, publishers: &mut [Client], subscribers: &mut [Client]) -> Result<usize> {
        let payload = vec![b'x'; self.bytes];
        for (index, publisher) in publishers.iter_mut().enumerate() {
            let topic = format!("cost/{}", index % self.topics);
            for id in 1..=self.batch {
                publisher.out.extend(publish(V4, topic.as_bytes(), &payload, self.qos, false, id));
            }
        }
        let batch = usize::from(self.batch);
        let length = publish(V4, b"cost/0", &payload, self.qos, false, 1).len();
        // The identifier is behind the fixed header and the topic; topics have one digit.
        let at = length - self.bytes - 2;
        let each = self.publishers * batch / self.topics;
        send(meter, publishers, subscribers)?;
        let first = match self.qos {
            0 => None,
            1 => Some(PUBACK),
            _ => Some(PUBREC),
        };
        for subscriber in subscribers.iter_mut() {
            subscriber.read(each, length, |packet| Some(ack(first?, [*packet.get(at)?, *packet.get(at + 1)?])))?;
        }
        if let Some(kind) = first {
            for publisher in publishers.iter_mut() {
                publisher.read_acks(batch, kind, (self.qos == 2).then_some(PUBREL))?;
            }
        }
        if self.qos == 2 {
            send(meter, publishers, subscribers)?;
            for publisher in publishers.iter_mut() {
                publisher.read_acks(batch, PUBCOMP, None)?;
            }
            for subscriber in subscribers.iter_mut() {
                subscriber.read_acks(each, PUBREL, Some(PUBCOMP))?;
            }
        }
        Ok(each * self.subscribers)
    }
}

pub(crate) fn send(meter: &Meter, publishers: &mut [Client], subscribers: &mut [Client]) -> Result<()> {
    meter.at_once(|| publishers.iter_mut().chain(subscribers).try_for_each(Client::flush))
}
