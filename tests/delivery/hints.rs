//! Outcomes do not reveal to a client that may not read whether something is there; pages of other origins may not ask.

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use fogmux_tests::{coap, tcp, tls, users, xmpp};

pub(crate) const CASES: &[Case] = &[
    Case { name: "hints: HTTP tells a writer nothing of what is there", run: http },
    Case { name: "hints: CoAP tells a writer nothing of what is there", run: coap_writer },
    Case { name: "hints: XMPP tells a writer nothing of what is there", run: xmpp_writer },
    Case { name: "hints: an origin of another scheme is another origin", run: scheme },
];

/// Writers may write everything below `in`, the others may read it, too.
const RULES: &str = "[[allow]]\nuser = \"ada\"\nboth = \"#\"\n[[allow]]\nuser = \"dev\"\nwrite = \"in/#\"\n\
    [[allow]]\nanonymous = true\nwrite = \"in/#\"\n";

fn start() -> Result<Gateway> {
    users::gateway(&[], &["dev", "ada"], &[("acl.toml", RULES)])
}

fn http() -> Result<String> {
    let gateway = start()?;
    let http = gateway.address("http")?;
    let ask = |user: &str, method: &str, topic: &str| {
        users::http(http, user, method, &format!("/topics/{topic}"), if method == "PUT" { b"x" } else { b"" })
    };
    ensure!(ask("ada", "PUT", "in/there")? == 201 && ask("ada", "PUT", "in/there")? == 204, "ada is told");
    for method in ["PUT", "GET", "HEAD", "DELETE"] {
        let (absent, present) = (ask("dev", method, "in/absent")?, ask("dev", method, "in/there")?);
        ensure!(absent == present, "{method} tells dev: {absent} and {present}");
    }
    ask("ada", "PUT", "in/there")?;
    ask("ada", "DELETE", "in/absent")?;
    for condition in ["If-Match: *", "If-None-Match: *", "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT"] {
        for method in ["PUT", "DELETE", "POST"] {
            let headers = format!("{condition}\r\n{}", users::authorization("dev"));
            let ask = |topic: &str| users::http_with(http, &headers, method, &format!("/topics/in/{topic}"), b"x");
            let (absent, present) = (ask("absent")?, ask("there")?);
            ensure!(absent == 403 && present == 403, "{condition} with {method} tells dev: {absent} and {present}");
        }
    }
    let headers = format!("If-None-Match: *\r\n{}", users::authorization("ada"));
    ensure!(users::http_with(http, &headers, "PUT", "/topics/in/there", b"x")? == 412, "ada is told");
    Ok(String::new())
}

fn coap_writer() -> Result<String> {
    const IF_MATCH: u16 = 1;
    const IF_NONE_MATCH: u16 = 5;
    let gateway = start()?;
    let put = |topic: &str| users::http(gateway.address("http")?, "ada", "PUT", &format!("/topics/{topic}"), b"x");
    ensure!(put("in/there")? == 201);
    let socket = coap::endpoint(gateway.address("coap")?)?;
    let mut id = 0;
    let mut ask = |code: u8, topic: &str, more: &[(u16, &[u8])]| -> Result<String> {
        id += 1;
        let request = coap::request(coap::CON, code, id, &id.to_be_bytes(), topic, more, b"");
        Ok(coap::dotted(&coap::exchange(&socket, &request, &id.to_be_bytes())?))
    };
    const DELETE: u8 = 4;
    for (name, code) in [("PUT", coap::PUT), ("GET", coap::GET), ("DELETE", DELETE)] {
        let (absent, present) = (ask(code, "in/absent", &[])?, ask(code, "in/there", &[])?);
        ensure!(absent == present, "{name} tells a writer: {absent} and {present}");
    }
    ensure!(put("in/there")? == 201);
    users::http(gateway.address("http")?, "ada", "DELETE", "/topics/in/absent", b"")?;
    for option in [IF_MATCH, IF_NONE_MATCH] {
        let (absent, present) =
            (ask(coap::PUT, "in/absent", &[(option, b"")])?, ask(coap::PUT, "in/there", &[(option, b"")])?);
        ensure!(absent == "4.03" && present == "4.03", "option {option} tells a writer: {absent} and {present}");
    }
    Ok(String::new())
}

fn xmpp_writer() -> Result<String> {
    let gateway = start()?;
    let config = tls::config(gateway.ca())?;
    let log_in = |user: &str| {
        let stream = tcp::connect(gateway.address("xmpps")?)?;
        xmpp::Session::plain_password(stream, &config, &users::sasl_plain(user), "r")
    };
    let put = |topic: &str| users::http(gateway.address("http")?, "ada", "PUT", &format!("/topics/{topic}"), b"x");
    put("in/there")?;
    put("closed/there")?;
    let mut dev = log_in("dev")?;
    // An error's condition, or that there was none.
    let outcome = |answer: &str| {
        let conditions = ["item-not-found", "forbidden", "not-authorized", "type='result'"];
        conditions.into_iter().find(|condition| answer.contains(condition)).unwrap_or("another error")
    };
    for action in ["<retract node='NODE'><item id='current'/></retract>", "<items node='NODE'/>"] {
        let kind = if action.starts_with("<items") { "get" } else { "set" };
        for place in ["in", "closed"] {
            let mut ask = |name: &str| -> Result<&str> {
                Ok(outcome(&dev.entity(kind, &action.replace("NODE", &format!("{place}/{name}")))?))
            };
            let (absent, present) = (ask("absent")?, ask("there")?);
            ensure!(absent == present, "{action} in {place} tells dev: {absent} and {present}");
        }
    }
    put("in/there")?;
    for action in ["<configure node='NODE'/>", "<purge node='NODE'/>", "<delete node='NODE'/>"] {
        let kind = if action.starts_with("<configure") { "get" } else { "set" };
        for place in ["closed", "in"] {
            put(&format!("{place}/there"))?;
            let mut ask = |name: &str| -> Result<&str> {
                Ok(outcome(&dev.owner(kind, &action.replace("NODE", &format!("{place}/{name}")))?))
            };
            let (absent, present) = (ask("absent")?, ask("there")?);
            ensure!(absent == present, "{action} in {place} tells dev: {absent} and {present}");
        }
    }
    // Lists have neither names nor numbers of what may not be read.
    put("in/there")?;
    for number in 0..30 {
        put(&format!("closed/{number}"))?;
    }
    let list = "<query xmlns='http://jabber.org/protocol/disco#items'>\
        <set xmlns='http://jabber.org/protocol/rsm'><max>5</max></set></query>";
    let answer = dev.ask("get", list)?;
    ensure!(!answer.contains("node='"), "names: {answer}");
    let count = answer.split_once("<count>").and_then(|(_, rest)| rest.split_once("</count>"));
    let (count, _) = count.unwrap_or(("0", ""));
    ensure!(count.parse::<usize>().context("a count")? <= 1, "a count of {count} for dev, who may read nothing");
    Ok(String::new())
}

fn scheme() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let http = gateway.address("http")?;
    let put =
        |scheme: &str| users::http_with(http, &format!("Origin: {scheme}://{http}\r\n"), "PUT", "/topics/t", b"x");
    let own = put("http")?;
    ensure!(matches!(own, 201 | 204), "a page of the gateway's own origin is answered {own}");
    let other = put("https")?;
    ensure!(other == 403, "a page of another scheme is answered {other}");
    // Behind a named proxy that ends TLS it is the other way round.
    let gateway = users::gateway(&["proxy.addresses=[\"127.0.0.1\"]"], &["dev"], &[])?;
    let http = gateway.address("http")?;
    let put = |scheme: &str| {
        let own = format!(
            "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\nOrigin: {scheme}://{http}\r\n{}",
            users::authorization("dev")
        );
        users::http_with(http, &own, "PUT", "/topics/t", b"x")
    };
    let (secure, plain) = (put("https")?, put("http")?);
    ensure!(matches!(secure, 201 | 204) && plain == 403, "behind a proxy: {secure} and {plain}");
    Ok(String::new())
}
