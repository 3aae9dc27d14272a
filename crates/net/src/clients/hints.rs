//! The names of authorities for certificate requests (RFC 8446 §4.2.4, RFC 5246 §7.4.4). rustls borrows them from a
//! verifier that lives as long as its listener, while authorities come and go.

use std::sync::{Arc, OnceLock};

use rustls::DistinguishedName;

/// Names, and those that came after them. It grows by an entry when the authorities change, which is when an operator
/// changes them.
#[derive(Debug)]
pub(super) struct Hints {
    names: Arc<[DistinguishedName]>,
    later: OnceLock<Box<Hints>>,
}

impl Hints {
    pub(super) const fn new(names: Arc<[DistinguishedName]>) -> Self {
        Self { names, later: OnceLock::new() }
    }

    /// The names, which are `now` these.
    pub(super) fn at(&self, now: &Arc<[DistinguishedName]>) -> &[DistinguishedName] {
        let mut newest = self;
        loop {
            newest = match newest.later.get() {
                Some(later) => later,
                None if are_same(&newest.names, now) => return &newest.names,
                // Of two handshakes at once the first adds them.
                None => newest.later.get_or_init(|| Box::new(Self::new(Arc::clone(now)))),
            };
        }
    }
}

/// Whether two lists of names are the same.
pub(crate) fn are_same(one: &[DistinguishedName], other: &[DistinguishedName]) -> bool {
    one.iter().map(AsRef::<[u8]>::as_ref).eq(other.iter().map(AsRef::as_ref))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_names_are_given_and_the_same_ones_once() {
        let names = |names: &[&str]| -> Arc<[DistinguishedName]> {
            names.iter().map(|name| DistinguishedName::from(name.as_bytes().to_vec())).collect()
        };
        let hints = Hints::new(names(&["a"]));
        for now in [names(&["a"]), names(&["a", "b"]), names(&["a", "b"]), names(&["b"]), names(&["a"])] {
            assert!(are_same(hints.at(&now), &now));
        }
        let mut length = 1;
        let mut at = &hints;
        while let Some(later) = at.later.get() {
            (at, length) = (later, length + 1);
        }
        assert_eq!(length, 4);
    }
}
