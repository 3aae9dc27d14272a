//! Flags without an effect. One that was typed and would change nothing is refused: whoever types it believes that it
//! does something, and reads the results so.

use fogmux_traffic::experiment::{Credential, Operation, Visit};
use fogmux_traffic::{Door, Experiment};

use super::arguments::{Given, Peer};
use crate::exit::{Failure, Status};

/// The server that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// A gateway that the generator starts.
    Gateway,
    /// A broker that runs already.
    Broker,
}

/// Flags that have an effect with some operations only.
const OPERATIONS: [(&str, &[Operation]); 16] = {
    use Operation::{Connect, Deliver, Get, Post, Put};
    const STEADY: &[Operation] = &[Deliver, Get, Put, Post, Connect];
    [
        ("--messages", &[Connect]),
        ("--visit", &[Connect]),
        ("--followers", &[Connect]),
        ("--subs", &[Deliver]),
        ("--in-flight", &[Deliver]),
        ("--to", &[Deliver, Connect]),
        ("--retain", &[Deliver, Get, Put, Connect]),
        ("--count", STEADY),
        ("--rate", STEADY),
        ("--arrivals", STEADY),
        ("--gap", STEADY),
        ("--window", STEADY),
        ("--qos", STEADY),
        ("--size", STEADY),
        ("--topic", STEADY),
        ("--topics", STEADY),
    ]
};

/// Refuses flags of an experiment that have no effect on it.
///
/// # Errors
/// There is one. The message names it, and why.
pub(super) fn refuse(given: &Given, experiment: &Experiment, served: Served) -> Result<(), Failure> {
    of_operation(given, experiment)?;
    of_coap(given, experiment, served)?;
    of_server(given, experiment, served)
}

fn without_effect(flag: &str, why: &str) -> Failure {
    Failure::new(Status::Usage, format!("{flag} has no effect {why}"))
}

fn of_operation(given: &Given, experiment: &Experiment) -> Result<(), Failure> {
    let operation = experiment.operation;
    for (flag, operations) in OPERATIONS {
        if given.has(flag) && !operations.contains(&operation) {
            let others: Vec<&str> = operations.iter().copied().map(name).collect();
            let why = format!("with --operation {}: it is for {}", name(operation), others.join(", "));
            return Err(without_effect(flag, &why));
        }
    }
    let has_gap = experiment.gap_seconds.is_some() && operation != Operation::Connect;
    if given.has("--window") && has_gap && experiment.window != 1 {
        return Err(without_effect("--window", "with --gap: each client has one operation under way"));
    }
    if given.has("--to") && operation == Operation::Connect && experiment.followers == 0 {
        return Err(without_effect("--to", "with --operation connect without --followers"));
    }
    Ok(())
}

fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::Deliver => "deliver",
        Operation::Get => "get",
        Operation::Put => "put",
        Operation::Post => "post",
        Operation::Connect => "connect",
        Operation::Hold => "hold",
    }
}

fn of_coap(given: &Given, experiment: &Experiment, served: Served) -> Result<(), Failure> {
    let doors = [experiment.door, experiment.reader_door()];
    let names = if doors[0] == doors[1] { doors[0].to_string() } else { format!("{} and {}", doors[0], doors[1]) };
    let has = |wanted: &[Door]| doors.iter().any(|door| wanted.contains(door));
    for (flag, wanted, which) in [
        ("--coap-answer", &[Door::Coap, Door::CoapTcp][..], "a door of CoAP"),
        ("--coap-token", &[Door::Coap, Door::CoapTcp], "a door of CoAP"),
        ("--coap-ack-timeout", &[Door::Coap], "CoAP over UDP"),
        ("--coap-server", &[Door::Coap], "CoAP over UDP"),
        ("--coap-delay", &[Door::Coap], "CoAP over UDP"),
    ] {
        if given.has(flag) && !has(wanted) {
            return Err(without_effect(flag, &format!("with --door {names}: it is for {which}")));
        }
    }
    for flag in ["--coap-server", "--coap-delay"].into_iter().filter(|flag| given.has(flag)) {
        if served == Served::Broker {
            return Err(without_effect(flag, "on a running broker, which is the server"));
        }
        if experiment.door != Door::Coap || matches!(experiment.operation, Operation::Deliver | Operation::Hold) {
            let operation = name(experiment.operation);
            let why = format!("with --operation {operation} at --door {}: it is for requests over CoAP", doors[0]);
            return Err(without_effect(flag, &why));
        }
    }
    let asks = match experiment.operation {
        Operation::Get => true,
        Operation::Connect => experiment.visit == Visit::Get,
        Operation::Deliver | Operation::Put | Operation::Post | Operation::Hold => false,
    };
    if given.has("--coap-delay") && !asks {
        let why = format!("with --operation {}: an origin delays answers to GET", name(experiment.operation));
        return Err(without_effect("--coap-delay", &why));
    }
    Ok(())
}

/// Flags of the gateway and of its network.
fn of_server(given: &Given, experiment: &Experiment, served: Served) -> Result<(), Failure> {
    if served == Served::Broker {
        for flag in ["--server-key", "--durability", "--rules", "--link"] {
            if given.has(flag) {
                return Err(without_effect(flag, "on a running broker: it is for a gateway that the generator starts"));
            }
        }
    }
    let is_clear = !experiment.security.is_secure();
    if given.has("--server-key") && is_clear {
        return Err(without_effect("--server-key", &format!("with --security {}", experiment.security)));
    }
    if given.has("--credential") && experiment.credential == Credential::Certificate && is_clear {
        let why = format!("with --security {}: certificates are shown in a handshake", experiment.security);
        return Err(without_effect("--credential certificate", &why));
    }
    Ok(())
}

/// Refuses credentials of a running broker that its URL has no use for. `scheme` is the URL's.
///
/// # Errors
/// There is one. Credentials for TLS at a URL without TLS are among them: whoever gives them believes that the password
/// is protected.
pub(super) fn refuse_of_peer(arguments: &Peer, scheme: &str, experiment: &Experiment) -> Result<(), Failure> {
    let security = experiment.security;
    let clear = format!("with {scheme}:// and --security {security}, which is in the clear");
    let tls = [
        ("--ca", arguments.ca.is_some()),
        ("--cert", arguments.cert.is_some()),
        ("--key", arguments.key.is_some()),
        ("--psk-id", arguments.psk_id.is_some()),
        ("--psk", arguments.psk.is_some()),
        ("--credential certificate", experiment.credential == Credential::Certificate),
    ];
    if !security.is_secure()
        && let Some((flag, _)) = tls.into_iter().find(|(_, is_given)| *is_given)
    {
        return Err(without_effect(flag, &clear));
    }
    if arguments.psk.is_some() && !experiment.is_by_key() {
        return Err(without_effect("--psk", &format!("with --security {security}: it is for psk")));
    }
    if arguments.oscore.is_some() && !security.oscore {
        return Err(without_effect("--oscore", &format!("with --security {security}: add --security oscore")));
    }
    let is_xmpp = matches!(experiment.door, Door::Xmpp | Door::Xmpps);
    if arguments.name.is_some() && !security.is_secure() && !is_xmpp {
        return Err(without_effect("--name", &clear));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches as _, Subcommand as _};

    use super::super::arguments::Bench;
    use super::super::{matrix, peer};
    use super::*;

    /// Why these words are refused, if they are.
    fn refused(words: &str) -> Option<String> {
        let command = Bench::augment_subcommands(Command::new("bench"));
        let matches = command.try_get_matches_from(["bench"].into_iter().chain(words.split(' '))).unwrap();
        let bench = Bench::from_arg_matches(&matches).unwrap();
        let done = if let Bench::Run(run) = &bench {
            refuse(&run.shape.given, &run.shape.experiment(), Served::Gateway)
        } else if let Bench::Peer(broker) = &bench {
            peer::target(broker, Served::Broker).map(drop)
        } else if let Bench::Matrix(all) = &bench {
            matrix::experiments(all).map(drop)
        } else {
            panic!("{bench:?}")
        };
        done.err().map(|failure| {
            assert_eq!(failure.status, Status::Usage, "{words}");
            failure.message().unwrap_or_default()
        })
    }

    #[test]
    fn a_flag_that_changes_nothing_is_refused_with_what_it_does_not_go_with() {
        for (words, flag, with) in [
            ("run --messages 5", "--messages", "--operation deliver: it is for connect"),
            ("run --visit get", "--visit", "--operation deliver"),
            ("run --operation put --followers 3", "--followers", "--operation put"),
            ("run --operation put --qos 1 --subs 7", "--subs", "--operation put"),
            ("run --operation get --in-flight 3", "--in-flight", "--operation get"),
            ("run --operation get --to mqtt5", "--to", "--operation get"),
            ("run --operation connect --to mqtt5", "--to", "without --followers"),
            ("run --operation post --retain", "--retain", "--operation post"),
            ("run --operation hold --rate 100", "--rate", "--operation hold"),
            ("run --operation hold --count 3", "--count", "--operation hold"),
            ("run --operation hold --messages 3", "--messages", "--operation hold"),
            ("run --operation hold --gap 1", "--gap", "--operation hold"),
            ("run --operation hold --qos 2", "--qos", "--operation hold"),
            ("run --gap 1 --window 50", "--window", "--gap"),
            ("run --coap-answer separate", "--coap-answer", "--door mqtt"),
            ("run --door http1 --to mqtt --coap-token empty", "--coap-token", "--door http1 and mqtt"),
            ("run --door coap-tcp --coap-ack-timeout 5", "--coap-ack-timeout", "CoAP over UDP"),
            ("run --door coap --coap-server origin", "--coap-server", "--operation deliver"),
            ("run --door coap --operation put --coap-delay 3", "--coap-delay", "--operation put"),
            ("run --server-key rsa4096", "--server-key", "--security none"),
            ("run --credential certificate", "--credential certificate", "--security none"),
            ("peer mqtts://h --server-key rsa4096", "--server-key", "a running broker"),
            ("peer mqtt://h --durability none", "--durability", "a running broker"),
            ("peer mqtt://h --rules by-identity", "--rules", "a running broker"),
            ("peer mqtt://h --link lossless", "--link", "a running broker"),
            ("peer coap://h --operation get --coap-server origin", "--coap-server", "a running broker"),
            ("peer mqtt://h --door coap", "--door coap", "the URL, whose scheme is mqtt"),
            ("peer mqtt://h --to http1", "--to http1", "the URL, whose scheme is mqtt"),
            ("peer mqtts://h --security none", "--security none", "the URL, whose scheme is mqtts"),
            ("peer coaps://h --psk-id a --psk 00 --security modern", "--psk", "--security modern"),
            ("peer coap://h --oscore d", "--oscore", "--security oscore"),
        ] {
            let why = refused(words).unwrap_or_else(|| panic!("{words}"));
            assert!(why.starts_with(flag) && why.contains(with), "{words}: {why}");
        }
    }

    #[test]
    fn credentials_for_tls_are_refused_where_a_password_would_be_sent_in_the_clear() {
        for flags in [
            "--ca ca.pem",
            "--cert c.pem --key k.pem",
            "--psk-id a --psk 00",
            "--credential certificate",
            "--name broker.example",
        ] {
            for scheme in ["mqtt", "ws", "http"] {
                let why = refused(&format!("peer {scheme}://u:p@h {flags}")).unwrap_or_else(|| panic!("{flags}"));
                assert!(why.contains(&format!("{scheme}://")) && why.contains("in the clear"), "{why}");
            }
        }
        for words in [
            "peer mqtts://u:p@h --ca ca.pem --name broker.example",
            "peer xmpp://u:p@h --security modern --ca ca.pem",
            "peer xmpp://u:p@h --name h.example",
            "peer coaps://h/ps --psk-id a --psk 00",
            "peer coaps://h --psk-id a --psk 00 --oscore d --security oscore",
            "peer coap://h --oscore d --security oscore",
        ] {
            assert_eq!(refused(words), None, "{words}");
        }
    }

    #[test]
    fn defaults_and_flags_with_an_effect_are_not_refused() {
        for words in [
            "run",
            "run --operation hold --pubs 5000 --seconds 5 --warm-up 0",
            "run --operation connect --rate 100 --messages 3 --visit get --count 5",
            "run --operation connect --gap 1",
            "run --operation connect --followers 3 --to mqtt5 --retain",
            "run --door http1 --to coap --coap-token message-id --coap-answer non-confirmable",
            "run --door coap --operation get --coap-server origin --coap-delay 0.1 --coap-ack-timeout 3",
            "run --security modern --server-key rsa2048 --credential certificate --durability none",
            "peer mqtt://h --door mqtt5 --to mqtt --pid 1",
            "peer https://h/files --door http2 --operation put --ca ca.pem",
            "matrix --quick --doors mqtt,coap --securities oscore",
        ] {
            assert_eq!(refused(words), None, "{words}");
        }
        let nothing = refused("matrix --doors mqtt --securities oscore").unwrap_or_default();
        assert!(nothing.contains("--doors") && nothing.contains("--securities"), "{nothing}");
    }
}
