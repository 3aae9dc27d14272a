//! Medians, bootstrap intervals, and whether two sets of repetitions differ.
