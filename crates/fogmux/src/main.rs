//! The fogmux daemon and its command line.

fn main() {}
