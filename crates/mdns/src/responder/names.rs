//! The names that a responder claims, and others after conflicts: "name (2)" for instances (RFC 6763, appendix D),
//! `name-2` for hosts (RFC 6762 §9).

use super::Renamed;
use crate::name::{LABEL_BYTES_MAX, Name};

/// The names of all links.
#[derive(Debug)]
pub(super) struct Names {
    instance: String,
    host: String,
    /// The number of each: one more after a conflict.
    instances: u32,
    hosts: u32,
}

impl Names {
    pub(super) fn new(instance: &str, host: &str) -> Self {
        let or_default = |text: &str| if text.is_empty() { "gateway".to_owned() } else { text.to_owned() };
        Self { instance: or_default(instance), host: or_default(host), instances: 1, hosts: 1 }
    }

    /// The label of an instance.
    pub(super) fn instance(&self, qualifier: Option<&str>) -> String {
        let qualifier = qualifier.map(|qualifier| format!(" {qualifier}")).unwrap_or_default();
        let number = if self.instances > 1 { format!(" ({})", self.instances) } else { String::new() };
        label(&self.instance, &(qualifier + &number))
    }

    /// The label of the host.
    pub(super) fn host(&self) -> String {
        let number = if self.hosts > 1 { format!("-{}", self.hosts) } else { String::new() };
        label(&self.host, &number)
    }

    /// The name of the host.
    pub(super) fn host_name(&self) -> Option<Name> {
        domain(&[&self.host()])
    }

    pub(super) const fn next(&mut self, renamed: Renamed) {
        if renamed.instance {
            self.instances = self.instances.saturating_add(1);
        }
        if renamed.host {
            self.hosts = self.hosts.saturating_add(1);
        }
    }
}

/// A name in the domain of the link.
pub(super) fn domain(labels: &[&str]) -> Option<Name> {
    Name::new(labels.iter().map(|label| label.as_bytes()).chain([&b"local"[..]]))
}

/// A label with this end, of which the beginning is cut if it is too long.
fn label(beginning: &str, end: &str) -> String {
    let end = cut(end, LABEL_BYTES_MAX / 2);
    format!("{}{end}", cut(beginning, LABEL_BYTES_MAX - end.len()))
}

/// The beginning of a text, of whole characters.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_after_a_conflict_has_a_number_and_fits_a_label() {
        let mut names = Names::new("Küche", "kueche");
        assert_eq!((names.instance(None).as_str(), names.host().as_str()), ("Küche", "kueche"));
        names.next(Renamed { instance: true, host: true });
        assert_eq!((names.instance(Some("lan")).as_str(), names.host().as_str()), ("Küche lan (2)", "kueche-2"));
        let mut long = Names::new(&"ü".repeat(40), &"h".repeat(80));
        assert_eq!((long.instance(None).len(), long.host().len()), (62, 63));
        long.next(Renamed { instance: true, host: true });
        assert_eq!(long.instance(None), "ü".repeat(29) + " (2)");
        assert_eq!(long.host(), "h".repeat(61) + "-2");
    }
}
