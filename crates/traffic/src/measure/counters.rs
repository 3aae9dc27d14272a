//! Instructions and cycles of processes, where the machine counts them (perf_event_open(2)).
//!
//! One counter for each thread that is there and each event; threads that these make later count with them, and ended
//! ones stay counted. Where nothing is counted there is no number, never a zero. Kernels before 5.13 cannot tell
//! threads from child processes here, and are machines without counters.

use std::cell::RefCell;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::sync::OnceLock;
use std::time::Duration;

use perf_event::events::{Event, Hardware};
use perf_event::{Builder, Counter};
use rustix::io::Errno;

/// The performance counters that this machine provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Counters of user space and kernel.
    UserAndKernel,
    /// Only what it does itself: the kernel's part is forbidden (`kernel.perf_event_paranoid` above 1, and no
    /// privilege).
    User,
    /// Nothing, since we may not.
    Forbidden,
    /// Nothing: there are no counters, as in most virtual machines.
    Absent,
}

/// The children that are counted with a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Threads that it makes.
    Threads,
    /// Processes, too.
    Descendants,
}

/// Counters of some processes, from when they were opened.
#[derive(Debug, Default)]
pub struct Counters {
    instructions: Option<Tally>,
    cycles: Option<Tally>,
}

impl Support {
    /// Of this machine for this user, found out once.
    #[must_use]
    pub fn here() -> Self {
        static HERE: OnceLock<Support> = OnceLock::new();
        *HERE.get_or_init(|| Self::of(Hardware::INSTRUCTIONS))
    }

    fn of(event: impl Event + Copy) -> Self {
        let can = |part: Self| counter(event, CALLING_THREAD, part, Follow::Threads);
        match can(Self::UserAndKernel) {
            Ok(_) => Self::UserAndKernel,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => match can(Self::User) {
                Ok(_) => Self::User,
                Err(error) if error.kind() == ErrorKind::PermissionDenied => Self::Forbidden,
                Err(_) => Self::Absent,
            },
            Err(_) => Self::Absent,
        }
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UserAndKernel => "instructions and cycles, user and kernel",
            Self::User => "instructions and cycles, user only (perf_event_paranoid)",
            Self::Forbidden => "forbidden (perf_event_paranoid)",
            Self::Absent => "none on this machine",
        })
    }
}

impl Counters {
    /// Begins to count these processes, without the threads `except`. Whatever cannot be counted is left out, without
    /// any cost where [nothing can](Support::here).
    #[must_use]
    pub fn open(pids: &[u32], except: &[i32], follow: Follow) -> Self {
        let part = match Support::here() {
            part @ (Support::UserAndKernel | Support::User) => part,
            Support::Forbidden | Support::Absent => return Self::default(),
        };
        let threads: Vec<i32> = pids.iter().flat_map(|pid| threads(*pid, except)).collect();
        Self {
            instructions: Tally::open(Hardware::INSTRUCTIONS, part, &threads, follow),
            cycles: Tally::open(Hardware::CPU_CYCLES, part, &threads, follow),
        }
    }

    /// Instructions since, if they are counted.
    #[must_use]
    pub fn instructions(&self) -> Option<u64> {
        self.instructions.as_ref()?.read()
    }

    /// Cycles since, if they are counted.
    #[must_use]
    pub fn cycles(&self) -> Option<u64> {
        self.cycles.as_ref()?.read()
    }
}

/// One event of some threads. Reading needs a counter for itself, but changes nothing that is seen.
#[derive(Debug)]
struct Tally(RefCell<Vec<Counter>>);

impl Tally {
    /// All of them or none: a part of the threads would look like the whole.
    fn open(event: impl Event + Copy, part: Support, threads: &[i32], follow: Follow) -> Option<Self> {
        let mut counters = Vec::with_capacity(threads.len());
        for thread in threads {
            match counter(event, *thread, part, follow) {
                Ok(counter) => counters.push(counter),
                // It has ended since it was listed.
                Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
                Err(_) => return None,
            }
        }
        (!counters.is_empty()).then(|| Self(RefCell::new(counters)))
    }

    fn read(&self) -> Option<u64> {
        let count = |counter: &mut Counter| {
            let read = counter.read_full().ok()?;
            scaled(read.count(), read.time_enabled()?, read.time_running()?)
        };
        self.0.borrow_mut().iter_mut().map(count).sum()
    }
}

/// As perf_event_open(2) names the thread that calls it.
const CALLING_THREAD: i32 = 0;

/// Of one thread, counting at once.
fn counter(event: impl Event, thread: i32, part: Support, follow: Follow) -> io::Result<Counter> {
    Builder::new(event)
        .observe_pid(thread)
        .inherit(true)
        .inherit_thread(follow == Follow::Threads)
        .exclude_kernel(part != Support::UserAndKernel)
        .enabled(true)
        .build()
}

/// Those of a process, now. One that a thread makes between this and the opening of that thread's counter is missed: a
/// measurement begins when the threads are there.
fn threads(pid: u32, except: &[i32]) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let threads = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    threads.filter(|thread| !except.contains(thread)).collect()
}

/// Extrapolates a count to the whole time that the thread ran, since counters take turns if the processor has too few.
/// `None` if the counter never ran.
fn scaled(count: u64, enabled: Duration, running: Duration) -> Option<u64> {
    // The kernel sometimes reports a running time above the enabled time.
    if running >= enabled {
        return Some(count);
    }
    let whole = (u128::from(count) * enabled.as_nanos()).checked_div(running.as_nanos())?;
    u64::try_from(whole).ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;
    use std::thread;

    use perf_event::events::Software;
    use rustix::thread::gettid;

    use super::*;
    use crate::measure::process::thread_time;

    /// Processor time of a thread in nanoseconds, which the kernel counts without any hardware. Where even that is
    /// forbidden, as in some containers, the mechanism cannot be looked at.
    fn clock() -> Option<(Software, Support)> {
        let support = Support::of(Software::TASK_CLOCK);
        let counts = matches!(support, Support::UserAndKernel | Support::User);
        if !counts {
            eprintln!("not tested: perf_event_open is {support}");
        }
        counts.then_some((Software::TASK_CLOCK, support))
    }

    fn here() -> i32 {
        gettid().as_raw_nonzero().get()
    }

    /// Uses a core until the thread's own clock says so.
    fn burn(time: Duration) {
        let until = thread_time() + time;
        while thread_time() < until {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_thread_counts_with_those_that_it_makes_and_no_other() {
        let Some((event, support)) = clock() else { return };
        let (name, named) = mpsc::channel();
        let (go, gone) = mpsc::channel();
        let worker = thread::spawn(move || {
            name.send(here()).unwrap();
            gone.recv().unwrap();
            burn(Duration::from_millis(20));
            thread::spawn(|| burn(Duration::from_millis(20))).join().unwrap();
        });
        let tally = Tally::open(event, support, &[named.recv().unwrap()], Follow::Threads).unwrap();
        go.send(()).unwrap();
        burn(Duration::from_millis(100));
        worker.join().unwrap();
        let used = Duration::from_nanos(tally.read().unwrap());
        // The scheduler's clock and the one of the counters differ by some microseconds.
        assert!(used > Duration::from_millis(39) && used < Duration::from_millis(100), "{used:?}");
    }

    #[test]
    fn child_processes_count_when_asked_for() {
        let Some((event, support)) = clock() else { return };
        let open = |follow| Tally::open(event, support, &[here()], follow).unwrap();
        let (alone, family) = (open(Follow::Threads), open(Follow::Descendants));
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", work]).status().unwrap().success());
        let (alone, family) = (alone.read().unwrap(), family.read().unwrap());
        assert!(family > alone + 10_000_000, "{family} ns, {alone} ns");
    }

    #[test]
    fn a_thread_that_has_ended_before_is_none_to_count() {
        let Some((event, support)) = clock() else { return };
        let ended = thread::spawn(here).join().unwrap();
        // The kernel takes it away a little after whoever joins it knows.
        while threads(std::process::id(), &[]).contains(&ended) {
            thread::yield_now();
        }
        assert!(Tally::open(event, support, &[ended], Follow::Threads).is_none());
        assert!(Tally::open(event, support, &[ended, here()], Follow::Threads).is_some());
    }

    #[test]
    fn all_threads_of_a_process_are_found_but_those_apart() {
        let pid = std::process::id();
        assert!(threads(pid, &[]).contains(&here()));
        assert!(!threads(pid, &[here()]).contains(&here()));
        assert_eq!(threads(u32::MAX, &[]), Vec::<i32>::new());
    }

    #[test]
    fn what_a_machine_does_not_count_is_no_zero() {
        let unknown = Hardware::from(0xffff);
        assert!(matches!(Support::of(unknown), Support::Absent | Support::Forbidden));
        assert!(Tally::open(unknown, Support::User, &[here()], Follow::Threads).is_none());
        assert_eq!((Counters::default().instructions(), Counters::default().cycles()), (None, None));
        let counters = Counters::open(&[std::process::id()], &[], Follow::Threads);
        match Support::here() {
            Support::UserAndKernel | Support::User => assert!(counters.instructions() > Some(0)),
            Support::Forbidden | Support::Absent => {
                assert_eq!((counters.instructions(), counters.cycles()), (None, None));
            }
        }
    }

    #[test]
    fn counters_that_take_turns_are_scaled_up() {
        let ns = Duration::from_nanos;
        assert_eq!(scaled(100, ns(10), ns(5)), Some(200));
        assert_eq!(scaled(100, ns(10), ns(10)), Some(100));
        assert_eq!(scaled(100, ns(10), ns(11)), Some(100));
        assert_eq!(scaled(0, ns(0), ns(0)), Some(0));
        assert_eq!(scaled(0, ns(10), ns(0)), None);
        assert_eq!(scaled(u64::MAX, ns(u64::MAX), ns(1)), None);
    }
}
