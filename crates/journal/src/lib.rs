//! A log of records on a disk that loses power: append, acknowledge, forget.
//!
//! A [`Journal`] keeps records under identifiers that ascend. [`Batch`]es put records and forget others, and happen
//! whole or not at all. What waits is written in one commit, which begins at a block of its own and never touches a
//! block that an acknowledged commit is in. The files are segments of one size, written full of zeros when they are
//! created and overwritten ever after, so that a commit changes no metadata of the file system. When the segments hold
//! less than their half of live records, the oldest one's are appended again and it is overwritten.
//!
//! The journal is a state machine without files and threads. [`Journal::next_work`] gives operations for a [`Disk`],
//! of which [`Files`] is the real one. [`Committer`] is the thread that does them, at the times that [`Mode`] says.
//!
//! Guarantees, of which `docs/adr/0037-a-journal-of-our-own.md` gives the reasons:
//! - A batch whose success was reported survives a power cut. One whose failure was reported does not come back, unless
//!   the report says that it may.
//! - Damage costs the records in the frames that it hit, never keeps a journal from opening, and is reported with the
//!   numbers of the frames, unless it hits the last frame of a journal that was not closed: that looks like a commit
//!   that was cut off.
//! - A file that was made on purpose neither stops a start nor makes it longer than reading it takes. A frame that says
//!   what no journal writes is a damaged one.
//! - Files take at most twice the bytes of live records, and six segments more, but for what is being written.
//! - A full disk refuses records, never forgets.
//! - No payload is in an error or in the output of `Debug` of anything but [`Record`] and [`Batch`].

mod batch;
mod blocks;
mod cleaning;
mod committer;
mod config;
mod disk;
mod entry;
mod frame;
mod index;
mod journal;
mod loan;
mod mode;
mod plan;
mod read;
mod record;
mod recovery;
mod segments;
mod times;
mod waiting;
mod work;

pub use batch::{Appended, Batch, Record, Ticket};
pub use committer::Committer;
pub use config::{Config, ConfigError};
pub use disk::{Disk, Files, LOCK, OpenError, Slot, is_of_medium};
pub use frame::FORMAT;
pub use journal::{Failure, Figures, Journal, Location, Occasion, Parts, Progress, Refused};
pub use loan::{Loan, LoanError, SegmentCopy, segment_at_rest};
pub use mode::Mode;
pub use read::ReadError;
pub use record::{Ids, RecordId};
pub use recovery::{Missing, Recovery, RecoveryError};
pub use times::{CommitTimes, Times};
pub use work::{Done, Work};
