//! The flags that were typed, to be told from those that have their default.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

/// The names of all flags that were typed, also of those beside the ones it is flattened into. It has to come before
/// them: clap takes a flag's value out of the matches when it is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given(Vec<String>);

impl Given {
    /// Whether this flag was typed, such as `--coap-token`.
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.0.iter().any(|given| given == flag)
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let is_typed = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let all = matches.ids().map(clap::Id::as_str).filter(|id| is_typed(id));
        Ok(Self(all.map(|id| format!("--{}", id.replace('_', "-"))).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}
