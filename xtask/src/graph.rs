//! The import graph of the gateway, by file: its modules form no circle, and only the runtime knows the doors.
//!
//! A file imports another when one of its paths names an item that is defined there, through whatever re-exports. Tests
//! (`#[cfg(test)]`) are left out. Methods that are called without a path are not seen.

mod modules;
mod token;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, bail};

use modules::Modules;

/// The doors: features, and modules of the gateway that only [`COMPOSITION`] may import.
pub(crate) const DOORS: [&str; 4] = ["coap", "http", "mqtt", "xmpp"];
/// The module that puts the doors together.
const COMPOSITION: &str = "runtime";
/// Named by no module; it re-exports what other crates use.
const ROOT: &str = "lib";

/// The nodes that each node leads to.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Checks the gateway of the tree at `root`, and prints the size of its graph and the modules of its circles.
pub(crate) fn check(root: &Path) -> Result<()> {
    let source = root.join("crates/gateway/src");
    let modules = Modules::read("lib.rs", &|file| std::fs::read_to_string(source.join(file)).ok())?;
    let files = modules.imports()?;
    let circles = circles(&files);
    println!(
        "the gateway: {} files, {} imports, {} files in circles, {} in the largest",
        files.len(),
        files.values().map(BTreeSet::len).sum::<usize>(),
        circles.iter().map(BTreeSet::len).sum::<usize>(),
        circles.iter().map(BTreeSet::len).max().unwrap_or_default(),
    );
    for circle in &circles {
        let modules: BTreeSet<&str> = circle.iter().map(|file| module_of(file)).collect();
        println!("  {} files of {}", circle.len(), modules.into_iter().collect::<Vec<_>>().join(", "));
    }
    let wrong = violations(&files);
    if wrong.is_empty() { Ok(()) } else { bail!("imports in crates/gateway/src:\n{}", wrong.join("\n")) }
}

/// The imports between files that break the rules.
fn violations(files: &Graph) -> Vec<String> {
    let mut modules = Graph::new();
    let mut wrong = Vec::new();
    for (file, imported) in files {
        let module = module_of(file);
        for other in imported {
            let target = module_of(other);
            if target != module {
                modules.entry(module.to_owned()).or_default().insert(target.to_owned());
            }
            if DOORS.contains(&target) && ![target, COMPOSITION, ROOT].contains(&module) {
                wrong.push(format!("{file} imports {other}: only {COMPOSITION} knows the doors"));
            }
        }
    }
    for circle in circles(&modules) {
        let names: Vec<&str> = circle.iter().map(String::as_str).collect();
        wrong.push(format!("the modules {} form a circle", names.join(", ")));
        let is_part = |file: &str| circle.contains(module_of(file));
        for (file, imported) in files.iter().filter(|(file, _)| is_part(file)) {
            let others = imported.iter().filter(|other| is_part(other) && module_of(other) != module_of(file));
            wrong.extend(others.map(|other| format!("  {file} imports {other}")));
        }
    }
    wrong
}

/// The module below the crate that a file belongs to.
fn module_of(file: &str) -> &str {
    let first = file.split('/').next().unwrap_or(file);
    first.strip_suffix(".rs").unwrap_or(first)
}

/// The sets of more than one node that all lead to one another.
fn circles(graph: &Graph) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|node| (node.as_str(), reach(graph, node))).collect();
    let leads = |from: &str, to: &str| reached.get(from).is_some_and(|reached| reached.contains(to));
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for node in graph.keys() {
        if !found.iter().any(|circle| circle.contains(node)) {
            let circle: BTreeSet<_> =
                graph.keys().filter(|other| leads(node, other) && leads(other, node)).cloned().collect();
            if circle.len() > 1 {
                found.push(circle);
            }
        }
    }
    found
}

/// The nodes to which a node leads, over others too.
fn reach<'g>(graph: &'g Graph, from: &str) -> BTreeSet<&'g str> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<&str> = vec![from];
    while let Some(node) = waiting.pop() {
        for next in graph.get(node).into_iter().flatten() {
            if reached.insert(next.as_str()) {
                waiting.push(next);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(sources: &[(&str, &str)]) -> Result<Graph> {
        let read = |file: &str| sources.iter().find(|(name, _)| *name == file).map(|(_, text)| (*text).to_owned());
        Modules::read("lib.rs", &read)?.imports()
    }

    fn edges(sources: &[(&str, &str)]) -> Vec<String> {
        let files = files(sources).unwrap();
        files.iter().flat_map(|(file, others)| others.iter().map(move |other| format!("{file} {other}"))).collect()
    }

    #[test]
    fn re_exports_lead_to_the_file_that_defines() {
        let sources = [
            ("lib.rs", "mod a; mod b; pub use b::Thing;"),
            ("a.rs", "use crate::Thing; fn f() { g(Thing::new(), b::deep::CONST) } use crate::b;"),
            ("b.rs", "pub mod deep; pub use deep::Thing as Other; pub use self::Other as Thing;"),
            ("b/deep.rs", "pub struct Thing; pub const CONST: u8 = 1;"),
        ];
        assert_eq!(edges(&sources), ["a.rs b/deep.rs", "b.rs b/deep.rs", "lib.rs b/deep.rs"]);
    }

    #[test]
    fn tests_comments_and_texts_import_nothing() {
        let sources = [
            ("lib.rs", "mod a; mod b;"),
            (
                "a.rs",
                r#"
                //! [`crate::b::B`]
                #[cfg(test)] use crate::b::{B, C}; #[cfg(all(test, feature = "x"))] mod tests;
                #[cfg(test)] #[must_use] pub(crate) fn f<T>() -> B where T: C, { crate::b::B }
                struct S { #[cfg(test)] seed: crate::b::B, rest: u8 }
                fn g() -> S { let s = "crate::b::B"; S { #[cfg(test)] seed: crate::b::B, rest: 'x' as u8 } }
                impl S { pub(in crate::b) fn life<'b>(x: &'b u8) -> impl Fn() + use<'b> { || () } }
                "#,
            ),
            ("b.rs", "pub struct B; pub trait C {}"),
        ];
        assert_eq!(edges(&sources), [""; 0]);
    }

    #[test]
    fn paths_in_bodies_and_inner_modules_are_followed() {
        let sources = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "fn f() { tokio::select! { x = crate::b::f() => x.collect::<Vec<u8>>() } } pub enum E { V }"),
            ("b.rs", "mod inner { use super::super::a::E::V; use std::b::c; } pub fn f() {}"),
            ("c.rs", "use crate::{a::E, b}; fn f(_: E) { b::f(); std::a::E::g() }"),
        ];
        assert_eq!(edges(&sources), ["a.rs b.rs", "b.rs a.rs", "c.rs a.rs", "c.rs b.rs"]);
    }

    #[test]
    fn a_path_that_leads_nowhere_is_an_error() {
        assert!(files(&[("lib.rs", "mod a;"), ("a.rs", "use crate::b::B;")]).is_err());
        assert!(files(&[("lib.rs", "mod a;")]).is_err(), "a file is missing");
    }

    #[test]
    fn circles_and_imports_of_doors_are_found() {
        let graph = |edges: &[(&str, &str)]| {
            let mut graph = Graph::new();
            for (from, to) in edges {
                graph.entry((*from).to_owned()).or_default().insert((*to).to_owned());
                graph.entry((*to).to_owned()).or_default();
            }
            graph
        };
        let within = graph(&[("mqtt.rs", "mqtt/a.rs"), ("mqtt/a.rs", "mqtt.rs"), ("runtime.rs", "mqtt.rs")]);
        assert_eq!((circles(&within).len(), violations(&within)), (1, Vec::new()));
        let across =
            violations(&graph(&[("worker.rs", "clock.rs"), ("clock.rs", "peer.rs"), ("peer/x.rs", "worker.rs")]));
        let expected = [
            "the modules clock, peer, worker form a circle",
            "  clock.rs imports peer.rs",
            "  peer/x.rs imports worker.rs",
            "  worker.rs imports clock.rs",
        ];
        assert_eq!(across, expected);
        let doors =
            violations(&graph(&[("http/ws.rs", "mqtt.rs"), ("lib.rs", "mqtt.rs"), ("runtime/x.rs", "http.rs")]));
        assert_eq!(doors, ["http/ws.rs imports mqtt.rs: only runtime knows the doors"]);
    }
}
