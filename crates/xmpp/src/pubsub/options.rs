//! The options of a subscription (XEP-0060 §6.3), ours for wildcards among them.

use crate::error::{PubsubCondition, StanzaError};
use crate::form::{self, FieldType, Form};
use crate::ns;
use crate::writer::Writer;

/// The option that makes a subscription follow a topic filter with `+` and `#` instead of one node, named as XEP-0068
/// §3.2 names fields outside the registry. Its value is the filter; `true` says that the node attribute is the filter.
pub const FILTER_OPTION: &str = "{urn:fogmux:0}filter";

/// How a subscriber wants its notifications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// Off: nothing is sent until it is on again.
    pub deliver: bool,
    /// The filter to follow instead of the node.
    pub filter: Option<FilterOption>,
}

/// What [`FILTER_OPTION`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterOption {
    /// The node attribute is a filter.
    Node,
    /// This is the filter.
    Text(String),
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        Self { deliver: true, filter: None }
    }
}

impl SubscribeOptions {
    /// Reads the form.
    ///
    /// # Errors
    /// `<invalid-options/>` (XEP-0060 §6.3.5).
    pub fn of_form(form: &Form<'_>) -> Result<Self, StanzaError> {
        if form.form_type.as_deref().is_some_and(|t| t != ns::SUBSCRIBE_OPTIONS) {
            return Err(invalid());
        }
        let mut options = Self::default();
        for field in &form.fields {
            match field.var {
                "pubsub#deliver" => options.deliver = field.boolean().ok_or_else(invalid)?,
                // Digests and deadlines of subscriptions are not kept; asking for them must not fail silently.
                "pubsub#digest" if field.boolean() == Some(true) => return Err(invalid()),
                FILTER_OPTION => options.filter = filter(field.value(), field.boolean()),
                _ => {}
            }
        }
        Ok(options)
    }

    /// Appends the form, to be filled in (`form`) or as a report (`result`).
    pub fn write(&self, w: &mut Writer<'_>, kind: &str, filter: Option<&str>) {
        form::open(w, kind, ns::SUBSCRIBE_OPTIONS);
        let deliver = if self.deliver { "1" } else { "0" };
        form::field(w, "pubsub#deliver", FieldType::Boolean, Some("Enable delivery?"), &[deliver], &[]);
        let filter: &[&str] = &filter.map_or(vec![], |f| vec![f]);
        let label = "Follow all topics that match, with + and # as in MQTT";
        form::field(w, FILTER_OPTION, FieldType::TextSingle, Some(label), filter, &[]);
        form::close(w);
    }
}

fn filter(value: Option<&str>, boolean: Option<bool>) -> Option<FilterOption> {
    match (value, boolean) {
        (None | Some(""), _) | (_, Some(false)) => None,
        (_, Some(true)) => Some(FilterOption::Node),
        (Some(text), None) => Some(FilterOption::Text(text.to_owned())),
    }
}

fn invalid() -> StanzaError {
    StanzaError::bad_request().with(PubsubCondition::InvalidOptions)
}
