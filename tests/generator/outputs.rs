//! Where results go, and who may stop them: full and closed outputs, pipes, another measurement, and what the other end
//! writes.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fogmux_tests::suite::Case;

use crate::bench;
use crate::faults::at_work;
use crate::stall::{child_of, signal, wait_for_clients};

pub(crate) const CASES: &[Case] = &[
    Case { name: "a full or closed standard output costs no report", run: unprinted },
    Case { name: "a pipe that nobody reads holds up no measurement and no signal", run: unread },
    Case { name: "a directory is of one measurement, and a FIFO is no report", run: shared },
    Case { name: "a signal ends a measurement at once", run: prompt },
    Case { name: "what the other end writes moves no cursor", run: hostile },
    Case { name: "flags without an effect are refused", run: refused },
];

/// Below the five seconds for which a gateway is waited for.
const AT_ONCE: Duration = Duration::from_secs(4);

/// The words of a short measurement whose report goes here.
fn short(out: &Path) -> Vec<String> {
    let words = ["run", "--qos", "1", "--seconds", "0.2", "--warm-up", "0", "--repeat", "1", "--out"];
    words.iter().map(|word| (*word).to_owned()).chain([out.display().to_string()]).collect()
}

fn command(words: &[String]) -> Result<Command> {
    bench(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn fifo(path: &Path) -> Result<()> {
    ensure!(Command::new("mkfifo").arg(path).status()?.success(), "mkfifo failed");
    Ok(())
}

fn unprinted() -> Result<String> {
    let place = tempfile::tempdir()?;
    let full = Stdio::from(File::options().write(true).open("/dev/full")?);
    let (reader, closed) = std::io::pipe()?;
    drop(reader);
    for (name, stdout, code) in [("full", full, 74), ("closed", Stdio::from(closed), 0)] {
        let out = place.path().join(name);
        let done = command(&short(&out))?.stdout(stdout).output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.code() == Some(code) && !said.contains("panicked"), "{name}: {}: {said}", done.status);
        for file in ["report.json", "report.csv", "report.html"] {
            ensure!(out.join(file).exists(), "{name}: there is no {file}");
        }
        ensure!(!out.join("unfinished.jsonl").exists(), "{name}: a finished measurement has left its journal");
    }
    Ok(String::new())
}

fn unread() -> Result<String> {
    let place = tempfile::tempdir()?;
    let path = place.path().join("live");
    fifo(&path)?;
    let live = ["--live".to_owned(), path.display().to_string()];
    let done = command(&[short(&place.path().join("out")), live.to_vec()].concat())?.output()?;
    ensure!(done.status.success(), "{}: {}", done.status, String::from_utf8_lossy(&done.stderr));
    let words = ["run", "--qos", "1", "--seconds", "60", "--repeat", "1", "--live", &live[1]];
    let mut generator = bench(&words)?.spawn()?;
    wait_for_clients(child_of(generator.id())?)?;
    signal(generator.id(), "TERM")?;
    ensure!(generator.wait()?.code() == Some(143), "SIGTERM was not heard");
    Ok(String::new())
}

fn shared() -> Result<String> {
    let place = tempfile::tempdir()?;
    let mut generator = at_work(place.path(), &["run", "--repeat", "1000"], 2)?;
    let out = place.path().join("out");
    let second = command(&short(&out))?.output()?;
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    signal(generator.id(), "TERM")?;
    generator.wait()?;
    ensure!(second.status.code() == Some(69), "{}: {said}", second.status);
    ensure!(said.contains("another measurement writes into it"), "{said}");
    fifo(&out.join("a.json"))?;
    let done = bench(&["report", &out.display().to_string()])?.output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.code() == Some(65) && said.contains("is no regular file"), "{}: {said}", done.status);
    Ok(String::new())
}

fn prompt() -> Result<String> {
    let mut longest = Duration::ZERO;
    for name in ["INT", "TERM"] {
        let words = ["run", "--qos", "1", "--seconds", "60", "--repeat", "1", "--pubs", "20", "--subs", "20"];
        let mut generator = bench(&words)?.spawn()?;
        wait_for_clients(child_of(generator.id())?)?;
        sleep(Duration::from_millis(300));
        let began = Instant::now();
        signal(generator.id(), name)?;
        generator.wait()?;
        longest = longest.max(began.elapsed());
    }
    ensure!(longest < AT_ONCE, "it took {longest:?}");
    Ok(format!("({longest:.1?})"))
}

/// A server of MQTT 5 that refuses everybody, and says so in sequences that clear a screen and set a title.
fn hostile() -> Result<String> {
    const REASON: &[u8] = b"\x1b[2J\x1b]0;pwned\x07\x1b[31mEVIL";
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("mqtt://{}", listener.local_addr()?);
    std::thread::spawn(move || -> Result<()> {
        for stream in listener.incoming() {
            let mut stream = stream?;
            let _ = stream.read(&mut [0; 4096])?;
            let length = u8::try_from(REASON.len())?;
            // CONNACK (0x87: not authorized) with a Reason String.
            let head = [0x20, length + 6, 0, 0x87, length + 3, 0x1f, 0, length];
            stream.write_all(&[&head, REASON].concat())?;
        }
        Ok(())
    });
    let place = tempfile::tempdir()?;
    let out = place.path().join("out");
    let words = ["peer", &url, "--door", "mqtt5", "--repeat", "1", "--out"].map(str::to_owned);
    let done = command(&[words.to_vec(), vec![out.display().to_string()]].concat())?.output()?;
    ensure!(String::from_utf8_lossy(&done.stdout).contains("EVIL"), "the reason is not shown: {done:?}");
    let mut all = vec![("standard output".to_owned(), done.stdout), ("standard error".to_owned(), done.stderr)];
    for entry in fs::read_dir(&out)? {
        let path = entry?.path();
        all.push((path.display().to_string(), fs::read(&path)?));
    }
    for (name, text) in &all {
        ensure!(!text.contains(&0x1b) && !text.contains(&0x07), "control characters in {name}");
    }
    Ok(format!("({} outputs)", all.len()))
}

fn refused() -> Result<String> {
    let binary = std::env::var("FOGMUX_BIN")?;
    let table: &[(&[&str], &str)] = &[
        (&["run", "--messages", "5"], "--messages has no effect with --operation deliver"),
        (&["run", "--operation", "hold", "--rate", "5"], "--rate has no effect with --operation hold"),
        (&["run", "--coap-delay", "1"], "--coap-delay has no effect with --door mqtt"),
        (&["peer", "mqtt://127.0.0.1:1", "--durability", "none"], "--durability has no effect on a running broker"),
        (&["peer", "mqtt://u:p@127.0.0.1:1", "--psk-id", "a", "--psk", "00"], "in the clear"),
        (&["peer", "mqtt://127.0.0.1:1", "--door", "coap"], "--door coap contradicts the URL"),
        (&["pair", &binary, &binary, "--ca", "ca.pem"], "--ca has no effect"),
        (&["matrix", "--doors", "mqtt", "--securities", "oscore"], "nothing to be measured"),
        (&["run", "--until", "2%", "--repeat-max", "0"], "--repeat-max"),
    ];
    for (words, why) in table {
        let done = bench(words)?.output().context(words.join(" "))?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.code() == Some(64) && said.contains(why), "{}: {}: {said}", words.join(" "), done.status);
    }
    Ok(format!("({} of them)", table.len()))
}
