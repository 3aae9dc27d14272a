//! Rules with placeholders.

use std::io::Write as _;

use anyhow::{Result, ensure};
use fogmux_tests::users::{self, Login};
use fogmux_tests::{mqtt, tcp, tls, xmpp};

/// `%c` is the identifier of an MQTT client: no name of another door stands for it.
pub(super) fn client_identifiers() -> Result<String> {
    const RULES: &str = "[[allow]]\nuser = \"ada\"\nboth = [\"own/%c/#\", \"ids/#\"]\n\n[[deny]]\nuser = \"ada\"\n\
                         both = [\"ids/%c/#\"]\n";
    let mut gateway = users::gateway(&[], &["ada"], &[("acl.toml", RULES)])?;
    // As an MQTT client with the identifier `r`, by the reason code of PUBACK.
    let (mut ada, ..) = Login::of("ada", "r").connect(gateway.address("mqtt")?)?;
    for (topic, allowed) in [("own/r/a", true), ("own/q/a", false), ("ids/r/a", false), ("ids/q/a", true)] {
        ada.stream.write_all(&mqtt::publish(mqtt::V5, topic.as_bytes(), b"x", 1, false, 1))?;
        let (kind, body) = ada.read()?;
        let refused = body.get(2).is_some_and(|reason| *reason >= 0x80);
        ensure!(kind == 0x40 && refused != allowed, "MQTT: {topic}: {body:02x?}");
    }
    // As an XMPP client with the resource `r`, and over HTTP.
    let stream = tcp::connect(gateway.address("xmpps")?)?;
    let config = tls::config(gateway.ca())?;
    let mut session = xmpp::Session::plain_password(stream, &config, &users::sasl_plain("ada"), "r")?;
    for topic in ["own/r/a", "own/q/a", "ids/r/a", "ids/q/a"] {
        let item = "<item><data xmlns='urn:fogmux:0' encoding='utf8'>x</data></item>";
        let answer = session.entity("set", &format!("<publish node='{topic}'>{item}</publish>"))?;
        ensure!(answer.contains("<forbidden"), "XMPP: {topic}: {answer}");
        let status = users::http(gateway.address("http")?, "ada", "PUT", &format!("/topics/{topic}"), b"x")?;
        ensure!(status == 403, "HTTP: {topic}: {status}");
    }
    drop((ada, session));
    gateway.settle()?;
    Ok(String::new())
}
