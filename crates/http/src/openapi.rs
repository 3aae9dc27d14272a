//! The surface described for machines: an OpenAPI 3.1 document at `/openapi.json`.

/// The document as it is written, with `@VERSION@` where the version goes.
const TEMPLATE: &str = include_str!("openapi.json");

/// The media type: plain JSON, which every tool takes; the vendor type of the OpenAPI Initiative is known to few.
pub const CONTENT_TYPE: &str = "application/json";

/// The document for this version of the gateway.
#[must_use]
pub fn document(version: &str) -> String {
    TEMPLATE.replace("@VERSION@", version)
}

#[cfg(test)]
mod tests {
    use crate::{Route, api::Resource};

    use super::*;

    /// The methods that the document has for a path, without those that follow from others.
    fn described(item: &serde_json::Value) -> Vec<String> {
        let keys = item.as_object().into_iter().flat_map(|item| item.keys());
        let methods = keys.filter(|key| *key != "parameters").map(|key| key.to_ascii_uppercase());
        let mut methods: Vec<String> = methods.filter(|method| method != "HEAD" && method != "OPTIONS").collect();
        methods.sort();
        methods
    }

    #[test]
    fn every_resource_of_the_api_is_in_the_document_with_all_its_methods() {
        let value: serde_json::Value = serde_json::from_str(TEMPLATE).unwrap();
        for (path, resource) in Resource::every() {
            let item = &value["paths"][format!("/api/v1/{path}")];
            let allowed = resource.allow().split(", ").filter(|method| *method != "HEAD" && *method != "OPTIONS");
            let mut allowed: Vec<&str> = allowed.collect();
            allowed.sort_unstable();
            assert_eq!(described(item), allowed, "{path}");
        }
    }

    #[test]
    fn every_path_of_the_document_is_a_route_and_has_its_methods() {
        let value: serde_json::Value = serde_json::from_str(&document("1.2.3")).unwrap();
        assert_eq!(value["info"]["version"], "1.2.3");
        for (path, item) in value["paths"].as_object().unwrap() {
            let path =
                path.replace("{topic}", "a/b").replace("{id}", "1").replace("{other}", "2").replace("{name}", "alice");
            let route = Route::parse(&path).unwrap();
            for method in item.as_object().unwrap().keys().filter(|key| *key != "parameters") {
                assert!(route.allow().contains(&method.to_ascii_uppercase()), "{method} {path}");
            }
        }
    }

    /// A message may be empty, and a batch have no lines.
    #[test]
    fn only_what_is_published_needs_no_body() {
        let value: serde_json::Value = serde_json::from_str(TEMPLATE).unwrap();
        let items = value["paths"].as_object().unwrap().iter();
        let of = |(path, item): (&String, &serde_json::Value)| {
            let operations = item.as_object().unwrap().values().filter(|one| one.is_object());
            let bodies: Vec<_> = operations.filter_map(|one| one.get("requestBody").cloned()).collect();
            bodies.into_iter().map(|body| (path.clone(), body["required"] == true)).collect::<Vec<_>>()
        };
        let without: Vec<_> = items.flat_map(of).filter(|(_, required)| !required).map(|(path, _)| path).collect();
        assert_eq!(without, ["/publish", "/topics/{topic}", "/topics/{topic}"]);
    }

    /// HTTP itself, the screening of a request, the check of its credential and the reading of its body answer before
    /// the resource does.
    #[test]
    fn every_operation_has_the_statuses_that_are_not_its_own() {
        const ALL: [&str; 7] = ["400", "403", "408", "414", "417", "421", "431"];
        const WITH_CREDENTIAL: [&str; 3] = ["401", "429", "503"];
        const WITH_BODY: [&str; 3] = ["413", "415", "503"];
        let value: serde_json::Value = serde_json::from_str(TEMPLATE).unwrap();
        for (path, item) in value["paths"].as_object().unwrap() {
            let whole =
                path.replace("{topic}", "a/b").replace("{id}", "1").replace("{other}", "2").replace("{name}", "alice");
            let is_open = Route::parse(&whole).unwrap().is_open();
            for (method, operation) in item.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters") {
                let with_credential = WITH_CREDENTIAL.iter().filter(|_| !is_open);
                let with_body = WITH_BODY.iter().filter(|_| operation.get("requestBody").is_some());
                for status in ALL.iter().chain(with_credential).chain(with_body) {
                    assert!(operation["responses"].get(status).is_some(), "{method} {path}: no {status}");
                }
            }
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn walk(value: &serde_json::Value, root: &serde_json::Value) {
            if let Some(reference) = value.get("$ref").and_then(|reference| reference.as_str()) {
                assert!(root.pointer(&reference[1..]).is_some(), "{reference}");
            }
            value.as_array().into_iter().flatten().for_each(|item| walk(item, root));
            value.as_object().into_iter().flatten().for_each(|(_, item)| walk(item, root));
        }
        let value: serde_json::Value = serde_json::from_str(TEMPLATE).unwrap();
        walk(&value, &value);
    }
}
