//! Measures the wear of a disk by the journal: `journal-wear DIRECTORY [commits|rate|replace|recovery]`.
//!
//! - `commits`: commits a second and blocks a commit, with 1 and 16 under way, mode `always`, 64 bytes each.
//! - `rate`: one and ten commits a second for 30 seconds each, for what the file system adds by itself.
//! - `replace`: 20 000 records of 1 kB, replaced at random for three times their bytes: what cleaning copies.
//! - `recovery`: one million records of 100 bytes: time to write, to open, to read, and memory.
//!
//! Blocks are counted by the process (`/proc/self/io`) and by the device (`/proc/diskstats`, all writers), 4 KiB each.

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::mpsc::{self, Receiver},
    time::{Duration, Instant},
};

use fogmux_journal::{Committer, Config, Files, Journal, Mode, Progress, RecordId};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let directory = arguments.first().ok_or("journal-wear DIRECTORY [commits|rate|replace|recovery]")?;
    let directory = Path::new(directory).join("journal-wear");
    let what = arguments.get(1).map_or("all", String::as_str);
    let all = what == "all";
    if all || what == "commits" {
        commits(&directory.join("commits"))?;
    }
    if all || what == "rate" {
        rate(&directory.join("rate"))?;
    }
    if all || what == "replace" {
        replace_at_random(&directory.join("replace"))?;
    }
    if all || what == "recovery" {
        recovery(&directory.join("recovery"))?;
    }
    fs::remove_dir_all(&directory)?;
    Ok(())
}

/// Bytes written so far.
#[derive(Clone, Copy)]
struct Written {
    process: u64,
    device: u64,
}

fn written(directory: &Path) -> Result<Written> {
    let io = fs::read_to_string("/proc/self/io")?;
    let process = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).ok_or("no write_bytes")?.parse()?;
    let device = fs::metadata(directory)?.dev();
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff);
    let stats = fs::read_to_string("/proc/diskstats")?;
    let sectors = stats.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = *fields.first()? == major.to_string() && *fields.get(1)? == minor.to_string();
        is_it.then(|| fields.get(9)?.parse::<u64>().ok()).flatten()
    });
    Ok(Written { process, device: sectors.unwrap_or_default() * 512 })
}

fn start(directory: &Path, mode: Mode) -> Result<(Committer<Files>, Receiver<Progress>)> {
    let files = Files::open(directory)?;
    let (journal, _) = Journal::open(&files, Config::default())?;
    let (send, receive) = mpsc::channel();
    let committer = Committer::start(journal, files, mode, move |progress| drop(send.send(progress)))?;
    Ok((committer, receive))
}

/// Replaces one of 100 records. Returns the set of the batch.
fn replace(committer: &Committer<Files>, records: &mut VecDeque<RecordId>) -> Result<u64> {
    let mut batch = committer.batch();
    records.push_back(batch.put(1, vec![7; 64]));
    if records.len() > 100
        && let Some(old) = records.pop_front()
    {
        batch.forget(old);
    }
    Ok(committer.append(batch)?.set)
}

fn report(label: &str, directory: &Path, before: Written, commits: u64, elapsed: Duration) -> Result<()> {
    let after = written(directory)?;
    let blocks = |bytes: u64| bytes as f64 / 4096.0 / commits as f64;
    println!(
        "{label}: {commits} commits, {:.0} a second, {:.3} blocks a commit by the process, {:.3} by the device",
        commits as f64 / elapsed.as_secs_f64(),
        blocks(after.process - before.process),
        blocks(after.device - before.device),
    );
    Ok(())
}

/// Has all segments made.
fn fill(directory: &Path) -> Result<()> {
    let (committer, progress) = start(directory, Mode::Always)?;
    let mut records = VecDeque::new();
    for _ in 0..800 {
        replace(&committer, &mut records)?;
        progress.recv()?;
    }
    Ok(())
}

fn commits(directory: &Path) -> Result<()> {
    fill(directory)?;
    let (committer, progress) = start(directory, Mode::Always)?;
    let mut records = VecDeque::new();
    for under_way in [1, 16] {
        let before = written(directory)?;
        let frames = committer.figures().frames;
        let begin = Instant::now();
        let mut waiting = 0;
        let mut done = 0;
        let mut sets: BTreeMap<u64, u64> = BTreeMap::new();
        let batches = |sets: &mut BTreeMap<u64, u64>, progress: Progress| {
            progress.sets.iter().filter_map(|set| sets.remove(set)).sum::<u64>()
        };
        progress.try_iter().for_each(drop);
        while begin.elapsed() < Duration::from_secs(5) {
            while waiting < under_way {
                *sets.entry(replace(&committer, &mut records)?).or_default() += 1;
                waiting += 1;
            }
            let reached = batches(&mut sets, progress.recv()?);
            waiting -= reached;
            done += reached;
        }
        let elapsed = begin.elapsed();
        report(
            &format!("always, {under_way} under way"),
            directory,
            before,
            committer.figures().frames - frames,
            elapsed,
        )?;
        println!("  {:.0} batches a second", done as f64 / elapsed.as_secs_f64());
        while waiting > 0 {
            waiting -= batches(&mut sets, progress.recv()?);
        }
    }
    Ok(())
}

fn rate(directory: &Path) -> Result<()> {
    fill(directory)?;
    for a_second in [1_u32, 10] {
        let (committer, progress) = start(directory, Mode::Group(Duration::from_millis(20)))?;
        let mut records = VecDeque::new();
        for _ in 0..3 {
            replace(&committer, &mut records)?;
            progress.recv()?;
        }
        std::thread::sleep(Duration::from_secs(6));
        let before = written(directory)?;
        let begin = Instant::now();
        for n in 0..30 * a_second {
            replace(&committer, &mut records)?;
            progress.recv()?;
            std::thread::sleep(
                (begin + Duration::from_secs(1) / a_second * (n + 1)).saturating_duration_since(Instant::now()),
            );
        }
        std::thread::sleep(Duration::from_secs(6));
        report(&format!("{a_second} a second"), directory, before, u64::from(30 * a_second), begin.elapsed())?;
    }
    Ok(())
}

fn replace_at_random(directory: &Path) -> Result<()> {
    const RECORDS: usize = 20_000;
    let (committer, progress) = start(directory, Mode::None(Duration::from_millis(1)))?;
    let mut records: Vec<RecordId> = Vec::new();
    let mut random = 1_u64;
    let mut before = committer.figures();
    for n in 0..RECORDS * 4 / 20 {
        if n * 20 == RECORDS {
            before = committer.figures();
        }
        let mut batch = committer.batch();
        for _ in 0..20 {
            let new = batch.put(1, vec![7; 1000]);
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let place = usize::try_from(random >> 33)? % RECORDS;
            if records.len() < RECORDS {
                records.push(new);
            } else if let Some(old) = records.get_mut(place) {
                batch.forget(std::mem::replace(old, new));
            }
        }
        committer.append(batch)?;
        progress.recv()?;
    }
    let after = committer.figures();
    let written = after.written_bytes - before.written_bytes;
    let copied = after.copied_bytes - before.copied_bytes;
    println!(
        "replaced at random, 20 a commit: {:.2} bytes copied for each other, {:.2} times the live bytes on the disk",
        copied as f64 / (written - copied) as f64,
        after.disk_bytes as f64 / after.live_bytes as f64,
    );
    Ok(())
}

fn resident() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<u64>()? * 1024)
}

fn recovery(directory: &Path) -> Result<()> {
    let (committer, progress) = start(directory, Mode::Always)?;
    let begin = Instant::now();
    for _ in 0..1000 {
        let mut batch = committer.batch();
        (0..1000).map(|_| batch.put(1, vec![7; 100])).for_each(drop);
        committer.append(batch)?;
        progress.recv()?;
    }
    println!("1 000 000 records of 100 bytes: written in {:.2} s", begin.elapsed().as_secs_f64());
    println!("  {:?}", committer.figures());
    drop(committer);
    let before = resident()?;
    let files = Files::open(directory)?;
    let begin = Instant::now();
    let (journal, recovery) = Journal::open(&files, Config::default())?;
    let opened = begin.elapsed();
    let index = journal.figures().index_bytes;
    let more = resident()?.saturating_sub(before);
    let begin = Instant::now();
    let mut bytes = 0;
    let failed = journal.visit(&files, |_, record| bytes += record.map_or(0, |record| record.bytes.len()));
    let visited = begin.elapsed();
    println!(
        "  opened in {:.2} s ({:.0} MB/s), read in order in {:.2} s, {} records, {failed} failed, {bytes} bytes",
        opened.as_secs_f64(),
        recovery.bytes as f64 / 1e6 / opened.as_secs_f64(),
        visited.as_secs_f64(),
        recovery.records,
    );
    println!("  index {:.1} bytes a record, {} more resident", index as f64 / 1e6, more);
    Ok(())
}
