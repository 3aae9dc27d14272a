//! Messages that subscribers have read are held no more, also while they stay connected and nothing more comes.

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::{tcp, tls, xmpp};

use crate::mqtt::client::{Came, Client};
use crate::mqtt::wire::Transport;
use crate::operation::http;

const TRANSPORTS: [Transport; 5] = [Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss, Transport::Http2];
/// Around the sizes at which a payload is copied, shared, or more than a socket takes at once.
const SIZES: [usize; 4] = [1, 16 << 10, 60_000, 1_000_000];
/// XMPP escapes and wraps it, and its stanzas have a bound.
const STANZA_MAX: usize = 60_000;

/// Readers at each level of service (an event stream keeps its last events for resumption), each message read by all of
/// them before the next one.
pub(super) fn after_reading() -> Result<String> {
    let mut gateway = Gateway::start(&[])?;
    let mut clients = Vec::new();
    for (number, transport) in TRANSPORTS.into_iter().enumerate() {
        for qos in 0..=2 {
            let mut client = Client::open(&gateway, &format!("{number}-{qos}"), transport)?;
            client.subscribe(&["t"], qos)?;
            clients.push(client);
        }
    }
    let config = tls::config(gateway.ca())?;
    let mut session = xmpp::Session::anonymous(&config, gateway.address("xmpps")?)?;
    let own = session.bare();
    session.entity("set", &format!("<subscribe node='t' jid='{own}'/>"))?;
    gateway.wait_metric("fogmux_bus_subscriptions", tcp::PATIENCE, |count| count >= 16.0)?;
    for bytes in SIZES {
        let status = http(&gateway, "POST", "/topics/t?qos=2", &vec![b'x'; bytes])?.0;
        ensure!(status == 202, "POST of {bytes} bytes: {status}");
        for client in &mut clients {
            let message = client.message_or("the message")?;
            ensure!(message.payload.len() == bytes, "{} instead of {bytes} bytes", message.payload.len());
            // Each goes out behind what acknowledges what came before it: PUBACK or PUBREC, and PUBCOMP.
            for _ in 0..3 {
                client.send(&[0xc0, 0])?;
                let came = client.next()?;
                ensure!(came == Came::Pong, "{came:?} instead of PINGRESP");
            }
        }
        if bytes <= STANZA_MAX {
            session.until("</message>")?;
        }
        gateway
            .wait_metric("fogmux_bus_mailbox_bytes", tcp::PATIENCE, |held| held == 0.0)
            .with_context(|| format!("after {bytes} bytes"))?;
    }
    drop((clients, session));
    gateway.settle()?;
    Ok(String::new())
}
