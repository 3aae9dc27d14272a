//! Our MQTT client machine against `rumqttd`, run in this process (ADR 0001).

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use fogmux_mqtt::{Client, ClientLimits, Connect, Event, Outgoing, Properties, Qos, SubscriptionOptions, Version};
use rumqttd::{Broker, Config, ConnectionSettings, RouterConfig, ServerSettings};

const PATIENCE: Duration = Duration::from_secs(10);

fn settings(name: &str, listen: SocketAddr) -> HashMap<String, ServerSettings> {
    let connections = ConnectionSettings {
        connection_timeout_ms: 5000,
        max_payload_size: 1 << 20,
        max_inflight_count: 100,
        auth: None,
        external_auth: None,
        dynamic_filters: true,
    };
    let settings =
        ServerSettings { name: name.to_owned(), listen, tls: None, next_connection_delay_ms: 1, connections };
    HashMap::from([(name.to_owned(), settings)])
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A broker that lives as long as the process, with a listener for each version.
fn broker() -> (SocketAddr, SocketAddr) {
    let (v4, v5) = (free_address(), free_address());
    let router = RouterConfig {
        max_connections: 100,
        max_outgoing_packet_count: 200,
        max_segment_size: 1 << 20,
        max_segment_count: 10,
        ..RouterConfig::default()
    };
    let config = Config { router, v4: Some(settings("v4", v4)), v5: Some(settings("v5", v5)), ..Config::default() };
    thread::spawn(move || Broker::new(config).start().is_ok());
    (v4, v5)
}

struct Connection {
    stream: TcpStream,
    client: Client,
    input: Vec<u8>,
    out: Vec<u8>,
}

impl Connection {
    fn open(address: SocketAddr, version: Version, client_id: &str) -> Self {
        let deadline = Instant::now() + PATIENCE;
        let stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > deadline => panic!("{error}"),
                Err(_) => thread::yield_now(),
            }
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let connect = Connect {
            version,
            bridge: false,
            clean_start: true,
            keep_alive: 30,
            client_id,
            will: None,
            user: None,
            password: None,
            properties: Properties::NONE,
        };
        let mut out = Vec::new();
        let limits = ClientLimits { packet_bytes_max: 1 << 20, ..ClientLimits::default() };
        let client = Client::connect(&connect, limits, &mut out).unwrap();
        let mut connection = Self { stream, client, input: Vec::new(), out };
        connection.until(|event| matches!(event, Event::Connected { .. }).then_some(()));
        connection
    }

    /// Sends what there is and reads until `wanted` finds what it wants.
    fn until<T>(&mut self, mut wanted: impl FnMut(&Event<'_>) -> Option<T>) -> T {
        loop {
            while let Some((event, used)) = self.client.handle(&self.input, &mut self.out).unwrap() {
                let found = wanted(&event);
                self.input.drain(..used);
                if let Some(found) = found {
                    self.stream.write_all(&std::mem::take(&mut self.out)).unwrap();
                    return found;
                }
            }
            self.stream.write_all(&std::mem::take(&mut self.out)).unwrap();
            let mut buffer = [0; 4096];
            let read = self.stream.read(&mut buffer).unwrap();
            assert!(read > 0, "the broker closed the connection");
            self.input.extend_from_slice(&buffer[..read]);
        }
    }

    fn subscribe(&mut self, filter: &str, qos: Qos) {
        let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
        self.client.subscribe(&[(filter, options)], Properties::NONE, &mut self.out).unwrap();
        self.until(|event| matches!(event, Event::Subscribed { .. }).then_some(()));
    }
}

#[test]
fn messages_of_every_qos_pass_through_rumqttd() {
    let (v4, v5) = broker();
    for (version, address) in [(Version::V311, v4), (Version::V5, v5)] {
        let mut reader = Connection::open(address, version, &format!("reader-{version:?}"));
        let mut writer = Connection::open(address, version, &format!("writer-{version:?}"));
        for qos in [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce] {
            // It delivers with the QoS of the subscription, whatever was published, unlike [MQTT-3.8.4-8].
            let (filter, topic) = (format!("plant/+/q{}", qos as u8), format!("plant/1/q{}", qos as u8));
            reader.subscribe(&filter, qos);
            let payload = [b"21.5 \0\xff".as_slice(), &[qos as u8]].concat();
            let outgoing = Outgoing { topic: &topic, qos, payload: &payload, ..Outgoing::default() };
            if writer.client.publish(&outgoing, &mut writer.out).unwrap().is_some() {
                writer.until(|event| matches!(event, Event::Published { .. }).then_some(()));
            } else {
                writer.stream.write_all(&std::mem::take(&mut writer.out)).unwrap();
            }
            let (from, got, with) = reader.until(|event| {
                let Event::Message(message) = event else { return None };
                Some((message.topic.as_str().to_owned(), message.payload.to_vec(), message.qos))
            });
            assert_eq!((from, got, with), (topic, payload, qos), "{version:?}");
        }
    }
}
