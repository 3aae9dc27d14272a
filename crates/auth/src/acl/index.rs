//! An index of rules by the levels of their filters: a decision costs the levels of the topic, not the number of rules.
//!
//! The tree is in one arena and walked without recursion, so that no topic or filter is too deep for the stack. Rules
//! that begin with `+` or `#` add one branch to the walk, whatever their number.

use std::collections::HashMap;

use super::RuleRef;

/// The place of no rule, behind all others.
pub(super) const NONE: u32 = u32::MAX;

/// Nodes that [`Index::overlaps`] looks at, at most: some ten microseconds. One SUBSCRIBE may ask about thousands of
/// filters.
const LOOKED_AT_MAX: usize = 256;

/// Rules in the order of the file, with a tree of their filters.
#[derive(Debug, Default)]
pub(super) struct Index {
    rules: Vec<Resolved>,
    nodes: Vec<Node>,
}

/// A rule's filter for one principal.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) filter: Box<str>,
    /// The rule's place in the file.
    pub(super) place: u32,
    pub(super) reference: RuleRef,
}

/// A node of the tree. Rules are indices into `rules`, the first of several with the same filter.
#[derive(Debug)]
struct Node {
    /// The first rule at this node and below.
    least: u32,
    /// The rule whose filter ends here.
    exact: u32,
    /// The rule whose filter has `#` here.
    rest: u32,
    /// The child for `+`.
    any: u32,
    levels: HashMap<Box<str>, u32>,
}

impl Default for Node {
    fn default() -> Self {
        Self { least: NONE, exact: NONE, rest: NONE, any: NONE, levels: HashMap::new() }
    }
}

impl Index {
    /// Adds a rule behind those that are there. Beyond four billion nodes rules are ignored.
    pub(super) fn push(&mut self, rule: Resolved) {
        let number = u32::try_from(self.rules.len()).unwrap_or(NONE);
        let mut at = self.root();
        let mut whole = true;
        for level in rule.filter.split('/') {
            self.note(at, |node| node.least = node.least.min(number));
            if level == "#" {
                whole = false;
                break;
            }
            at = self.below(at, level);
        }
        self.note(at, |node| {
            node.least = node.least.min(number);
            let end = if whole { &mut node.exact } else { &mut node.rest };
            *end = (*end).min(number);
        });
        self.rules.push(rule);
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Resolved> {
        self.rules.iter()
    }

    /// The first rule that matches a topic, or covers a filter.
    pub(super) fn first_match(&self, topic: &str) -> Option<&Resolved> {
        self.walk(topic, &mut 0)
    }

    /// [`Self::first_match`] that counts the nodes it looks at.
    fn walk(&self, topic: &str, visited: &mut usize) -> Option<&Resolved> {
        let mut first = NONE;
        let mut pending = Vec::new();
        let mut next = self.nodes.first().map(|root| (root, Some(topic)));
        // A wildcard at the first level does not match topics that begin with `$` ([MQTT-4.7.2-1]).
        let mut hidden = topic.starts_with('$');
        while let Some((node, rest)) = next.or_else(|| pending.pop()) {
            next = None;
            *visited += 1;
            if node.least < first {
                if !hidden {
                    first = first.min(node.rest);
                }
                match rest {
                    None => first = first.min(node.exact),
                    Some(rest) => {
                        let (level, rest) =
                            rest.split_once('/').map_or((rest, None), |(level, rest)| (level, Some(rest)));
                        // Nothing but `#` covers what ends in `#`.
                        if level != "#" {
                            next = node.levels.get(level).and_then(|at| self.node(*at)).map(|node| (node, rest));
                            if let Some(any) = self.node(node.any).filter(|_| !hidden) {
                                pending.push((any, rest));
                            }
                        }
                    }
                }
            }
            hidden = false;
        }
        self.rules.get(usize::try_from(first).ok()?)
    }

    /// Whether some topic may match a rule as well as `wanted`. A `+` of `wanted` branches into all levels that rules
    /// have in its place: where these are hundreds, the answer is yes without having looked at all.
    pub(super) fn overlaps(&self, wanted: &str) -> bool {
        let mut pending: Vec<(&Node, Option<&str>)> =
            self.nodes.first().map(|root| (root, Some(wanted))).into_iter().collect();
        let mut at_root = true;
        let mut looked_at = 0;
        while let Some((node, rest)) = pending.pop() {
            // A wildcard at the first level does not see what begins with `$` ([MQTT-4.7.2-1]), on either side.
            let hidden = at_root && wanted.starts_with('$');
            let seen = |level: &str| !at_root || !level.starts_with('$');
            let rest = rest.map(|rest| rest.split_once('/').map_or((rest, None), |(level, rest)| (level, Some(rest))));
            let found = match rest {
                None => node.exact != NONE,
                Some(("#", _)) if at_root => node.any != NONE || node.levels.keys().any(|level| seen(level)),
                Some(("#", _)) => node.least != NONE,
                Some(_) => false,
            };
            if found || (node.rest != NONE && !hidden) {
                return true;
            }
            if let Some((level, rest)) = rest.filter(|(level, _)| *level != "#") {
                let any = Some(&node.any).filter(|_| !hidden);
                let one = node.levels.get(level).filter(|_| level != "+");
                let each = (level == "+").then(|| node.levels.iter()).into_iter().flatten();
                let each = each.filter(|(name, _)| seen(name)).map(|(_, at)| at);
                for below in any.into_iter().chain(one).chain(each).filter_map(|at| self.node(*at)) {
                    looked_at += 1;
                    if looked_at > LOOKED_AT_MAX {
                        return true;
                    }
                    pending.push((below, rest));
                }
            }
            at_root = false;
        }
        false
    }

    fn node(&self, at: u32) -> Option<&Node> {
        self.nodes.get(usize::try_from(at).ok()?)
    }

    fn note(&mut self, at: u32, change: impl FnOnce(&mut Node)) {
        if let Some(node) = usize::try_from(at).ok().and_then(|at| self.nodes.get_mut(at)) {
            change(node);
        }
    }

    fn root(&mut self) -> u32 {
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        0
    }

    /// The child for a level, created if missing.
    fn below(&mut self, at: u32, level: &str) -> u32 {
        let known = self.node(at).map_or(NONE, |node| match level {
            "+" => node.any,
            literal => node.levels.get(literal).copied().unwrap_or(NONE),
        });
        if known != NONE {
            return known;
        }
        let fresh = u32::try_from(self.nodes.len()).unwrap_or(NONE);
        self.nodes.push(Node::default());
        self.note(at, |node| match level {
            "+" => node.any = fresh,
            literal => drop(node.levels.insert(literal.into(), fresh)),
        });
        fresh
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::super::filter;
    use super::*;

    fn index<S: AsRef<str>>(filters: &[S]) -> Index {
        let mut index = Index::default();
        let file = Path::new("acl.toml").into();
        for (place, filter) in filters.iter().enumerate() {
            let (filter, place) = (filter.as_ref().into(), u32::try_from(place).unwrap());
            index.push(Resolved { filter, place, reference: RuleRef::new(&file, 1, String::new()) });
        }
        index
    }

    /// The reference: rule by rule.
    fn linear(index: &Index, topic: &str) -> Option<u32> {
        index.iter().find(|rule| filter::matches(&rule.filter, topic)).map(|rule| rule.place)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn the_first_match_is_that_of_a_walk_over_all_rules(
            filters in proptest::collection::vec("((\\$?[ab]|\\+|)(/([abc]|\\+|)){0,4}(/#)?|#)", 0..40),
            topics in proptest::collection::vec("\\$?[abc]?(/[abc]?){0,5}", 1..20),
        ) {
            let filters: Vec<String> = filters.into_iter().filter(|filter| filter::is_valid(filter)).collect();
            let index = index(&filters);
            for topic in &topics {
                let found = index.first_match(topic).map(|rule| rule.place);
                prop_assert_eq!(found, linear(&index, topic), "{} in {:?}", topic, &filters);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn covering_and_overlapping_are_those_of_a_walk_over_all_rules(
            filters in proptest::collection::vec("((\\$?[ab]|\\+|)(/([abc]|\\+|)){0,4}(/#)?|#)", 0..12),
            wanted in proptest::collection::vec("((\\$?[ab]|\\+|)(/([abc]|\\+|)){0,4}(/#)?|#)", 1..20),
        ) {
            let valid = |filters: Vec<String>| filters.into_iter().filter(|filter| filter::is_valid(filter));
            let filters: Vec<String> = valid(filters).collect();
            let index = index(&filters);
            for wanted in valid(wanted) {
                let covering = index.iter().find(|rule| filter::covers(&rule.filter, &wanted)).map(|rule| rule.place);
                let found = index.first_match(&wanted).map(|rule| rule.place);
                prop_assert_eq!(found, covering, "{} in {:?}", &wanted, &filters);
                let overlapping = index.iter().any(|rule| filter::overlaps(&rule.filter, &wanted));
                prop_assert_eq!(index.overlaps(&wanted), overlapping, "{} in {:?}", &wanted, &filters);
            }
        }
    }

    #[test]
    fn an_answer_that_would_take_long_is_yes() {
        let filters: Vec<String> = (0..10_000).map(|number| format!("plant/{number}/state")).collect();
        let index = index(&filters);
        assert!(!index.overlaps("plant/1/other") && !index.overlaps("+/1/other") && !index.overlaps("$SYS/#"));
        assert!(index.overlaps("plant/+/other"), "each of ten thousand would have to be looked at");
        (0..1000).for_each(|number| assert!(index.overlaps(&format!("plant/+/{number}"))));
        (0..1000).for_each(|number| assert!(!index.overlaps(&format!("plant/{number}/other/+"))));
    }

    #[test]
    fn depth_is_no_depth_of_the_stack() {
        let deep = ["+"; 32_000].join("/");
        let index = index(&[deep.as_str(), "a/#"]);
        assert_eq!(index.first_match(&["x"; 32_000].join("/")).map(|rule| rule.place), Some(0));
        assert_eq!(index.first_match(&["a"; 30_000].join("/")).map(|rule| rule.place), Some(1));
        assert!(index.first_match(&["x"; 30_000].join("/")).is_none());
        assert!(index.overlaps(&["+"; 30_000].join("/")), "a rule of `#` below");
    }

    /// The rules of ten thousand machines, in several shapes: the levels of the topic count, and not the rules.
    #[test]
    fn a_decision_looks_at_few_nodes_whatever_the_number_of_rules() {
        for (shape, most) in
            [("plant/N/#", 4), ("+/N/state", 4), ("N/+/+/state", 2), ("plant/+/N/#", 4), ("+/+/+/N", 5), ("#", 2)]
        {
            for rules in [1, 100, 10_000] {
                let filters: Vec<String> = (0..rules).map(|number| shape.replace('N', &number.to_string())).collect();
                let index = index(&filters);
                for number in 0..100 {
                    let topic = format!("plant/{number}/x/{}", number * 7);
                    let mut visited = 0;
                    index.walk(&topic, &mut visited);
                    assert!(visited <= most, "{shape}: {visited} nodes among {rules} rules");
                }
            }
        }
    }
}
