//! The access rules: who may read and write which topics, by which door.
//!
//! ```toml
//! [[allow]]
//! group = ["operators", "plant"]      # or: user = "alice", authenticated = true, anonymous = true
//! read = ["sensors/#"]
//! write = ["commands/%u/#"]           # %u the user's name, %c the client identifier, %g each group in turn, %% a %,
//!                                     # %{claim} what a token says, each value in turn
//! both = []
//! door = ["mqtt", "http"]             # left out: every door
//!
//! [[deny]]                            # looked at before every allow
//! anonymous = true
//! both = ["private/#"]
//! ```
//!
//! A name with a `/`, a wildcard or a leading `$` fills no placeholder: such a rule allows its owner nothing, and
//! denies every topic that the name could have stood for.
//!
//! A topic that no rule allows is refused. As in MQTT, a wildcard at the first level does not match topics that begin
//! with `$` ([MQTT-4.7.2-1]). Nobody writes below `$SYS/`, whatever the rules say, except the state of bridges
//! (`$SYS/broker/connection/<name>/state`) where a rule names it.

mod file;
pub(crate) mod filter;
mod index;
mod known;
mod pattern;
mod view;

use std::{collections::HashMap, fmt, io, path::Path, sync::Arc};

pub use filter::{covers as filter_covers, overlaps as filters_overlap};
pub use fogmux_bus::Door;
pub use view::Reach;
pub(crate) use view::{Common, View};

use crate::problem::{Problem, Problems};
use pattern::Pattern;

/// The use that a client makes of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Subscribe, observe, get.
    Read,
    /// Publish, put, delete.
    Write,
}

/// Whether an action is allowed, and by which rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// The rule that decided; `None` when no rule matched (the action is refused then) or when there are no rules.
    pub rule: Option<RuleRef>,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.allowed, &self.rule) {
            (true, Some(rule)) => write!(f, "allowed by {rule}"),
            (true, None) => f.write_str("allowed: there is no access file"),
            (false, Some(rule)) => write!(f, "refused by {rule}"),
            (false, None) => f.write_str("refused: no rule allows it"),
        }
    }
}

/// The place and the text of a rule. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleRef(Arc<RuleText>);

#[derive(Debug, PartialEq, Eq)]
struct RuleText {
    file: Arc<Path>,
    line: usize,
    text: String,
}

/// Characters of a rule that are shown: wherever it is named, it is so in the same words. Its line has the rest.
const SHOWN_MAX: usize = 512;

impl RuleRef {
    fn new(file: &Arc<Path>, line: usize, mut text: String) -> Self {
        if let Some((end, _)) = text.char_indices().nth(SHOWN_MAX) {
            text.truncate(end);
            text.push('…');
        }
        Self(Arc::new(RuleText { file: Arc::clone(file), line, text }))
    }

    /// The file the rule stands in.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.0.file
    }

    /// The line of its filter, counted from 1; 0 for rules that are built in.
    #[must_use]
    pub fn line(&self) -> usize {
        self.0.line
    }
}

/// With the file's name without its directory, because refusals show this to clients.
impl fmt::Display for RuleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.file.file_name().unwrap_or_default();
        match self.0.line {
            0 => f.write_str(&self.0.text),
            line => write!(f, "{}:{line}: {}", name.display(), self.0.text),
        }
    }
}

/// The rules of one access file.
#[derive(Debug, Clone, Default)]
pub struct Acl {
    /// In the order of the file; the other fields are indices into it.
    rules: Vec<Rule>,
    /// Rules that name a user.
    by_user: HashMap<String, Vec<u32>>,
    /// Rules with placeholders.
    patterns: Vec<u32>,
    /// Names that are compared in another form than they are written in.
    notes: Vec<Problem>,
}

/// One filter of one `[[allow]]` or `[[deny]]`.
#[derive(Debug, Clone)]
struct Rule {
    effect: Effect,
    who: Arc<Who>,
    doors: Doors,
    actions: Actions,
    pattern: Pattern,
    reference: RuleRef,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Actions {
    Read,
    Write,
    Both,
}

impl Actions {
    fn include(self, action: Action) -> bool {
        match (self, action) {
            (Self::Both, Action::Read | Action::Write) | (Self::Read, Action::Read) | (Self::Write, Action::Write) => {
                true
            }
            (Self::Read, Action::Write) | (Self::Write, Action::Read) => false,
        }
    }
}

/// The principals that a rule applies to: any of these.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Who {
    users: Vec<String>,
    groups: Vec<String>,
    authenticated: bool,
    anonymous: bool,
}

/// The doors a rule is for; empty means every door.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Doors(Vec<Door>);

impl Doors {
    fn include(&self, door: Door) -> bool {
        self.0.is_empty() || self.0.contains(&door)
    }
}

impl Acl {
    fn new(rules: Vec<Rule>) -> Self {
        let mut acl = Self::default();
        for (place, rule) in (0_u32..).zip(&rules) {
            if rule.pattern.has_placeholders() {
                acl.patterns.push(place);
            }
            for user in &rule.who.users {
                acl.by_user.entry(user.clone()).or_default().push(place);
            }
        }
        Self { rules, ..acl }
    }

    /// Whether no rule allows anything, so that nobody may read or write.
    #[must_use]
    pub fn allows_nothing(&self) -> bool {
        self.rules.iter().all(|rule| rule.effect == Effect::Deny)
    }

    /// The groups that rules name, each as often as a filter of a rule does.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().flat_map(|rule| &rule.who.groups).map(String::as_str)
    }

    /// Remarks on a valid file: names that are compared in another form than they are written in.
    #[must_use]
    pub fn notes(&self) -> &[Problem] {
        &self.notes
    }

    /// Reads an access file. A file that is missing is a problem: access never opens by accident.
    ///
    /// # Errors
    /// Everything that is wrong with the file, with its lines.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        match fogmux_file::read_to_string(path) {
            Ok(text) => file::parse(path, &text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Problems::of_file(path, "the access file does not exist; an empty one refuses everything"))
            }
            Err(error) => Err(Problems::of_file(path, format!("cannot be read: {error}"))),
        }
    }

    /// Reads the text of an access file; `path` is only named in problems and decisions.
    ///
    /// # Errors
    /// Everything that is wrong with it, with its lines.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Problems> {
        file::parse(path, text)
    }
}
