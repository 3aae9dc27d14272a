//! Secrets of a run, looked for in everything that it wrote.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::suite::Case;

use crate::bench;

pub(crate) const CASES: &[Case] = &[
    Case { name: "no secret of the command line is in what a run wrote", run: given },
    Case { name: "no secret of the command line is in what a pair wrote", run: compared },
    Case { name: "no secret of the gateway's directory is in what a run wrote", run: made },
    Case { name: "no secret is in what a killed run left", run: killed },
];

const PATIENCE: Duration = Duration::from_secs(60);

fn given() -> Result<String> {
    const SECRETS: [&str; 4] = ["s3cret-passw0rd", "c0ffee00c0ffee00c0ffee00c0ffee00", "t0ken-in-a-query", "some-us3r"];
    let place = tempfile::tempdir()?;
    let [user, key, token] = [3, 1, 2].map(|at| SECRETS.get(at).copied().unwrap_or_default());
    let password = SECRETS.first().copied().unwrap_or_default();
    // Nobody listens there; the report says so, and that is all it says.
    let url = format!("mqtts://{user}:{password}@127.0.0.1:1/prefix?access={token}");
    for (name, form) in [("apart", vec!["--psk", key]), ("joined", vec![])] {
        let (joined, out) = (format!("--psk={key}"), place.path().join(name).display().to_string());
        let rest = if form.is_empty() { vec![joined.as_str()] } else { form };
        let live = place.path().join(name).join("live.jsonl").display().to_string();
        let words = ["peer", &url, "--psk-id", "me", "--seconds", "0.1", "--repeat", "1", "--out", &out];
        let done = bench(&[&words[..], &["--live", &live], &rest].concat())?.output()?;
        let said = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        ensure!(done.status.code() == Some(69), "{}: {said}", done.status);
        let files = written(&place.path().join(name))?;
        ensure!(
            files.iter().any(|(path, text)| path.ends_with("report.json") && text.contains("REDACTED")),
            "{files:?}"
        );
        ensure!(files.iter().any(|(path, text)| path.ends_with("live.jsonl") && !text.is_empty()), "{files:?}");
        let places = files.iter().map(|(path, text)| (path.display().to_string(), text.as_str()));
        for (where_, text) in places.chain([("the terminal".to_owned(), said.as_str())]) {
            for secret in SECRETS {
                ensure!(!text.contains(secret), "{secret} is in {where_}");
            }
        }
    }
    Ok(String::new())
}

fn compared() -> Result<String> {
    let place = tempfile::tempdir()?;
    let out = place.path().join("out").display().to_string();
    let url = |user: &str| format!("mqtt://{user}:s3cret-passw0rd@127.0.0.1:1/?access=t0ken-in-a-query");
    let (one, other) = (url("some-us3r"), url("other-us3r"));
    let words = ["pair", &one, &other, "--seconds", "0.1", "--rounds", "6", "--out", &out];
    let done = bench(&words)?.output()?;
    let said = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let files = written(&place.path().join("out"))?;
    ensure!(files.iter().any(|(path, _)| path.ends_with("compare.html")), "no page of a comparison: {said}");
    let places = files.iter().map(|(path, text)| (path.display().to_string(), text.as_str()));
    for (where_, text) in places.chain([("the terminal".to_owned(), said.as_str())]) {
        for secret in ["s3cret-passw0rd", "t0ken-in-a-query", "some-us3r", "other-us3r"] {
            ensure!(!text.contains(secret), "{secret} is in {where_}");
        }
    }
    Ok(String::new())
}

fn made() -> Result<String> {
    let place = tempfile::tempdir()?;
    let (out, temporary) = (place.path().join("out"), place.path().join("tmp"));
    fs::create_dir(&temporary)?;
    let name = out.display().to_string();
    let words = ["run", "--door", "coap", "--security", "psk", "--operation", "get", "--window", "1"];
    let more = ["--seconds", "3", "--warm-up", "0", "--repeat", "1", "--out", &name];
    let generator = bench(&[&words[..], &more].concat())?.env("TMPDIR", &temporary).spawn()?;
    let secrets = collect(&temporary)?;
    let done = generator.wait_with_output()?;
    let said = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    ensure!(done.status.success(), "{said}");
    let files = written(&out)?;
    for secret in &secrets {
        ensure!(!said.contains(secret), "{secret} is on the terminal");
        for (path, text) in &files {
            ensure!(!text.contains(secret), "{secret} is in {}", path.display());
        }
    }
    Ok(format!("({} secrets, {} files)", secrets.len(), files.len()))
}

/// A run with secrets of its own directory, and one with those of its command line: each is killed when repetitions are
/// in its journal, with a file for those who watch beside it.
fn killed() -> Result<String> {
    const GIVEN: [&str; 1] = ["t0ken-in-a-query"];
    let gateway = Gateway::start(&[])?;
    let url = format!("mqtt://{}/?access=t0ken-in-a-query", gateway.address("mqtt")?);
    let peer = ["peer", &url];
    let run = ["run", "--door", "coap", "--security", "psk", "--operation", "get", "--window", "1"];
    let mut lines = 0;
    for (words, is_made) in [(&peer[..], false), (&run[..], true)] {
        let place = tempfile::tempdir()?;
        let (out, temporary) = (place.path().join("out"), place.path().join("tmp"));
        fs::create_dir(&temporary)?;
        let [name, live] = [&out, &out.join("live.jsonl")].map(|path| path.display().to_string());
        let more = ["--qos", "1", "--seconds", "1.2", "--warm-up", "0", "--repeat", "1000", "--out", &name];
        let mut command = bench(&[words, &more, &["--live", &live]].concat())?;
        command.env("TMPDIR", &temporary).stdout(Stdio::null()).stderr(Stdio::null());
        let mut generator = command.spawn()?;
        let secrets = if is_made { collect(&temporary) } else { Ok(GIVEN.map(str::to_owned).into()) };
        let until = Instant::now() + PATIENCE;
        let count = |path: &Path| fs::read_to_string(path).map_or(0, |text| text.lines().count());
        // The first line of a journal is the report without outcomes.
        while count(&out.join("unfinished.jsonl")) < 2 && Instant::now() < until {
            sleep(Duration::from_millis(5));
        }
        generator.kill()?;
        generator.wait()?;
        let files = written(&out)?;
        for name in ["unfinished.jsonl", "live.jsonl"] {
            let found = files.iter().find(|(path, _)| path.ends_with(name)).with_context(|| format!("no {name}"))?;
            ensure!(found.1.lines().count() >= 2, "{name}: {}", found.1);
            lines += found.1.lines().count();
        }
        for secret in &secrets? {
            for (path, text) in &files {
                ensure!(!text.contains(secret), "{secret} is in {}", path.display());
            }
        }
    }
    Ok(format!("({lines} lines)"))
}

/// Waits for the gateway's directory, and returns the words of its secret files: keys of tokens, pre-shared keys, lines
/// of private keys.
fn collect(temporary: &Path) -> Result<BTreeSet<String>> {
    let until = Instant::now() + PATIENCE;
    loop {
        let mut found = Vec::new();
        walk(temporary, &mut found)?;
        let is = |path: &PathBuf, name: &str| path.to_string_lossy().contains(name);
        let kinds = ["token.key", "psk"];
        if kinds
            .iter()
            .all(|kind| found.iter().any(|path| is(path, kind) && fs::metadata(path).is_ok_and(|of| of.len() > 0)))
        {
            let secret = found.iter().filter(|path| kinds.iter().chain(&[".key"]).any(|kind| is(path, kind)));
            let text: String = secret.filter_map(|path| fs::read_to_string(path).ok()).collect();
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && !"+/".contains(c));
            let words: BTreeSet<String> = words.filter(|word| word.len() >= 32).map(str::to_owned).collect();
            ensure!(words.len() >= 2, "the secrets are not where they are looked for: {found:?}");
            return Ok(words);
        }
        ensure!(Instant::now() < until, "the generator made no secrets: {found:?}");
        sleep(Duration::from_millis(5));
    }
}

/// The files of a directory with their text; only their owner may read them.
fn written(directory: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    walk(directory, &mut found)?;
    ensure!(!found.is_empty(), "nothing was written");
    let read = |path: PathBuf| {
        let mode = fs::metadata(&path)?.mode() & 0o777;
        ensure!(mode & 0o077 == 0, "others may read {}: {mode:o}", path.display());
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        Ok((path, String::from_utf8_lossy(&text).into_owned()))
    };
    found.into_iter().map(read).collect()
}

/// All files below. What goes away meanwhile is not there.
fn walk(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => walk(&entry.path(), found)?,
            false => found.push(entry.path()),
        }
    }
    Ok(())
}
