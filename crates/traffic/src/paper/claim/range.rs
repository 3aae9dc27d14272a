//! Numbers of which only one side may be known: where the generator set the pace, a gateway could have done more.

use super::shown;

/// A number, or a bound of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The least that it can be.
    pub low: f64,
    /// The most that it can be; infinite if that is not known.
    pub high: f64,
}

/// The side on which a number lies if the generator set the pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It is no less, as a rate.
    AtLeast,
    /// It is no more, as a time.
    AtMost,
    /// It may be less or more, as the generator's own processor time.
    Unknown,
}

/// Whether a condition is true of all numbers in some ranges, and of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Truth {
    pub(super) always: bool,
    pub(super) ever: bool,
}

impl Range {
    /// Exactly this.
    pub fn exact(number: f64) -> Self {
        Self { low: number, high: number }
    }

    /// On one side of this number, which is not negative.
    pub fn bound(number: f64, side: Side) -> Self {
        match side {
            Side::AtLeast => Self { low: number, high: f64::INFINITY },
            Side::AtMost => Self { low: 0.0, high: number },
            Side::Unknown => Self { low: 0.0, high: f64::INFINITY },
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self { low: self.low + other.low, high: self.high + other.high }
    }

    /// By a number above nought.
    pub(super) fn over(self, divisor: f64) -> Self {
        Self { low: self.low / divisor, high: self.high / divisor }
    }

    /// By a number that is not negative; nothing if that is nought.
    pub(super) fn divided(self, divisor: Self) -> Option<Self> {
        let by = |dividend: f64, divisor: f64| if divisor == 0.0 { f64::INFINITY } else { dividend / divisor };
        (divisor.high != 0.0).then(|| Self { low: self.low / divisor.high, high: by(self.high, divisor.low) })
    }

    /// Whether it is less than `factor` times another.
    pub(super) fn is_less(self, factor: f64, other: Self) -> Truth {
        Truth { always: self.high < factor * other.low, ever: self.low < factor * other.high }
    }

    /// Whether it is more than `factor` times another.
    pub(super) fn is_more(self, factor: f64, other: Self) -> Truth {
        Truth { always: self.low > factor * other.high, ever: self.high > factor * other.low }
    }

    /// Whether it lies between two numbers.
    pub(super) fn lies(self, at_least: Option<f64>, at_most: Option<f64>) -> Truth {
        let between =
            |low: f64, high: f64| at_least.is_none_or(|least| low >= least) && at_most.is_none_or(|most| high <= most);
        Truth { always: between(self.low, self.high), ever: between(self.high, self.low) }
    }

    /// Whether all are the same but for this share of the greatest.
    pub(super) fn are_equal(all: &[Self], within: f64) -> Truth {
        let lows = || all.iter().map(|one| one.low);
        let highs = || all.iter().map(|one| one.high);
        let least = |numbers: &mut dyn Iterator<Item = f64>| numbers.fold(f64::INFINITY, f64::min);
        let most = |numbers: &mut dyn Iterator<Item = f64>| numbers.fold(f64::NEG_INFINITY, f64::max);
        let are_near = |least: f64, most: f64| most.is_finite() && most - least <= within * most.abs();
        // Each may be anywhere in its range: at best the ranges overlap, or their nearest ends are near.
        let (nearest, farthest) = (least(&mut highs()), most(&mut lows()));
        let always = are_near(least(&mut lows()), most(&mut highs()));
        Truth { always, ever: nearest >= farthest || are_near(nearest, farthest) }
    }

    /// Its number, with the side on which it lies.
    pub(super) fn shown(self) -> String {
        match self {
            Self { low, high } if low == high => shown(low),
            Self { low: 0.0, high } if high.is_infinite() => "not known".to_owned(),
            Self { low, high } if high.is_infinite() => format!("≥ {}", shown(low)),
            Self { low: 0.0, high } => format!("≤ {}", shown(high)),
            Self { low, high } => format!("{} to {}", shown(low), shown(high)),
        }
    }
}

impl Truth {
    /// Whether all of them are true.
    pub(super) fn all(truths: impl IntoIterator<Item = Self>) -> Self {
        let both = |one: Self, other: Self| Self { always: one.always && other.always, ever: one.ever && other.ever };
        truths.into_iter().fold(Self { always: true, ever: true }, both)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUE: Truth = Truth { always: true, ever: true };
    const FALSE: Truth = Truth { always: false, ever: false };
    const OPEN: Truth = Truth { always: false, ever: true };

    #[test]
    fn a_bound_decides_where_its_side_does() {
        let (two, three) = (Range::exact(2.0), Range::exact(3.0));
        let (at_least, at_most) = (Range::bound(3.0, Side::AtLeast), Range::bound(3.0, Side::AtMost));
        assert_eq!(
            [two.is_less(1.0, at_least), at_least.is_less(1.0, two), at_least.is_less(1.0, at_most)],
            [TRUE, FALSE, FALSE]
        );
        assert_eq!(
            [two.is_less(1.0, at_most), two.is_more(1.0, at_most), three.is_more(1.0, at_most)],
            [OPEN, OPEN, OPEN]
        );
        assert_eq!(Range::exact(4.0).is_more(1.0, at_most), TRUE);
        assert_eq!(at_least.lies(Some(3.0), None), TRUE);
        assert_eq!(at_least.lies(None, Some(2.0)), FALSE);
        assert_eq!(at_least.lies(Some(1.0), Some(9.0)), OPEN);
        assert_eq!(Range::are_equal(&[two, at_least], 0.1), FALSE);
        assert_eq!(Range::are_equal(&[two, at_least], 0.5), OPEN);
        assert_eq!(Range::are_equal(&[two, three], 0.5), TRUE);
        assert_eq!(Range::are_equal(&[Range::exact(5.0), at_least], 0.0), OPEN);
    }

    #[test]
    fn quotients_and_means_are_bounds_as_well() {
        let (six, at_least) = (Range::exact(6.0), Range::bound(3.0, Side::AtLeast));
        assert_eq!(six.divided(at_least), Some(Range { low: 0.0, high: 2.0 }));
        assert_eq!(at_least.divided(six), Some(Range { low: 0.5, high: f64::INFINITY }));
        assert_eq!(six.divided(Range::exact(0.0)), None);
        assert_eq!(six.divided(Range::bound(3.0, Side::AtMost)), Some(Range { low: 2.0, high: f64::INFINITY }));
        assert_eq!(six.plus(at_least).over(2.0), Range { low: 4.5, high: f64::INFINITY });
        assert_eq!([six.shown(), at_least.shown()], ["6", "≥ 3"]);
        assert_eq!(six.divided(at_least).unwrap().shown(), "≤ 2");
    }
}
