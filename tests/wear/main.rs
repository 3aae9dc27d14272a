//! Bytes that the gateway writes for a steady load, beside Mosquitto: by the process and by the device, with the
//! file system's own journal. Bytes do not depend on how fast a machine is, so everything is measured at once, each
//! broker on a file system of its own.
//!
//! `FOGMUX_WEAR_SECONDS` is how long each load lasts, and the words on the command line name loads; with `speed` among
//! them it is measured instead what durability costs ([`speed`]).

mod flow;
mod load;
mod medium;
mod report;
mod speed;
mod subject;
mod written;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use load::{LOADS, Load};
use medium::Medium;
use report::Figures;
use subject::{Persistence, Running, Subject};
use written::Written;

/// Seconds of each load, unless told otherwise: two commits of ext4's journal with the longer of its intervals.
const SECONDS: u64 = 120;
/// Options of the mount that are ext4's defaults.
const DEFAULTS: &str = "defaults";
/// The defaults, and options that might take away what ext4 writes for the times of files.
const MOUNTS: [&str; 3] = [DEFAULTS, report::LATE, "lazytime"];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let measured =
        if words.iter().any(|word| word == "speed") { speed::measure().map(|()| true) } else { measure(&words) };
    match measured {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("wear: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the loads that are named, or all. Returns whether the goals are met.
fn measure(words: &[String]) -> Result<bool> {
    let seconds = std::env::var("FOGMUX_WEAR_SECONDS").map_or(Ok(SECONDS), |text| text.parse()).context("seconds")?;
    let mounts: &[&str] = if Medium::new(DEFAULTS)?.has_device() {
        &MOUNTS
    } else {
        println!("no loop device (root, mkfs.ext4 and unshare are needed): only what the process writes is counted\n");
        &[DEFAULTS]
    };
    println!("{}", report::line(&report::HEADS));
    println!("{}", report::line(&report::HEADS.map(|_| "---")));
    let mut missed = Vec::new();
    for load in LOADS.into_iter().filter(|load| words.is_empty() || words.iter().any(|word| word == load.name)) {
        for measured in beside(load, mounts, Duration::from_secs(seconds))? {
            match measured {
                Ok(figures) => {
                    println!("{}", report::line(&figures.cells()));
                    missed.extend(figures.missed());
                }
                // The others have been measured.
                Err(error) => missed.push(format!("{error:#}")),
            }
        }
    }
    println!();
    for goal in &missed {
        println!("missed: {goal}");
    }
    Ok(missed.is_empty())
}

/// A load on every broker, all at the same time. Only the gateway is measured with every way to mount.
fn beside(load: Load, mounts: &[&'static str], length: Duration) -> Result<Vec<Result<Figures>>> {
    let mut cells = Vec::new();
    for subject in Subject::all()? {
        let mounts = if matches!(subject, Subject::Gateway(_)) { mounts } else { &[DEFAULTS] };
        cells.extend(mounts.iter().map(|mount| (subject.clone(), *mount)));
    }
    thread::scope(|scope| {
        let spawn = |(subject, mount)| scope.spawn(move || measure_one(load, subject, mount, length));
        let threads: Vec<_> = cells.into_iter().map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().ok().context("a thread has panicked")).collect()
    })
}

fn measure_one(load: Load, subject: Subject, mount: &'static str, length: Duration) -> Result<Figures> {
    let named = || format!("{}, {} ({mount})", load.name, subject.name());
    let medium = Medium::new(mount)?;
    let broker = subject.start(&medium).with_context(named)?;
    let mut ready = load.prepare(broker.address()?).with_context(named)?;
    medium.sync()?;
    let (over, largest) = (AtomicBool::new(false), AtomicU64::new(0));
    let before = Written::read(&medium, &broker)?;
    let (published, elapsed) = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                largest.fetch_max(medium.files_bytes(), Relaxed);
                thread::sleep(Duration::from_millis(100));
            }
        });
        let outcome = ready.run(length);
        over.store(true, Relaxed);
        outcome
    })
    .with_context(named)?;
    let rarely = matches!(&subject, Subject::Mosquitto { persistence: Persistence::Autosave(None), .. });
    if let (Running::Mosquitto(mosquitto), true) = (&broker, rarely) {
        mosquitto.save()?;
        thread::sleep(Duration::from_secs(2));
    }
    // Pages that wait in the cache, and the file system's journal of it, are of this load as well.
    medium.sync()?;
    let written = Written::read(&medium, &broker)? - before;
    let published = f64::from(published);
    let (published, elapsed) =
        if rarely { (published * AUTOSAVE.div_duration_f64(elapsed), AUTOSAVE) } else { (published, elapsed) };
    largest.fetch_max(medium.files_bytes(), Relaxed);
    Ok(Figures { load, subject, mount, published, elapsed, written, files: largest.into_inner() })
}

/// Mosquitto's own interval, in which it saves once.
const AUTOSAVE: Duration = Duration::from_secs(1_800);
