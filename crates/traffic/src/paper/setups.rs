//! Set-ups of the documents' experiments, where another one would be unfair to them and look the same.

use super::{NAMES, load};
use crate::experiment::{
    Clock, CoapServer, CoapToken, Credential, Door, Durability, Experiment, Operation, Rules, ServerKey,
};
use crate::link::Conditions;

/// The experiments of these tables, whole and as `--quick` has them, with table, row and column.
fn experiments(name: &str, ids: &str) -> Vec<(String, Experiment)> {
    let paper = load(name).unwrap();
    let mut found = Vec::new();
    for id in ids.split_whitespace() {
        let table = paper.tables.iter().find(|table| table.id == id).unwrap_or_else(|| panic!("{name} has no {id}"));
        let before = found.len();
        for (row, column) in table.places() {
            let spec = table.spec(row, column);
            if spec.metric.is_none() || spec.not_here.is_some() {
                continue;
            }
            for quick in [false, true] {
                let place = format!("{name} {id}: {}/{}", table.rows[row].name, table.columns[column].name);
                found.push((place, paper.experiment(table, row, column, quick).unwrap()));
            }
        }
        assert!(found.len() > before, "{name}: {id} measures nothing");
    }
    found
}

fn metrics(name: &str, id: &str) -> Vec<String> {
    let paper = load(name).unwrap();
    let table = paper.tables.iter().find(|table| table.id == id).unwrap();
    table.places().filter_map(|(row, column)| table.spec(row, column).metric.map(str::to_owned)).collect()
}

#[test]
fn pauses_are_gaps_and_no_schedules() {
    let tables = [
        ("karamina2024", "8 16 22 26", 0.01),
        ("cui2017", "4.1 fig4.1 fig4.2 fig4.3 fig4.4 fig4.5 fig4.6 fig4.7 fig4.8", 0.001),
    ];
    for (name, ids, gap) in tables {
        for (place, experiment) in experiments(name, ids) {
            assert_eq!((experiment.gap_seconds, experiment.rate), (Some(gap), None), "{place}");
        }
    }
}

#[test]
fn the_clock_of_wiss2016_begins_with_connecting() {
    for (place, experiment) in experiments("wiss2016", "I fig4") {
        assert_eq!(experiment.clock, Clock::Connecting, "{place}");
    }
    assert!(metrics("wiss2016", "fig4").iter().all(|metric| metric.ends_with("_with_connect")));
    for (place, experiment) in experiments("wiss2016", "fig2") {
        assert!(!experiment.retain && experiment.operation == Operation::Connect, "{place}");
    }
}

#[test]
fn ten_messages_of_cui2017_have_the_initialization_in_them() {
    for id in ["4.1", "fig4.1", "fig4.2"] {
        assert!(metrics("cui2017", id).iter().all(|metric| metric.contains("_with_connect")), "{id}");
    }
    let one_hop = |(place, _): &(String, Experiment)| place.contains("one hop");
    let hops = experiments("cui2017", "fig4.5");
    let (one, two): (Vec<_>, Vec<_>) = hops.iter().partition(|cell| one_hop(cell));
    assert!(!one.is_empty() && one.iter().all(|(_, of)| of.coap_server == CoapServer::Origin && of.subscribers == 0));
    assert!(two.iter().all(|(_, of)| of.coap_server == CoapServer::Gateway && of.subscribers == 1));
}

#[test]
fn the_sensor_of_seoane2021_takes_720_ms() {
    for (place, experiment) in experiments("seoane2021", "fig15") {
        assert_eq!((experiment.coap_delay_seconds, experiment.coap_server), (0.72, CoapServer::Origin), "{place}");
    }
    for (place, experiment) in experiments("seoane2021", "5 6 10 fig12 fig14 fig15 fig16") {
        // `ps` and a slash stand before it at our door; the origin has the topic alone.
        assert_eq!((experiment.coap_token, experiment.topic.as_str()), (CoapToken::Empty, "temp"), "{place}");
    }
}

#[test]
fn the_servers_of_karamina2024_have_its_keys_and_its_rules() {
    for (place, experiment) in experiments("karamina2024", "33") {
        let kind = experiment.server_key.kind().or(experiment.security.profile.server_key);
        let (bits, credential) = match place.ends_with("High Security") {
            true => (4_096, Credential::Password),
            false => (2_048, Credential::Anonymous),
        };
        assert_eq!(kind.and_then(fogmux_net::KeyKind::rsa_bits), Some(bits), "{place}");
        assert_eq!((experiment.door, experiment.credential), (Door::Http3, credential), "{place}");
        assert!(experiment.server_key != ServerKey::EcdsaP256, "{place}");
    }
    for (place, experiment) in experiments("karamina2024", "8 9 10 11 12 13 14 15") {
        assert_eq!(experiment.rules, Rules::ByIdentity, "{place}");
    }
}

/// No document has a server that writes to a disk before it answers, which may take ours 20 ms.
#[test]
fn no_answer_waits_for_a_disk() {
    for name in NAMES {
        let paper = load(name).unwrap();
        for table in &paper.tables {
            for (row, column) in table.places() {
                let experiment = paper.experiment(table, row, column, false).unwrap();
                assert_eq!(experiment.durability, Durability::None, "{name} {}", table.id);
            }
        }
    }
}

#[test]
fn each_document_has_the_link_that_it_is_measured_over() {
    let tables = [
        ("karamina2024", "14 15 19 20 25 29", "karamina2024"),
        ("mladek2022", "4.2 4.3 text4.3.2", "mladek2022"),
        ("mladek2022", "4.4", "mladek2022-esp32"),
        ("seoane2021", "fig20 fig21", "seoane2021"),
        ("cui2017", "fig4.1 fig4.5", "cui2017"),
        ("wiss2016", "fig2 fig3 fig4 I", "wiss2016"),
    ];
    for (name, ids, preset) in tables {
        for (place, experiment) in experiments(name, ids) {
            assert_eq!(experiment.link.split(',').next(), Some(preset), "{place}");
            assert!(experiment.link.parse::<Conditions>().is_ok(), "{place}");
        }
    }
}

/// So many fill the socket's buffer many times; what fits into it takes the time of the generator.
#[test]
fn messages_of_mladek2022_that_nobody_answers_are_all_sent() {
    for (place, experiment) in experiments("mladek2022", "4.2 4.4") {
        if place.contains("MQTT QoS 0") {
            assert_eq!(experiment.count, Some(65_536), "{place}");
        }
    }
}
