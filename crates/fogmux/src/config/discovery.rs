//! How the gateway is found on the LAN.

use fogmux_gateway::discovery::DiscoveryConfig;
use fogmux_net::pki::hostname;

use super::reader::{Reader, Section};

/// The longest label of a DNS name (RFC 1035 §2.3.4).
const LABEL_BYTES_MAX: usize = 63;

/// The end of the host name in multicast DNS. The machine's own name is for the machine: a daemon that tells it is not
/// to be brought into a conflict (ADR 0059).
const HOST_SUFFIX: &str = "-fogmux";

/// Discovery by multicast DNS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Discovery {
    pub(crate) mdns: bool,
    /// Empty for the name of the machine.
    pub(crate) name: String,
}

impl Section for Discovery {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.flag("mdns", &mut self.mdns);
        let valid = |text: &str| text.len() <= LABEL_BYTES_MAX && !text.chars().any(char::is_control);
        reader.text("name", &mut self.name, valid, "up to 63 bytes of text without control characters");
    }
}

impl Discovery {
    /// Converts it for the gateway; `None` if it is off.
    pub(crate) fn of_gateway(&self) -> Option<DiscoveryConfig> {
        self.mdns.then(|| self.on(&hostname().unwrap_or_else(|| "gateway".to_owned())))
    }

    /// The names on a machine of this name.
    fn on(&self, machine: &str) -> DiscoveryConfig {
        let first = machine.split('.').next().unwrap_or_default();
        let host = first.chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '-' }).collect::<String>();
        let room = LABEL_BYTES_MAX - HOST_SUFFIX.len();
        let host = host.get(..room).unwrap_or(&host).trim_matches('-').to_owned() + HOST_SUFFIX;
        let name = if self.name.is_empty() { first.to_owned() } else { self.name.clone() };
        DiscoveryConfig { name, host: host.trim_start_matches('-').to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_the_machine_with_a_suffix_for_the_host() {
        let names = |name: &str, machine: &str| {
            let DiscoveryConfig { name, host } = Discovery { mdns: true, name: name.to_owned() }.on(machine);
            (name, host)
        };
        assert_eq!(names("", "pi"), ("pi".into(), "pi-fogmux".into()));
        assert_eq!(names("Küche", "pi.example.org"), ("Küche".into(), "pi-fogmux".into()));
        assert_eq!(names("", "a_b"), ("a_b".into(), "a-b-fogmux".into()));
        assert_eq!(names("x", "_").1, "fogmux");
        assert_eq!(names("x", &"h".repeat(64)).1.len(), 63);
        assert_eq!(Discovery::default().of_gateway(), None);
    }
}
