//! Subcommands whose arguments are described only when they are used.

use std::ops::Deref;

use clap::builder::{Resettable, StyledStr};
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};

/// A subcommand with deferred arguments. Running the gateway needs only the arguments of `serve`; describing the others
/// would cost an idle gateway the pages of code that do it.
#[derive(Debug)]
pub(crate) struct Later<T>(T);

impl<T> Deref for Later<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Adds the arguments but keeps the command's own description, which a derived one would replace.
fn describe(command: Command, with: fn(Command) -> Command) -> Command {
    let (about, long_about) = (command.get_about().cloned(), command.get_long_about().cloned());
    let as_before = |text: Option<StyledStr>| text.map_or(Resettable::Reset, Resettable::Value);
    with(command).about(as_before(about)).long_about(as_before(long_about))
}

impl<T: FromArgMatches> FromArgMatches for Later<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches_mut(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for Later<T> {
    fn augment_args(command: Command) -> Command {
        command.defer(|command| describe(command, T::augment_args))
    }

    fn augment_args_for_update(command: Command) -> Command {
        command.defer(|command| describe(command, T::augment_args_for_update))
    }
}

impl<T: Subcommand> Subcommand for Later<T> {
    fn augment_subcommands(command: Command) -> Command {
        command.defer(|command| describe(command, T::augment_subcommands))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        command.defer(|command| describe(command, T::augment_subcommands_for_update))
    }

    fn has_subcommand(name: &str) -> bool {
        T::has_subcommand(name)
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use crate::cli;

    #[test]
    fn every_command_is_sound_and_says_the_same_alone_and_in_the_list() {
        let mut all = cli::Cli::command();
        let abouts = |all: &clap::Command| -> Vec<_> {
            let commands = all.get_subcommands().filter(|command| command.get_name() != "help");
            commands.map(|command| command.get_about().cloned()).collect()
        };
        let list = abouts(&all);
        assert!(list.iter().all(Option::is_some));
        all.build();
        assert_eq!(list, abouts(&all));
        cli::Cli::command().debug_assert();
    }

    #[test]
    fn flags_of_a_command_and_of_one_below_it_are_read() {
        let parse = |words: &[&str]| cli::Cli::try_parse_from([&["fogmux"], words].concat()).unwrap().command.unwrap();
        let cli::Command::Check(check) = parse(&["check", "--defaults"]) else { panic!("another command") };
        assert!(check.defaults);
        let cli::Command::Acl(acl) = parse(&["acl", "test", "anna", "read", "a/b", "--json"]) else {
            panic!("another command")
        };
        let cli::Acl::Test(test) = &*acl;
        assert!(test.json);
        assert!(cli::Cli::try_parse_from(["fogmux", "acl"]).is_err());
        assert!(cli::Cli::try_parse_from(["fogmux", "check", "--nonsense"]).is_err());
    }
}
