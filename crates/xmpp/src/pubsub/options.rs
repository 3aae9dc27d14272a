//! The options of a subscription (XEP-0060 §6.3), ours for wildcards among them.
//!
//! An option that cannot be honoured is refused with `<invalid-options/>`: a subscriber that asks for digests, or
//! misspells an option, must not believe that it is in effect. Fields of XEP-0060 §16.4.2 are accepted with values that
//! ask for nothing, such as a digest that is off.

use crate::datetime;
use crate::error::{PubsubCondition, StanzaError};
use crate::form::{self, Field, FieldType, Form};
use crate::ns;
use crate::writer::Writer;

/// The option that makes a subscription follow a topic filter with `+` and `#` instead of one node, named as XEP-0068
/// §3.2 names fields outside the registry. Its value is the filter; `true` says that the node attribute is the filter.
pub const FILTER_OPTION: &str = "{urn:fogmux:0}filter";

/// The options of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// Whether notifications are sent.
    pub deliver: bool,
    /// Notifications have a `<body/>` beside the payload (§12.7).
    pub include_body: bool,
    /// When the subscription ends.
    pub expire: Option<Expire>,
    /// The filter to follow instead of the node.
    pub filter: Option<FilterOption>,
}

/// When a subscription ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expire {
    /// At a time, in seconds since 1970 (§12.18).
    At(u64),
    /// When the subscriber becomes unavailable (§12.4).
    Presence,
}

/// The value of [`FILTER_OPTION`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterOption {
    /// The node attribute is a filter.
    Node,
    /// This is the filter.
    Text(String),
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        Self { deliver: true, include_body: false, expire: None, filter: None }
    }
}

impl SubscribeOptions {
    /// Reads the form of a new subscription.
    ///
    /// # Errors
    /// `<invalid-options/>` (XEP-0060 §6.3.5).
    pub fn of_form(form: &Form<'_>) -> Result<Self, StanzaError> {
        let mut options = Self::default();
        options.apply(form)?;
        Ok(options)
    }

    /// Applies the fields of a submitted form.
    ///
    /// # Errors
    /// `<invalid-options/>` (XEP-0060 §6.3.5); some fields may have been applied by then.
    pub fn apply(&mut self, form: &Form<'_>) -> Result<(), StanzaError> {
        if form.form_type.as_deref().is_some_and(|t| t != ns::SUBSCRIBE_OPTIONS) {
            return Err(invalid());
        }
        form.fields.iter().try_for_each(|field| self.apply_field(field))
    }

    fn apply_field(&mut self, field: &Field<'_>) -> Result<(), StanzaError> {
        match field.var {
            "pubsub#deliver" => self.deliver = field.boolean().ok_or_else(invalid)?,
            "pubsub#include_body" => self.include_body = field.boolean().ok_or_else(invalid)?,
            "pubsub#expire" => self.expire = expire(field)?,
            FILTER_OPTION => self.filter = filter(field.value(), field.boolean()),
            // Without digests their frequency is meaningless.
            "pubsub#digest_frequency" => {}
            "pubsub#digest" => only(field, &["0", "false"])?,
            "pubsub#subscription_type" => only(field, &["items"])?,
            "pubsub#subscription_depth" => only(field, &["1"])?,
            "pubsub#show-values" => every_presence(field)?,
            _ => return Err(invalid().because(format!("{} is no option here", field.var))),
        }
        Ok(())
    }

    /// Appends the form, to be filled in (`form`) or as a report (`result`).
    pub fn write(&self, w: &mut Writer<'_>, kind: &str, filter: Option<&str>) {
        form::open(w, kind, ns::SUBSCRIBE_OPTIONS);
        let flag = |on: bool| if on { "1" } else { "0" };
        let deliver = flag(self.deliver);
        form::field(w, "pubsub#deliver", FieldType::Boolean, Some("Enable delivery?"), &[deliver], &[]);
        let label = "Receive message body in addition to payload?";
        form::field(w, "pubsub#include_body", FieldType::Boolean, Some(label), &[flag(self.include_body)], &[]);
        let expire = match self.expire {
            None => String::new(),
            Some(Expire::At(unix_s)) => datetime::format(unix_s),
            Some(Expire::Presence) => PRESENCE.to_owned(),
        };
        let label = "When the subscription ends: a date and time, or \"presence\"";
        form::field(w, "pubsub#expire", FieldType::TextSingle, Some(label), &[&expire], &[]);
        let filter: &[&str] = &filter.map_or(vec![], |f| vec![f]);
        let label = "Follow all topics that match, with + and # as in MQTT";
        form::field(w, FILTER_OPTION, FieldType::TextSingle, Some(label), filter, &[]);
        form::close(w);
    }
}

/// §12.4: the literal for a subscription that ends when the subscriber becomes unavailable.
const PRESENCE: &str = "presence";

fn expire(field: &Field<'_>) -> Result<Option<Expire>, StanzaError> {
    match field.value() {
        None | Some("") => Ok(None),
        Some(PRESENCE) => Ok(Some(Expire::Presence)),
        Some(text) => {
            let refused = || invalid().because("pubsub#expire is neither a date and time nor \"presence\"");
            datetime::parse(text).map(|unix_s| Some(Expire::At(unix_s))).ok_or_else(refused)
        }
    }
}

fn filter(value: Option<&str>, boolean: Option<bool>) -> Option<FilterOption> {
    match (value, boolean) {
        (None | Some(""), _) | (_, Some(false)) => None,
        (_, Some(true)) => Some(FilterOption::Node),
        (Some(text), None) => Some(FilterOption::Text(text.to_owned())),
    }
}

/// Accepts a field if it is empty or has one of these values.
fn only(field: &Field<'_>, values: &[&str]) -> Result<(), StanzaError> {
    let nothing = field.values.iter().all(|value| value.is_empty() || values.contains(&value.as_ref()));
    if nothing { Ok(()) } else { Err(invalid().because(format!("{} is not offered", field.var))) }
}

/// Accepts `pubsub#show-values` if it names all states or none: notifications do not depend on them.
fn every_presence(field: &Field<'_>) -> Result<(), StanzaError> {
    let all = ["away", "chat", "dnd", "online", "xa"];
    let named = |state: &&str| field.values.iter().any(|value| value.as_ref() == *state);
    let every = field.values.iter().all(|value| value.is_empty()) || all.iter().all(named);
    if every { Ok(()) } else { Err(invalid().because("pubsub#show-values is not offered")) }
}

fn invalid() -> StanzaError {
    StanzaError::bad_request().with(PubsubCondition::InvalidOptions)
}
