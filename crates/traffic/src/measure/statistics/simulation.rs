//! Synthetic repetitions under fixed seeds, and what intervals and tests make of them.

use super::{Interval, median_interval};

/// xorshift64* (Vigna 2016): statistics, not secrets.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Between 0 and 1, neither included.
    pub(crate) fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Box and Muller (1958).
    pub(crate) fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (2.0 * std::f64::consts::PI * self.uniform()).cos()
    }
}

/// A distribution: its name, its median, and how to draw from it.
type Distribution = (&'static str, f64, fn(&mut Random) -> f64);

/// Symmetric, long-tailed, skewed both ways, and that of a machine which stalls in one repetition of ten.
const DISTRIBUTIONS: [Distribution; 8] = [
    ("normal", 0.0, Random::normal),
    ("rates that scatter by a twentieth", 100.0, |random| 100.0 + 5.0 * random.normal()),
    ("uniform", 0.5, Random::uniform),
    ("Laplace", 0.0, |random| {
        let uniform = random.uniform() - 0.5;
        -uniform.signum() * (1.0 - 2.0 * uniform.abs()).ln()
    }),
    ("Cauchy", 0.0, |random| (std::f64::consts::PI * (random.uniform() - 0.5)).tan()),
    ("log-normal", 1.0, |random| random.normal().exp()),
    ("exponential", std::f64::consts::LN_2, |random| -random.uniform().ln()),
    ("stalls", 100.0, |random| {
        // Nine of ten about the median, one far below it.
        let share = 100.0 + 5.0 * (random.normal() + STALLED_QUANTILE);
        if random.uniform() < 0.1 { 50.0 - 10.0 * random.uniform() } else { share }
    }),
];

/// Of the undisturbed nine tenths 5/9 are above the median of all: the normal quantile of 5/9.
const STALLED_QUANTILE: f64 = 0.139_710;

const DRAWN: u32 = 10_000;

fn coverage(seed: u64, n: usize, (_, median, draw): Distribution) -> f64 {
    let mut random = Random::of(seed);
    let mut covered = 0;
    for _ in 0..DRAWN {
        let values: Vec<f64> = (0..n).map(|_| draw(&mut random)).collect();
        let Interval { low, high, .. } = median_interval(&values).unwrap();
        covered += u32::from((low..=high).contains(&median));
    }
    f64::from(covered) / f64::from(DRAWN)
}

/// Three standard deviations of 10 000 draws are 0.65 %.
#[test]
fn intervals_of_two_to_ten_values_contain_the_median_in_95_of_100_cases() {
    let mut wrong = Vec::new();
    for distribution in DISTRIBUTIONS {
        for n in 2..=10 {
            let covered = coverage(n as u64, n, distribution);
            println!("{:36} {n:2} {covered:.4}", distribution.0);
            if covered < 0.9435 {
                wrong.push(format!("{} of {n}: {covered:.3}", distribution.0));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
