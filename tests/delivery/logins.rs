//! Logins: password checks in bounded memory, fair queues, rules that are reloaded.

mod authorities;
mod certificates;
mod hang_up;
mod reload;
mod revocations;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;
use fogmux_tests::{mqtt, tcp};
use rustix::process::Signal;
use socket2::{Domain, Socket, Type};

pub(crate) const CASES: &[Case] = &[
    Case { name: "logins: 200 users at once take few buffers, which come back", run: users_at_once },
    Case { name: "logins: guesses from 250 addresses take few buffers, which come back", run: guesses },
    Case { name: "logins: a known user logs in while 47 addresses guess", run: a_known_user },
    Case { name: "logins: clients that hang up while they wait are gone at once", run: hang_up },
    Case { name: "logins: clients of XMPP and HTTP that hang up give up their places", run: hang_up::other_doors },
    Case { name: "logins: passwords are verified at lower priority, unchanged users only once", run: a_reload },
    Case { name: "logins: a reload closes and opens listeners to anonymous clients", run: reload::anonymous },
    Case { name: "logins: a certificate of ours is taken at every default listener", run: certificates::taken },
    Case {
        name: "logins: profiles of OpenSSL name the authority in the certificate request",
        run: certificates::named,
    },
    Case {
        name: "logins: an authority that is taken out is not believed from the next handshake",
        run: authorities::taken_out,
    },
    Case { name: "logins: revocation lists that have expired", run: revocations::expired },
    Case { name: "logins: a revocation list that is damaged at the start admits nobody", run: revocations::damaged },
    Case { name: "logins: a revocation list that is damaged later stays in force", run: revocations::damaged_later },
    Case { name: "logins: revocation lists of other authorities admit nobody", run: revocations::foreign },
];

/// Two hashes of `secret` by mosquitto_passwd. Verifying one costs as much memory as a hash of our own.
const HASHES: [&str; 2] = [
    "$6$ep2ynmhUMT//sR7p$3bmTwYdRx5CnO/cfpldDIMaofZaN0du8dXfjYSE88ulhlNxRGdaKLMLxtPOjaTs7Ojo3gXIws5dLllnZFwRpzw==",
    "$7$101$Crmx7QrRoGqjVE6Y$Q79G2lGg1cCy76WxrRmLiY4jZEkwRv+kWg0NYjEj87RXFkfGUe1WKprhiKK8eIYstNQr5NAGx0MfPRPzdT4IIQ==",
];
/// Long enough for a queue of 256 in an unoptimised build.
const PATIENT: &str = "auth.verification.wait_max=5m";
const PATIENCE: Duration = Duration::from_secs(120);
const MB: u64 = 1 << 20;

pub(crate) fn users(hash_of_alice: usize, more: usize) -> String {
    let [plain, _] = HASHES;
    let alice = HASHES.get(hash_of_alice).copied().unwrap_or_default();
    let others = (0..more).map(|number| format!("[users.u{number}]\npassword = \"{plain}\"\n"));
    format!("[users.alice]\npassword = \"{alice}\"\n") + &others.collect::<String>()
}

/// CONNECT of version 3.1.1 with a user name and a password.
fn connect(user: &str, password: &str) -> Vec<u8> {
    let mut body = mqtt::string(b"MQTT");
    body.extend([mqtt::V4, 0xc2, 0, 60]);
    for text in ["", user, password] {
        body.extend(mqtt::string(text.as_bytes()));
    }
    mqtt::packet(0x10, &body)
}

/// A login that is under way, from one of loopback's addresses.
pub(crate) fn begin(gateway: &Gateway, from: Ipv4Addr, user: &str, password: &str) -> Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(IpAddr::V4(from), 0).into())?;
    socket.connect_timeout(&gateway.address("mqtt")?.into(), tcp::PATIENCE)?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&connect(user, password))?;
    Ok(stream)
}

/// The return code of CONNACK.
pub(crate) fn answer(stream: &mut TcpStream) -> Result<u8> {
    let mut connack = [0; 4];
    stream.read_exact(&mut connack).context("CONNACK")?;
    let [first, _, _, code] = connack;
    ensure!(first == 0x20, "{first:#x} instead of CONNACK");
    Ok(code)
}

/// Peak: one buffer of 7 MiB a thread, and what connections take. Afterwards: what was there before.
fn check_memory(gateway: &Gateway, idle: u64) -> Result<String> {
    let threads = std::thread::available_parallelism()?.get().div_ceil(2) as u64;
    let peak = gateway.peak_resident_bytes()?;
    let most = idle + threads * 8 * MB + 24 * MB;
    ensure!(peak <= most, "{} MB at the peak, {} MB allowed, {} MB idle", peak / MB, most / MB, idle / MB);
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut after = gateway.resident_bytes()?;
    while after > idle + 8 * MB {
        ensure!(Instant::now() < deadline, "{} MB ten seconds later, {} MB idle", after / MB, idle / MB);
        std::thread::sleep(Duration::from_millis(100));
        after = gateway.resident_bytes()?;
    }
    Ok(format!("idle {} MB, peak {} MB, after {} MB", idle / MB, peak / MB, after / MB))
}

fn users_at_once() -> Result<String> {
    // The time that clients have for CONNECT is shorter than all verifications together: the wait is not theirs.
    let settings = [PATIENT, "mqtt.login_deadline=2s", "auth.verification.threads=1"];
    let mut gateway = Gateway::start_furnished(&settings, &[("users.toml", &users(0, 200))])?;
    let idle = gateway.resident_bytes()?;
    let mut logins: Vec<TcpStream> = (0..200)
        .map(|number| begin(&gateway, Ipv4Addr::LOCALHOST, &format!("u{number}"), "secret"))
        .collect::<Result<_>>()?;
    for (number, login) in logins.iter_mut().enumerate() {
        ensure!(answer(login)? == 0, "u{number} was refused");
    }
    drop(logins);
    let memory = check_memory(&gateway, idle)?;
    gateway.settle()?;
    Ok(memory)
}

fn hang_up() -> Result<String> {
    let threads = "auth.verification.threads=1";
    let mut gateway = Gateway::start_furnished(&[PATIENT, threads], &[("users.toml", &users(0, 0))])?;
    let logins: Vec<TcpStream> = (0..200)
        .map(|number| begin(&gateway, Ipv4Addr::LOCALHOST, &format!("nobody{number}"), "guess"))
        .collect::<Result<_>>()?;
    let waiting = "fogmux_logins_waiting";
    gateway.wait_metric(waiting, PATIENCE, |waiting| waiting > 100.0)?;
    drop(logins);
    gateway.wait_metric("fogmux_door_connections{door=\"mqtt\"}", PATIENCE, |open| open == 0.0)?;
    // Those behind would have waited for many more verifications, and each would have been refused.
    let verified = gateway.sum(&["fogmux_door_unauthenticated_total{door=\"mqtt\"}"])?;
    ensure!(verified < 100, "{verified} logins were verified before their clients were gone");
    gateway.settle()?;
    Ok(format!("{verified} of 200 logins were verified"))
}

fn guesses() -> Result<String> {
    let mut gateway = Gateway::start_furnished(&[PATIENT], &[("users.toml", &users(0, 0))])?;
    let idle = gateway.resident_bytes()?;
    let from = |number: u8| Ipv4Addr::new(127, 0, 1 + number % 5, number + 1);
    let mut logins: Vec<TcpStream> = (0..250)
        .map(|number| begin(&gateway, from(number), &format!("nobody{number}"), "guess"))
        .collect::<Result<_>>()?;
    for login in &mut logins {
        // 3: unavailable, 5: not authorized [MQTT-3.2.2.3].
        let code = answer(login)?;
        ensure!(matches!(code, 3..=5), "CONNACK {code}");
    }
    drop(logins);
    let memory = check_memory(&gateway, idle)?;
    gateway.settle()?;
    Ok(memory)
}

fn a_known_user() -> Result<String> {
    let mut gateway = Gateway::start_furnished(&[PATIENT], &[("users.toml", &users(0, 0))])?;
    ensure!(answer(&mut begin(&gateway, Ipv4Addr::LOCALHOST, "alice", "secret")?)? == 0, "alice was refused");
    // Another hash: she has to be verified again.
    std::fs::write(gateway.data().join("users.toml"), users(1, 0))?;
    gateway.signal(Signal::HUP)?;
    gateway.wait_log("are read again", PATIENCE)?;
    let attackers: Vec<TcpStream> = (0..47 * 4_u32)
        .map(|number| {
            let from = Ipv4Addr::new(127, 0, 0, 2 + u8::try_from(number % 47).unwrap_or_default());
            begin(&gateway, from, &format!("nobody{number}"), "guess")
        })
        .collect::<Result<_>>()?;
    gateway.wait_metric("fogmux_logins_waiting", PATIENCE, |waiting| waiting > 100.0)?;
    let began = Instant::now();
    ensure!(answer(&mut begin(&gateway, Ipv4Addr::LOCALHOST, "alice", "secret")?)? == 0, "alice was refused");
    let took = began.elapsed();
    let waiting = gateway.metrics()?.get("fogmux_logins_waiting").copied().unwrap_or_default();
    ensure!(waiting > 50.0, "she waited until all {waiting} others were done: {took:?}");
    drop(attackers);
    gateway.check_alive()?;
    Ok(format!("in {took:?} before {waiting} others"))
}

/// The niceness of the threads that verify, if there are any.
pub(crate) fn verifiers(gateway: &Gateway) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{}/task", gateway.pid()))? {
        // A thread may end while one looks.
        let Ok(stat) = std::fs::read_to_string(task?.path().join("stat")) else { continue };
        let Some((name, rest)) = stat.rsplit_once(") ") else { continue };
        if name.contains("(fogmux-verifier") {
            // proc_pid_stat(5): nice is field 19, the state field 3.
            found.push(rest.split(' ').nth(16).context("no niceness")?.parse()?);
        }
    }
    Ok(found)
}

fn a_reload() -> Result<String> {
    let mut gateway = Gateway::start_furnished(&[PATIENT], &[("users.toml", &users(0, 1))])?;
    let log_in = |user: &str| -> Result<()> {
        ensure!(answer(&mut begin(&gateway, Ipv4Addr::LOCALHOST, user, "secret")?)? == 0, "{user} was refused");
        Ok(())
    };
    let gone = || -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !verifiers(&gateway)?.is_empty() {
            ensure!(Instant::now() < deadline, "threads that verify stay");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    };
    log_in("u0")?;
    log_in("alice")?;
    let niceness = verifiers(&gateway)?;
    ensure!(niceness == [10], "niceness {niceness:?}");
    gone()?;
    std::fs::write(gateway.data().join("users.toml"), users(1, 1))?;
    gateway.signal(Signal::HUP)?;
    gateway.wait_log("are read again", PATIENCE)?;
    log_in("u0")?;
    ensure!(verifiers(&gateway)?.is_empty(), "a user that has not changed was verified again");
    log_in("alice")?;
    ensure!(!verifiers(&gateway)?.is_empty(), "a user that has changed was not verified again");
    gateway.settle()?;
    Ok("niceness 10".into())
}
