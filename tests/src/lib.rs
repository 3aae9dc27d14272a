//! Black-box tests of the built gateway; see `tests/`.
