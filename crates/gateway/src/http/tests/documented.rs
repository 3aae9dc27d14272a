//! The statuses of the OpenAPI document: every answer that a test of the door gets has to be among them.

use std::sync::LazyLock;

use serde_json::Value;

use super::{
    super::context::{HttpContext, Upgrades},
    *,
};

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(&fogmux_http::openapi::document("0")).unwrap());

/// Whether a path is one of a template of the document.
fn is_of(path: &str, template: &str) -> bool {
    if template == "/topics/{topic}" {
        return path.strip_prefix("/topics/").is_some_and(|topic| !topic.is_empty());
    }
    let (mut parts, mut places) = (path.split('/'), template.split('/'));
    loop {
        match (parts.next(), places.next()) {
            (None, None) => return true,
            (Some(part), Some(place)) if part == place || (place.starts_with('{') && !part.is_empty()) => {}
            _ => return false,
        }
    }
}

/// Checks that the operation of a request has the status. What is no operation, such as another method, has none.
pub(super) fn check(request: &str, status: u16) {
    let line = request.split('|').next().unwrap_or_default();
    let Some((method, target)) = line.split_once(' ') else { return };
    let path = target.split(['?', ' ']).next().unwrap_or_default();
    let paths = DOCUMENT["paths"].as_object().unwrap();
    let Some((_, item)) = paths.iter().find(|(template, _)| is_of(path, template)) else { return };
    let method = if method == "HEAD" { "get".to_owned() } else { method.to_ascii_lowercase() };
    let Some(operation) = item.get(&method) else { return };
    assert!(operation["responses"].get(status.to_string()).is_some(), "{line}: {status} is not in the document");
}

#[test]
fn a_door_that_is_not_there_has_no_websocket() {
    run(HttpConfig::default(), async |house| {
        let (base, door) = (WorkerContext::new(Arc::clone(&house.ctx.shared), WorkerId(0)), &house.ctx.door);
        let ctx = HttpContext::new(base, Arc::clone(door), Upgrades { mqtt: None, coap: None, sessions: None });
        let house = House { ctx, drain: house.drain };
        for path in ["/mqtt", "/.well-known/coap"] {
            assert_eq!(house.ask(&format!("GET {path}")).await.status(), 404, "{path}");
        }
    });
}
