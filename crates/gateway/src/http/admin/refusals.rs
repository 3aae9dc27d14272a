//! `GET /api/v1/refusals`: the last refused logins and actions.

use fogmux_auth::{Action, Decision};
use fogmux_http::api::{Moment, RefusalEntry, Refusals, RefusedAction, RefusedLogin};

use super::super::conn::Conn;
use crate::refused::{Line, Refusal, What};

/// All that are kept.
pub(super) fn document(conn: &Conn) -> Vec<u8> {
    let lines = conn.ctx.shared.last_refusals.all();
    Refusals { refusals: lines.into_iter().map(entry).collect() }.to_json()
}

fn entry(line: Line) -> RefusalEntry {
    let Line { refusal: Refusal { door, from, client, what }, first_unix_ms, last_unix_ms, count, others, .. } = line;
    let (kind, reason, login, action) = match what {
        What::Login { by, claimed, reason } => ("login", reason.into(), Some(RefusedLogin { by, claimed }), None),
        What::Action { principal, granted, action, topic, is_cut, rule } => {
            let in_file = rule.as_ref().filter(|rule| rule.line() > 0);
            let action = RefusedAction {
                identity: principal,
                groups: granted.iter().map(ToString::to_string).collect(),
                action: match action {
                    Action::Read => "read",
                    Action::Write => "write",
                },
                topic,
                topic_cut: is_cut,
                file: in_file.map(|rule| rule.file().display().to_string()),
                line: in_file.map(fogmux_auth::RuleRef::line),
            };
            ("action", Decision { allowed: false, rule }.to_string(), None, Some(action))
        }
    };
    RefusalEntry {
        kind,
        first: Moment(first_unix_ms),
        last: Moment(last_unix_ms),
        count,
        others,
        door: door.name(),
        address: from.map(|from| from.to_string()),
        client,
        reason,
        login,
        action,
    }
}
