//! Delivery guarantees: what was accepted arrives, in order, at every reader that can take it, whatever the transport,
//! the number of messages and the pace of the reader; memory comes back when clients leave.
//!
//! Each case starts a gateway of its own, so they run side by side. [`Gateway::settle`] runs the oracles that hold at
//! the end of every case.

mod bus;
mod coap;
mod dynamic_security;
mod fairness;
mod findings;
mod guests;
mod hints;
mod http;
mod identifiers;
mod links;
mod logins;
mod mqtt;
mod mqtt_bridge;
mod operation;
mod parked;
mod proxies;
mod reload;
mod spelling;
mod xmpp;

use std::process::ExitCode;

use fogmux_tests::suite::{self, Case};

fn main() -> ExitCode {
    let cases: Vec<Case> = [
        &mqtt::cases(),
        mqtt_bridge::CASES,
        bus::CASES,
        coap::CASES,
        dynamic_security::CASES,
        fairness::CASES,
        http::CASES,
        hints::CASES,
        identifiers::CASES,
        xmpp::CASES,
        links::CASES,
        logins::CASES,
        operation::CASES,
        findings::CASES,
        guests::CASES,
        proxies::CASES,
        spelling::CASES,
    ]
    .concat();
    // These wait for what must not come, or for a file to be read again.
    let idle = [parked::CASES, &reload::cases()].concat();
    suite::run_side_by_side("delivery", &cases, &idle)
}
