//! Links to other brokers: a stock Mosquitto and a second gateway behind lines that can be cut.

mod away;
mod configured;
mod exactly;
mod line;
mod passes;
mod poison;
mod refusals;
mod reload;
mod retained;
mod secure;

use fogmux_tests::suite::Case;

pub(crate) const CASES: &[Case] = &[
    Case { name: "links: out and in with every QoS, retained, renamed, once and in order", run: passes::both_ways },
    Case { name: "links: properties of MQTT 5 are passed on", run: passes::properties },
    Case { name: "links: two gateways with one filter both ways do not loop", run: passes::no_loop },
    Case { name: "links: what comes while the broker is away waits and is delivered in order", run: away::queues },
    Case { name: "links: a broker that accepts and never answers is named, and hurts nobody", run: away::deaf },
    Case { name: "links: a line that is cut again and again, QoS 2 exactly once both ways", run: exactly::cut },
    Case { name: "links: both gateways are killed in a stream, QoS 2 exactly once", run: exactly::killed },
    Case { name: "links: the broker loses its session, and new messages are no repetitions", run: exactly::forgetful },
    Case {
        name: "links: what the broker refuses or is too large for it is dropped and counted",
        run: refusals::remote,
    },
    Case { name: "links: rules decide what a link reads and writes", run: refusals::rules },
    Case { name: "links: no client from outside has the session of a link", run: refusals::reserved },
    Case { name: "links: rights that are withdrawn take the link down, and it says so", run: refusals::withdrawn },
    Case { name: "links: retained messages go over completely, though the line is cut", run: retained::cut },
    Case {
        name: "links: retained messages of a new entry go over after the gateway was killed",
        run: retained::killed,
    },
    Case {
        name: "links: a message at which the broker closes the connection is dropped alone",
        run: poison::dropped_alone,
    },
    Case { name: "links: a line that is cut behind a message four times costs nothing", run: poison::kept },
    Case { name: "links: an entry of in that is removed is unsubscribed from", run: reload::unsubscribed },
    Case { name: "links: a link that is removed ends its session at the other broker", run: reload::ended },
    Case { name: "links: two links with one client, and filters that overlap, are refused", run: configured::clashes },
    Case { name: "links: no user has the name of a link", run: configured::names },
    Case { name: "links: bridges of mosquitto.conf are imported, and connect", run: configured::imported },
    Case { name: "links: TLS with an authority and a client certificate", run: secure::certificates },
    Case { name: "links: a wrong password says so, and the right one is read again", run: secure::passwords },
    Case { name: "links: SIGHUP adds, changes and removes links", run: reload::links },
];
