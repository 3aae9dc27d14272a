//! CoAPS: handshakes that nobody meant, thousands of sessions on one socket, devices that begin again.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fogmux_tests::coap::{self, CON, GET, PUT};
use fogmux_tests::dtls::{self, Session};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use fogmux_tests::tcp::PATIENCE;

use crate::mqtt::noise;
use crate::{Setting, attack_furnished};

pub(crate) const CASES: &[Case] = &[
    Case { name: "dtls 10 000 sessions on one socket", run: || attack_furnished(&KEYS, sessions) },
    Case { name: "dtls 100 000 spoofed ClientHellos", run: || attack_furnished(&KEYS, spoofed) },
    Case { name: "dtls handshakes left half open", run: || attack_furnished(&KEYS, half_open) },
    Case { name: "dtls a device that begins again", run: || attack_furnished(&KEYS, rebooted) },
    Case { name: "dtls every single byte of a ClientHello changed", run: || attack_furnished(&KEYS, mutations) },
    Case { name: "dtls garbage under an established session", run: || attack_furnished(&KEYS, garbage) },
];

const IDENTITY: &str = "device";
const KEY: &[u8] = b"0123456789abcdef";
const KEYS: Setting = Setting {
    settings: &[],
    files: &[("psk.toml", "[[psk]]\nidentity = \"device\"\nkey = \"30313233343536373839616263646566\"\n")],
};
const SESSIONS: u32 = 10_000;
/// The largest growth of the process for each open session, in bytes; GnuTLS under libcoap takes 11.5 KiB.
const SESSION_BYTES_MAX: u64 = 12 << 10;
/// The tolerated growth after ClientHellos without a session, in bytes: noise of the allocator under load.
const NOTHING_BYTES: u64 = 4 << 20;

fn session(gateway: &Gateway, number: u32) -> Result<Session> {
    let context = dtls::psk(IDENTITY, KEY)?;
    Session::open(&context, dtls::endpoint(gateway.address("coaps")?, number)?)
}

/// One confirmable request under the session's keys.
fn works(session: &mut Session, id: u16) -> Result<()> {
    let request = coap::request(CON, PUT, id, b"dt", "dtls/value", &[], b"under keys");
    let answer = session.exchange(&request)?;
    let code = coap::dotted(&answer);
    ensure!(code.starts_with("2."), "PUT under DTLS: {code}");
    Ok(())
}

fn sessions(gateway: &Gateway) -> Result<String> {
    let context = dtls::psk(IDENTITY, KEY)?;
    let server = gateway.address("coaps")?;
    works(&mut session(gateway, 0)?, 1)?;
    let before = gateway.resident_bytes()?;
    let began = Instant::now();
    let (mut kept, mut ports) = (Vec::new(), Vec::new());
    for number in 0..SESSIONS {
        let session = Session::open(&context, dtls::endpoint(server, number + 200)?)?;
        // Most devices are only held in mind: OpenSSL's side of a session takes more memory than the gateway's.
        if number % 100 == 0 { kept.push(session) } else { ports.push(session.into_socket()?) }
    }
    let seconds = began.elapsed().as_secs_f32();
    let each = gateway.resident_bytes()?.saturating_sub(before) / u64::from(SESSIONS);
    for (number, session) in kept.iter_mut().enumerate() {
        works(session, u16::try_from(number)? + 2)?;
    }
    ensure!(each <= SESSION_BYTES_MAX, "{each} bytes a session");
    Ok(format!("{SESSIONS} handshakes in {seconds:.1} s, {:.1} KiB resident a session", each as f32 / 1024.0))
}

fn spoofed(gateway: &Gateway) -> Result<String> {
    let server = gateway.address("coaps")?;
    let mut established = session(gateway, 0)?;
    works(&mut established, 1)?;
    let before = gateway.resident_bytes()?;
    // Of both versions, with cookies that nobody gave and without.
    let hellos = [
        dtls::client_hello(0, b""),
        dtls::client_hello_13(0, b""),
        dtls::client_hello(1, &[7; 32]),
        dtls::client_hello_13(1, &[7; 52]),
    ];
    let mut slowest = Duration::ZERO;
    for (number, hello) in (0..100_000u32).zip(hellos.iter().cycle()) {
        // A fresh port each time, that nobody listens at when the answer comes.
        let socket = dtls::endpoint(server, number)?;
        let _ = socket.send(hello);
        if number % 1000 == 0 {
            let began = Instant::now();
            works(&mut established, u16::try_from(number / 1000)? + 2)?;
            slowest = slowest.max(began.elapsed());
        }
    }
    let grown = gateway.resident_bytes()?.saturating_sub(before);
    ensure!(grown <= NOTHING_BYTES, "they cost {grown} bytes");
    works(&mut session(gateway, 1)?, 1)?;
    Ok(format!("grew by {} kB; the established session's slowest answer {slowest:.1?}", grown / 1000))
}

fn half_open(gateway: &Gateway) -> Result<String> {
    let server = gateway.address("coaps")?;
    let mut established = session(gateway, 0)?;
    works(&mut established, 1)?;
    let (mut sockets, mut worst) = (Vec::new(), 0);
    for number in 0..20_000 {
        let socket = dtls::endpoint(server, number + 200)?;
        match dtls::half_open(&socket) {
            Ok(gain) => worst = worst.max(gain),
            // Nothing is owed to those beyond what is held at once.
            Err(_) if number > 1000 => break,
            Err(error) => return Err(error),
        }
        if number % 10 == 0 {
            sockets.push(socket);
        }
    }
    ensure!(worst <= 300, "the first answer is {worst} % of the question");
    works(&mut established, 2)?;
    works(&mut session(gateway, 1)?, 1)?;
    Ok(format!("{} begun; first answers are {worst} % of the question; a newcomer gets in", sockets.len() * 10))
}

fn rebooted(gateway: &Gateway) -> Result<String> {
    let context = dtls::psk(IDENTITY, KEY)?;
    let mut first = session(gateway, 0)?;
    works(&mut first, 1)?;
    // Anybody can send this from a forged source; the session must not fall for it.
    for number in 0..100 {
        first.socket().send(&dtls::client_hello(number, b""))?;
    }
    let answered = skip_plain(&first)?;
    works(&mut first, 2)?;
    let socket = first.into_socket()?;
    let mut times = Vec::new();
    for id in 3..23 {
        let began = Instant::now();
        let mut again = Session::open(&context, socket.try_clone()?)?;
        works(&mut again, id)?;
        times.push(began.elapsed());
    }
    let slowest = times.iter().max().copied().unwrap_or_default();
    Ok(format!("{answered} answers to forged hellos; 20 times back in, at the slowest in {slowest:.1?}"))
}

/// Takes away what came outside of the session; the number of datagrams.
fn skip_plain(session: &Session) -> Result<usize> {
    let mut count = 0;
    while coap::receive(session.socket(), Duration::from_millis(200))?.is_some() {
        count += 1;
    }
    session.socket().set_read_timeout(Some(PATIENCE))?;
    Ok(count)
}

fn mutations(gateway: &Gateway) -> Result<String> {
    let socket = dtls::endpoint(gateway.address("coaps")?, 0)?;
    let mut count = 0;
    for hello in [dtls::client_hello(0, b""), dtls::client_hello_13(0, b"")] {
        for at in 0..hello.len() {
            for change in 1..=255 {
                let mut changed = hello.clone();
                if let Some(byte) = changed.get_mut(at) {
                    *byte ^= change;
                }
                let _ = socket.send(&changed);
                count += 1;
            }
            let _ = socket.send(hello.get(..at).unwrap_or_default());
        }
    }
    works(&mut session(gateway, 1)?, 1)?;
    Ok(format!("{count} changed hellos"))
}

fn garbage(gateway: &Gateway) -> Result<String> {
    let mut established = session(gateway, 0)?;
    works(&mut established, 1)?;
    for seed in 0..10_000u64 {
        let mut bytes = noise(usize::try_from(seed % 1400)?, seed);
        // Records of every type with the session's epoch, whose tags cannot be right; some as DTLS 1.3 has them.
        let first = if seed % 7 == 6 { 0x20 | u8::try_from(seed % 32)? } else { 20 + u8::try_from(seed % 7)? };
        for (byte, value) in bytes.iter_mut().zip([first, 0xfe, 0xfd, 0, 1]) {
            *byte = value;
        }
        let _ = established.socket().send(&bytes);
    }
    let _ = skip_plain(&established)?;
    works(&mut established, 2)?;
    let get = coap::request(CON, GET, 3, b"dt", "dtls/value", &[], b"");
    let code = coap::dotted(&established.exchange(&get)?);
    ensure!(code == "2.05", "GET under DTLS: {code}");
    Ok("10 000 records that are none".to_owned())
}
