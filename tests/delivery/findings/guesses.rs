//! Guesses at pre-shared keys: each counts from before the key is looked at, whatever the transport.

use std::io::{self, Read, Write};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::{coap, dtls, tcp, users};
use openssl::ssl::{Ssl, SslStream, SslVersion};

use super::{KEY, PATIENCE, TLS_PSK, connack, keys, tls_psk, tls_psk_over};

const GUESSES: usize = 20;
const WRONG: &[u8] = b"0123456789abcdef";

pub(super) fn tls() -> Result<String> {
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        let mut gateway =
            Gateway::start_furnished(&[TLS_PSK, "listeners.mqtts.anonymous=false"], &[("psk.toml", &*keys())])?;
        let mqtts = gateway.address("mqtts")?;
        ensure!(connack(&mut tls_psk(mqtts, version, "dev", KEY)?)? == 0, "the key was refused");
        for _ in 0..GUESSES {
            ensure!(tls_psk(mqtts, version, "dev", WRONG).is_err(), "a wrong key was taken");
        }
        // The right one, tried within the wait, fails as a wrong one does.
        let early = tls_psk(mqtts, version, "dev", KEY);
        ensure!(early.is_err(), "{version:?}: after {GUESSES} guesses the next attempt did not wait");
        // It comes through once the wait is over.
        let deadline = Instant::now() + PATIENCE;
        while tls_psk(mqtts, version, "dev", KEY).is_err() {
            ensure!(Instant::now() < deadline, "{version:?}: the key is never taken again");
            std::thread::sleep(Duration::from_millis(100));
        }
        gateway.settle()?;
    }
    Ok(String::new())
}

/// The same behind STARTTLS, where the door reads before TLS does.
pub(super) fn starttls() -> Result<String> {
    let settings = ["listeners.xmpp.profile=\"psk\"", "listeners.xmpp.anonymous=false"];
    let mut gateway = Gateway::start_furnished(&settings, &[("psk.toml", &*keys())])?;
    let attempt = |key: &[u8]| -> Result<()> {
        let mut stream = tcp::connect(gateway.address("xmpp")?)?;
        stream.write_all(
            b"<stream:stream to='localhost' version='1.0' xmlns='jabber:client' \
              xmlns:stream='http://etherx.jabber.org/streams'><starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>",
        )?;
        let mut said = Vec::new();
        while !said.ends_with(b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>") {
            let mut byte = [0];
            stream.read_exact(&mut byte).with_context(|| String::from_utf8_lossy(&said).into_owned())?;
            said.extend(byte);
        }
        tls_psk_over(stream, SslVersion::TLS1_2, "dev", key).map(drop)
    };
    attempt(KEY)?;
    for _ in 0..GUESSES {
        ensure!(attempt(WRONG).is_err(), "a wrong key was taken");
    }
    ensure!(attempt(KEY).is_err(), "after {GUESSES} guesses the next attempt did not wait");
    let refused = gateway.whole_log().matches("login refused").count();
    ensure!(refused > 0, "no line of {GUESSES} guesses");
    gateway.settle()?;
    Ok(format!("{refused} lines"))
}

/// A DTLS client that holds back its records of epoch 1: the Finished.
struct Parked {
    socket: UdpSocket,
    held: Vec<u8>,
}

impl Read for Parked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.held.is_empty() {
            // The answer to the records held back comes next.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.socket.recv(buffer)
    }
}

impl Write for Parked {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let (mut rest, mut clear) = (buffer, Vec::new());
        // RFC 6347 §4.1: type, version, epoch, sequence number, length.
        while let Some((header, _)) = rest.split_first_chunk::<13>() {
            let length = 13 + usize::from(u16::from_be_bytes([header[11], header[12]]));
            let (record, more) = rest.split_at_checked(length).ok_or(io::ErrorKind::InvalidData)?;
            if header[4] == 0 {
                clear.extend(record)
            } else {
                self.held.extend(record)
            }
            rest = more;
        }
        if !clear.is_empty() {
            self.socket.send(&clear)?;
        }
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn parked() -> Result<String> {
    const HANDSHAKES: usize = 60;
    const JUDGED_MAX: usize = 14;
    let mut gateway = Gateway::start_furnished(&[], &[("psk.toml", &*keys())])?;
    let coaps = gateway.address("coaps")?;
    let context = dtls::psk("dev", WRONG)?;
    let mut clients = Vec::new();
    for number in 0..HANDSHAKES {
        let socket = dtls::endpoint(coaps, u32::try_from(number)?)?;
        let mut ssl = Ssl::new(&context)?;
        ssl.set_mtu(1400)?;
        let mut stream = SslStream::new(ssl, Parked { socket, held: Vec::new() })?;
        ensure!(stream.connect().is_err() && !stream.get_ref().held.is_empty(), "no Finished to hold back");
        clients.push(stream);
    }
    for client in &clients {
        client.get_ref().socket.send(&client.get_ref().held)?;
    }
    let counter = "fogmux_door_unauthenticated_total{door=\"coap\"}";
    // Those that are not judged are counted at once; the others are told when their clients repeat the record.
    gateway.wait_metric(counter, PATIENCE, |count| count >= (HANDSHAKES - JUDGED_MAX) as f64)?;
    let mut told = 0;
    for client in &clients {
        // 21: an alert.
        let answer = coap::receive(&client.get_ref().socket, Duration::from_millis(5))?;
        told += usize::from(answer.is_some_and(|answer| answer.first() == Some(&21)));
    }
    ensure!(told <= JUDGED_MAX, "{told} of {HANDSHAKES} guesses that waited at Finished were judged");
    // The owner of the key comes in once the wait is over.
    let right = dtls::psk("dev", KEY)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let socket = dtls::endpoint(coaps, 1000)?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        if dtls::Session::open(&right, socket).is_ok() {
            break;
        }
        ensure!(Instant::now() < deadline, "the key is never taken again");
    }
    gateway.check_alive()?;
    Ok(format!("{told} of {HANDSHAKES} told at once"))
}

pub(super) fn short_keys() -> Result<String> {
    let short = keys() + &users::key_file("weak", b"short");
    let mut gateway = Gateway::start_furnished(&[], &[("psk.toml", &short)])?;
    gateway.wait_log("RFC 9257", PATIENCE)?;
    let log = gateway.whole_log();
    let line = log.lines().find(|line| line.contains("RFC 9257")).unwrap_or_default();
    ensure!(line.contains("\"weak\"") && !line.contains("\"dev\""), "{line}");
    ensure!(!log.contains("0011223344"), "the key is in the log");
    gateway.settle()?;
    Ok(String::new())
}
