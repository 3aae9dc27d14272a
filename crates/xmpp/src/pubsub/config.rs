//! The configuration of a node (XEP-0060 §16.4.3) and the options of a publication (§7.1.5).
//!
//! A field that cannot be honoured is an error: an owner that misspells `pubsub#access_model`, or asks for
//! presence-based delivery, must not believe that it is in effect. XEP-0004 §3.2 would have unknown fields ignored;
//! XEP-0060 §7.1.5 and the owner's interest take precedence. Registered fields are accepted with values that ask for
//! nothing: an empty one, or the only behaviour supported.

use crate::error::{PubsubCondition, StanzaCondition, StanzaError};
use crate::form::{self, Field, FieldType, Form};
use crate::ns;
use crate::writer::Writer;

/// Which entities may subscribe and retrieve items (XEP-0060 §4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AccessModel {
    /// All entities that the access rules admit.
    #[default]
    Open,
    /// Of those, only members, publishers and owners.
    Whitelist,
}

/// Which entities may publish (XEP-0060 §16.4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PublishModel {
    /// All entities that the access rules admit: the topic belongs to all doors.
    #[default]
    Open,
    /// Of those, publishers and owners.
    Publishers,
    /// Of those, subscribers, publishers and owners.
    Subscribers,
}

/// When the last item is sent unasked (XEP-0060 §6.1.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SendLast {
    /// To no subscriber.
    Never,
    /// To new subscribers.
    OnSubscribe,
    /// Also to subscribers that become available. The default of services with the feature `last-published` (§4.3).
    #[default]
    OnSubscribeAndPresence,
}

/// Longest title or description, in bytes; they are kept per node.
const TEXT_BYTES_MAX: usize = 1024;

/// The configuration of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeConfig {
    /// For people.
    pub title: Option<Box<str>>,
    /// For people, longer.
    pub description: Option<Box<str>>,
    /// Items are persistent: a publication is retained. Otherwise it is transient.
    pub persist_items: bool,
    /// Seconds until an item expires.
    pub item_expire: Option<u32>,
    /// Largest payload, in bytes.
    pub max_payload_size: Option<u32>,
    /// Subscribers are told about items.
    pub deliver_notifications: bool,
    /// They are told the payload too.
    pub deliver_payloads: bool,
    /// They are told when an item goes.
    pub notify_retract: bool,
    /// They are told when the node goes.
    pub notify_delete: bool,
    /// They are told when the configuration changes.
    pub notify_config: bool,
    /// Subscriptions are taken at all.
    pub subscribe: bool,
    /// The JIDs that may read.
    pub access_model: AccessModel,
    /// The JIDs that may publish.
    pub publish_model: PublishModel,
    /// When the last item is sent.
    pub send_last: SendLast,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            title: None,
            description: None,
            persist_items: true,
            item_expire: None,
            max_payload_size: None,
            deliver_notifications: true,
            deliver_payloads: true,
            notify_retract: true,
            notify_delete: true,
            notify_config: false,
            subscribe: true,
            access_model: AccessModel::Open,
            publish_model: PublishModel::Open,
            send_last: SendLast::OnSubscribeAndPresence,
        }
    }
}

impl AccessModel {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Whitelist => "whitelist",
        }
    }
}

impl PublishModel {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Publishers => "publishers",
            Self::Subscribers => "subscribers",
        }
    }
}

impl SendLast {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::OnSubscribe => "on_sub",
            Self::OnSubscribeAndPresence => "on_sub_and_presence",
        }
    }
}

impl NodeConfig {
    /// Applies the fields of a submitted form.
    ///
    /// # Errors
    /// `<not-acceptable/>` for a field or a value that cannot be honoured (XEP-0060 §8.2.5.4).
    pub fn apply(&mut self, form: &Form<'_>) -> Result<(), StanzaError> {
        if form.form_type.as_deref().is_some_and(|t| t != ns::NODE_CONFIG) {
            return Err(StanzaError::bad_request().because("not a node_config form"));
        }
        form.fields.iter().try_for_each(|field| self.apply_field(field))
    }

    /// Applies the fields of a form that [`write`](Self::write) wrote, in this release or an earlier one. Fields that
    /// cannot be honoured any more keep their defaults.
    pub fn restore(&mut self, form: &Form<'_>) {
        for field in &form.fields {
            let _ = self.apply_field(field);
        }
    }

    fn apply_field(&mut self, field: &Field<'_>) -> Result<(), StanzaError> {
        match field.var {
            "pubsub#title" => self.title = text(field)?,
            "pubsub#description" => self.description = text(field)?,
            "pubsub#persist_items" => self.persist_items = boolean(field)?,
            "pubsub#max_items" => max_items(field)?,
            "pubsub#item_expire" => self.item_expire = limit(field)?,
            "pubsub#max_payload_size" => self.max_payload_size = limit(field)?,
            "pubsub#deliver_notifications" => self.deliver_notifications = boolean(field)?,
            "pubsub#deliver_payloads" => self.deliver_payloads = boolean(field)?,
            "pubsub#notify_retract" => self.notify_retract = boolean(field)?,
            "pubsub#notify_delete" => self.notify_delete = boolean(field)?,
            "pubsub#notify_config" => self.notify_config = boolean(field)?,
            "pubsub#subscribe" => self.subscribe = boolean(field)?,
            "pubsub#access_model" => self.access_model = access_model(field)?,
            "pubsub#publish_model" => self.publish_model = publish_model(field)?,
            "pubsub#send_last_published_item" => self.send_last = send_last(field)?,
            var => return fixed(var, field),
        }
        Ok(())
    }

    /// Appends the form, to be filled in (`form`) or as a report (`result`).
    pub fn write(&self, w: &mut Writer<'_>, kind: &str) {
        let flag = |on: bool| if on { "1" } else { "0" };
        let number = |n: Option<u32>| n.map_or_else(|| "max".to_owned(), |n| n.to_string());
        form::open(w, kind, ns::NODE_CONFIG);
        let mut line = |var: &str, label: &str, value: &str| {
            form::field(w, var, FieldType::TextSingle, Some(label), &[value], &[]);
        };
        line("pubsub#title", "A friendly name for the node", self.title.as_deref().unwrap_or_default());
        line("pubsub#description", "A description of the node", self.description.as_deref().unwrap_or_default());
        line("pubsub#max_items", "Max # of items to persist", "1");
        line("pubsub#item_expire", "Seconds after which items expire", &number(self.item_expire));
        line("pubsub#max_payload_size", "Max payload size in bytes", &number(self.max_payload_size));
        let mut yes_no = |var: &str, label: &str, on: bool| {
            form::field(w, var, FieldType::Boolean, Some(label), &[flag(on)], &[]);
        };
        yes_no("pubsub#persist_items", "Keep the last item", self.persist_items);
        yes_no("pubsub#deliver_notifications", "Deliver event notifications", self.deliver_notifications);
        yes_no("pubsub#deliver_payloads", "Deliver payloads with event notifications", self.deliver_payloads);
        yes_no("pubsub#notify_retract", "Notify subscribers when items are removed", self.notify_retract);
        yes_no("pubsub#notify_delete", "Notify subscribers when the node is deleted", self.notify_delete);
        yes_no("pubsub#notify_config", "Notify subscribers when the configuration changes", self.notify_config);
        yes_no("pubsub#subscribe", "Whether to allow subscriptions", self.subscribe);
        let mut choice = |var: &str, label: &str, value: &str, options: &[&str]| {
            form::field(w, var, FieldType::ListSingle, Some(label), &[value], options);
        };
        let (access, publish) = (self.access_model.as_str(), self.publish_model.as_str());
        choice("pubsub#access_model", "Who may subscribe", access, &["open", "whitelist"]);
        choice("pubsub#publish_model", "Who may publish", publish, &["open", "publishers", "subscribers"]);
        let when = ["never", "on_sub", "on_sub_and_presence"];
        choice("pubsub#send_last_published_item", "When to send the last item", self.send_last.as_str(), &when);
        form::close(w);
    }
}

/// The options of one publication (XEP-0060 §7.1.5).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PublishOptions<'e> {
    /// Whether the item is retained, whatever the node's configuration.
    pub persist_items: Option<bool>,
    /// Seconds until the item expires.
    pub item_expire: Option<u32>,
    /// Fields that the node's configuration must have; a node created by this publication gets them.
    preconditions: Vec<Field<'e>>,
}

impl<'e> PublishOptions<'e> {
    /// Reads the form.
    ///
    /// # Errors
    /// `<precondition-not-met/>` for an unknown option, which cannot be met (XEP-0060 §7.1.5); `<bad-request/>` for a
    /// form of another type.
    pub fn of_form(form: Form<'e>) -> Result<Self, StanzaError> {
        if form.form_type.as_deref().is_some_and(|t| t != ns::PUBLISH_OPTIONS && t != ns::NODE_CONFIG) {
            return Err(StanzaError::bad_request().because("not a publish-options form"));
        }
        let (mut options, mut any) = (Self::default(), NodeConfig::default());
        for field in form.fields {
            match field.var {
                "pubsub#persist_items" => options.persist_items = Some(boolean(&field)?),
                "pubsub#item_expire" => options.item_expire = limit(&field)?,
                // A field or value that no node can have cannot be met either.
                _ => {
                    any.apply_field(&field).map_err(|error| StanzaError { text: error.text, ..not_met() })?;
                    options.preconditions.push(field);
                }
            }
        }
        Ok(options)
    }

    /// The configuration of a node created by this publication.
    #[must_use]
    pub fn config(&self) -> NodeConfig {
        let mut config = NodeConfig::default();
        self.preconditions.iter().for_each(|field| drop(config.apply_field(field)));
        config
    }

    /// Whether a node with this configuration meets the preconditions.
    ///
    /// # Errors
    /// `<conflict/>` with `<precondition-not-met/>` (XEP-0060 §7.1.5).
    pub fn met_by(&self, config: &NodeConfig) -> Result<(), StanzaError> {
        if self.preconditions.is_empty() {
            return Ok(());
        }
        let mut wanted = config.clone();
        self.preconditions.iter().try_for_each(|field| wanted.apply_field(field))?;
        if wanted == *config { Ok(()) } else { Err(not_met()) }
    }
}

fn not_met() -> StanzaError {
    StanzaError::new(StanzaCondition::Conflict).with(PubsubCondition::PreconditionNotMet)
}

fn bad(field: &Field<'_>) -> StanzaError {
    StanzaError::new(StanzaCondition::NotAcceptable).because(format!("{} cannot have that value", field.var))
}

fn boolean(field: &Field<'_>) -> Result<bool, StanzaError> {
    field.boolean().ok_or_else(|| bad(field))
}

fn text(field: &Field<'_>) -> Result<Option<Box<str>>, StanzaError> {
    match field.value() {
        Some(value) if value.len() > TEXT_BYTES_MAX => Err(bad(field)),
        Some("") | None => Ok(None),
        Some(value) => Ok(Some(value.into())),
    }
}

/// A number, where `max` or nothing stands for no limit.
fn limit(field: &Field<'_>) -> Result<Option<u32>, StanzaError> {
    match field.value() {
        None | Some("" | "max") => Ok(None),
        Some(value) => value.trim().parse().map(Some).map_err(|_| bad(field)),
    }
}

/// A topic keeps one item (§12.20): `max` stands for 1, and more is refused.
fn max_items(field: &Field<'_>) -> Result<(), StanzaError> {
    match limit(field)? {
        None | Some(1) => Ok(()),
        Some(_) => Err(StanzaError::new(StanzaCondition::NotAcceptable)
            .because("pubsub#max_items: a node keeps one item; 1 and max are accepted")),
    }
}

/// Fields of XEP-0060 §16.4.3 that cannot be changed here, with the values that ask for the actual behaviour.
const FIXED: &[(&str, &[&str])] = &[
    ("pubsub#node_type", &["leaf"]),
    ("pubsub#notification_type", &["headline"]),
    ("pubsub#notify_sub", OFF),
    ("pubsub#presence_based_delivery", OFF),
    ("pubsub#publish_node_full", &["discard-oldest"]),
    ("pubsub#purge_offline", OFF),
    ("pubsub#tempsub", OFF),
    ("pubsub#body_xslt", &[]),
    ("pubsub#collection", &[]),
    ("pubsub#contact", &[]),
    ("pubsub#creation_date", &[]),
    ("pubsub#creator", &[]),
    ("pubsub#dataform_xslt", &[]),
    ("pubsub#itemreply", &[]),
    ("pubsub#language", &[]),
    ("pubsub#num_subscribers", &[]),
    ("pubsub#owner", &[]),
    ("pubsub#publisher", &[]),
    ("pubsub#roster_groups_allowed", &[]),
    ("pubsub#type", &[]),
];

/// A boolean field that is off.
const OFF: &[&str] = &["0", "false"];

/// Accepts a field that cannot be set if its value asks for nothing else.
fn fixed(var: &str, field: &Field<'_>) -> Result<(), StanzaError> {
    let refused = |why: &str| Err(StanzaError::new(StanzaCondition::NotAcceptable).because(format!("{var}: {why}")));
    let Some((_, values)) = FIXED.iter().find(|(name, _)| *name == var) else { return refused("an unknown field") };
    if field.values.iter().all(|value| value.is_empty() || values.contains(&value.as_ref())) {
        return Ok(());
    }
    refused(&match values {
        [] => "cannot be set".to_owned(),
        values => format!("only {} is accepted", values.join(" or ")),
    })
}

fn access_model(field: &Field<'_>) -> Result<AccessModel, StanzaError> {
    [AccessModel::Open, AccessModel::Whitelist]
        .into_iter()
        .find(|m| field.value() == Some(m.as_str()))
        .ok_or_else(|| bad(field))
}

fn publish_model(field: &Field<'_>) -> Result<PublishModel, StanzaError> {
    [PublishModel::Open, PublishModel::Publishers, PublishModel::Subscribers]
        .into_iter()
        .find(|m| field.value() == Some(m.as_str()))
        .ok_or_else(|| bad(field))
}

fn send_last(field: &Field<'_>) -> Result<SendLast, StanzaError> {
    [SendLast::Never, SendLast::OnSubscribe, SendLast::OnSubscribeAndPresence]
        .into_iter()
        .find(|m| field.value() == Some(m.as_str()))
        .ok_or_else(|| bad(field))
}
