//! to be replaced in a minute
