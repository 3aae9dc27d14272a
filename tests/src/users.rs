//! Users with passwords: the file that names them, and logins at the doors that take a password.

use std::io::Write;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use crate::gateway::Gateway;
use crate::mqtt::{self, Connection, V5};
use crate::tcp;

/// The password of every user.
pub const PASSWORD: &str = "secret";
/// Its hash by `mosquitto_passwd`.
const HASH: &str =
    "$6$ep2ynmhUMT//sR7p$3bmTwYdRx5CnO/cfpldDIMaofZaN0du8dXfjYSE88ulhlNxRGdaKLMLxtPOjaTs7Ojo3gXIws5dLllnZFwRpzw==";

/// The text of `users.toml`.
#[must_use]
pub fn file(users: &[&str]) -> String {
    users.iter().map(|user| format!("[users.{user}]\npassword = \"{HASH}\"\n")).collect()
}

/// The text of `psk.toml` with one key.
#[must_use]
pub fn key_file(identity: &str, key: &[u8]) -> String {
    let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("[[psk]]\nidentity = \"{identity}\"\nkey = \"{key}\"\n")
}

/// Starts a gateway that knows these users, with other files, name and text, in its data directory.
///
/// # Errors
/// When it does not start or does not become ready in a minute.
pub fn gateway(settings: &[&str], users: &[&str], files: &[(&str, &str)]) -> Result<Gateway> {
    let users = file(users);
    Gateway::start_furnished(settings, &[&[("users.toml", &*users)], files].concat())
}

/// A login at the MQTT door by version 5.
#[derive(Clone, Copy, Debug)]
pub struct Login<'a> {
    /// The user; "": nobody in particular.
    pub user: &'a str,
    /// The client identifier.
    pub client: &'a str,
    /// Whether a new session is asked for.
    pub clean: bool,
    /// Seconds for which the session outlives its connection.
    pub expiry: u32,
    /// Bytes of the payload of a will; 0: none.
    pub will_bytes: usize,
}

impl<'a> Login<'a> {
    /// A session that goes on for an hour.
    #[must_use]
    pub fn of(user: &'a str, client: &'a str) -> Self {
        Self { user, client, clean: false, expiry: 3600, will_bytes: 0 }
    }

    /// Logs in. Returns the connection, whether a session was present, and the reason code.
    ///
    /// # Errors
    /// When there is no CONNACK.
    pub fn connect(self, address: SocketAddr) -> Result<(Connection, bool, u8)> {
        let mut flags = if self.clean { 0x02 } else { 0 };
        let mut tail = mqtt::string(self.client.as_bytes());
        if self.will_bytes > 0 {
            flags |= 0x04;
            tail.push(0);
            tail.extend(mqtt::string(b"last/words"));
            tail.extend(mqtt::string(&vec![b'w'; self.will_bytes]));
        }
        if !self.user.is_empty() {
            flags |= 0xc0;
            tail.extend(mqtt::string(self.user.as_bytes()));
            tail.extend(mqtt::string(PASSWORD.as_bytes()));
        }
        let mut body = mqtt::string(b"MQTT");
        body.extend([V5, flags, 0, 60, 5, 0x11]);
        body.extend(self.expiry.to_be_bytes());
        body.extend(tail);
        let mut stream = tcp::connect(address)?;
        stream.write_all(&mqtt::packet(0x10, &body))?;
        let mut connection = Connection::over(stream, V5);
        let (first, body) = connection.read().context("CONNACK")?;
        ensure!(first == 0x20, "{first:#x} instead of CONNACK");
        let (present, reason) = (body.first() == Some(&1), body.get(1).copied().context("a CONNACK cut short")?);
        Ok((connection, present, reason))
    }
}

/// CONNECT of version 3.1.1 with a clean session.
#[must_use]
pub fn connect_3(user: &str, client: &str) -> Vec<u8> {
    let mut body = mqtt::string(b"MQTT");
    body.extend([mqtt::V4, 0xc2, 0, 60]);
    for text in [client, user, PASSWORD] {
        body.extend(mqtt::string(text.as_bytes()));
    }
    mqtt::packet(0x10, &body)
}

/// For [`crate::xmpp::Session::plain_password`].
#[must_use]
pub fn sasl_plain(user: &str) -> String {
    base64(format!("\0{user}\0{PASSWORD}").as_bytes())
}

/// The header line of HTTP for a user; "" for nobody in particular.
#[must_use]
pub fn authorization(user: &str) -> String {
    if user.is_empty() {
        return String::new();
    }
    basic(user, PASSWORD)
}

/// The same with any password.
#[must_use]
pub fn basic(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", base64(format!("{user}:{password}").as_bytes()))
}

/// Asks for something by HTTP/1.1 on a connection of its own; the status code.
///
/// # Errors
/// When there is no answer.
pub fn http(address: SocketAddr, user: &str, method: &str, target: &str, body: &[u8]) -> Result<u16> {
    http_with(address, &authorization(user), method, target, body)
}

/// The same with header lines, each ended by CR LF.
///
/// # Errors
/// When there is no answer.
pub fn http_with(address: SocketAddr, headers: &str, method: &str, target: &str, body: &[u8]) -> Result<u16> {
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let answer = tcp::ask(address, &[head.as_bytes(), body].concat())?;
    let line = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
    line.split(' ').nth(1).and_then(|code| code.parse().ok()).with_context(|| format!("no answer but {line:?}"))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0_usize, |bits, at| bits << 8 | usize::from(chunk.get(at).copied().unwrap_or(0)));
        for digit in 0..4 {
            let place = (bits >> (18 - 6 * digit)) & 63;
            let known = digit <= chunk.len();
            out.push(if known { char::from(DIGITS.get(place).copied().unwrap_or(b'=')) } else { '=' });
        }
    }
    out
}
