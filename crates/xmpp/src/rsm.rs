//! Pages of a result set (XEP-0059).

use crate::element::Element;
use crate::error::StanzaError;
use crate::ns;
use crate::writer::Writer;

/// Which page is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageRequest {
    /// At most so many; 0 asks for the count alone (XEP-0059 §2.7).
    pub max: Option<u32>,
    /// Those after this one.
    pub after: Option<String>,
    /// Those before this one; empty for the last page (XEP-0059 §2.5).
    pub before: Option<String>,
    /// Those from this position on.
    pub index: Option<u32>,
}

impl PageRequest {
    /// The `<set/>` among the children of `parent`.
    ///
    /// # Errors
    /// `<bad-request/>` when a number is none.
    pub fn in_element(parent: &Element<'_>) -> Result<Option<Self>, StanzaError> {
        let Some(set) = parent.child(ns::RSM, "set") else { return Ok(None) };
        let text = |name| set.child(ns::RSM, name).map(|e| e.text().into_owned());
        Ok(Some(Self {
            max: number(text("max"))?,
            after: text("after"),
            before: text("before"),
            index: number(text("index"))?,
        }))
    }

    /// The range of a list of `ids` that this page covers, never more than `max_default` when it names no size.
    ///
    /// # Errors
    /// `<item-not-found/>` when the one it counts from is not there (XEP-0059 §2.3).
    pub fn range<S: AsRef<str>>(&self, ids: &[S], max_default: usize) -> Result<std::ops::Range<usize>, StanzaError> {
        let size = self.max.map_or(max_default, |max| usize::try_from(max).unwrap_or(usize::MAX)).min(max_default);
        let position = |id: &str| {
            let found = ids.iter().position(|i| i.as_ref() == id);
            found.ok_or(StanzaError::new(crate::error::StanzaCondition::ItemNotFound))
        };
        if let Some(before) = &self.before {
            let end = if before.is_empty() { ids.len() } else { position(before)? };
            return Ok(end.saturating_sub(size)..end);
        }
        let start = match (&self.after, self.index) {
            (Some(after), _) => position(after)? + 1,
            (None, Some(index)) => usize::try_from(index).unwrap_or(usize::MAX).min(ids.len()),
            (None, None) => 0,
        };
        Ok(start..start.saturating_add(size).min(ids.len()))
    }
}

fn number(text: Option<String>) -> Result<Option<u32>, StanzaError> {
    text.map(|t| t.trim().parse().map_err(|_| StanzaError::bad_request())).transpose()
}

/// Appends the `<set/>` of an answer: first and last of this page, where it begins, and how many there are in all.
pub fn write(w: &mut Writer<'_>, page: Option<(&str, &str)>, index: usize, count: usize) {
    w.start_ns("set", ns::RSM);
    if let Some((first, last)) = page {
        w.start("first").attr("index", &index.to_string()).text(first).end("first");
        w.leaf("last", last);
    }
    w.leaf("count", &count.to_string());
    w.end("set");
}
