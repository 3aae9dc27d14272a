//! HTTP readers: streams, long polls, and what they leave behind.

mod access;
mod admin;
mod bench;
mod door;
mod parked;
mod reader;
mod sessions;
mod shown;
mod streams;
mod unread;

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use fogmux_tests::{suite::Case, tcp};

pub(crate) const CASES: &[Case] = &[
    Case { name: "http an answer that is still being read is no idle connection", run: door::slow_answer },
    Case { name: "http a stream delivers any number of retained messages", run: streams::retained },
    Case { name: "http a stream delivers retained messages of any size", run: streams::sizes },
    Case { name: "http a reader that pauses gets the backlog", run: streams::backlog },
    Case { name: "http a reader that comes back among retained messages gets them all", run: streams::resumption },
    Case { name: "http a refused resumption leaves the present reader alone", run: streams::refused_resumption },
    Case { name: "http a gap that was not received is told again", run: streams::gap },
    Case { name: "http streams without a reader at one address do not end those of another", run: parked::shares },
    Case { name: "http readers converge on what is retained", run: streams::convergence },
    Case { name: "http streams that are told of a gap end on the retained values", run: streams::quiet },
    Case { name: "http readers of HTTP/3 get every retained message", run: streams::http3 },
    Case { name: "http a stream whose reader takes nothing is cut, over TLS too", run: streams::stalled },
    Case { name: "http idle streams hold little memory and give it back", run: streams::memory },
    Case { name: "http results of refused lines are short from the hundredth on", run: unread::refused_lines },
    Case { name: "http batches on streams without window hold little memory", run: unread::batches },
    Case { name: "http values on streams without window hold little memory", run: unread::values },
    Case { name: "http a value that many read at once counts once", run: unread::same_value },
    Case { name: "http values that HTTP/1.1 clients do not read hold little memory", run: unread::values_1 },
    Case { name: "http a stream without window is reset, and a slow one is not", run: unread::stalled },
    Case { name: "http a long poll says that a topic was cleared", run: door::cleared },
    Case { name: "http a foreign host is refused on every route", run: door::foreign_host },
    Case { name: "http a foreign host is refused on every route of HTTP/2", run: door::foreign_host_2 },
    Case { name: "http CORS headers for origins that are named and no others", run: door::cors },
    Case { name: "http metrics in the format that is asked for", run: door::metrics },
    Case { name: "http administrators disconnect a client of each door", run: admin::disconnected },
    Case { name: "http administrators see each of many clients once", run: admin::many },
    Case { name: "http administrators see and end MQTT sessions, which the store forgets", run: sessions::ended },
    Case { name: "http administrators see each of many sessions once", run: sessions::many },
    Case { name: "http administrators change users, who log in at once", run: access::users },
    Case { name: "http administrators change rules, and a mistake opens nothing", run: access::rules },
    Case { name: "http administrators make the first rules", run: access::first_rules },
    Case { name: "http users and rules are changed only where the configuration allows it", run: access::off },
    Case { name: "http administrators set the filter of the log until a reload", run: access::log_level },
    Case { name: "http a gateway that stops waits for no answer to an administrator", run: access::stopped },
    Case { name: "http administrators are shown certificates, and no key", run: shown::certificates },
    Case { name: "http administrators are shown refusals as the log names them", run: shown::refusals },
    Case { name: "http a flood of refusals takes no place of another's", run: shown::flood_of_refusals },
    Case { name: "http streams name door and publisher to administrators only", run: shown::origins },
    Case { name: "http a stream that names publishers ends with its reader's right", run: shown::origins_end },
    Case { name: "http messages are counted by door and by pair of doors", run: shown::rates },
    Case { name: "http administrators are shown the machine", run: shown::machine },
    Case { name: "http administrators measure, one job at a time, and have the reports", run: bench::one_at_a_time },
    Case { name: "http only administrators measure", run: bench::only_administrators },
    Case { name: "http nothing but the choices is measured", run: bench::choices },
    Case {
        name: "http the queue of measurements has a bound, and so have those that ended",
        run: bench::bounded_queue,
    },
    Case { name: "http a cancelled measurement leaves no process", run: bench::cancelled },
    Case { name: "http a measurement that is killed is failed, and the next one follows", run: bench::crashed },
    Case { name: "http a measurement ends with its gateway, and the next gateway says so", run: bench::restarted },
    Case { name: "http the oldest measurements leave", run: bench::oldest_leave },
    Case { name: "http a loaded gateway refuses a measurement unless told", run: bench::loaded },
    Case { name: "http a measurement that cannot be started says why", run: bench::no_program },
    Case { name: "http MQTT over WebSocket is counted, and its will published at shutdown", run: door::mqtt_inside },
];

/// Publishes `count` retained messages to `<prefix>/00000` and so on.
fn retain(http: SocketAddr, prefix: &str, count: usize, payload: &str) -> Result<()> {
    for first in (0..count).step_by(1000) {
        let line = |number| {
            format!("{{\"topic\":\"{prefix}/{number:05}\",\"payload\":\"{payload}{number:05}\",\"retain\":true}}\n")
        };
        let body: String = (first..count.min(first + 1000)).map(line).collect();
        let answer = post(http, "/publish", &body)?;
        let refused = answer.lines().filter(|line| line.starts_with("{\"line\"") && !line.contains("\"status\":202"));
        ensure!(refused.count() == 0, "{answer}");
    }
    Ok(())
}

fn post(http: SocketAddr, path: &str, body: &str) -> Result<String> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/x-ndjson\r\n"
    );
    let answer = ask(http, &format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()))?;
    ensure!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    Ok(answer)
}

/// Sends a request, which asks for the end of the connection, and returns the whole answer.
fn ask(http: SocketAddr, request: &str) -> Result<String> {
    let answer = tcp::ask(http, request.as_bytes())?;
    String::from_utf8(answer).context("the answer is no text")
}
