//! Distributions that tests and intervals are read from: Student's t, the normal, and the binomial with one half.

use super::count;

/// Terms of the continued fraction of the incomplete beta function; it converges in fewer for all degrees of freedom
/// that repetitions have.
const TERMS: u32 = 300;
/// The relative error at which a series or a search ends.
const PRECISION: f64 = 1e-14;

/// The probability that a variable of Student's t distribution is at least this far from zero.
pub(crate) fn student_two_sided(t: f64, freedom: f64) -> f64 {
    if !t.is_finite() {
        return 0.0;
    }
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The distance from zero that it exceeds with this probability, by bisection.
pub(crate) fn student_distance(probability: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while student_two_sided(high, freedom) > probability && high < 1e12 {
        low = high;
        high *= 2.0;
    }
    while high - low > PRECISION * high {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            break;
        }
        if student_two_sided(middle, freedom) > probability { low = middle } else { high = middle }
    }
    high
}

/// Degrees of freedom from which on Student's t is the normal distribution, to a hundredth of a probability of 10⁻⁴;
/// the fraction of the incomplete beta function needs more terms for more of them.
const NORMAL: f64 = 10_000.0;

/// As [`student_two_sided`], of the normal distribution.
pub(crate) fn normal_two_sided(z: f64) -> f64 {
    student_two_sided(z, NORMAL)
}

/// As [`student_distance`], of the normal distribution.
pub(crate) fn normal_distance(probability: f64) -> f64 {
    student_distance(probability, NORMAL)
}

/// The probability of at most `hits` heads of `n` tosses of a fair coin.
pub(crate) fn heads_at_most(hits: usize, n: usize) -> f64 {
    let factorial = |n: usize| ln_gamma(count(n) + 1.0);
    let exactly = |k: usize| factorial(n) - factorial(k) - factorial(n - k) - count(n) * std::f64::consts::LN_2;
    (0..=hits.min(n)).map(|k| exactly(k).exp()).sum()
}

/// The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22), evaluated after Lentz.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges quickly on this side of the mean only.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = a * x.ln() + b * (1.0 - x).ln() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b);
    front.exp() / (a * beta_fraction(x, a, b))
}

fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let apart = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut value, mut c, mut d) = (1.0, 1.0, 0.0);
    for term in 1..=TERMS {
        let m = f64::from(term / 2);
        let numerator = if term.is_multiple_of(2) {
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        } else {
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        };
        d = 1.0 / apart(1.0 + numerator * d);
        c = apart(1.0 + numerator / c);
        value *= c * d;
        if (c * d - 1.0).abs() < PRECISION {
            break;
        }
    }
    value
}

/// The logarithm of the gamma function of a positive number: Stirling's series (DLMF 5.11.1) from 10 on, below that by
/// the recurrence.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut product) = (x, 1.0);
    while x < 10.0 {
        product *= x;
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series = (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1_260.0 - inverse / 1_680.0))) / x;
    (x - 0.5) * x.ln() - x + (2.0 * std::f64::consts::PI).ln() / 2.0 + series - product.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The usual table of Student's t: 97.5 % at 1, 2, 4, 9 and 30 degrees of freedom, 99.5 % at 5.
    #[test]
    fn students_t_is_that_of_the_tables() {
        for (freedom, t) in [(1.0, 12.706_205), (2.0, 4.302_653), (4.0, 2.776_445), (9.0, 2.262_157), (30.0, 2.042_272)]
        {
            assert!((student_distance(0.05, freedom) - t).abs() < 1e-6, "{freedom}");
            assert!((student_two_sided(t, freedom) - 0.05).abs() < 1e-7, "{freedom}");
        }
        assert!((student_distance(0.01, 5.0) - 4.032_143).abs() < 1e-6);
        assert_eq!(student_two_sided(0.0, 3.0), 1.0);
        assert_eq!(student_two_sided(f64::INFINITY, 3.0), 0.0);
    }

    #[test]
    fn the_normal_distribution_is_that_of_the_tables() {
        for (z, probability) in [(1.0, 0.317_311), (1.959_964, 0.05), (3.290_527, 0.001), (3.890_592, 0.000_1)] {
            assert!((normal_two_sided(z) / probability - 1.0).abs() < 0.01, "{z}");
        }
        assert!((normal_distance(0.05) - 1.96).abs() < 1e-3);
    }

    /// With one degree of freedom it is Cauchy's distribution, with two it has a closed form.
    #[test]
    fn students_t_has_the_closed_forms_of_one_and_two_degrees() {
        for t in [0.1f64, 1.0, 5.0, 200.0, 1e5] {
            let cauchy = 2.0 * (1.0 / t).atan() / std::f64::consts::PI;
            assert!((student_two_sided(t, 1.0) / cauchy - 1.0).abs() < 1e-9, "{t}");
            let two = 2.0 / ((t * t + 2.0).sqrt() * ((t * t + 2.0).sqrt() + t));
            assert!((student_two_sided(t, 2.0) / two - 1.0).abs() < 1e-9, "{t}");
        }
    }

    #[test]
    fn coins_are_fair() {
        for (hits, n, probability) in
            [(0, 5, 1.0 / 32.0), (1, 9, 10.0 / 512.0), (9, 9, 1.0), (5_000, 10_000, 0.503_989_4)]
        {
            assert!((heads_at_most(hits, n) - probability).abs() < 1e-7, "{hits} of {n}");
        }
    }
}
