//! The topics that a link passes on, and their names at the other side.

use fogmux_bus::Filter;
use fogmux_mqtt::Qos;

use crate::config::links::Route;

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the gateway to the other broker.
    Out,
    /// From the other broker to the gateway.
    In,
}

/// One list of a link.
#[derive(Debug)]
pub(super) struct Mapping(Vec<Entry>);

/// Topics of one filter.
#[derive(Debug)]
struct Entry {
    filter: Filter,
    qos: Qos,
    /// The beginning of the topic where it comes from, and what it becomes.
    from: String,
    to: String,
    /// The filter as it is written for the other side; `None` if it is none there.
    beyond: Option<Filter>,
}

impl Mapping {
    /// A list of the configuration, which has checked its filters.
    pub(super) fn new(routes: &[Route], direction: Direction) -> Self {
        let entries = routes.iter().filter_map(|route| {
            let (filter, from, beyond, to) = match direction {
                Direction::Out => (route.local(), &route.local_prefix, route.remote(), &route.remote_prefix),
                Direction::In => (route.remote(), &route.remote_prefix, route.local(), &route.local_prefix),
            };
            let (filter, qos) = (Filter::new(&filter).ok()?, Qos::from_bits(route.qos).ok()?);
            let beyond = Filter::new(&beyond).ok();
            Some(Entry { filter, qos, from: from.clone(), to: to.clone(), beyond })
        });
        Self(entries.collect())
    }

    /// The topic at the other side, by the first entry that has it; `None` if none has, or if it would be one of the
    /// server there (`$SYS`, `$CONTROL`) that the entry does not name: wildcards do not match those (§4.7.2).
    pub(super) fn map(&self, topic: &str) -> Option<String> {
        let entry = self.0.iter().find(|entry| entry.filter.matches(topic))?;
        let rest = topic.strip_prefix(entry.from.as_str())?;
        let mapped = format!("{}{rest}", entry.to);
        let is_of_server = mapped.starts_with('$');
        let may_be = !is_of_server || entry.beyond.as_ref().is_some_and(|beyond| beyond.matches(&mapped));
        (!mapped.is_empty() && may_be).then_some(mapped)
    }

    /// The filters to subscribe to where messages come from, each with the QoS of the first entry that has it.
    pub(super) fn filters(&self) -> Vec<(&str, Qos)> {
        let mut filters: Vec<(&str, Qos)> = Vec::with_capacity(self.0.len());
        for entry in &self.0 {
            if !filters.iter().any(|(filter, _)| *filter == entry.filter.as_str()) {
                filters.push((entry.filter.as_str(), entry.qos));
            }
        }
        filters
    }

    /// The same filters, each with a text that tells its entry from those with other names at the other side.
    pub(super) fn keys(&self) -> Vec<(&str, String)> {
        let entry_of = |filter: &str| self.0.iter().find(|entry| entry.filter.as_str() == filter);
        let key = |filter| entry_of(filter).map(|entry| format!("{filter}\t{}\t{}", entry.from, entry.to));
        self.filters().into_iter().filter_map(|(filter, _)| Some((filter, key(filter)?))).collect()
    }

    /// The highest QoS.
    pub(super) fn qos_max(&self) -> u8 {
        self.0.iter().map(|entry| entry.qos.bits()).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(filter: &str, local: &str, remote: &str) -> Route {
        Route { filter: filter.into(), qos: 1, local_prefix: local.into(), remote_prefix: remote.into() }
    }

    /// The table of mosquitto.conf(5), "topic": the pattern stands behind the prefix of each side.
    #[test]
    fn one_prefix_takes_the_place_of_the_other() {
        let routes = [route("temperature", "", ""), route("#", "room/", "site1/"), route("", "here", "there/it")];
        let (out, inward) = (Mapping::new(&routes, Direction::Out), Mapping::new(&routes, Direction::In));
        for (local, remote) in [("temperature", "temperature"), ("room/a/b", "site1/a/b"), ("here", "there/it")] {
            assert_eq!(out.map(local).as_deref(), Some(remote));
            assert_eq!(inward.map(remote).as_deref(), Some(local));
        }
        for other in ["room", "humidity", "here/x", "$SYS/broker/uptime"] {
            assert_eq!(out.map(other), None, "{other}");
        }
        assert_eq!(
            out.filters().iter().map(|(filter, _)| *filter).collect::<Vec<_>>(),
            ["temperature", "room/#", "here"]
        );
    }

    #[test]
    fn a_prefix_that_is_taken_away_leaves_no_topic_of_the_server() {
        let routes = [route("#", "room/", ""), route("+/x", "hall/", ""), route("#", "sys/", "$SYS/")];
        let out = Mapping::new(&routes, Direction::Out);
        assert_eq!(out.map("sys/a").as_deref(), Some("$SYS/a"), "as it is written");
        for topic in ["room/$SYS/a", "room/$CONTROL/dynamic-security/v1", "room/$share/g/a", "hall/$SYS/x"] {
            assert_eq!(out.map(topic), None, "{topic}");
        }
        assert_eq!(out.map("room/a/$SYS").as_deref(), Some("a/$SYS"));
        let routes = [route("#", "", "there/"), route("$state/#", "", "states/")];
        let inward = Mapping::new(&routes, Direction::In);
        assert_eq!(inward.map("there/$SYS/a"), None);
        assert_eq!(inward.map("states/$state/a").as_deref(), Some("$state/a"), "as it is written");
    }

    #[test]
    fn the_first_entry_decides_and_no_topic_becomes_empty() {
        let routes = [route("#", "room/", ""), route("#", "", "all/")];
        let out = Mapping::new(&routes, Direction::Out);
        assert_eq!(out.map("room/a").as_deref(), Some("a"));
        assert_eq!(out.map("hall").as_deref(), Some("all/hall"));
        assert_eq!(out.map("room/"), None);
    }
}
