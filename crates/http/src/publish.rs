//! `POST /publish`: a batch as newline-delimited JSON, one result line for each message line.

use crate::event::{self, Decoded, push_json_string};
use crate::problem::{Kind, Problem};

/// The media type of batches, results and streams.
pub const NDJSON: &str = "application/x-ndjson";
/// The names that clients use for NDJSON.
const ALIASES: [&str; 4] = [NDJSON, "application/ndjson", "application/jsonl", "application/x-jsonlines"];

/// The media type that curl sends with `--data` by default. It counts as none, since no request here contains a form.
const CURL: &str = "application/x-www-form-urlencoded";

/// Whether a body of this type is a batch. One JSON object is a batch of one line.
#[must_use]
pub fn is_batch(content_type: Option<&str>) -> bool {
    let Some(content_type) = content_type else { return true };
    let name = crate::accept::essence(content_type);
    ALIASES.iter().any(|alias| name.eq_ignore_ascii_case(alias))
        || name.eq_ignore_ascii_case("application/json")
        || name.eq_ignore_ascii_case(CURL)
}

/// The lines of a body with their numbers, from 1; blank lines are counted but not given.
pub fn lines(body: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    body.split(|&byte| byte == b'\n')
        .zip(1_u32..)
        .map(|(line, number)| (number, line.trim_ascii()))
        .filter(|(_, line)| !line.is_empty())
}

/// Reads a message line.
pub fn parse_line(line: &[u8]) -> Result<Decoded<'_>, Problem<'static>> {
    event::decode(line).map_err(|malformed| Problem::new(Kind::InvalidBody).detail(malformed.to_string()))
}

/// The longest topic that a result repeats, in bytes. A longer one is left out: a part of it would be another topic.
pub const TOPIC_BYTES_MAX: usize = 1024;

/// Appends the result of a line that was taken: `{"line":1,"status":202,"topic":"a","matched":3}`.
pub fn push_accepted(line: u32, topic: &str, matched: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{{\"line\":{line},\"status\":202,").as_bytes());
    if topic.len() <= TOPIC_BYTES_MAX {
        out.extend_from_slice(b"\"topic\":");
        push_json_string(topic, out);
        out.push(b',');
    }
    out.extend_from_slice(format!("\"matched\":{matched}}}\n").as_bytes());
}

/// Appends the result of a line that was refused: the line and the members of the problem.
pub fn push_refused(line: u32, problem: &Problem<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{{\"line\":{line},").as_bytes());
    problem.write_members(out);
    out.extend_from_slice(b"}\n");
}

/// Appends the result of a line that was refused, without the reason: `{"line":1,"status":403}`.
pub fn push_refused_briefly(line: u32, problem: &Problem<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{{\"line\":{line},\"status\":{}}}\n", problem.status()).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_count_but_are_not_messages() {
        let found: Vec<_> = lines(b"{}\r\n\n  \n{ }\n").collect();
        assert_eq!(found, [(1, &b"{}"[..]), (4, &b"{ }"[..])]);
    }

    #[test]
    fn results_are_lines_of_json() {
        let mut out = Vec::new();
        push_accepted(1, "a\"b", 2, &mut out);
        push_refused(3, &Problem::new(Kind::Forbidden), &mut out);
        push_refused_briefly(4, &Problem::new(Kind::Forbidden), &mut out);
        push_accepted(5, &"t".repeat(TOPIC_BYTES_MAX + 1), 0, &mut out);
        let values: Vec<serde_json::Value> =
            lines(&out).map(|(_, line)| serde_json::from_slice(line).unwrap()).collect();
        assert_eq!(values[0]["topic"], "a\"b");
        assert_eq!((values[1]["line"].as_u64(), values[1]["status"].as_u64()), (Some(3), Some(403)));
        assert_eq!(values[2], serde_json::json!({"line": 4, "status": 403}));
        assert_eq!(values[3], serde_json::json!({"line": 5, "status": 202, "matched": 0}));
    }

    #[test]
    fn batches_have_several_names() {
        for name in
            [None, Some("application/x-ndjson"), Some("Application/JSON; charset=utf-8"), Some("application/jsonl")]
        {
            assert!(is_batch(name), "{name:?}");
        }
        assert!(!is_batch(Some("text/plain")));
    }
}
