//! The size of a difference beside its significance: Cliff's delta (Cliff 1993), which assumes no distribution.

use super::count;

/// How probable it is that a value of the second set is above one of the first, less how probable it is that it is
/// below: 0 if neither set is above the other, 1 if all of the second are above all of the first, −1 if below.
#[must_use]
pub fn dominance(before: &[f64], after: &[f64]) -> Option<f64> {
    if before.is_empty() || after.is_empty() {
        return None;
    }
    let sign = |before: &f64, after: &f64| match after.total_cmp(before) {
        std::cmp::Ordering::Less => -1.0,
        std::cmp::Ordering::Equal => 0.0,
        std::cmp::Ordering::Greater => 1.0,
    };
    let sum: f64 = before.iter().flat_map(|before| after.iter().map(move |after| sign(before, after))).sum();
    Some(sum / (count(before.len()) * count(after.len())))
}

/// The word for it, by the usual bounds (Romano et al. 2006).
#[must_use]
pub fn magnitude(delta: f64) -> &'static str {
    match delta.abs() {
        size if size < 0.147 => "negligible",
        size if size < 0.33 => "small",
        size if size < 0.474 => "medium",
        _ => "large",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_share_above_less_the_share_below() {
        assert_eq!(dominance(&[1.0, 2.0, 3.0], &[4.0, 5.0]), Some(1.0));
        assert_eq!(dominance(&[4.0, 5.0], &[1.0, 2.0, 3.0]), Some(-1.0));
        assert_eq!(dominance(&[1.0, 2.0], &[1.0, 2.0]), Some(0.0));
        // Of six pairs three are above, two below and one is equal.
        assert_eq!(dominance(&[1.0, 2.0, 5.0], &[2.0, 4.0]), Some(1.0 / 6.0));
        assert_eq!(dominance(&[], &[1.0]), None);
        // One that is far away is one.
        assert_eq!(dominance(&[1.0, 2.0], &[1.5, 1e9]), Some(0.5));
    }

    #[test]
    fn sizes_have_words() {
        assert_eq!([0.0, -0.2, 0.4, -1.0].map(magnitude), ["negligible", "small", "medium", "large"]);
    }
}
