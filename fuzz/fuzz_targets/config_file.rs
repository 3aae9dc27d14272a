//! The configuration file: any text is taken, or there is a line for each thing that is wrong, of a line that the text
//! has; and what is wrong does not get right by being read once more.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let problems = fogmux::configuration_problems(text);
    let lines = 1 + text.bytes().filter(|&byte| byte == b'\n').count();
    for problem in &problems {
        if let Some(place) = problem.strip_prefix("fogmux.toml:") {
            let line = place.split(':').next().and_then(|line| line.trim().parse::<usize>().ok()).unwrap_or(0);
            assert!(line <= lines, "{problem}, of {lines} lines");
        }
    }
    assert_eq!(fogmux::configuration_problems(text), problems);
});
