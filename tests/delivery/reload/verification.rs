//! The keys of `[auth.verification]`, by the threads that verify and the order in which logins are answered.

use std::net::{Ipv4Addr, TcpStream};

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;

use super::{Row, Subject};
use crate::logins::{self, answer, begin, users};

pub(super) const THREADS: Row = Row {
    keys: &["auth.verification.threads"],
    case: Case { name: "reload: auth.verification.threads", run: threads },
};
pub(super) const WAITING: Row = Row {
    keys: &["auth.verification.waiting_max"],
    case: Case { name: "reload: auth.verification.waiting_max", run: waiting },
};
pub(super) const KNOWN: Row = Row {
    keys: &["auth.verification.known_max"],
    case: Case { name: "reload: auth.verification.known_max", run: known },
};

pub(super) const WAIT: Row =
    Row { keys: &["auth.verification.wait_max"], case: Case { name: "reload: auth.verification.wait_max", run: wait } };

const PATIENT: (&str, &str) = ("auth.verification.wait_max", "\"5m\"");
const ONE: (&str, &str) = ("auth.verification.threads", "1");

/// Logins with wrong passwords, each from an address of its own within one network.
fn guesses(gateway: &Gateway, count: u8) -> Result<Vec<TcpStream>> {
    let from = |number: u8| Ipv4Addr::new(127, 0, 0, number + 2);
    (0..count).map(|number| begin(gateway, from(number), &format!("nobody{number}"), "guess")).collect()
}

fn threads() -> Result<String> {
    let mut subject = Subject::start(&[PATIENT, ONE], &[])?;
    let most = |gateway: &Gateway| -> Result<bool> {
        let mut most = 0;
        for mut login in guesses(gateway, 16)? {
            most = most.max(logins::verifiers(gateway)?.len());
            answer(&mut login)?;
        }
        ensure!(most > 0, "nobody verified anything");
        Ok(most > 1)
    };
    subject.changes(("auth.verification.threads", "3"), (false, true), most)?;
    Ok(String::new())
}

fn waiting() -> Result<String> {
    let mut subject = Subject::start(&[PATIENT, ONE], &[])?;
    // 3: server unavailable [MQTT-3.2.2.3].
    let refuses = |gateway: &Gateway| -> Result<bool> {
        let codes = guesses(gateway, 24)?.iter_mut().map(answer).collect::<Result<Vec<u8>>>()?;
        Ok(codes.contains(&3))
    };
    subject.changes(("auth.verification.waiting_max", "1"), (false, true), refuses)?;
    Ok(String::new())
}

/// One thread verifies for longer than a second: those at the end of the queue are told that the gateway is busy.
fn wait() -> Result<String> {
    let settings = [ONE, ("auth.verification.wait_max", "\"5m\"")];
    let mut subject = Subject::start(&settings, &[("users.toml", &users(0, 0))])?;
    let is_busy = |gateway: &Gateway| -> Result<bool> {
        let codes = guesses(gateway, 250)?.iter_mut().map(answer).collect::<Result<Vec<u8>>>()?;
        Ok(codes.contains(&3))
    };
    subject.changes(("auth.verification.wait_max", "\"1s\""), (false, true), is_busy)?;
    Ok(String::new())
}

fn known() -> Result<String> {
    let mut subject = Subject::start(&[PATIENT, ONE], &[("users.toml", &users(0, 0))])?;
    let log_in = |gateway: &Gateway| -> Result<()> {
        let code = answer(&mut begin(gateway, Ipv4Addr::LOCALHOST, "alice", "secret")?)?;
        ensure!(code == 0, "alice was refused with {code}");
        Ok(())
    };
    // Whether she comes before half of those who wait already, none of whom is known.
    let is_known = |gateway: &Gateway| -> Result<bool> {
        let others = guesses(gateway, 40)?;
        gateway.wait_metric("fogmux_logins_waiting", super::PATIENCE, |waiting| waiting > 30.0)?;
        log_in(gateway)?;
        let left = gateway.sum(&["fogmux_logins_waiting"])?;
        drop(others);
        gateway.wait_metric("fogmux_logins_waiting", super::PATIENCE, |waiting| waiting == 0.0)?;
        Ok(left >= 15)
    };
    log_in(&subject.gateway)?;
    // With another hash she has to be verified again, and waits like everybody else.
    let again = |subject: &Subject, hash| -> Result<()> {
        std::fs::write(subject.gateway.data().join("users.toml"), users(hash, 0))?;
        subject.reload()
    };
    again(&subject, 1)?;
    ensure!(is_known(&subject.gateway)?, "auth.verification.known_max: alice is not known after she has logged in");
    subject.set("auth.verification.known_max", "0")?;
    again(&subject, 0)?;
    ensure!(!is_known(&subject.gateway)?, "auth.verification.known_max: alice is known although nobody is to be");
    Ok(String::new())
}
