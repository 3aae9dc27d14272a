//! Runs fuzz targets for a while; a finding is a failure.

use anyhow::{Context, Result, bail};

use crate::command::{command, output, run, succeeds};
use crate::tree::Tree;

const SECONDS: u32 = 60;

/// Each target of `fuzz/` for a while: `[SECONDS] [TARGET]…`, all of them if none is named.
pub(crate) fn fuzz(tree: &Tree, words: &[&str]) -> Result<()> {
    let (seconds, named) = parsed(words)?;
    if !succeeds(&mut command("cargo", &["+nightly", "fuzz", "--version"])) {
        bail!(
            "fuzzing needs a nightly toolchain and cargo-fuzz: `rustup toolchain install nightly && cargo install cargo-fuzz`"
        );
    }
    let known = output(command("cargo", &["+nightly", "fuzz", "list"]).current_dir(tree.root()))?;
    let targets = chosen(&known, named)?;
    for target in &targets {
        let time = format!("-max_total_time={seconds}");
        run(command("cargo", &["+nightly", "fuzz", "run", target, "--", &time, "-rss_limit_mb=1024"])
            .current_dir(tree.root()))?;
    }
    println!("{} fuzz targets, {seconds} s each, no finding", targets.len());
    Ok(())
}

/// The number of seconds, which may be left out, and the names of targets.
fn parsed<'a, 'b>(words: &'a [&'b str]) -> Result<(u32, &'a [&'b str])> {
    match words {
        [seconds, named @ ..] if seconds.starts_with(|first: char| first.is_ascii_digit()) => {
            let parsed = seconds.parse().with_context(|| format!("`{seconds}` is no number of seconds"))?;
            Ok((parsed, named))
        }
        named => Ok((SECONDS, named)),
    }
}

/// The named targets; a name that ends with `*` stands for all that begin so.
fn chosen<'a>(known: &'a str, named: &[&str]) -> Result<Vec<&'a str>> {
    let is =
        |target: &str, name: &str| name.strip_suffix('*').map_or(target == name, |prefix| target.starts_with(prefix));
    if let Some(unknown) = named.iter().find(|name| !known.lines().any(|target| is(target, name))) {
        bail!("there is no target `{unknown}`, but:\n{known}");
    }
    Ok(known.lines().filter(|target| named.is_empty() || named.iter().any(|name| is(target, name))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_chosen_by_name() {
        let known = "coap_decode\ndtls_hello\ndtls_records\n";
        assert_eq!(chosen(known, &[]).unwrap().len(), 3);
        assert_eq!(chosen(known, &["dtls_hello"]).unwrap(), ["dtls_hello"]);
        assert_eq!(chosen(known, &["dtls_*"]).unwrap(), ["dtls_hello", "dtls_records"]);
        assert!(chosen(known, &["dtls"]).is_err());
    }

    #[test]
    fn seconds_may_be_left_out() {
        assert_eq!(parsed(&["5", "a"]).unwrap(), (5, &["a"][..]));
        assert_eq!(parsed(&["a"]).unwrap(), (SECONDS, &["a"][..]));
        assert_eq!(parsed(&[]).unwrap(), (SECONDS, &[][..]));
        assert!(parsed(&["5x"]).is_err());
    }
}
