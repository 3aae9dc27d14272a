//! The C library's allocator: thresholds, and a way to return freed memory to the system.
//!
//! glibc returns freed memory only from the top of a heap, so that the memory of ten thousand clients stays with the
//! process after they have gone. Two of its functions change that; they are the only unsafe code in this workspace (ADR
//! 0026). With another C library both do nothing.

#![cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "two functions of the C library that take and return numbers")
)]

/// Allocations of this many bytes or more are mapped on their own and unmapped when they are freed.
///
/// By default glibc raises this threshold from 128 KiB to the size of each mapping that is freed, up to 32 MiB: after
/// one password buffer of 19 MiB, all such buffers would be cut from the heaps and stay there.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES_MIN: i32 = 1 << 20;
/// Free bytes kept at the top of a heap: twice the threshold, as glibc has it by default.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TOP_BYTES_MAX: i32 = 2 * MAPPED_BYTES_MIN;

/// Sets the thresholds of the allocator. To be called before the process allocates much.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn configure() {
    // SAFETY: mallopt(3) takes two numbers, and its parameters may be set at any time; refused values change nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TOP_BYTES_MAX);
    }
}

/// Returns free pages of all heaps to the system. Locks each heap while it is walked, for milliseconds if it is large,
/// so it is not for a hot path.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn give_back() {
    // SAFETY: malloc_trim(3) takes a number, locks what it touches and changes no allocation.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns the free top of this thread's heap to the system, if it is large. [`give_back`] leaves it alone, except that
/// of the first heap: glibc looks at the top of another only when a block of 64 KiB or more is freed into it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn give_back_top() {
    const BLOCK_BYTES: usize = 128 << 10;
    drop(std::hint::black_box(Vec::<u8>::with_capacity(BLOCK_BYTES)));
}

/// Returns the free top of this thread's heap to the system, where the allocator can.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub const fn give_back_top() {}

/// Sets the thresholds of the allocator, where it has any.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub const fn configure() {}

/// Returns free pages to the system, where the allocator can.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub const fn give_back() {}

/// The resident set of this process, in bytes (`VmRSS` in proc_pid_status(5)). `None` on systems without `/proc`.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// The largest resident set that this process has had, in bytes (`VmHWM`). `None` on systems without `/proc`.
#[must_use]
pub fn resident_bytes_max() -> Option<u64> {
    status_bytes("VmHWM:")
}

/// The processor time of this thread (`schedstat` in proc(5)). `None` on systems without it.
#[must_use]
pub fn thread_time() -> Option<std::time::Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    stat.split_whitespace().next()?.parse().ok().map(std::time::Duration::from_nanos)
}

fn status_bytes(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn what_is_freed_below_something_that_stays_is_given_back() {
        configure();
        let mut blocks: Vec<Vec<u8>> = (0..20_000).map(|_| vec![1; 4096]).collect();
        let high = resident_bytes().unwrap();
        // The last block stays at the top of the heap.
        let last = blocks.pop();
        blocks.clear();
        give_back();
        let low = resident_bytes().unwrap();
        assert!(low + 60_000_000 < high, "{high} bytes before, {low} after");
        drop(last);
    }
}
