//! Counting processes and threads, on this process.

use std::process::Command;

use super::*;

/// Uses a core until the thread's own clock says so.
fn burn(time: Duration) {
    let until = thread_time() + time;
    while thread_time() < until {
        std::hint::spin_loop();
    }
}

#[test]
fn our_own_time_is_counted_to_the_millisecond_and_of_ended_threads_too() {
    let probe = ProcessProbe::own();
    std::thread::spawn(|| burn(Duration::from_millis(30))).join().unwrap();
    let used = probe.read();
    assert!(used.cpu_us >= 30_000.0, "{} µs", used.cpu_us);
    assert!(used.wall_us >= 30_000.0);
    assert!(used.resident_bytes > 0 && used.peak_resident_bytes >= used.resident_bytes);
    assert!(used.virtual_bytes >= used.peak_resident_bytes);
}

#[test]
fn a_thread_that_is_apart_is_not_the_generator() {
    // Other tests of this process run beside: only the sum that is set apart can be looked at.
    let before = Apart::total();
    let thread = std::thread::spawn(|| {
        let apart = Apart::begin();
        burn(Duration::from_millis(60));
        assert!(Apart::threads().contains(&apart.thread));
        apart.thread
    });
    let thread = thread.join().unwrap();
    assert!(!Apart::threads().contains(&thread));
    assert!(Apart::total().saturating_sub(before) >= Duration::from_millis(60));
}

#[test]
fn the_peak_counts_from_the_start() {
    drop(std::hint::black_box(vec![1u8; 64 << 20]));
    let probe = ProcessProbe::own();
    let before = probe.read().peak_resident_bytes;
    let held = std::hint::black_box(vec![1u8; 32 << 20]);
    assert!(probe.read().peak_resident_bytes >= before + (24 << 20));
    drop(held);
}

#[test]
fn descendants_count_when_asked_for() {
    let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; read line";
    let mut child = Command::new("sh")
        .args(["-c", &format!("sh -c '{work}'; true")])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let (alone, family) = (ProcessProbe::of(&[child.id()]), ProcessProbe::of(&[child.id()]).with_children());
    let deadline = Instant::now() + Duration::from_secs(20);
    while family.read().cpu_us < 20_000.0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (alone, family) = (alone.read(), family.read());
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(family.cpu_us >= 20_000.0, "{family:?}");
    assert!(alone.cpu_us < family.cpu_us && alone.resident_bytes < family.resident_bytes, "{alone:?} {family:?}");
}

#[test]
fn a_process_that_is_gone_uses_nothing() {
    let mut child = Command::new("true").spawn().unwrap();
    let probe = ProcessProbe::of(&[child.id()]);
    child.wait().unwrap();
    assert_eq!(probe.read().resident_bytes, 0);
}

#[test]
fn what_others_use_is_what_is_left() {
    let machine = MachineProbe::start();
    let own = ProcessProbe::own();
    let mut other = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let theirs = ProcessProbe::of(&[other.id()]);
    std::thread::sleep(Duration::from_millis(300));
    let (own, theirs) = (own.read(), theirs.read());
    other.kill().unwrap();
    other.wait().unwrap();
    let without = machine.others_cpu_s(&[own]);
    let with = machine.others_cpu_s(&[own, theirs]);
    assert!(without > 0.05, "{without}");
    assert!(with < without, "{with} {without}");
}

#[test]
fn a_busy_thread_is_the_limit_and_an_idle_one_is_not() {
    let idle = ThreadProbe::start();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(limit(idle.busy(), None), None);
    assert!(limit(0.96, None).is_some_and(|why| why.contains("96 %")));
}

#[test]
fn sending_late_is_a_limit_too() {
    let mut late = Latency::default();
    (0..200).for_each(|_| late.record_ns(900_000));
    assert_eq!(limit(0.5, Some(&late)), None);
    (0..10).for_each(|_| late.record_ns(20_000_000));
    assert!(limit(0.5, Some(&late)).is_some_and(|why| why.contains("20.0 ms")));
}
