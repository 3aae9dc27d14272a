//! The contents and settings of the container image, as `deploy/Containerfile` says them: an image that is made without
//! a container engine is made of the same lines.

use std::fs;

use anyhow::{Context, Result, bail, ensure};

use crate::tree::Tree;

const FILE: &str = "deploy/Containerfile";

/// Where the stage that builds has the sources, and the program.
const SOURCES: &str = "/src/";
const PROGRAM: &str = "/src/target/release/fogmux";

/// The file that is copied.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Source {
    /// The program.
    Program,
    /// A file of the tree, by its path below the root.
    Tree(String),
    /// A file of the system that builds.
    System(String),
}

/// Everything after the last `FROM`.
#[derive(Debug, Default)]
pub(crate) struct Recipe {
    /// Each file with its place in the image.
    pub(super) copies: Vec<(Source, String)>,
    /// `NAME=VALUE`.
    pub(super) environment: Vec<String>,
    /// `NAME=VALUE`, names of the OCI.
    pub(super) labels: Vec<String>,
    /// `UID:GID`.
    pub(super) user: String,
    pub(super) volume: String,
    /// `PORT` or `PORT/udp`.
    pub(crate) ports: Vec<String>,
    pub(super) stop_signal: String,
    pub(super) entrypoint: Vec<String>,
    pub(super) command: Vec<String>,
    /// The commands of `RUN`.
    runs: Vec<String>,
}

impl Recipe {
    /// Reads the file of the tree.
    pub(crate) fn read(tree: &Tree) -> Result<Self> {
        let text = fs::read_to_string(tree.root().join(FILE)).context(FILE)?;
        Self::parse(&text).context(FILE)
    }

    /// An instruction that only a container engine could follow is an error.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (_, stage) = text.rsplit_once("\nFROM ").context("there is one stage only")?;
        let mut recipe = Self::default();
        for line in stage.lines().skip(1).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (instruction, rest) = line.split_once(' ').with_context(|| format!("`{line}` says nothing"))?;
            match instruction {
                "COPY" => recipe.copies.push(copy(rest)?),
                "RUN" => recipe.runs.push(rest.to_owned()),
                "ENV" => recipe.environment.push(rest.to_owned()),
                "LABEL" => recipe.labels.push(rest.replace('"', "")),
                "USER" => rest.clone_into(&mut recipe.user),
                "VOLUME" => rest.clone_into(&mut recipe.volume),
                "EXPOSE" => recipe.ports.extend(rest.split_whitespace().map(ToOwned::to_owned)),
                "STOPSIGNAL" => rest.clone_into(&mut recipe.stop_signal),
                "ENTRYPOINT" => recipe.entrypoint = words(rest)?,
                "CMD" => recipe.command = words(rest)?,
                _ => bail!("`{instruction}` is not known here"),
            }
        }
        let made = format!("install -d -o {} -m 0700 {}", recipe.user.replace(':', " -g "), recipe.volume);
        ensure!(recipe.runs == [made.as_str()], "RUN has to be `{made}` once");
        Ok(recipe)
    }

    /// Checks that the image reads the configuration that is mounted at `config`, has `default` there otherwise, and
    /// keeps its data in the volume.
    pub(crate) fn uses(&self, config: &str, default: &str) -> Result<()> {
        let state = format!("STATE_DIRECTORY={}", self.volume);
        ensure!(self.environment.contains(&state), "{FILE} lacks ENV {state}");
        let copied = self.copies.contains(&(Source::Tree(default.to_owned()), config.to_owned()));
        ensure!(copied, "{FILE} does not copy {default} to {config}");
        ensure!(self.command == ["serve", "--config", config], "{FILE} does not serve {config}");
        Ok(())
    }
}

/// `[--from=build] SOURCE DESTINATION`.
fn copy(rest: &str) -> Result<(Source, String)> {
    let (is_built, paths) = rest.strip_prefix("--from=build ").map_or((false, rest), |paths| (true, paths));
    let (from, to) = paths.split_once(' ').with_context(|| format!("`COPY {rest}` does not name two paths"))?;
    let source = match from.strip_prefix(SOURCES) {
        _ if from == PROGRAM => Source::Program,
        Some(path) => Source::Tree(path.to_owned()),
        None if is_built => Source::System(from.to_owned()),
        None => Source::Tree(from.to_owned()),
    };
    ensure!(to.starts_with('/'), "`COPY {rest}` does not copy to an absolute path");
    Ok((source, to.to_owned()))
}

/// `["WORD", "WORD"]`.
fn words(list: &str) -> Result<Vec<String>> {
    let inside = list.strip_prefix("[\"").and_then(|list| list.strip_suffix("\"]"));
    let inside = inside.with_context(|| format!("{list} is no list of words in double quotes"))?;
    Ok(inside.split("\", \"").map(ToOwned::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = include_str!("../../../deploy/Containerfile");
    const CONFIG: &str = "/etc/fogmux/fogmux.toml";
    const DEFAULT: &str = "deploy/container.toml";

    #[test]
    fn the_image_uses_the_configuration_and_the_volume_that_it_names() {
        let uses = |text: &str| Recipe::parse(text).and_then(|recipe| recipe.uses(CONFIG, DEFAULT));
        uses(TEXT).unwrap();
        for (part, put) in [("\"--config\"", "\"--data\""), ("STATE_DIRECTORY=", "STATE="), (DEFAULT, "other.toml")] {
            assert!(uses(&TEXT.replace(part, put)).is_err(), "{part}");
        }
        assert!(uses(&TEXT.replace("VOLUME /var/lib/fogmux", "VOLUME /other")).is_err());
    }

    #[test]
    fn every_instruction_is_known() {
        let recipe = Recipe::parse(TEXT).unwrap();
        assert!(recipe.copies.contains(&(Source::Program, "/usr/bin/fogmux".to_owned())));
        assert!(recipe.copies.iter().any(|(source, _)| matches!(source, Source::System(_))));
        assert_eq!(recipe.entrypoint, ["/usr/bin/fogmux"]);
        assert!(recipe.labels.iter().any(|label| label == "org.opencontainers.image.title=fogmux"));
        assert!(Recipe::parse(&format!("{TEXT}\nHEALTHCHECK NONE\n")).is_err());
        assert!(Recipe::parse(&format!("{TEXT}\nRUN apt-get install gdb\n")).is_err());
    }
}
