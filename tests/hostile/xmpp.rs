//! XMPP: stanzas without end, depth without bottom, entities that multiply, senders that are somebody else.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt;
use fogmux_tests::suite::Case;
use fogmux_tests::tcp::{self, End};
use fogmux_tests::tls;
use fogmux_tests::xmpp::{OPEN, Session};

use crate::attack;

pub(crate) const CASES: &[Case] = &[
    Case { name: "xmpp a stanza of 60 MB before login", run: || attack(huge_stanza) },
    Case { name: "xmpp 100 000 nested elements", run: || attack(nested) },
    Case { name: "xmpp entity bombs", run: || attack(entities) },
    Case { name: "xmpp 100 000 attributes", run: || attack(attributes) },
    Case { name: "xmpp forbidden XML", run: || attack(forbidden) },
    Case { name: "xmpp open stanzas after login", run: || attack(open_stanzas) },
    Case { name: "xmpp from spoofing", run: || attack(spoofing) },
    Case { name: "xmpp small requests with large answers", run: || attack(large_answers) },
    Case { name: "xmpp 2 000 streams without login", run: || attack(unfinished_logins) },
];

const SOON: Duration = Duration::from_secs(5);

/// Opens a plaintext stream, sends `chunk` up to `times` times, and tells how much was taken before the end.
fn pour_before_login(gateway: &Gateway, start: &str, chunk: &str, times: usize) -> Result<(usize, End)> {
    let mut stream = tcp::connect(gateway.address("xmpp")?)?;
    let mut taken = 0;
    let mut open = tcp::pour(&mut stream, format!("{OPEN}{start}").as_bytes())?;
    for _ in 0..times {
        if !open {
            break;
        }
        open = tcp::pour(&mut stream, chunk.as_bytes())?;
        taken += chunk.len();
    }
    let end = tcp::read_end(&mut stream, SOON)?;
    Ok((taken, end))
}

fn huge_stanza(gateway: &Gateway) -> Result<String> {
    let chunk = "x".repeat(60_000);
    let (taken, end) = pour_before_login(gateway, "<message><body>", &chunk, 1000)?;
    ensure!(end.is_closed(), "{taken} bytes and the stream is still open");
    ensure!(taken < 30_000_000, "{taken} bytes were taken before login");
    let config = tls::config(gateway.ca())?;
    let mut session = Session::anonymous(&config, gateway.address("xmpps")?)?;
    session.send("<message to='pubsub.localhost'><body>")?;
    let mut sent = 0;
    while sent < 60_000_000 && tcp::pour(&mut session.stream, chunk.as_bytes())? {
        sent += chunk.len();
    }
    ensure!(sent < 60_000_000, "60 MB were taken after login");
    Ok(format!("closed after {} kB before and {} kB after login", taken / 1000, sent / 1000))
}

fn nested(gateway: &Gateway) -> Result<String> {
    let (_, end) = pour_before_login(gateway, "<message>", &"<a>".repeat(1000), 100)?;
    ensure!(end.is_closed(), "100 000 levels before login");
    let config = tls::config(gateway.ca())?;
    let mut session = Session::anonymous(&config, gateway.address("xmpps")?)?;
    session.send("<message to='pubsub.localhost'>")?;
    tcp::pour(&mut session.stream, "<a>".repeat(100_000).as_bytes())?;
    let error = session.until("</stream:stream>")?;
    ensure!(error.contains("<stream:error"), "100 000 levels after login: {error}");
    Ok("refused before and after login".to_owned())
}

fn entities(gateway: &Gateway) -> Result<String> {
    let mut bomb = String::from("<?xml version='1.0'?><!DOCTYPE lolz [<!ENTITY a \"aaaaaaaaaaaaaaaa\">");
    for (name, below) in ('b'..='p').zip('a'..='o') {
        bomb += &format!("<!ENTITY {name} \"{}\">", format!("&{below};").repeat(10));
    }
    bomb += "]><stream:stream to='localhost' version='1.0' xmlns='jabber:client' \
             xmlns:stream='http://etherx.jabber.org/streams'><message><body>&p;</body></message>";
    let mut stream = tcp::connect(gateway.address("xmpp")?)?;
    tcp::pour(&mut stream, bomb.as_bytes())?;
    ensure!(tcp::read_end(&mut stream, SOON)?.is_closed(), "a document type was taken");
    let (_, end) = pour_before_login(gateway, "<message><body>&undefined;</body></message>", "", 0)?;
    ensure!(end.is_closed(), "an undefined entity was taken");
    Ok("refused (RFC 6120 §11.1)".to_owned())
}

fn attributes(gateway: &Gateway) -> Result<String> {
    let many: String = (0..1000).map(|number| format!(" a{number}='x'")).collect();
    let (taken, end) = pour_before_login(gateway, "<message", &many, 100)?;
    ensure!(end.is_closed(), "{taken} bytes of attributes were taken");
    Ok(format!("closed after {taken} bytes"))
}

fn forbidden(gateway: &Gateway) -> Result<String> {
    let config = tls::config(gateway.ca())?;
    for wrong in
        ["<!-- comment -->", "<?target data?>", "<message>&lol;</message>", "<a><b></a></b>", "<message a='1' a='2'/>"]
    {
        let mut session = Session::anonymous(&config, gateway.address("xmpps")?)?;
        session.send(wrong)?;
        let error = session.until("</stream:stream>")?;
        let named = error.contains("restricted-xml") || error.contains("not-well-formed");
        ensure!(named, "{wrong}: {error}");
    }
    Ok("5 forbidden things".to_owned())
}

fn open_stanzas(gateway: &Gateway) -> Result<String> {
    let config = tls::config(gateway.ca())?;
    let began = Instant::now();
    let mut held = Vec::new();
    while held.len() < 300 && began.elapsed() < Duration::from_secs(20) {
        let mut session = Session::anonymous(&config, gateway.address("xmpps")?)?;
        session.send("<message to='pubsub.localhost'><body>")?;
        // Under the limit of a stanza, so that it stays open; more than 200 MB in all if all of it were kept.
        if !tcp::pour(&mut session.stream, &vec![b'o'; 1_000_000])? {
            continue;
        }
        held.push(session);
    }
    Ok(format!("{} stanzas left open", held.len()))
}

fn spoofing(gateway: &Gateway) -> Result<String> {
    let config = tls::config(gateway.ca())?;
    let mut victim = Session::anonymous(&config, gateway.address("xmpps")?)?;
    let mut liar = Session::anonymous(&config, gateway.address("xmpps")?)?;
    let from = victim.jid.clone();
    liar.send(&format!(
        "<iq type='set' id='lie' from='{from}' to='pubsub.localhost'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
         <subscribe node='spoof/node' jid='{from}'/></pubsub></iq>"
    ))?;
    // RFC 6120 §8.1.2.1: an error `invalid-from` on the stream, or the true sender put in its place.
    let answer = liar.until(">")?;
    let told = answer.contains("stream:error") || answer.contains("type='error'") || answer.contains("type=\"error\"");
    ensure!(told, "the lie was believed: {answer}");
    victim.send("<iq type='get' id='ping' to='localhost'><ping xmlns='urn:xmpp:ping'/></iq>")?;
    let answer = victim.until(">")?;
    ensure!(!answer.contains("lie"), "the victim was answered: {answer}");
    Ok("refused".to_owned())
}

fn unfinished_logins(gateway: &Gateway) -> Result<String> {
    let mut held = Vec::new();
    for _ in 0..2000 {
        let mut stream = tcp::connect(gateway.address("xmpp")?)?;
        tcp::pour(&mut stream, OPEN.as_bytes())?;
        held.push(stream);
    }
    Ok(format!("{} streams", held.len()))
}

fn large_answers(gateway: &Gateway) -> Result<String> {
    let mut publisher = mqtt::Connection::open(gateway.address("mqtt")?, mqtt::V5, "large")?;
    publisher.stream.write_all(&mqtt::publish(mqtt::V5, b"large", &vec![b'x'; 1 << 20], 1, true, 1))?;
    ensure!(publisher.read()?.0 == 0x40, "no PUBACK");
    let request = "<iq type='get' id='l' to='pubsub.localhost'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
         <items node='large'/></pubsub></iq>";
    let config = tls::config(gateway.ca())?;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut session = Session::anonymous(&config, gateway.address("xmpps")?)?;
        session.send(&request.repeat(400))?;
        held.push(session);
    }
    for session in &mut held {
        for _ in 0..20 {
            session.until("</iq>")?;
        }
    }
    Ok("3 × 400 requests for an item of 1 MiB".to_owned())
}
