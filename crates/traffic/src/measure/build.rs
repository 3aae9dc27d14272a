//! The build that measures, and serves where the gateway is ours: what tells two programs of one version apart.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Of the program, which this crate is only a part of.
static FEATURES: OnceLock<Vec<&'static str>> = OnceLock::new();
static BINARY: OnceLock<String> = OnceLock::new();
/// The file that runs, also if another has taken its name.
const RUNNING: &str = "/proc/self/exe";

/// A build of fogmux.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Build {
    /// The commit that was checked out when the generator was compiled, with `-dirty` if files differed from it then.
    pub commit: String,
    /// The profile of Cargo, `debug` or `release`, and the level of optimisation.
    pub profile: String,
    /// The features of the program.
    pub features: Vec<String>,
    /// The platform that it was compiled for.
    pub target: String,
    /// The file of the program, which two builds of one commit may differ in.
    pub binary_sha256: String,
}

impl Build {
    /// Of this program.
    #[must_use]
    pub fn here() -> Self {
        let features = FEATURES.get().into_iter().flatten().map(|feature| (*feature).to_owned()).collect();
        Self {
            commit: env!("FOGMUX_COMMIT").to_owned(),
            profile: format!("{}, opt-level {}", env!("FOGMUX_PROFILE"), env!("FOGMUX_OPT_LEVEL")),
            features,
            target: env!("FOGMUX_TARGET").to_owned(),
            binary_sha256: BINARY.get_or_init(|| sha256(Path::new(RUNNING)).unwrap_or_default()).clone(),
        }
    }
}

/// Notes the features that the program was built with. The first call counts.
pub fn note_features(features: impl IntoIterator<Item = &'static str>) {
    // Noted already.
    let _ = FEATURES.set(features.into_iter().collect());
}

/// The hash of a file, in hexadecimal digits.
///
/// # Errors
/// It cannot be read.
pub fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut piece)?;
        match piece.get(..count) {
            None | Some([]) => return Ok(fogmux_net::channel::hex(&hash.finalize())),
            Some(piece) => hash.update(piece),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_told_from_another() {
        let here = Build::here();
        assert!(here.profile.ends_with(|c: char| c.is_ascii_alphanumeric()) && here.profile.contains(", opt-level "));
        assert!(here.target.contains("linux"), "{here:?}");
        let sum = std::process::Command::new("sha256sum").arg(std::env::current_exe().unwrap()).output().unwrap();
        let sum = String::from_utf8(sum.stdout).unwrap();
        assert_eq!(sum.split_whitespace().next(), Some(here.binary_sha256.as_str()));
    }

    #[test]
    fn a_commit_is_forty_digits_or_none_is_known() {
        let commit = Build::here().commit;
        let digits = commit.trim_end_matches("-dirty");
        assert!(
            commit.is_empty() || (digits.len() == 40 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())),
            "{commit}"
        );
    }
}
