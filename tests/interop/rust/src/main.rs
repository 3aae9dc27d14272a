//! tokio-xmpp behind the line protocol of `bridges.py`, JSON object by line: `ADDRESS JID direct|starttls`, the
//! password on the first line. It binds its login to the channel by tls-exporter (RFC 9266) without being asked to;
//! which mechanism it took is in the line that says it is ready, and it trusts whom `SSL_CERT_FILE` names.

use std::error::Error;
use std::io::Write;
use std::sync::Mutex;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio_xmpp::connect::DnsConfig;
use tokio_xmpp::jid::{BareJid, Jid};
use tokio_xmpp::minidom::Element;
use tokio_xmpp::xmlstream::Timeouts;
use tokio_xmpp::{Client, Event, IqRequest, IqResponse, IqResponseToken, Stanza};

const SERVICE: &str = "pubsub.localhost";
const DATA: &str = "urn:fogmux:0";
const EVENT: &str = "http://jabber.org/protocol/pubsub#event";

/// A logger that records what the library sends and receives. A failed login shows only in its log: it tries again.
struct Overheard;

/// The mechanism of `<auth/>`, and the condition of `<failure/>`.
static HEARD: Mutex<(Option<String>, Option<String>)> = Mutex::new((None, None));

impl log::Log for Overheard {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with("tokio_xmpp")
    }

    fn log(&self, record: &log::Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = record.args().to_string();
        if text.starts_with("SEND <auth") {
            let mechanism = text.split("mechanism=").nth(1).and_then(|rest| rest.split(['\'', '"']).nth(1));
            HEARD.lock().unwrap().0 = mechanism.map(str::to_owned);
        } else if text.starts_with("RECV") && text.contains("<failure") {
            let inside = text.split("<failure").nth(1).and_then(|rest| rest.split('<').nth(1));
            let condition = inside.and_then(|rest| rest.split(['/', '>', ' ']).next());
            HEARD.lock().unwrap().1 = condition.map(str::to_owned);
        } else if record.level() <= log::Level::Warn && text.contains("rror") {
            HEARD.lock().unwrap().1.get_or_insert(text);
        }
    }

    fn flush(&self) {}
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    log::set_logger(&Overheard).map_err(|error| error.to_string())?;
    log::set_max_level(log::LevelFilter::Trace);
    let [address, jid, how] = <[String; 3]>::try_from(std::env::args().skip(1).collect::<Vec<String>>())
        .map_err(|_| "ADDRESS JID direct|starttls")?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let password = lines.next_line().await?.ok_or("no password")?;
    let (jid, way) = (BareJid::new(&jid)?, DnsConfig::addr(&address));
    let client = match how.as_str() {
        "direct" => Client::new_direct_tls_with_config(jid, password, way, Timeouts::default()),
        _ => Client::new_starttls(jid, password, way, Timeouts::default()),
    };
    serve(client, lines).await
}

async fn serve(mut client: Client, mut lines: Lines<BufReader<Stdin>>) -> Result<(), Box<dyn Error>> {
    let jid = loop {
        tokio::select! {
            event = client.next() => match event {
                Some(Event::Online { bound_jid, .. }) => break bound_jid,
                other => return Err(format!("{other:?}").into()),
            },
            () = tokio::time::sleep(std::time::Duration::from_millis(20)) => {}
        }
        if let Some(reason) = HEARD.lock().unwrap().1.take() {
            say(&json!({ "fatal": reason }));
            std::process::exit(1);
        }
    };
    say(&json!({ "ready": true, "mechanism": HEARD.lock().unwrap().0 }));
    loop {
        tokio::select! {
            event = client.next() => match event {
                Some(Event::Stanza(Stanza::Message(message))) => message.payloads.iter().for_each(arrived),
                Some(_) => {}
                None => return Ok(()),
            },
            line = lines.next_line() => {
                let Some(line) = line? else { return Ok(client.send_end().await?) };
                let request: Value = serde_json::from_str(&line)?;
                let answer = ask(&mut client, &jid, &request).await?;
                let id = request["id"].clone();
                tokio::spawn(async move { said(&id, answer).await });
            }
        }
    }
}

/// Sends what is asked for; nothing is sent for `close`.
async fn ask(client: &mut Client, jid: &Jid, request: &Value) -> Result<Option<IqResponseToken>, Box<dyn Error>> {
    let node = escaped(request["topic"].as_str().unwrap_or_default());
    let (space, inside) = match request["do"].as_str().unwrap_or_default() {
        "publish" => ("", format!("<publish node='{node}'><item>{}</item></publish>", payload(request))),
        "clear" => ("#owner", format!("<purge node='{node}'/>")),
        "follow" => ("", format!("<subscribe node='{node}' jid='{}'/>", escaped(jid.as_str()))),
        _ => return Ok(None),
    };
    let pubsub = format!("<pubsub xmlns='http://jabber.org/protocol/pubsub{space}'>{inside}</pubsub>");
    let element = pubsub.parse::<Element>()?;
    Ok(Some(client.send_iq(Some(Jid::new(SERVICE)?), IqRequest::Set(element)).await))
}

fn payload(request: &Value) -> String {
    let kind = request["content_type"].as_str().map(|kind| format!(" content-type='{}'", escaped(kind)));
    let data = request["data"].as_str().unwrap_or_default();
    format!("<data xmlns='{DATA}'{} encoding='base64'>{data}</data>", kind.unwrap_or_default())
}

async fn said(id: &Value, answer: Option<IqResponseToken>) {
    let error = match answer {
        None => None,
        Some(answer) => match answer.await {
            Ok(IqResponse::Result(_)) => None,
            Ok(IqResponse::Error(error)) => Some(condition(&Element::from(error))),
            Err(failure) => Some(failure.to_string()),
        },
    };
    say(&json!({ "done": id, "error": error }));
}

/// The standard's word (RFC 6120 §8.3.3).
fn condition(error: &Element) -> String {
    error.children().next().map_or_else(|| "no condition".to_owned(), |child| child.name().to_owned())
}

fn arrived(event: &Element) {
    let Some(items) = event.get_child("items", EVENT).filter(|_| event.is("event", EVENT)) else { return };
    for data in items.children().filter_map(|item| item.get_child("data", DATA)) {
        let bytes = match data.attr("encoding") {
            Some("base64") => BASE64.decode(data.text()).unwrap_or_default(),
            _ => data.text().into_bytes(),
        };
        say(&json!({
            "topic": items.attr("node"), "data": BASE64.encode(bytes), "content_type": data.attr("content-type"),
        }));
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&apos;")
}

fn say(line: &Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
