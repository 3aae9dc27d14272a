//! The keys of `[auth.backoff]`, by the `Retry-After` of 429 over HTTP.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use fogmux_tests::tcp;

use super::{PATIENCE, Row, Subject, basic, get};

pub(super) const NAMES: Row = Row {
    keys: &["auth.backoff.free_failures", "auth.backoff.first", "auth.backoff.user_max"],
    case: Case { name: "reload: auth.backoff: free_failures, first, user_max", run: names },
};
pub(super) const ADDRESSES: Row = Row {
    keys: &["auth.backoff.address_max"],
    case: Case { name: "reload: auth.backoff.address_max", run: addresses },
};
pub(super) const TABLES: Row = Row {
    keys: &["auth.backoff.forget_after", "auth.backoff.entries_max"],
    case: Case { name: "reload: auth.backoff: forget_after, entries_max", run: tables },
};

/// One failure costs 20 s, and nothing is forgotten while a case runs.
const STRICT: [(&str, &str); 5] = [
    ("auth.backoff.free_failures", "0"),
    ("auth.backoff.first", "\"20s\""),
    ("auth.backoff.user_max", "\"1h\""),
    ("auth.backoff.address_max", "\"1h\""),
    ("auth.backoff.forget_after", "\"1d\""),
];

/// How long a name has to wait, in seconds. One that does not have to has failed once more.
fn wait(gateway: &Gateway, user: &str) -> Result<u64> {
    match get(gateway, "a", &basic(user, "guess"))? {
        (401, _) => Ok(0),
        (429, seconds) => Ok(seconds),
        (status, _) => anyhow::bail!("{status} for a wrong password"),
    }
}

fn fail(gateway: &Gateway, user: &str) -> Result<()> {
    ensure!(wait(gateway, user)? == 0, "{user} has to wait already");
    Ok(())
}

fn names() -> Result<String> {
    let mut subject = Subject::start(&STRICT, &[])?;
    fail(&subject.gateway, "a")?;
    // Retry-After is rounded up.
    let longer = |gateway: &Gateway| Ok(wait(gateway, "a")? > 21);
    subject.changes(("auth.backoff.first", "\"60s\""), (false, true), longer)?;
    subject.changes(("auth.backoff.user_max", "\"20s\""), (true, false), longer)?;
    subject.set("auth.backoff.user_max", "\"1h\"")?;
    let waits = |gateway: &Gateway| Ok(wait(gateway, "a")? > 0);
    subject.changes(("auth.backoff.free_failures", "10"), (true, false), waits)?;
    Ok(String::new())
}

/// An address of this machine that is none of loopback's; connecting a datagram socket sends nothing.
fn own_address() -> Result<Option<IpAddr>> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    if socket.connect("192.0.2.1:9").is_err() {
        return Ok(None);
    }
    Ok(Some(socket.local_addr()?.ip()).filter(|address| !address.is_loopback()))
}

/// The status of a wrong password from there, which is also where the gateway listens, and `Retry-After`.
fn guess_from(gateway: &Gateway, address: IpAddr, user: &str) -> Result<u64> {
    let mut stream = tcp::connect(SocketAddr::new(address, gateway.address("http")?.port()))?;
    let header = basic(user, "guess");
    write!(stream, "GET /topics/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let answer = answer.to_lowercase();
    let status = answer.get(9..12).context("no status")?;
    ensure!(matches!(status, "401" | "429"), "{status} for a wrong password");
    let wait = answer.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap_or("0");
    Ok(wait.trim().parse()?)
}

fn addresses() -> Result<String> {
    let Some(own) = own_address()? else { return Ok("passed over: this machine has no address but loopback's".into()) };
    let more = [
        ("auth.backoff.first", "\"60s\""),
        ("listeners.http.address", "\"0.0.0.0:0\""),
        ("listeners.http.allow_plaintext", "true"),
        ("http.allow_password_without_tls", "true"),
    ];
    let settings: Vec<_> = STRICT.into_iter().filter(|(key, _)| !key.ends_with(".first")).chain(more).collect();
    let mut subject = Subject::start(&settings, &[])?;
    ensure!(guess_from(&subject.gateway, own, "first")? == 0, "the first has to wait");
    // Another name each time: it is the address that waits.
    let names = Cell::new(0);
    let longer = |gateway: &Gateway| {
        names.set(names.get() + 1);
        Ok(guess_from(gateway, own, &format!("n{}", names.get()))? > 21)
    };
    subject.changes(("auth.backoff.address_max", "\"20s\""), (true, false), longer)?;
    Ok(String::new())
}

fn tables() -> Result<String> {
    // Failures cost nothing at first, so that one name can fail more often than the others.
    let free = STRICT.into_iter().map(|(key, value)| (key, if key.ends_with(".first") { "\"0s\"" } else { value }));
    let settings: Vec<_> = free.chain([("auth.backoff.entries_max", "64")]).collect();
    let mut subject = Subject::start(&settings, &[])?;
    for _ in 0..4 {
        fail(&subject.gateway, "worst")?;
    }
    for number in 0..20 {
        fail(&subject.gateway, &format!("mild{number}"))?;
    }
    subject.set("auth.backoff.first", "\"60s\"")?;
    let names = Cell::new(0);
    let one_more = |gateway: &Gateway| -> Result<()> {
        names.set(names.get() + 1);
        fail(gateway, &format!("new{}", names.get()))
    };
    // A table that is full forgets some of those who failed least.
    let forgets = |gateway: &Gateway| -> Result<bool> {
        one_more(gateway)?;
        for number in 0..20 {
            if wait(gateway, &format!("mild{number}"))? == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    };
    subject.changes(("auth.backoff.entries_max", "16"), (false, true), forgets)?;
    let keeps_worst = |gateway: &Gateway| anyhow::Ok(wait(gateway, "worst")? > 0);
    ensure!(keeps_worst(&subject.gateway)?, "the name that failed most is forgotten first");
    subject.set("auth.backoff.forget_after", "\"1s\"")?;
    let deadline = Instant::now() + PATIENCE;
    while keeps_worst(&subject.gateway)? {
        ensure!(Instant::now() < deadline, "auth.backoff.forget_after: a name is not forgotten after 1 s");
        one_more(&subject.gateway)?;
    }
    Ok(String::new())
}
