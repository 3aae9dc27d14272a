//! MQTT subscribers over each transport: retained messages, backlogs, slow subscribers, shutdown.

mod again;
mod backlog;
mod burst;
pub(crate) mod client;
mod ends;
mod exactly_once;
mod farewell;
mod hog;
mod pace;
mod readers;
mod retained;
mod shutdown;
mod silent;
mod slow;
mod subscribe;
mod takeover;
mod unfinished;
pub(crate) mod wire;

use fogmux_tests::suite::Case;

/// The cases of each file.
pub(crate) fn cases() -> Vec<Case> {
    [
        again::CASES,
        retained::CASES,
        backlog::CASES,
        slow::CASES,
        pace::CASES,
        readers::CASES,
        burst::CASES,
        farewell::CASES,
        hog::CASES,
        ends::CASES,
        exactly_once::CASES,
        shutdown::CASES,
        subscribe::CASES,
        takeover::CASES,
        silent::CASES,
        unfinished::CASES,
    ]
    .concat()
}
