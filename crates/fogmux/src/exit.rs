//! How the process ends: sysexits codes, so that scripts and service managers can tell a mistake in the command line
//! from a port in use and from a configuration that does not hold.

use std::fmt;
use std::process::ExitCode;

/// The codes this program uses, by their names in `sysexits.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// `bench compare` found a regression, or a condition of `bench run --fail-if` holds.
    #[cfg(feature = "bench")]
    Regression = 1,
    /// The command line was wrong.
    Usage = 64,
    /// Input or a response is malformed.
    DataErr = 65,
    /// The input is not there: a data directory; for `bench compare` an experiment with repetitions in both
    /// reports; for `--resume` a measurement that was interrupted.
    NoInput = 66,
    /// The other side is not there, did not answer in time or refused for its own reasons.
    Unavailable = 69,
    /// `bench compare`: every repetition of an experiment failed that worked before; `bench paper run`: of some.
    #[cfg(feature = "bench")]
    Software = 70,
    /// A file or socket failed, or the store has not kept everything.
    IoErr = 74,
    /// `bench compare` is inconclusive, more repetitions may tell; `bench paper run`: a claim is, a faster machine may.
    #[cfg(feature = "bench")]
    TempFail = 75,
    /// The peer broke its protocol.
    Protocol = 76,
    /// Not allowed: credentials or access rules.
    NoPerm = 77,
    /// The configuration does not hold; `bench compare` and `--resume`: the experiments differ.
    Config = 78,
    /// A measurement was ended by SIGHUP: 128 and its number, as with a shell.
    #[cfg(feature = "bench")]
    HungUp = 129,
    /// The same by SIGINT.
    #[cfg(feature = "bench")]
    Interrupted = 130,
    /// The same by SIGTERM.
    #[cfg(feature = "bench")]
    Terminated = 143,
}

/// An error with the code to end with.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit status.
    pub(crate) status: Status,
    /// The message for the user.
    pub(crate) error: anyhow::Error,
}

impl Failure {
    /// A failure with a message.
    pub(crate) fn new(status: Status, message: impl fmt::Display + fmt::Debug + Send + Sync + 'static) -> Self {
        Self { status, error: anyhow::Error::msg(message) }
    }

    /// A failed file or socket operation, with its subject.
    pub(crate) fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        let is_of = |kind| error.kind() == kind;
        let status = if is_of(std::io::ErrorKind::PermissionDenied) {
            Status::NoPerm
        } else if is_of(std::io::ErrorKind::InvalidData) {
            // Text that is not UTF-8.
            Status::DataErr
        } else {
            Status::IoErr
        };
        Self::new(status, format!("{what}: {error}"))
    }

    /// A failure that has said already what there is to say.
    pub(crate) fn silent(status: Status) -> Self {
        Self { status, error: anyhow::Error::msg("") }
    }

    /// The message for the person, unless there is none.
    pub(crate) fn message(&self) -> Option<String> {
        Some(format!("{:#}", self.error)).filter(|message| !message.is_empty())
    }

    /// Says the message in the form of a command's last line, and has said it then.
    pub(crate) fn said(self, say: impl FnOnce(String)) -> Self {
        if let Some(message) = self.message() {
            say(format!("fogmux: {message}\n"));
        }
        Self::silent(self.status)
    }

    /// The exit code.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.status as u8)
    }
}

/// Gives an error the code to end with.
pub(crate) trait OrFail<T> {
    /// Maps the error to a failure with this status and a word on what was being done.
    fn or_fail(self, status: Status, doing: &str) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrFail<T> for Result<T, E> {
    fn or_fail(self, status: Status, doing: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure { status, error: error.into().context(doing.to_owned()) })
    }
}
