//! Measurements that administrators ask the gateway for (ADR 0069). The traffic generator makes them in a process of
//! its own, this program again, with a gateway of its own: neither its load nor its end is the gateway's.
//!
//! Nothing is read, made or started before the first request.

#[cfg(feature = "bench")]
mod child;
#[cfg(feature = "bench")]
mod choices;
#[cfg(feature = "bench")]
mod comparison;
#[cfg(feature = "bench")]
mod job;
#[cfg(feature = "bench")]
mod limits;
#[cfg(feature = "bench")]
mod load;
#[cfg(feature = "bench")]
mod progress;
#[cfg(feature = "bench")]
mod queue;
#[cfg(feature = "bench")]
mod shelf;

#[cfg(not(feature = "bench"))]
mod absent;

#[cfg(not(feature = "bench"))]
pub(crate) use self::absent::Benches;
#[cfg(feature = "bench")]
pub(crate) use self::queue::Benches;
