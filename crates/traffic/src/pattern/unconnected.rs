//! Connections that are not made although the other end is there. On a link that loses frames that is a result: if the
//! repetition did not count, the link would look better than it is.

use super::PatternError;
use super::stage::{Stage, may_break};
use crate::driver::DriverError;
use crate::experiment::Experiment;
use crate::outcome::Outcome;

/// The outcome of a repetition whose connections could not be made since `began_ns`: everything that was due is
/// unsent.
///
/// # Errors
/// The failure itself, where it is none of the link, or where it is not known how much was due.
pub(super) fn unconnected(stage: &Stage, began_ns: u64, error: PatternError) -> Result<Outcome, PatternError> {
    let experiment = &stage.experiment;
    let is_of_link = match &error {
        PatternError::Driver(DriverError::Connection(_)) | PatternError::Silence(_) => may_break(experiment),
        PatternError::Driver(_) | PatternError::Experiment(_) | PatternError::Timer(_) => false,
        PatternError::Thread(_) | PatternError::Closed(_) | PatternError::Group { .. } => false,
    };
    let Some(due) = due(experiment).filter(|_| is_of_link) else { return Err(error) };
    let waited_ns = stage.now_ns().saturating_sub(began_ns).max(1);
    let mut outcome = Outcome {
        offered: Some(due),
        behind: Some(due),
        unsent: Some(due),
        sending_seconds: Some(std::time::Duration::from_nanos(waited_ns).as_secs_f64()),
        errors: 1,
        first_error: Some(error.to_string()),
        ..Outcome::default()
    };
    // Each publisher has its share of the operations, and each of these would have had so many deliveries.
    let publishers = u64::from(experiment.publishers).max(1);
    for number in 0..experiment.publishers {
        let share = due / publishers + u64::from(u64::from(number) < due % publishers);
        outcome.unsent_latency.record_many_ns(waited_ns, share * stage.weight(number));
    }
    Ok(outcome)
}

/// How many operations would have been due.
fn due(experiment: &Experiment) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and bounded when checked")]
    let in_time = experiment.mean_rate().map(|rate| (rate * experiment.seconds).floor() as u64);
    [experiment.count, in_time].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Member;

    fn outcome(change: impl FnOnce(&mut Experiment)) -> Result<Outcome, PatternError> {
        let mut experiment = Experiment { link: "loss=50%".to_owned(), count: Some(100), ..Experiment::default() };
        change(&mut experiment);
        let error = PatternError::Driver(DriverError::Connection("no connection within 90s".to_owned()));
        unconnected(&Stage::new(&experiment, false, &Member::alone()), 0, error)
    }

    #[test]
    fn everything_that_was_due_is_unsent() {
        let outcome = outcome(|experiment| experiment.subscribers = 2).unwrap();
        assert_eq!((outcome.sent, outcome.unsent, outcome.errors), (0, Some(100), 1));
        assert_eq!(outcome.unsent_latency.count(), 200);
        assert_eq!(outcome.first_error.as_deref(), Some("no connection within 90s"));
    }

    #[test]
    fn a_link_that_loses_nothing_is_no_excuse() {
        assert!(outcome(|experiment| experiment.link = "lossless".to_owned()).is_err());
        // As many as fit into the time: nobody knows how many.
        assert!(outcome(|experiment| experiment.count = None).is_err());
        assert!(outcome(|experiment| (experiment.count, experiment.rate) = (None, Some(5.0))).is_ok());
    }
}
