//! The identifiers that the gateway makes for items of transient messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::{Gateway, Plan};
use fogmux_tests::mqtt::{self, Connection, V5};
use fogmux_tests::{tcp, tls, users, xmpp};
use rustix::process::Signal;

const EVENTS: usize = 6;

/// No two messages on a node have the same one (XEP-0060 §12.8): neither those of two runs of the gateway, nor those
/// that waited for a member of a shared subscription, in the store, and are handed on.
pub(super) fn distinct() -> Result<String> {
    let data = tempfile::tempdir()?;
    let plan = Plan { data: Some(data.path()), ..Plan::default() };
    let mut seen = BTreeMap::new();
    let mut waiting = Vec::new();
    for run in 0..3 {
        let mut gateway = Gateway::start_as(plan)?;
        let (http, broker) = (gateway.address("http")?, gateway.address("mqtt")?);
        let post = |text: &str| -> Result<()> {
            let status = users::http_with(http, "", "POST", "/topics/ids/a", text.as_bytes())?;
            ensure!(status == 202 || status == 204, "POST is answered {status}");
            Ok(())
        };
        let config = tls::config(gateway.ca())?;
        let mut reader = member(&config, &gateway)?;
        // Messages that waited since the run before go to the reader, when the session of their member ends.
        let mut expected = std::mem::take(&mut waiting);
        drop(Connection::resume(broker, "member", 0, true)?);
        for number in 0..EVENTS {
            let text = format!("live {number} of run {run}");
            post(&text)?;
            expected.push(text);
        }
        for text in &expected {
            let event = reader.until("</message>")?;
            let id = event.split("<item id='").nth(1).and_then(|rest| rest.split('\'').next());
            let id = id.with_context(|| format!("no item in {event}"))?.to_owned();
            ensure!(event.contains(text.as_str()), "not {text:?}: {event}");
            let before = seen.insert(id.clone(), text.clone());
            ensure!(before.is_none(), "{id} is of {text:?} and of {before:?}");
        }
        // A publisher is told the identifier that subscribers get.
        let options = xmpp::form("publish-options", &[("pubsub#persist_items", "0")]);
        let answer = reader.entity(
            "set",
            &format!(
                "<publish node='ids/a'><item><data xmlns='urn:fogmux:0' encoding='utf8'>own</data></item></publish>\
                 <publish-options>{options}</publish-options>"
            ),
        )?;
        let event = reader.until("</message>").unwrap_or_default();
        let of =
            |text: &str| text.rsplit("<item id='").next().and_then(|rest| rest.split('\'').next()).map(str::to_owned);
        let both = answer.clone() + &event;
        let (told, got) = (of(&answer), of(&event));
        ensure!(told.is_some() && told == got, "told {told:?}, got {got:?}: {both}");
        drop(reader);
        let (mut absent, _) = Connection::resume(broker, "member", 600, true)?;
        ensure!(absent.subscribe(1, &["$share/g/ids/#"], 1)? == [1]);
        absent.stream.shutdown(std::net::Shutdown::Both)?;
        gateway.wait_metric("fogmux_door_connections{door=\"mqtt\"}", tcp::PATIENCE, |count| count == 0.0)?;
        let mut publisher = Connection::open(broker, V5, "publisher")?;
        for number in 0..EVENTS {
            let text = format!("kept {number} of run {run}");
            let id = u16::try_from(number + 1)?;
            std::io::Write::write_all(
                &mut publisher.stream,
                &mqtt::publish(V5, b"ids/a", text.as_bytes(), 1, false, id),
            )?;
            publisher.read()?;
            waiting.push(text);
        }
        drop(publisher);
        gateway.signal(Signal::TERM)?;
        gateway.wait_exit(tcp::PATIENCE)?;
    }
    Ok(format!("{} identifiers", seen.len()))
}

/// A member of the group in which the MQTT session is.
fn member(config: &Arc<rustls::ClientConfig>, gateway: &Gateway) -> Result<xmpp::Session> {
    let mut reader = xmpp::Session::anonymous(config, gateway.address("xmpps")?)?;
    let filter = xmpp::form("subscribe_options", &[("{urn:fogmux:0}filter", "true")]);
    let options = format!("<options>{filter}</options>");
    let action = format!("<subscribe node='$share/g/ids/#' jid='{}'/>{options}", reader.bare());
    let answer = reader.entity("set", &action)?;
    ensure!(answer.contains("type='result'"), "{answer}");
    reader.send("<presence/>")?;
    Ok(reader)
}
