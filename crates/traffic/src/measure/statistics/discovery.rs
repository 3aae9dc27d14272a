//! Many comparisons at once: the false discovery rate (Benjamini and Hochberg 1995).

use super::count;

/// Returns for each p the smallest share of false discoveries at which it would be one: of the findings at most this
/// far, so many are chance on average. If nothing differs at all, this is the probability of any finding.
///
/// It holds for independent figures, and for those that rise and fall together (Benjamini and Yekutieli 2001).
#[must_use]
pub fn false_discovery_rates(ps: &[f64]) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = ps.iter().copied().enumerate().collect();
    order.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let mut rates = vec![1.0; ps.len()];
    let mut least = 1.0f64;
    for (after, (at, p)) in order.into_iter().enumerate() {
        least = least.min(p * count(ps.len()) / count(ps.len() - after));
        if let Some(rate) = rates.get_mut(at) {
            *rate = least;
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Benjamini and Hochberg (1995, §3.2): of fifteen, the four smallest are findings at 5 %.
    #[test]
    fn of_fifteen_four_are_found() {
        let ps = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528,
            0.7590, 1.0,
        ];
        let rates = false_discovery_rates(&ps);
        assert_eq!(rates.iter().filter(|rate| **rate <= 0.05).count(), 4);
        assert!((rates[3] - 0.0095 * 15.0 / 4.0).abs() < 1e-12);
        let backwards: Vec<f64> = ps.iter().rev().copied().collect();
        assert!(false_discovery_rates(&backwards).iter().rev().eq(rates.iter()));
    }

    #[test]
    fn one_alone_is_as_probable_as_it_is() {
        assert_eq!(false_discovery_rates(&[0.03]), [0.03]);
        assert_eq!(false_discovery_rates(&[]), [0.0; 0]);
        assert_eq!(false_discovery_rates(&[0.04, 0.04]), [0.04, 0.04]);
    }
}
