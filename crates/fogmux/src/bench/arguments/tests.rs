//! Tests of flags.

use clap::{Arg, Command, Subcommand as _};

use fogmux_traffic::report::command::SECRET_FLAGS;

use super::Bench;

/// Flags whose value anybody may read in a report. A new one is either here or redacted.
const PUBLIC: [&str; 88] = [
    "agent",
    "agent-key",
    "all",
    "arrivals",
    "ca",
    "capture",
    "cert",
    "churn",
    "clock",
    "coap-ack-timeout",
    "coap-answer",
    "coap-delay",
    "coap-server",
    "coap-token",
    "columns",
    "common",
    "count",
    "credential",
    "door",
    "doors",
    "drain",
    "durability",
    "end-with",
    "energy",
    "fail-if",
    "follow",
    "followers",
    "from",
    "gap",
    "group",
    "groups",
    "help",
    "in-flight",
    "impossible",
    "json",
    "key",
    "key-log",
    "keys",
    "link",
    "listen",
    "live",
    "markdown",
    "messages",
    "meter",
    "name",
    "operation",
    "oscore",
    "out",
    "pid",
    "pid-after",
    "pid-before",
    "psk-id",
    "pubs",
    "qos",
    "quick",
    "rate",
    "rates",
    "repeat",
    "repeat-max",
    "resume",
    "retain",
    "rounds",
    "rounds-max",
    "rules",
    "seconds",
    "securities",
    "security",
    "seed",
    "server-key",
    "session",
    "size",
    "sizes",
    "start-spread",
    "step-seconds",
    "storm",
    "subs",
    "suite",
    "suites",
    "table",
    "threads",
    "to",
    "topic",
    "topics",
    "until",
    "version",
    "visit",
    "warm-up",
    "window",
];

fn flags(command: &Command, found: &mut Vec<String>) {
    found.extend(command.get_arguments().filter_map(Arg::get_long).map(str::to_owned));
    command.get_subcommands().for_each(|command| flags(command, found));
}

#[test]
fn each_flag_is_public_or_redacted() {
    let command = Bench::augment_subcommands(Command::new("bench"));
    let mut found = Vec::new();
    flags(&command, &mut found);
    for flag in &found {
        let is_known = PUBLIC.contains(&flag.as_str()) || SECRET_FLAGS.contains(&format!("--{flag}").as_str());
        assert!(is_known, "--{flag}: is its value a secret?");
    }
    assert!(SECRET_FLAGS.iter().all(|flag| found.contains(&flag.trim_start_matches('-').to_owned())));
}
