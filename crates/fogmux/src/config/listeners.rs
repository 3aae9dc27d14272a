//! The listeners: one of each kind under the name of its kind, and further ones under names of their own.

use fogmux_gateway::Listener as Kind;

use super::listener::{Defaults, KINDS, Listener};
use super::problem::Source;
use super::reader::{Findings, Reader, Section, read_source};

/// The section with defaults for all listeners.
const DEFAULTS: &str = "defaults";
/// The longest name of a listener, in bytes.
const NAME_BYTES_MAX: usize = 32;
/// The most listeners; each address has a socket, or one for each worker.
const LISTENERS_MAX: usize = 64;

/// All listeners.
#[derive(Clone, Debug)]
pub(crate) struct Listeners {
    /// For keys that a listener does not set.
    defaults: Defaults,
    /// Those named as their kinds first, in the order of [`KINDS`].
    all: Vec<Listener>,
}

impl Default for Listeners {
    fn default() -> Self {
        Self::with(Defaults::default())
    }
}

/// Defaults have had their effect when listeners are compared.
impl PartialEq for Listeners {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

impl Listeners {
    fn with(defaults: Defaults) -> Self {
        let all = KINDS.map(|kind| Listener::new(kind.name(), kind, &defaults)).into();
        Self { defaults, all }
    }

    /// The listeners before any source is read, with the defaults that the sources give them: those count wherever they
    /// are written, before or behind a listener.
    pub(crate) fn with_defaults_of(sources: &[Source]) -> Self {
        let mut defaults = Defaults::default();
        for source in sources {
            // Mistakes are found when the source is read as a whole.
            read_source(source, &mut InConfig(InListeners(&mut defaults)), &mut Findings::default());
        }
        Self::with(defaults)
    }

    /// Sets every port to 0, so that the system chooses it.
    pub(crate) fn free_ports(&mut self) {
        for address in self.all.iter_mut().flat_map(|listener| &mut listener.addresses) {
            address.set_port(0);
        }
    }

    /// Copies from `other` whether anonymous clients are admitted. A listener that `other` does not have, or has at
    /// other addresses, which takes effect after a restart, can be closed to them by this but not opened.
    pub(crate) fn take_over(&mut self, other: &Self) {
        for own in &mut self.all {
            let other = other.named(&own.name);
            (own.anonymous, own.allow_remote_anonymous) = match other {
                Some(other) if own.is_where(other) => (other.anonymous, other.allow_remote_anonymous),
                Some(other) => (
                    own.anonymous && other.lets_anonymous_in_everywhere(),
                    own.allow_remote_anonymous && other.allow_remote_anonymous,
                ),
                None => (false, own.allow_remote_anonymous),
            };
        }
    }

    /// Returns each listener with its name.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&str, &Listener)> {
        self.all.iter().map(|listener| (&*listener.name, listener))
    }

    /// Returns a listener by its name.
    pub(crate) fn named(&self, name: &str) -> Option<&Listener> {
        self.all.iter().find(|listener| listener.name == name)
    }

    /// Adds a listener of its own name where a table that is none yet says of which kind it is.
    fn add(&mut self, name: &str, reader: &mut Reader<'_>) {
        let kinds: Vec<_> = KINDS.iter().map(|kind| format!("{:?}", kind.name())).collect();
        let named = reader.word_within(name, "kind");
        let kind = named.as_deref().and_then(|word| KINDS.into_iter().find(|kind| kind.name() == word));
        let Some(kind) = kind else {
            let known: Vec<&str> = self.all.iter().map(|listener| &*listener.name).chain([DEFAULTS]).collect();
            let further = format!("; a further listener has kind = one of {}", kinds.join(", "));
            return reader.refuse_unknown_table(name, &known, &further);
        };
        let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(letters);
        if !is_name || name == Kind::Http3.name() {
            let accepted = format!(
                "a name of at most {NAME_BYTES_MAX} lower-case letters, digits, \"-\" and \"_\", other than \"http3\""
            );
            return reader.refuse_table(name, "is no name for a listener", &accepted);
        }
        if self.all.len() >= LISTENERS_MAX {
            return reader.refuse_table(name, "is a listener too many", &format!("at most {LISTENERS_MAX} listeners"));
        }
        self.all.push(Listener::new(name, kind, &self.defaults));
    }
}

impl Section for Listeners {
    fn read(&mut self, reader: &mut Reader<'_>) {
        // They are in force already; here they are checked.
        reader.section(DEFAULTS, &mut self.defaults.clone());
        for name in reader.keys() {
            if name != DEFAULTS && self.named(&name).is_none() {
                self.add(&name, reader);
            }
        }
        for listener in &mut self.all {
            let name = listener.name.clone();
            reader.section(&name, listener);
        }
    }
}

/// `listeners` of a whole configuration, of which nothing else is read.
struct InConfig<S>(S);

impl<S: Section> Section for InConfig<S> {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.section("listeners", &mut self.0);
    }
}

/// `defaults` of the listeners, of which nothing else is read.
struct InListeners<'a>(&'a mut Defaults);

impl Section for InListeners<'_> {
    fn read(&mut self, reader: &mut Reader<'_>) {
        reader.section(DEFAULTS, self.0);
    }
}
