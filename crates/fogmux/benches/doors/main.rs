//! Every door end to end under each of its profiles: a gateway of its own, driven over loopback by the clients of the
//! traffic generator, in a time that fits a Raspberry Pi.
//!
//! `DOOR/PROFILE/publish` is one publication of 64 bytes until it is acknowledged, `get` one question for a retained
//! value of 64 bytes until it is there, `deliver` a batch of publications until a subscriber has all of them.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]

mod party;

use std::cell::{OnceCell, RefCell};
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use fogmux_traffic::experiment::{Operation, Qos};
use fogmux_traffic::target::{Access, Gateway, Home};
use fogmux_traffic::{Door, Experiment};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

use party::{Party, Round};

/// The benches: name, operation, round and number of messages.
const BENCHES: [(&str, Operation, Round, u32); 3] = [
    ("publish", Operation::Put, Round::Publish, 1),
    ("get", Operation::Get, Round::Get, 1),
    ("deliver", Operation::Deliver, Round::Deliver, party::BATCH),
];

const CLIENTS: u32 = 3;

/// One door under one profile. Its gateway starts with the first bench that asks for it: what a filter leaves out costs
/// nothing.
struct Place<'h> {
    home: &'h RefCell<Home>,
    experiment: Experiment,
    gateway: OnceCell<Gateway>,
}

impl Place<'_> {
    fn access(&self) -> Access {
        let start = || Gateway::start(&mut self.home.borrow_mut(), &[&self.experiment], &[], "127.0.0.1").unwrap();
        let gateway = self.gateway.get_or_init(start);
        gateway.access(&self.home.borrow(), &self.experiment, self.experiment.door).unwrap()
    }
}

fn doors(c: &mut Criterion) {
    // The generator's one thread.
    let thread = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let home = Home::make(directory.path().join("home"), env!("CARGO_BIN_EXE_fogmux").into()).unwrap();
    let home = RefCell::new(home);
    for door in Door::ALL {
        let mut group = c.benchmark_group(door.name());
        for security in door.securities() {
            let experiment = Experiment {
                door,
                security,
                qos: Qos::AtLeastOnce,
                payload_bytes: party::PAYLOAD_BYTES,
                // One of each for each bench: an OSCORE context must not be used from its beginning again.
                publishers: CLIENTS,
                subscribers: CLIENTS,
                ..Experiment::default()
            };
            let place = Place { home: &home, experiment, gateway: OnceCell::new() };
            for (client, bench) in (0..CLIENTS).zip(BENCHES) {
                measure(&mut group, &thread, &place, client, bench);
            }
        }
        group.finish();
    }
}

fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    thread: &LocalRuntime,
    place: &Place<'_>,
    client: u32,
    (name, operation, round, messages): (&str, Operation, Round, u32),
) {
    let experiment = Experiment { operation, ..place.experiment.clone() }.normalized();
    // Criterion calls the closure for each sample: the clients stay connected from the first to the last.
    let mut party = None;
    group.throughput(Throughput::Elements(messages.into()));
    group.bench_function(format!("{}/{name}", experiment.security), |bencher| {
        let party =
            party.get_or_insert_with(|| thread.block_on(Party::meet(&experiment, &place.access(), client, round)));
        bencher.iter_custom(|rounds| {
            thread.block_on(async {
                let began = Instant::now();
                for _ in 0..rounds {
                    party.go(round).await;
                }
                began.elapsed()
            })
        });
    });
    if let Some(party) = party {
        thread.block_on(party.part());
    }
}

criterion_group! {
    name = benches;
    // 135 benches: a minute and a half of measuring, and as many gateways as there are doors and profiles.
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(150))
        .measurement_time(Duration::from_millis(400));
    targets = doors
}
criterion_main!(benches);
