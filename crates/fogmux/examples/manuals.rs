//! Writes the manual pages and shell completions, made from the definition of the command line, for packages:
//! `cargo run --package fogmux --example manuals DIR` makes `DIR/man` and `DIR/completions`.

use std::io::{Error, Result};
use std::path::PathBuf;

use clap_complete::Shell;

fn main() -> Result<()> {
    let place = std::env::args_os().nth(1).map(PathBuf::from);
    let place = place.ok_or_else(|| Error::other("manuals: the directory to write to is missing"))?;
    let (manuals, completions) = (place.join("man"), place.join("completions"));
    for directory in [&manuals, &completions] {
        std::fs::create_dir_all(directory)?;
    }
    let mut commands = fogmux::commands().disable_help_subcommand(true);
    // Arguments of subcommands are added only now; see the definition.
    commands.build();
    clap_mangen::generate_to(commands, manuals)?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut fogmux::commands(), "fogmux", &completions)?;
    }
    Ok(())
}
