//! The HTTP surface of the gateway as data: routes, conditions, problems, event encodings.
