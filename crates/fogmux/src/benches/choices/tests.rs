//! Tests of choices: what is planned is a command line that the program takes, and nothing else is planned.

use clap::Parser as _;

use super::*;
use crate::cli::Cli;

fn planned(body: &str) -> Result<Plan, String> {
    let request = fogmux_http::api::BenchRequest::parse(body.as_bytes()).map_err(|problem| format!("{problem:?}"))?;
    plan(&request.wanted)
}

fn is_taken(plan: &Plan) -> bool {
    Cli::try_parse_from(["fogmux"].into_iter().chain(plan.arguments.iter().map(String::as_str))).is_ok()
}

#[test]
fn each_choice_is_a_command_line() {
    let choices = choices();
    let mut bodies = Vec::new();
    for door in &choices.doors {
        for security in &door.securities {
            for qos in &door.qos {
                let (door, link) = (door.door, choices.links.last().unwrap());
                bodies.push(format!(
                    r#"{{"run":{{"door":"{door}","security":"{security}","qos":{qos},"link":"{link}","rate":5}}}}"#
                ));
            }
            bodies.push(format!(r#"{{"matrix":{{"doors":["{}"],"securities":["{security}"]}}}}"#, door.door));
        }
    }
    bodies.extend(choices.operations.iter().map(|one| format!(r#"{{"run":{{"operation":"{one}"}}}}"#)));
    bodies
        .extend(choices.links.iter().map(|link| format!(r#"{{"matrix":{{"link":"{link}","repeat":1,"seconds":1}}}}"#)));
    for paper in &choices.papers {
        let name = &paper.name;
        bodies.extend(paper.tables.iter().map(|table| {
            serde_json::json!({ "paper": { "name": name, "table": table.table, "link": "loopback" } }).to_string()
        }));
    }
    assert!(bodies.len() > 150, "{}", bodies.len());
    for body in bodies {
        let plan = planned(&body);
        match plan {
            Ok(plan) => assert!(is_taken(&plan), "{body}: {plan:?}"),
            // A table that is only computed, or is too long.
            Err(why) => assert!(why.contains("repetitions of the table"), "{body}: {why}"),
        }
    }
}

#[test]
fn nothing_else_is_planned() {
    for wrong in [
        r#"{"run":{"door":"mqtt --out /etc"}}"#,
        r#"{"run":{"door":"--capture"}}"#,
        r#"{"run":{"to":"MQTT"}}"#,
        r#"{"run":{"door":"http3","security":"none"}}"#,
        r#"{"run":{"door":"mqtt","to":"http3"}}"#,
        r#"{"run":{"door":"coap","qos":2}}"#,
        r#"{"run":{"qos":3}}"#,
        r#"{"run":{"security":"oscore+modern"}}"#,
        r#"{"run":{"operation":"hold"}}"#,
        r#"{"run":{"link":"loss=5%"}}"#,
        r#"{"run":{"link":""}}"#,
        r#"{"run":{"size":65537}}"#,
        r#"{"run":{"size":0}}"#,
        r#"{"run":{"pubs":501}}"#,
        r#"{"run":{"rate":0}}"#,
        r#"{"run":{"seconds":0}}"#,
        r#"{"run":{"seconds":300,"repeat":50}}"#,
        r#"{"run":{"repeat":4294967295}}"#,
        r#"{"matrix":{"repeat":50}}"#,
        r#"{"matrix":{"doors":["mqtt","mqtt"]}}"#,
        r#"{"matrix":{"doors":["coap"],"securities":["high"]}}"#,
        r#"{"matrix":{"sizes":[1,70000]}}"#,
        r#"{"paper":{"name":"../karamina2024","table":"8"}}"#,
        r#"{"paper":{"name":"karamina2024","table":"8,9"}}"#,
        r#"{"paper":{"name":"karamina2024","table":"8","link":"delay=1s"}}"#,
    ] {
        let plan = planned(wrong);
        assert!(plan.is_err(), "{wrong}: {plan:?}");
    }
    let many: Vec<String> = (1..=65).map(|size| size.to_string()).collect();
    assert!(planned(&format!(r#"{{"matrix":{{"sizes":[{}]}}}}"#, many.join(","))).is_err());
}
