//! The C library's allocator: how it takes memory, and how to make it give back what is free.
//!
//! glibc returns freed memory only from the top of a heap, so that what ten thousand clients have used stays with the
//! process when they have gone. Two of its functions change that; they are the only unsafe code of this workspace
//! (ADR 0026). With another C library both do nothing.

#![cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "two functions of the C library that take and return numbers")
)]

/// Allocations of this many bytes or more are mappings of their own, which go back to the system when they are freed.
///
/// glibc raises its own threshold, of 128 KiB at first, to the size of each mapping that is freed, up to 32 MiB: after one
/// buffer of 19 MiB for a password all such buffers are cut from the heaps and stay there.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES_MIN: i32 = 1 << 20;
/// Free bytes at the top of a heap that are kept for the next allocation: twice the threshold, as glibc itself has it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TOP_BYTES_MAX: i32 = 2 * MAPPED_BYTES_MIN;

/// Fixes the thresholds of the allocator. To be called first in `main`.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn configure() {
    // SAFETY: mallopt(3) takes two numbers, and its parameters may be set at any time; refused values change nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TOP_BYTES_MAX);
    }
}

/// Gives free pages of all heaps back to the system. Each heap is locked while it is walked, for milliseconds if it is
/// large: not for a hot path.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn give_back() {
    // SAFETY: malloc_trim(3) takes a number, locks what it touches and changes no allocation.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Fixes the thresholds of the allocator, where there are any.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub const fn configure() {}

/// Gives free pages back to the system, where the allocator has a way to be told.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub const fn give_back() {}

/// The resident set of this process in bytes, where the system says.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
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
