//! Results of a batch of which the store keeps a part.

use fogmux_bus::{Completer, Completion, Message, StoreFailed, Stored, Topic};

use super::*;

/// Writes each topic in a commit of its own: the one named `1` succeeds, all others fail.
#[derive(Default)]
struct Apart;

fn completion(topic: &str) -> Completion {
    let completer = Completer::default();
    completer.complete(if topic == "1" { Ok(()) } else { Err(StoreFailed) });
    Completion::Waiting(Arc::new(completer))
}

impl RetainedStore for Apart {
    fn put(&self, message: &Arc<Message>, _: Option<u64>, _: Option<&Arc<Message>>) -> Completion {
        completion(&message.topic)
    }

    fn remove(&self, topic: &Topic, _: Option<&Arc<Message>>) -> Completion {
        completion(topic)
    }

    fn pending(&self, topic: &str) -> Completion {
        completion(topic)
    }

    fn load(&self, _: &mut dyn FnMut(Stored)) {}
}

#[test]
fn each_line_of_a_batch_has_the_result_of_its_own_commit() {
    run_on(Box::new(Apart), HttpConfig::default(), Rules::default(), async |house| {
        // More than one turn of lines.
        let (mut body, mut expected) = (String::new(), Vec::new());
        for number in 0..200 {
            let (line, status) = match number % 5 {
                0 => ("{\"topic\":\"live\"}", 202),
                1 => ("{\"topic\":\"#\"}", 400),
                2 => ("{\"topic\":\"2\",\"retain\":true}", 507),
                _ => ("{\"topic\":\"1\",\"retain\":true,\"payload\":\"x\"}", 202),
            };
            body.push_str(line);
            body.push('\n');
            expected.push((number + 1, status));
        }
        let response = house.ask(&format!("POST /publish|content-type: application/x-ndjson||{body}")).await;
        assert_eq!(response.status(), 200);
        let results: Vec<(u64, u64)> = response
            .text()
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .map(|line| (line["line"].as_u64().unwrap(), line["status"].as_u64().unwrap()))
            .collect();
        assert_eq!(results, expected);
    });
}
