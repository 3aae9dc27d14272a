//! HTTP request targets: path to route, query to parameters. A topic that a path names is written as a path again and
//! names the same topic.
#![no_main]

use fogmux_http::{Query, Route};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
    match Route::parse(path) {
        Ok(Route::Topic(topic)) => {
            assert!(!topic.is_empty() && topic.len() <= 65_535 && !topic.contains(['+', '#', '\0']));
            let encoded: String = topic.bytes().map(|byte| format!("%{byte:02x}")).collect();
            assert_eq!(Route::parse(&format!("/topics/{encoded}")), Ok(Route::Topic(topic)));
        }
        Ok(route) => drop(route.allow()),
        Err(unroutable) => drop(unroutable.problem()),
    }
    match Query::parse(query) {
        Ok(query) => assert!(query.filters.len() <= 64 && query.properties.len() <= 64),
        Err(invalid) => drop(invalid.problem()),
    }
});
