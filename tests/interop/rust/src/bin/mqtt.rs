//! rumqttc behind the line protocol of `mqtt_programs.py`.

use std::collections::HashMap;
use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{LastWill, Packet, SubscribeReasonCode};
use rumqttc::v5::{AsyncClient, Event, EventLoop, MqttOptions};
use rumqttc::{TlsConfiguration, Transport};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;

type Answer = Result<Value, Box<dyn Error>>;

const PATIENCE_SECONDS: u64 = 60;
/// Between two attempts of a client that connects again by itself.
const PAUSE: Duration = Duration::from_millis(200);

/// Requests of one connection wait for each other, so the next acknowledgement is the one that is waited for.
struct Connection {
    client: AsyncClient,
    answers: mpsc::UnboundedReceiver<Result<Packet, String>>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    rustls::crypto::ring::default_provider().install_default().map_err(|_| "a provider is there")?;
    say(&json!({ "ready": true, "version": version() }));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut connections = HashMap::new();
    while let Some(line) = lines.next_line().await? {
        let request: Value = serde_json::from_str(&line)?;
        let name = text(&request, "name").to_owned();
        let answer = if request["do"] == "open" {
            open(&request).await.map(|(connection, session)| {
                connections.insert(name, connection);
                json!(session)
            })
        } else {
            let connection = connections.get_mut(&name).ok_or("no such connection")?;
            carry_out(connection, &request).await
        };
        let (session, error) =
            answer.map_or_else(|error| (Value::Null, json!(error.to_string())), |s| (s, Value::Null));
        say(&json!({ "done": request["id"], "session": session, "error": error }));
    }
    Ok(())
}

/// The release of the library, as the lock file has it.
fn version() -> &'static str {
    let lock = include_str!("../../Cargo.lock");
    let after = lock.split("name = \"rumqttc\"\nversion = \"").nth(1).unwrap_or_default();
    after.split('"').next().unwrap_or_default()
}

async fn open(request: &Value) -> Result<(Connection, bool), Box<dyn Error>> {
    let (host, port) = (text(request, "host"), u16::try_from(request["port"].as_u64().unwrap_or_default())?);
    let host = match text(request, "transport") {
        "ws" => format!("ws://{host}:{port}/mqtt"),
        _ => host.to_owned(),
    };
    let expiry = u32::try_from(request["expiry"].as_u64().unwrap_or_default())?;
    let mut options = MqttOptions::new(text(request, "client"), host, port);
    options.set_clean_start(expiry == 0).set_session_expiry_interval(Some(expiry));
    options.set_connection_timeout(PATIENCE_SECONDS);
    options.set_transport(match text(request, "transport") {
        "ws" => Transport::Ws,
        "tls" => Transport::Tls(trust(text(request, "ca"))?),
        _ => Transport::Tcp,
    });
    if request["will"].is_object() {
        let will = &request["will"];
        options.set_last_will(LastWill::new(text(will, "topic"), text(will, "data"), QoS::AtLeastOnce, true, None));
    }
    let (client, events) = AsyncClient::new(options, 100);
    let (said, mut answers) = mpsc::unbounded_channel();
    let returns = request["returns"] == true;
    tokio::spawn(listen(events, text(request, "name").to_owned(), returns, said));
    match answers.recv().await.ok_or("the connection has ended")?? {
        Packet::ConnAck(connack) => Ok((Connection { client, answers }, connack.session_present)),
        other => Err(format!("{other:?} instead of CONNACK").into()),
    }
}

fn trust(file: &str) -> Result<TlsConfiguration, Box<dyn Error>> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file)? {
        roots.add(certificate?)?;
    }
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConfiguration::Rustls(Arc::new(config)))
}

/// Prints messages, and hands on what acknowledges something.
async fn listen(
    mut events: EventLoop,
    name: String,
    returns: bool,
    said: mpsc::UnboundedSender<Result<Packet, String>>,
) {
    loop {
        let answer = match events.poll().await {
            Ok(Event::Incoming(Packet::Publish(message))) => {
                let data = String::from_utf8_lossy(&message.payload);
                say(&json!({ "name": name, "data": data, "qos": message.qos as u8 }));
                continue;
            }
            Ok(Event::Incoming(
                packet @ (Packet::ConnAck(_) | Packet::SubAck(_) | Packet::PubAck(_) | Packet::PubComp(_)),
            )) => Ok(packet),
            Ok(_) => continue,
            Err(_) if returns => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(error) => Err(error.to_string()),
        };
        let is_end = answer.is_err();
        if said.send(answer).is_err() || is_end {
            return;
        }
    }
}

async fn carry_out(connection: &mut Connection, request: &Value) -> Answer {
    let qos = match request["qos"].as_u64() {
        Some(2) => QoS::ExactlyOnce,
        Some(1) => QoS::AtLeastOnce,
        _ => QoS::AtMostOnce,
    };
    match text(request, "do") {
        "subscribe" => {
            connection.client.subscribe(text(request, "filter"), qos).await?;
            match connection.next().await? {
                Packet::SubAck(granted) if matches!(granted.return_codes[..], [SubscribeReasonCode::Success(_)]) => {}
                other => return Err(format!("{other:?} instead of a grant").into()),
            }
        }
        "publish" => {
            let payloads: Vec<&str> =
                request["data"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            for payload in &payloads {
                connection.client.publish(text(request, "topic"), qos, false, (*payload).to_owned()).await?;
            }
            for _ in payloads {
                connection.next().await?;
            }
        }
        _ => {
            connection.client.disconnect().await?;
            // The loop ends with an error when the gateway has closed.
            let closed = tokio::time::timeout(Duration::from_secs(PATIENCE_SECONDS), connection.answers.recv());
            let _ = closed.await?;
        }
    }
    Ok(Value::Null)
}

impl Connection {
    async fn next(&mut self) -> Result<Packet, Box<dyn Error>> {
        Ok(self.answers.recv().await.ok_or("the connection has ended")??)
    }
}

fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object[name].as_str().unwrap_or_default()
}

fn say(line: &Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
