//! Running programs: the line that is run is printed first, and an exit code other than 0 is an error.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};

/// A command whose first word and arguments are given at once.
pub(crate) fn command<S: AsRef<OsStr>>(program: S, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// `cargo` as this run was started by.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), arguments)
}

/// Every package but the benches, whose dependencies turn on features of our own dependencies. Everything else is
/// compiled once, with one set of features, if every command names the same packages.
const PACKAGES: [&str; 4] = ["--workspace", "--exclude", "fogmux-benches", "--locked"];

/// `cargo SUBCOMMAND` for all packages but the benches.
pub(crate) fn cargo_tree(subcommand: &str, arguments: &[&str]) -> Command {
    let mut command = cargo(&[subcommand]);
    command.args(PACKAGES).args(arguments);
    command
}

/// `cargo SUBCOMMAND` for the benches.
pub(crate) fn cargo_benches(subcommand: &str, arguments: &[&str]) -> Command {
    let mut command = cargo(&[subcommand, "--package", "fogmux-benches", "--locked"]);
    command.args(arguments);
    command
}

/// Tests that have passed since [`take_passed`].
static PASSED: AtomicU64 = AtomicU64::new(0);

/// How many tests have passed in what was run since the last call, by what they say themselves.
pub(crate) fn take_passed() -> u64 {
    PASSED.swap(0, Ordering::Relaxed)
}

/// Lines about failed tests since [`take_failures`].
static FAILURES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The lines about failed tests in the output since the last call.
pub(crate) fn take_failures() -> Vec<String> {
    std::mem::take(&mut FAILURES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Whether the line names a failed test: `failed: SUITE CASE` of the black-box suites, `test NAME ... FAILED` of
/// cargo's.
fn is_failure(line: &str) -> bool {
    line.starts_with("failed: ") || line.starts_with("test ") && line.trim_end().ends_with("... FAILED")
}

/// The number in the last line of a suite: `test result: ok. 7 passed; …` or `7 passed, …`.
fn passed(line: &str) -> Option<u64> {
    let line = line.strip_prefix("test result: ok. ").unwrap_or(line);
    let (number, _) = line.split_once(" passed; ").or_else(|| line.split_once(" passed, "))?;
    number.parse().ok()
}

/// Shows what is read, line by line, counts the tests that passed and collects those that failed.
fn show(mut lines: impl BufRead) -> std::io::Result<()> {
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        std::io::stdout().lock().write_all(&line)?;
        let text = String::from_utf8_lossy(&line);
        if let Some(count) = passed(&text) {
            PASSED.fetch_add(count, Ordering::Relaxed);
        }
        if is_failure(&text) {
            FAILURES.lock().unwrap_or_else(PoisonError::into_inner).push(text.trim_end().to_owned());
        }
        line.clear();
    }
    Ok(())
}

/// Runs to the end with the output shown.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = line(command);
    println!("$ {line}");
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{line}`"))?;
    if let Some(output) = child.stdout.take() {
        show(BufReader::new(output))?;
    }
    let status = child.wait().with_context(|| format!("`{line}`"))?;
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(())
}

/// Runs both at once to their ends. The output of the second is shown when the first has ended.
pub(crate) fn run_both(first: &mut Command, second: &mut Command) -> Result<()> {
    let line = line(second);
    let mut child = second.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{line}`"))?;
    let mut output = child.stdout.take().context("the output is piped")?;
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        output.read_to_end(&mut text).map(|_| text)
    });
    let outcome = run(first);
    println!("$ {line}");
    let text = reader.join().map_err(|_| anyhow!("the reader of `{line}` panicked"))??;
    show(text.as_slice())?;
    let status = child.wait().with_context(|| format!("`{line}`"))?;
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    outcome
}

/// Runs to the end and gives standard output; standard error is shown.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = line(command);
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` ended with {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{line}` printed what is not UTF-8"))
}

/// Whether it can be started and ends with 0; shows nothing.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Whether a program of this name is on the path.
pub(crate) fn on_path(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Characters of a command line that are shown: the line that links a test has twenty thousand.
const LINE_CHARS_MAX: usize = 200;

/// The command line, or the beginning of a long one.
fn line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(OsStr::to_string_lossy));
    let line = words.join(" ");
    match line.char_indices().nth(LINE_CHARS_MAX) {
        Some((end, _)) => format!("{} ... ({} bytes)", line.get(..end).unwrap_or_default(), line.len()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_say_how_many_have_passed() {
        assert_eq!(passed("test result: ok. 12 passed; 0 failed; 0 ignored\n"), Some(12));
        assert_eq!(passed("15873 passed, 1 failed in 90 s\n"), Some(15_873));
        assert_eq!(passed("145 tests, 145 passed, 0 skipped, 0 failed\n"), None);
        assert_eq!(passed("delivery a case: ok in 1 s\n"), None);
    }

    #[test]
    fn of_two_that_run_at_once_both_must_end_well() {
        let (good, bad) = (|| command("true", &[]), || command("false", &[]));
        assert!(run_both(&mut good(), &mut good()).is_ok());
        assert!(run_both(&mut bad(), &mut good()).is_err());
        assert!(run_both(&mut good(), &mut bad()).is_err());
        assert!(run_both(&mut good(), &mut command("no such program", &[])).is_err());
    }

    #[test]
    fn long_command_lines_are_cut() {
        assert_eq!(line(&command("cc", &["-o", "x"])), "cc -o x");
        let long = line(&command("cc", &["\u{e4}"; 10_000]));
        assert!(long.starts_with("cc \u{e4} \u{e4}") && long.ends_with(" ... (30002 bytes)"), "{long}");
        assert_eq!(long.chars().count(), LINE_CHARS_MAX + " ... (30002 bytes)".len());
    }

    #[test]
    fn failures_are_recognised() {
        assert!(is_failure("failed: delivery 97 retained messages: 96 arrived\n"));
        assert!(is_failure("test egress::tests::grid ... FAILED\n"));
        assert!(!is_failure("test egress::tests::grid ... ok\n"));
        assert!(!is_failure("delivery a case: ok in 1 s\n"));
    }
}
