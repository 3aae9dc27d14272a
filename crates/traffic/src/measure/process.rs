//! Processor time and memory of processes, and whether the generator was what set the pace.
//!
//! Processor time comes from the processes' own clocks (`clock_getcpuclockid`), to the nanosecond and with all threads,
//! ended ones too; `/proc/PID/stat` counts ticks of 10 ms, too coarse for a handshake, and `schedstat` lags behind by
//! one.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::time::ClockId;
use nix::unistd::Pid;
use rustix::thread::gettid;
use rustix::time::{ClockId as Clock, clock_gettime};

use super::counters::{Counters, Follow};
use super::latency::Latency;
use crate::outcome::ProcessUse;

/// Processor time of threads of ours that stand for something else than the generator, in nanoseconds.
static APART_NS: AtomicU64 = AtomicU64::new(0);
/// Those that there are now.
static APART_THREADS: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// Above this share of one core the measuring thread has no time left to be waited for.
const BUSY_MAX: f64 = 0.95;
/// Later than this at the 99th percentile is not the timer's granularity (1 ms) any more.
const LATE_MAX_US: f64 = 5_000.0;

/// Looks at processes over an interval.
#[derive(Debug)]
pub struct ProcessProbe {
    roots: Vec<u32>,
    children: bool,
    /// Whether it is ours, of which some threads do not count.
    own: bool,
    before: BTreeMap<u32, Duration>,
    reaped_before: Duration,
    apart_before: Duration,
    counters: Counters,
    began: Instant,
}

impl ProcessProbe {
    /// Of these processes together.
    #[must_use]
    pub fn of(pids: &[u32]) -> Self {
        let mut probe = Self {
            roots: pids.to_vec(),
            children: false,
            own: false,
            before: BTreeMap::new(),
            reaped_before: Duration::ZERO,
            apart_before: Duration::ZERO,
            counters: Counters::default(),
            began: Instant::now(),
        };
        probe.start();
        probe
    }

    /// Of our own process, without the threads that are [apart](Apart).
    #[must_use]
    pub fn own() -> Self {
        let mut probe = Self::of(&[std::process::id()]);
        probe.own = true;
        probe.start();
        probe
    }

    /// Counts their descendants too, as with brokers of several processes.
    #[must_use]
    pub fn with_children(mut self) -> Self {
        self.children = true;
        self.start();
        self
    }

    /// Begins an interval: processor time, counters and peak memory count from here.
    pub fn start(&mut self) {
        let pids = self.pids();
        for pid in &pids {
            // 5 resets VmHWM; where that is forbidden the peak is that of the process's life.
            let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
        }
        self.before = pids.iter().map(|pid| (*pid, processor_time(*pid).unwrap_or_default())).collect();
        self.reaped_before = self.reaped();
        self.apart_before = Apart::total();
        let apart = if self.own { Apart::threads() } else { Vec::new() };
        let follow = if self.children { Follow::Descendants } else { Follow::Threads };
        self.counters = Counters::open(&pids, &apart, follow);
        self.began = Instant::now();
    }

    /// Reads the resources used since the start of the measurement. A process that has ended counts as 0.
    #[must_use]
    pub fn read(&self) -> ProcessUse {
        let wall = self.began.elapsed();
        let mut used = Duration::ZERO;
        let (mut resident, mut peak, mut addresses) = (0, 0, 0);
        for pid in self.pids() {
            let before = self.before.get(&pid).copied().unwrap_or_default();
            used += processor_time(pid).unwrap_or(before).saturating_sub(before);
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            resident += status_bytes(&status, "VmRSS:");
            peak += status_bytes(&status, "VmHWM:");
            addresses += status_bytes(&status, "VmSize:");
        }
        used += self.reaped().saturating_sub(self.reaped_before);
        if self.own {
            used = used.saturating_sub(Apart::total().saturating_sub(self.apart_before));
        }
        ProcessUse {
            cpu_us: micros(used),
            wall_us: micros(wall),
            resident_bytes: resident,
            peak_resident_bytes: peak,
            virtual_bytes: addresses,
            instructions: self.counters.instructions(),
            cycles: self.counters.cycles(),
            ..ProcessUse::default()
        }
    }

    fn pids(&self) -> Vec<u32> {
        let mut pids = self.roots.clone();
        if self.children {
            let parents = parents();
            let mut known = 0;
            while let Some(parent) = pids.get(known).copied() {
                known += 1;
                let of_it = parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid);
                let fresh: Vec<u32> = of_it.filter(|pid| !pids.contains(pid)).collect();
                pids.extend(fresh);
            }
        }
        pids
    }

    /// Of descendants that ended and were waited for, in ticks.
    fn reaped(&self) -> Duration {
        let of = |pid: &u32| stat_of(*pid).map(|stat| stat.reaped).unwrap_or_default();
        if self.children { self.before.keys().map(of).sum() } else { Duration::ZERO }
    }
}

/// Processor time of the whole machine.
#[derive(Clone, Copy, Debug)]
pub struct MachineProbe(Duration);

impl MachineProbe {
    /// Begins an interval.
    #[must_use]
    pub fn start() -> Self {
        Self(machine_time())
    }

    /// Seconds that others used since: everything but `known`, with what the host took from a virtual machine. The
    /// kernel counts this in ticks of 10 ms, so that a little of it is noise.
    #[must_use]
    pub fn others_cpu_s(self, known: &[ProcessUse]) -> f64 {
        let here = known.iter().filter(|process| !process.elsewhere);
        let known: f64 = here.map(|process| process.cpu_us / 1e6).sum();
        (machine_time().saturating_sub(self.0).as_secs_f64() - known).max(0.0)
    }
}

/// A thread of this process that is not the generator: the relay of a link, the writer of a capture. It is the thread
/// that makes this, and that calls [`Apart::settle`] from time to time. Its instructions are left out of intervals that
/// begin after it.
#[derive(Debug)]
pub struct Apart {
    thread: i32,
    settled: Duration,
}

impl Apart {
    /// From now on the calling thread is apart.
    #[must_use]
    pub fn begin() -> Self {
        let thread = gettid().as_raw_nonzero().get();
        Self::all(|threads| threads.push(thread));
        Self { thread, settled: thread_time() }
    }

    /// Books what the thread used since.
    pub fn settle(&mut self) {
        let now = thread_time();
        let nanos = u64::try_from(now.saturating_sub(self.settled).as_nanos()).unwrap_or(u64::MAX);
        APART_NS.fetch_add(nanos, Ordering::Relaxed);
        self.settled = now;
    }

    fn total() -> Duration {
        Duration::from_nanos(APART_NS.load(Ordering::Relaxed))
    }

    fn threads() -> Vec<i32> {
        Self::all(|threads| threads.clone())
    }

    fn all<T>(change: impl FnOnce(&mut Vec<i32>) -> T) -> T {
        change(&mut APART_THREADS.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.settle();
        Self::all(|threads| threads.retain(|thread| *thread != self.thread));
    }
}

/// How busy one thread of the generator is. Both ends of the interval are looked at by the thread itself.
#[derive(Clone, Copy, Debug)]
pub struct ThreadProbe {
    began: Instant,
    before: Duration,
}

impl ThreadProbe {
    /// Begins an interval of the calling thread.
    #[must_use]
    pub fn start() -> Self {
        Self { began: Instant::now(), before: thread_time() }
    }

    /// The share of one core that the calling thread used since.
    #[must_use]
    pub fn busy(self) -> f64 {
        let wall = self.began.elapsed().as_secs_f64();
        let used = thread_time().saturating_sub(self.before).as_secs_f64();
        if wall > 0.0 { used / wall } else { 0.0 }
    }
}

/// Why the generator, and not what it measures, has set the pace; nothing if it has not.
///
/// `busy` is the share of a core that its thread used. `late` holds, for an experiment with a rate, from when each
/// operation was due to when it was sent – of those that nothing but the generator held back.
#[must_use]
pub fn limit(busy: f64, late: Option<&Latency>) -> Option<String> {
    if busy > BUSY_MAX {
        return Some(format!("the generator's thread was busy for {:.0} % of the time", busy * 100.0));
    }
    let late = late.and_then(|late| late.percentile_us(99.0))?;
    (late > LATE_MAX_US)
        .then(|| format!("one operation in a hundred was sent {:.1} ms or more after it was due", late / 1_000.0))
}

/// The relevant fields of `/proc/PID/stat`.
struct Stat {
    parent: u32,
    reaped: Duration,
}

/// proc_pid_stat(5): fields 4, 16 and 17, counted after the name, which may hold anything.
fn stat_of(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = text.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let mut fields = fields.skip(11);
    let reaped = ticks(fields.next()?) + ticks(fields.next()?);
    Some(Stat { parent, reaped })
}

/// All processes and their parents.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, stat_of(pid)?.parent))).collect()
}

fn processor_time(pid: u32) -> Option<Duration> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?);
    let time = ClockId::pid_cpu_clock_id(pid).ok()?.now().ok()?;
    Some(time.into())
}

/// Of the calling thread.
pub(super) fn thread_time() -> Duration {
    let time = clock_gettime(Clock::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// proc_stat(5): user, nice, system, irq, softirq and steal of all cores together.
fn machine_time() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<&str> = text.lines().next().unwrap_or_default().split_ascii_whitespace().collect();
    [1, 2, 3, 6, 7, 8].iter().filter_map(|field| fields.get(*field)).map(|field| ticks(field)).sum()
}

fn ticks(field: &str) -> Duration {
    let ticks: u64 = field.parse().unwrap_or(0);
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / per_second))
}

/// A line of `/proc/PID/status`, which are in KiB.
fn status_bytes(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1_024
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests;
