//! Findings of an audit: refusals are in the log, guesses wait, pages of state ask the rules, secrets stay closed.

mod access;
mod guesses;
mod late;
mod paths;
mod placeholders;
mod queues;
mod refused_certificates;
mod refused_claims;
mod refused_log;
mod rests;
mod secrets;
mod shares;
mod strangers;
mod waiting;
mod withdrawn;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use fogmux_tests::suite::Case;
use fogmux_tests::{mqtt, tcp, users};
use openssl::ssl::{Ssl, SslContext, SslMethod, SslStream, SslVerifyMode, SslVersion};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "findings: a refused login is in the log, whatever the door and the credential",
        run: refused_log::logins,
    },
    Case {
        name: "findings: a certificate with a key that is not accepted, and none, are in the log",
        run: refused_certificates::keys,
    },
    Case {
        name: "findings: a certificate under another key is logged as not proven",
        run: refused_certificates::stolen,
    },
    Case { name: "findings: a refused certificate is logged by what it claims", run: refused_certificates::claims },
    Case {
        name: "findings: a refused token is logged by the holder that it claims, and never itself",
        run: refused_claims::tokens,
    },
    Case { name: "findings: a peer writes no line of its own into the log", run: refused_log::injection },
    Case { name: "findings: the line about an evicted DTLS session names its principal", run: shares::evicted },
    Case { name: "findings: lines about refused logins are limited and counted", run: refused_log::limited },
    Case { name: "findings: a refused action names peer, client and rule", run: refused_log::actions },
    Case { name: "findings: guesses at keys of TLS make the next one wait", run: guesses::tls },
    Case { name: "findings: guesses at keys of TLS behind STARTTLS make the next one wait", run: guesses::starttls },
    Case { name: "findings: DTLS handshakes that wait at Finished are judged one after another", run: guesses::parked },
    Case { name: "findings: a short key is warned of", run: guesses::short_keys },
    Case { name: "findings: a deny matches a name however it is written", run: access::spellings },
    Case {
        name: "findings: only MQTT client identifiers stand for %c in a rule",
        run: placeholders::client_identifiers,
    },
    Case { name: "findings: metrics ask a rule, and no proxy makes a request local", run: access::metrics },
    Case { name: "findings: a listener beyond loopback without rules is warned of", run: access::no_rules },
    Case { name: "findings: 47 addresses that guess do not keep the owner of a name out", run: access::lockout },
    Case { name: "findings: the first password goes when it is changed", run: secrets::admin_password },
    Case { name: "findings: nobody else can look into the data directory", run: secrets::modes },
    Case { name: "findings: a token ends with the key that signed it", run: secrets::removed_key },
    Case { name: "findings: a page of another origin changes nothing by any route and method", run: strangers::pages },
    Case {
        name: "findings: what a member leaves is handed on beside members that may not read",
        run: strangers::corner,
    },
    Case { name: "findings: nothing that a client sends changes what its proxy appends", run: strangers::appended },
    Case { name: "findings: the owner of a name is not banned for guesses of others", run: strangers::owner },
    Case { name: "findings: an owner of nodes subscribes nobody else", run: strangers::forced },
    Case { name: "findings: unfinished uploads of one user refuse none of another", run: shares::http },
    Case { name: "findings: unfinished stanzas of one user end none of another", run: shares::xmpp },
    Case { name: "findings: unfinished packets of one user cut none of another", run: shares::mqtt },
    Case { name: "findings: unfinished logins from one network end none from another", run: shares::logins },
    Case { name: "findings: unfinished uploads over CoAP end none from another network", run: shares::uploads },
    Case { name: "findings: lists for one client over CoAP refuse none for another", run: shares::lists },
    Case { name: "findings: idempotency keys of one user push out none of another", run: shares::keys },
    Case { name: "findings: a body that takes long is judged by the rules of its end", run: late::slow_bodies },
    Case { name: "findings: a change over the API is judged by the rules of its end", run: late::slow_change },
    Case { name: "findings: a long poll is answered by the rules of its end", run: late::long_polls },
    Case { name: "findings: what waits for a client is not delivered after a deny", run: waiting::denied },
    Case { name: "findings: what waits for an XMPP client is not sent after a deny", run: queues::xmpp },
    Case {
        name: "findings: what waits for an XMPP client is not sent after an owner shut it out",
        run: queues::outcast,
    },
    Case { name: "findings: what waits for a CoAP observer is not sent after a deny", run: queues::coap },
    Case { name: "findings: the rest of a CoAP list or value is not handed out after a deny", run: rests::coap },
    Case { name: "findings: what a member may not read any more goes to the others", run: rests::shared },
    Case {
        name: "findings: certificates with keys of the accepted kinds are let in by both stacks",
        run: refused_certificates::accepted,
    },
    Case {
        name: "findings: a certificate that only names its authority is logged as forged, also when it has expired",
        run: refused_certificates::forged,
    },
    Case { name: "findings: what waits for a window of HTTP/2 is not sent after a deny", run: queues::no_window },
    Case { name: "findings: what waits for an event stream's reader is not sent after a deny", run: queues::parked },
    Case { name: "findings: a stream is resumed with the rights that opened it", run: late::resumed_streams },
    Case { name: "findings: a certificate that is refused ends what it opened", run: withdrawn::refused_certificate },
    Case { name: "findings: a revocation that SIGHUP tells of cuts what it revokes", run: withdrawn::revoked },
    Case { name: "findings: a pre-shared key that is replaced ends what it opened", run: withdrawn::replaced_key },
    Case { name: "findings: a withdrawn credential leaves no will", run: withdrawn::wills },
    Case { name: "findings: rules of the same size and time are other rules", run: withdrawn::same_size_and_time },
    Case { name: "findings: a link that leads nowhere opens nothing", run: withdrawn::dangling },
    Case { name: "findings: each change of a file that is noticed has all its effects", run: paths::noticed },
    Case { name: "findings: each change by SIGHUP has all its effects", run: paths::signalled },
    Case { name: "findings: each change by the API has all its effects", run: paths::by_api },
    Case { name: "findings: files that could not be read are read again", run: paths::starved },
    Case { name: "findings: SIGHUP waits for rules that are being written", run: paths::unfinished },
    Case { name: "findings: a start without a file that was there opens nothing", run: paths::lost },
    Case { name: "findings: a flood of addresses hides no refused action", run: strangers::blind },
];

const PATIENCE: Duration = Duration::from_secs(30);

/// The pre-shared key of `dev`.
const KEY: &[u8] = &[0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];
/// MQTT over TLS with a pre-shared key.
const TLS_PSK: &str = "listeners.mqtts.profile=\"psk\"";

fn keys() -> String {
    users::key_file("dev", KEY)
}

/// A TLS connection by a pre-shared key.
fn tls_psk(server: SocketAddr, version: SslVersion, identity: &str, key: &[u8]) -> Result<SslStream<TcpStream>> {
    tls_psk_over(tcp::connect(server)?, version, identity, key)
}

/// The same over a connection on which something was said before.
fn tls_psk_over(stream: TcpStream, version: SslVersion, identity: &str, key: &[u8]) -> Result<SslStream<TcpStream>> {
    let mut context = SslContext::builder(SslMethod::tls_client())?;
    context.set_security_level(0);
    context.set_min_proto_version(Some(version))?;
    context.set_max_proto_version(Some(version))?;
    context.set_verify(SslVerifyMode::NONE);
    context.set_cipher_list("PSK-AES128-CCM8:PSK-AES128-GCM-SHA256:@SECLEVEL=0")?;
    context.set_ciphersuites("TLS_AES_128_GCM_SHA256")?;
    let (identity, key) = (identity.as_bytes().to_vec(), key.to_vec());
    context.set_psk_client_callback(move |_, _, name, secret| {
        let Some(place) = name.get_mut(..=identity.len()) else { return Ok(0) };
        place.iter_mut().zip(identity.iter().chain([&0])).for_each(|(to, from)| *to = *from);
        let Some(place) = secret.get_mut(..key.len()) else { return Ok(0) };
        place.copy_from_slice(&key);
        Ok(key.len())
    });
    let mut stream = SslStream::new(Ssl::new(&context.build())?, stream)?;
    stream.connect().context("TLS handshake")?;
    Ok(stream)
}

/// The return code of CONNACK after a CONNECT of version 3.1.1 without credentials.
fn connack(stream: &mut (impl Read + Write)) -> Result<u8> {
    stream.write_all(&mqtt::connect(mqtt::V4, "probe"))?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).context("CONNACK")?;
    Ok(answer[3])
}

/// The status line of the answer to a GET.
fn status(server: SocketAddr, path: &str, fields: &str) -> Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
    let answer = tcp::ask(server, request.as_bytes())?;
    Ok(String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned())
}
