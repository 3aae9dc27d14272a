//! The built binary from outside: what scripts, service managers and people at a shell rely on.

mod certificates;
mod command_line;
mod damage;
mod devices;
mod doctor;
mod doors;
mod imports;
mod installed;
mod links;
mod log;
mod pki;
mod readme;
mod reread;
mod rollover;
mod support;
mod unfinished;
