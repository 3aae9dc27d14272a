//! Reports: each format is written, rendered again from its file and compared.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use fogmux_tests::suite::Case;

use crate::bench;

pub(crate) const CASES: &[Case] = &[
    Case { name: "every format is written and can be rendered again", run: formats },
    Case { name: "a regression ends with 1, noise does not", run: regressions },
    Case { name: "a condition of --fail-if ends with 1 where it holds", run: conditions },
    Case { name: "a file that is no report does not keep others from being rendered", run: broken },
    Case { name: "each way of having nothing to compare has an exit code", run: nothing_to_compare },
    Case { name: "a program is not slower than itself, and its pair can be compared again", run: pair },
    Case { name: "every document is listed and shown", run: documents },
];

fn formats() -> Result<String> {
    let place = tempfile::tempdir()?;
    let out = place.path().display().to_string();
    let done = bench(&["run", "--count", "200", "--qos", "1", "--repeat", "2", "--out", &out])?.output()?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let page = fs::read_to_string(place.path().join("report.html"))?;
    for foreign in ["http://", "https://", "src=", "@import"] {
        let inside = page.matches(foreign).filter(|_| !page.contains("xmlns")).count();
        ensure!(inside == 0, "the page asks for something else: {foreign}");
    }
    for ending in ["csv", "md", "html"] {
        fs::remove_file(place.path().join(format!("report.{ending}")))?;
    }
    let again = bench(&["report", &out])?.output()?;
    ensure!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    ensure!(fs::read_to_string(place.path().join("report.html"))? == page, "rendered again it is another page");
    Ok(format!("({} bytes of page)", page.len()))
}

fn conditions() -> Result<String> {
    let table: [(&[&str], i32, &str); 5] = [
        (&["--fail-if", "p99>10min"], 64, "no number"),
        (&["--fail-if", "p99>600s", "--fail-if", "lost>0"], 0, ""),
        (&["--fail-if", "p99>600s", "--fail-if", "p50>0us"], 1, "p50>0us fails"),
        (&["--fail-if", "rate<1M/s"], 1, "rate<1M/s fails"),
        (&["--fail-if", "offered<1/s"], 75, "cannot be told"),
    ];
    for (words, code, why) in table {
        // One client that waits for each answer is never limited by its processor.
        let shape = ["run", "--qos", "1", "--window", "1", "--count", "50", "--repeat", "1"];
        let done = bench(&[&shape[..], words].concat())?.output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.code() == Some(code) && said.contains(why), "{}: {}: {said}", words.join(" "), done.status);
    }
    Ok(format!("({} of them)", table.len()))
}

fn broken() -> Result<String> {
    let place = tempfile::tempdir()?;
    let out = place.path().display().to_string();
    let done = bench(&["run", "--count", "50", "--qos", "1", "--repeat", "1", "--out", &out])?.output()?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    // One of these comes before the report, whatever order the directory has.
    for name in ["a.json", "z.json"] {
        fs::write(place.path().join(name), "{\"version\": 1")?;
    }
    fs::remove_file(place.path().join("report.html"))?;
    let rendered = bench(&["report", &out])?.output()?;
    let said = String::from_utf8_lossy(&rendered.stderr);
    ensure!(rendered.status.code() == Some(65), "{}: {said}", rendered.status);
    ensure!(["a.json", "z.json"].iter().all(|name| said.contains(name)), "the files are not named: {said}");
    ensure!(place.path().join("report.html").exists(), "the report was not rendered: {said}");
    Ok(String::new())
}

fn regressions() -> Result<String> {
    let place = tempfile::tempdir()?;
    let file = |name: &str| place.path().join(name).display().to_string();
    let words = ["run", "--count", "300", "--qos", "1", "--repeat", "5", "--out"];
    let done = bench(&[&words[..], &[&file("before")]].concat())?.output()?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    // How much repetitions scatter, and how long they took, is the machine's: here all are the first one, and take a
    // second, more or less, and then ten.
    let report = fs::read_to_string(place.path().join("before/report.json"))?;
    for (name, seconds) in [("usual", 1.0), ("noisy", 1.02), ("slow", 10.0)] {
        let mut report: serde_json::Value = serde_json::from_str(&report)?;
        let outcomes = report.pointer_mut("/runs/0/outcomes").and_then(|all| all.as_array_mut());
        let outcomes = outcomes.context("no outcomes")?;
        let first = outcomes.first().context("no first outcome")?.clone();
        for (outcome, noise) in outcomes.iter_mut().zip([0.97, 1.0, 1.03, 0.99, 1.01]) {
            *outcome = first.clone();
            *outcome.get_mut("seconds").context("no seconds")? = (seconds * noise).into();
        }
        fs::write(place.path().join(name), report.to_string())?;
    }
    let same = bench(&["compare", &file("usual"), &file("noisy")])?.output()?;
    ensure!(same.status.code() == Some(0), "noise is no regression: {}", String::from_utf8_lossy(&same.stdout));
    let worse = bench(&["compare", &file("usual"), &file("slow")])?.output()?;
    ensure!(worse.status.code() == Some(1), "a tenth of the rate is one: {}", String::from_utf8_lossy(&worse.stdout));
    Ok(String::new())
}

fn nothing_to_compare() -> Result<String> {
    let place = tempfile::tempdir()?;
    let file = |name: &str| place.path().join(name).display().to_string();
    let words = ["run", "--count", "300", "--qos", "1", "--repeat", "5", "--out"];
    let done = bench(&[&words[..], &[&file("run")]].concat())?.output()?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(place.path().join("run/report.json"))?)?;
    let write = |name: &str, pointer: &str, value: serde_json::Value| -> Result<()> {
        let mut report = report.clone();
        *report.pointer_mut(pointer).context("no such key")? = value;
        Ok(fs::write(place.path().join(name), report.to_string())?)
    };
    let outcomes = report.pointer("/runs/0/outcomes").and_then(|all| all.as_array()).context("no outcomes")?;
    let two = outcomes.iter().take(2).cloned().collect::<Vec<_>>();
    write("whole", "/began_unix_s", 0.into())?;
    write("crashed", "/runs/0/outcomes", serde_json::Value::Array(Vec::new()))?;
    write("few", "/runs/0/outcomes", two.into())?;
    write("other", "/runs/0/experiment/payload_bytes", 65.into())?;
    write("losing", "/runs/0/outcomes/4/delivered", 1.into())?;
    for (before, after, expected) in [
        ("whole", "crashed", 70),
        ("crashed", "crashed", 66),
        ("whole", "few", 75),
        ("whole", "other", 78),
        ("whole", "losing", 1),
    ] {
        let done = bench(&["compare", &file(before), &file(after)])?.output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.code() == Some(expected), "{before} {after}: {} {said}", done.status);
    }
    Ok(String::new())
}

fn pair() -> Result<String> {
    let place = tempfile::tempdir()?;
    let out = place.path().display().to_string();
    let binary = std::env::var("FOGMUX_BIN")?;
    let words = ["pair", &binary, &binary, "--count", "200", "--qos", "1", "--rounds", "6", "--out", &out];
    let done = bench(&words)?.output()?;
    // Runs of milliseconds scatter too much for a conclusion, and may differ by chance.
    let is_told = |code: Option<i32>| matches!(code, Some(0 | 1 | 75));
    ensure!(is_told(done.status.code()), "{} {}", done.status, String::from_utf8_lossy(&done.stderr));
    let report = fs::read_to_string(place.path().join("report.json"))?;
    let report: serde_json::Value = serde_json::from_str(&report)?;
    for side in ["/runs/0/outcomes", "/runs/1/outcomes"] {
        let outcomes = report.pointer(side).and_then(|all| all.as_array()).context("no outcomes")?;
        ensure!(outcomes.len() >= 12, "{} repetitions", outcomes.len());
    }
    let again = bench(&["compare", &place.path().join("report.json").display().to_string()])?.output()?;
    ensure!(again.status.code() == done.status.code() && again.stdout == done.stdout, "compared again it differs");
    Ok(String::new())
}

fn documents() -> Result<String> {
    let names = ["karamina2024", "mladek2022", "seoane2021", "cui2017", "wiss2016"];
    let list = bench(&["paper", "list"])?.output()?;
    let text = String::from_utf8(list.stdout)?;
    for name in names {
        ensure!(text.contains(name), "{name} is not in the list");
        let shown = bench(&["paper", "show", name])?.output()?;
        let text = String::from_utf8(shown.stdout)?;
        ensure!(shown.status.success() && text.contains("\nTable ") && text.contains("\nClaims\n"), "{name}: {text}");
    }
    Ok(format!("({} documents)", names.len()))
}
