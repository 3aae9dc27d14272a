//! CoAP: what RFC 7252 and its companions answer to a message that is wrong, over a real socket.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fogmux_tests::coap::{self, ACK, BLOCK1, CON, CONTENT_FORMAT, GET, NON, PUT, RST, URI_PATH};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use fogmux_tests::tcp::PATIENCE;

use crate::all;

pub(crate) const CASES: &[Case] = &[
    Case { name: "coap malformed messages", run: malformed },
    Case { name: "coap requests that are refused", run: refused },
    Case { name: "coap a repeated message is answered, not done, again", run: repeated },
];

const IF_MATCH: u16 = 1;
const URI_HOST: u16 = 3;
const IF_NONE_MATCH: u16 = 5;
const HOP_LIMIT: u16 = 16;
const ACCEPT: u16 = 17;
const PROXY_URI: u16 = 35;
const PROXY_SCHEME: u16 = 39;
const NO_RESPONSE: u16 = 258;
const DELETE: u8 = 4;

/// The time without an answer after which silence is certain.
const SILENCE: Duration = Duration::from_millis(300);

/// The expected answer.
enum Answer {
    /// RST with the same message id.
    Reset,
    /// No answer.
    Silence,
    /// Either: the standard leaves it open (RFC 7252 §4.3).
    ResetOrSilence,
}

fn malformed() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let rows: [(&str, &[u8], Answer); 22] = [
        ("§4.3 ping", &[0x40, 0, 1, 1], Answer::Reset),
        ("§3 version 0", &[0x00, 1, 1, 2], Answer::Silence),
        ("§3 version 2", &[0x80, 1, 1, 3], Answer::Silence),
        ("§3 shorter than a header", &[0x40, 1, 1], Answer::Silence),
        ("§3 token length 9", &[0x49, 1, 1, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9], Answer::Reset),
        ("§3 token length 15", &[0x4f, 1, 1, 5], Answer::Reset),
        ("§3 token cut short", &[0x44, 1, 1, 6, 1, 2], Answer::Reset),
        ("§3 marker without payload", &[0x40, 1, 1, 7, 0xff], Answer::Reset),
        ("§4.1 Empty with a token", &[0x42, 0, 1, 8, 1, 2], Answer::Reset),
        ("§4.1 Empty with options", &[0x40, 0, 1, 9, 0xb1, b'a'], Answer::Reset),
        ("§4.1 Empty with payload", &[0x40, 0, 1, 10, 0xff, b'a'], Answer::Reset),
        ("§3.1 option delta 15", &[0x40, 1, 1, 11, 0xf1, b'a'], Answer::Reset),
        ("§3.1 option length 15", &[0x40, 1, 1, 12, 0x1f, b'a'], Answer::Reset),
        ("§3.1 option longer than the message", &[0x40, 1, 1, 13, 0xb9, b'a'], Answer::Reset),
        ("§3.1 extended delta cut short", &[0x40, 1, 1, 14, 0xe0, 1], Answer::Reset),
        ("§3.1 option number above 65 535", &[0x40, 1, 1, 15, 0xe0, 0xff, 0xff, 0xe0, 0xff, 0xff], Answer::Reset),
        ("§4.2 reserved class 1", &[0x40, 0x21, 1, 16], Answer::Reset),
        ("§4.2 reserved class 7", &[0x40, 0xe1, 1, 17], Answer::Reset),
        ("§4.3 marker without payload, NON", &[0x50, 1, 1, 18, 0xff], Answer::ResetOrSilence),
        ("§4.2 ACK of nothing", &[0x60, 0, 1, 19], Answer::Silence),
        ("§4.2 RST of nothing", &[0x70, 0, 1, 20], Answer::Silence),
        ("§5.3.2 a response never asked for, NON", &[0x51, 0x45, 1, 21, 7], Answer::ResetOrSilence),
    ];
    all(&rows, |(clause, bytes, wanted)| {
        let socket = coap::endpoint(gateway.address("coap")?)?;
        socket.send(bytes)?;
        let patience = if matches!(wanted, Answer::Reset) { PATIENCE } else { SILENCE };
        let answer = coap::receive(&socket, patience)?;
        let reset = [0x40 | RST << 4, 0, 1, bytes.get(3).copied().unwrap_or_default()];
        match (wanted, answer.as_deref()) {
            (Answer::Reset | Answer::ResetOrSilence, Some(bytes)) if bytes == reset => Ok(()),
            (Answer::Silence | Answer::ResetOrSilence, None) => Ok(()),
            (Answer::Reset, other) => bail!("{clause}: {other:02x?} instead of RST"),
            (Answer::Silence | Answer::ResetOrSilence, other) => bail!("{clause}: {other:02x?} instead of silence"),
        }
    })
}

/// A request, its options, and the codes that may answer it; none stands for silence.
struct Request {
    clause: &'static str,
    kind: u8,
    code: u8,
    topic: &'static str,
    options: Vec<(u16, Vec<u8>)>,
    answers: &'static [&'static str],
}

fn request(
    clause: &'static str,
    kind: u8,
    code: u8,
    topic: &'static str,
    options: &[(u16, &[u8])],
    answers: &'static [&'static str],
) -> Request {
    let options = options.iter().map(|(number, value)| (*number, value.to_vec())).collect();
    Request { clause, kind, code, topic, options, answers }
}

fn rows() -> Vec<Request> {
    let long = [b'l'; 256];
    vec![
        request("§5.8.1 GET of nothing", CON, GET, "no/thing", &[], &["4.04"]),
        request("§5.4.1 unknown critical option", CON, GET, "kept", &[(65_001, b"")], &["4.02"]),
        request("§5.4.1 unknown critical option, NON", NON, GET, "kept", &[(65_001, b"")], &["", "RST"]),
        request("§5.4.1 unknown elective option", CON, GET, "kept", &[(65_000, b"")], &["2.05"]),
        request("§5.4.3 Uri-Path of 256 bytes", CON, GET, "kept", &[(URI_PATH, &long)], &["4.02"]),
        request("§5.4.3 Uri-Host of 256 bytes", CON, GET, "kept", &[(URI_HOST, &long)], &["4.02"]),
        request("§5.4.5 Uri-Host twice", CON, GET, "kept", &[(URI_HOST, b"a"), (URI_HOST, b"b")], &["4.02"]),
        request("RFC 3629 Uri-Path not UTF-8", CON, GET, "kept", &[(URI_PATH, b"\xff")], &["4.00", "4.02"]),
        request("§5.7.2 Proxy-Uri", CON, GET, "kept", &[(PROXY_URI, b"coap://x/")], &["5.05"]),
        request("§5.7.2 Proxy-Scheme", CON, GET, "kept", &[(PROXY_SCHEME, b"http")], &["5.05"]),
        request("§5.8 unknown method", CON, 0x1f, "kept", &[], &["4.05"]),
        request("§5.10.4 Accept that is not to be had", CON, GET, "kept", &[(ACCEPT, &[60])], &["4.06"]),
        request("§5.10.4 Accept that is", CON, GET, "kept", &[(ACCEPT, &[50])], &["2.05"]),
        request("§5.10.8.1 If-Match on nothing", CON, PUT, "no/thing", &[(IF_MATCH, b"")], &["4.12"]),
        request("§5.10.8.1 If-Match of another", CON, PUT, "kept", &[(IF_MATCH, b"\x01\x02")], &["4.12"]),
        request("§5.10.8.2 If-None-Match on something", CON, PUT, "kept", &[(IF_NONE_MATCH, b"")], &["4.12"]),
        request("RFC 7959 §2.2 SZX 7", CON, PUT, "kept", &[(BLOCK1, &[0x07])], &["4.00"]),
        request("RFC 7959 §2.9.2 begins in the middle", CON, PUT, "kept", &[(BLOCK1, &[0x56])], &["4.08"]),
        request("RFC 7967 No-Response to all, NON", NON, PUT, "quiet", &[(NO_RESPONSE, &[26])], &[""]),
        request("RFC 8768 §3 Hop-Limit 0", CON, GET, "kept", &[(HOP_LIMIT, &[0])], &["4.00"]),
        request("MQTT §4.7 wildcard in a topic", CON, PUT, "a/+/b", &[], &["4.00"]),
        request("§5.8.4 DELETE of nothing", CON, DELETE, "no/thing", &[], &["2.02"]),
    ]
}

fn refused() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let socket = coap::endpoint(gateway.address("coap")?)?;
    let keep = coap::request(CON, PUT, 1, b"keep", "kept", &[(CONTENT_FORMAT, &[50])], b"{}");
    let answer = coap::exchange(&socket, &keep, b"keep")?;
    ensure!(coap::dotted(&answer) == "2.01", "PUT: {}", coap::dotted(&answer));
    let rows = rows();
    all(&rows, |row| {
        let options: Vec<(u16, &[u8])> =
            row.options.iter().map(|(number, value)| (*number, value.as_slice())).collect();
        let socket = coap::endpoint(gateway.address("coap")?)?;
        let payload: &[u8] = if row.code == PUT { b"x" } else { b"" };
        socket.send(&coap::request(row.kind, row.code, 77, b"row", row.topic, &options, payload))?;
        let patience = if row.answers.contains(&"") { SILENCE } else { PATIENCE };
        let answer = coap::receive(&socket, patience)?;
        let shown = match answer.as_deref() {
            None => String::new(),
            Some([first, 0, ..]) if first >> 4 & 3 == RST => "RST".to_owned(),
            Some(bytes) => coap::dotted(bytes),
        };
        ensure!(row.answers.contains(&shown.as_str()), "{}: `{shown}` instead of {:?}", row.clause, row.answers);
        Ok(())
    })
}

/// §4.5: the same message id from the same endpoint is the same message.
fn repeated() -> Result<String> {
    let gateway = Gateway::start(&[])?;
    let socket = coap::endpoint(gateway.address("coap")?)?;
    let put = coap::request(CON, PUT, 500, b"once", "once/only", &[], b"x");
    let first = coap::exchange(&socket, &put, b"once")?;
    let again = coap::exchange(&socket, &put, b"once")?;
    ensure!(coap::dotted(&first) == "2.01", "the first: {}", coap::dotted(&first));
    // Were it done again, the answer would be 2.04 Changed.
    ensure!(again == first, "the second: {again:02x?} instead of {first:02x?}");
    let kind = first.first().map(|byte| byte >> 4 & 3).context("empty")?;
    ensure!(kind == ACK, "type {kind} instead of a piggybacked response");
    Ok(String::new())
}
