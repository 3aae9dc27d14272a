//! The network between the two ends.
