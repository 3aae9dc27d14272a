//! Criterion benches; the benches themselves are in `benches/`, how to read them in `docs/benchmarks.md`.
