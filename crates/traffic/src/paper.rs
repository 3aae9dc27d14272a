//! Published experiments: their tables, run again.
