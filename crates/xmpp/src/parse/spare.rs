//! Vectors of earlier stanzas, emptied for the next.

use super::{Binding, RawAttribute};
use crate::element::{Attribute, Element, Node};

/// Vectors kept of each kind: those of a batch of 64 small stanzas.
const KEPT: usize = 256;
/// Vectors with room for more entries are dropped.
const ENTRIES_MAX: usize = 8;

/// The allocations of stanzas that are done with.
///
/// A publish request takes ten. A server that reads many stanzas before it answers them would have hundreds at once,
/// more than an allocator keeps for a thread, and would wait for its locks.
#[derive(Debug, Default)]
pub struct Spare {
    attributes: Vec<Vec<Attribute<'static>>>,
    children: Vec<Vec<Node<'static>>>,
    bindings: Vec<Binding<'static>>,
    found: Vec<RawAttribute<'static>>,
}

impl Spare {
    /// Takes the allocations of a stanza.
    pub fn recycle(&mut self, stanza: Element<'_>) {
        keep(&mut self.attributes, emptied(stanza.attributes));
        let mut children = stanza.children;
        for child in children.drain(..) {
            if let Node::Element(child) = child {
                self.recycle(child);
            }
        }
        keep(&mut self.children, emptied(children));
    }

    pub(super) fn attributes<'a>(&mut self) -> Vec<Attribute<'a>> {
        self.attributes.pop().unwrap_or_default()
    }

    pub(super) fn children<'a>(&mut self) -> Vec<Node<'a>> {
        self.children.pop().unwrap_or_default()
    }

    /// The vectors that a parser works with; [`Self::return_tables`] brings them back.
    pub(super) fn tables<'a>(&mut self) -> (Vec<Binding<'a>>, Vec<RawAttribute<'a>>) {
        (std::mem::take(&mut self.bindings), std::mem::take(&mut self.found))
    }

    pub(super) fn return_tables(&mut self, bindings: Vec<Binding<'_>>, found: Vec<RawAttribute<'_>>) {
        if bindings.capacity() <= ENTRIES_MAX {
            self.bindings = emptied(bindings);
        }
        if found.capacity() <= ENTRIES_MAX {
            self.found = emptied(found);
        }
    }
}

fn keep<T>(kept: &mut Vec<Vec<T>>, vector: Vec<T>) {
    if (1..=ENTRIES_MAX).contains(&vector.capacity()) && kept.len() < KEPT {
        kept.push(vector);
    }
}

/// The vector without its entries, for entries of another lifetime. Collecting a vector's own iterator reuses its
/// allocation where the layouts are the same; the tests hold that.
fn emptied<A, B>(mut vector: Vec<A>) -> Vec<B> {
    vector.clear();
    vector.into_iter().filter_map(|_| None).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limits::Limits,
        parse::{Scope, stanza_with},
    };

    const PUBLISH: &[u8] = b"<iq type='set' id='1' to='pubsub.fog'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
        <publish node='n'><item id='a'><e xmlns='urn:e'>1</e></item></publish></pubsub></iq>";

    #[test]
    fn allocations_are_used_again() {
        let mut spare = Spare::default();
        let stanza = stanza_with(PUBLISH, &Scope::default(), &Limits::default(), &mut spare).unwrap();
        let (attributes, children) = (stanza.attributes.as_ptr().addr(), stanza.children.as_ptr().addr());
        spare.recycle(stanza);
        let kept = (spare.attributes.len(), spare.children.len());
        assert_eq!(kept, (3, 4));
        let addresses: Vec<usize> = spare.attributes.iter().map(|kept| kept.as_ptr().addr()).collect();
        assert!(addresses.contains(&attributes));
        let addresses: Vec<usize> = spare.children.iter().map(|kept| kept.as_ptr().addr()).collect();
        assert!(addresses.contains(&children));
        let again = stanza_with(PUBLISH, &Scope::default(), &Limits::default(), &mut spare).unwrap();
        assert_eq!((spare.attributes.len(), spare.children.len()), (0, 0));
        spare.recycle(again);
        assert_eq!((spare.attributes.len(), spare.children.len()), kept);
    }

    #[test]
    fn little_is_kept() {
        let mut spare = Spare::default();
        let many = format!("<iq>{}</iq>", "<a b='c'><d/></a>".repeat(KEPT * 2));
        let limits = Limits { elements_max: KEPT * 5, ..Limits::default() };
        let stanza = stanza_with(many.as_bytes(), &Scope::default(), &limits, &mut spare).unwrap();
        spare.recycle(stanza);
        assert_eq!((spare.attributes.len(), spare.children.len()), (KEPT, KEPT));
        let largest = spare.children.iter().map(Vec::capacity).max();
        assert!(largest <= Some(ENTRIES_MAX));
    }
}
