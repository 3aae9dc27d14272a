//! Requests in a `<pubsub/>` element.

use super::affiliation::{Affiliation, SubscriptionState};
use super::config::PublishOptions;
use super::options::SubscribeOptions;
use crate::element::Element;
use crate::error::{PubsubCondition, StanzaCondition, StanzaError};
use crate::form::Form;
use crate::iq::IqKind;
use crate::jid::Jid;
use crate::ns;
use crate::payload::Payload;
use crate::rsm::PageRequest;
use crate::shim;

/// Items in one publication. More than one is rare; each is a message on the bus.
const ITEMS_MAX: usize = 64;

/// One item to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedItem<'e> {
    /// The id the publisher would like.
    pub id: Option<&'e str>,
    /// The payload.
    pub payload: Option<Payload<'e>>,
}

/// A change an owner makes to a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionChange {
    /// The subscriber.
    pub jid: Jid,
    /// The new state.
    pub state: SubscriptionState,
}

/// A change an owner makes to an affiliation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AffiliationChange {
    /// The entity.
    pub jid: Jid,
    /// The new one.
    pub affiliation: Affiliation,
}

/// A request of XEP-0060. `node` is as it came: whether it can be a topic is not checked here.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the fields are the attributes of the clause that each variant names")]
pub enum Request<'e> {
    /// §8.1, without a node for an instant node.
    Create { node: Option<&'e str>, config: Option<Form<'e>> },
    /// §7.1; without items only where the node is for notifications without payload that are not kept (§4.3).
    Publish {
        node: &'e str,
        items: Vec<PublishedItem<'e>>,
        options: PublishOptions<'e>,
        headers: Vec<(Box<str>, Box<str>)>,
    },
    /// §7.2
    Retract { node: &'e str, ids: Vec<&'e str>, notify: bool },
    /// §6.1; without a node only where an option names a filter.
    Subscribe { node: Option<&'e str>, jid: Jid, options: Option<SubscribeOptions> },
    /// §6.2
    Unsubscribe { node: Option<&'e str>, jid: Jid, subid: Option<&'e str> },
    /// §6.3.2
    GetOptions { node: Option<&'e str>, jid: Jid, subid: Option<&'e str> },
    /// §6.3.5; none when the form was cancelled.
    SetOptions { node: Option<&'e str>, jid: Jid, subid: Option<&'e str>, options: Option<Form<'e>> },
    /// §6.4
    DefaultOptions { node: Option<&'e str> },
    /// §6.5
    Items { node: &'e str, max_items: Option<u32>, ids: Vec<&'e str>, page: Option<PageRequest> },
    /// §5.6
    Subscriptions { node: Option<&'e str> },
    /// §5.7
    Affiliations { node: Option<&'e str> },
    /// §8.2
    GetConfig { node: &'e str },
    /// §8.2.5; none when the form was cancelled.
    SetConfig { node: &'e str, config: Option<Form<'e>> },
    /// §8.3
    DefaultConfig,
    /// §8.4
    Delete { node: &'e str },
    /// §8.5
    Purge { node: &'e str },
    /// §8.8.1
    GetSubscriptions { node: &'e str },
    /// §8.8.2
    SetSubscriptions { node: &'e str, changes: Vec<SubscriptionChange> },
    /// §8.9.1
    GetAffiliations { node: &'e str },
    /// §8.9.2
    SetAffiliations { node: &'e str, changes: Vec<AffiliationChange> },
}

type Read<'e> = Result<Request<'e>, StanzaError>;

impl<'e> Request<'e> {
    /// Reads `<pubsub/>` in either of its two namespaces.
    ///
    /// # Errors
    /// The error of the request's clause.
    pub fn of(pubsub: &'e Element<'_>, kind: IqKind) -> Read<'e> {
        let owner = pubsub.namespace == ns::PUBSUB_OWNER;
        let mut action = pubsub.elements().find(|e| e.namespace == pubsub.namespace && !is_companion(e.name));
        if action.is_none() && !owner {
            // Options may stand alone (§6.3.2) as well as beside a subscription (§6.3.7).
            action = pubsub.child(ns::PUBSUB, "options");
        }
        let Some(action) = action else { return Err(StanzaError::bad_request()) };
        if owner { Self::of_owner(action, kind) } else { Self::of_entity(pubsub, action, kind) }
    }

    fn of_entity(pubsub: &'e Element<'_>, action: &'e Element<'_>, kind: IqKind) -> Read<'e> {
        let node = action.attr("node").filter(|n| !n.is_empty());
        match (action.name, kind) {
            ("create", IqKind::Set) => {
                let config = pubsub.child(ns::PUBSUB, "configure").and_then(Form::in_element);
                Ok(Self::Create { node, config: config.filter(|f| !f.is_cancelled()) })
            }
            ("publish", IqKind::Set) => publish(pubsub, action),
            ("retract", IqKind::Set) => retract(action),
            ("subscribe", IqKind::Set) => {
                let options = pubsub.child(ns::PUBSUB, "options").and_then(Form::in_element);
                let options = options.filter(|f| !f.is_cancelled());
                let options = options.as_ref().map(SubscribeOptions::of_form).transpose()?;
                Ok(Self::Subscribe { node, jid: jid(action)?, options })
            }
            ("unsubscribe", IqKind::Set) => {
                Ok(Self::Unsubscribe { node, jid: jid(action)?, subid: action.attr("subid") })
            }
            ("options", IqKind::Get) => Ok(Self::GetOptions { node, jid: jid(action)?, subid: action.attr("subid") }),
            ("options", IqKind::Set) => set_options(action, node),
            ("default", IqKind::Get) => Ok(Self::DefaultOptions { node }),
            ("items", IqKind::Get) => items(pubsub, action),
            ("subscriptions", IqKind::Get) => Ok(Self::Subscriptions { node }),
            ("affiliations", IqKind::Get) => Ok(Self::Affiliations { node }),
            _ => Err(StanzaError::bad_request()),
        }
    }

    fn of_owner(action: &'e Element<'_>, kind: IqKind) -> Read<'e> {
        if (action.name, kind) == ("default", IqKind::Get) {
            return Ok(Self::DefaultConfig);
        }
        let node = node(action)?;
        match (action.name, kind) {
            ("configure", IqKind::Get) => Ok(Self::GetConfig { node }),
            ("configure", IqKind::Set) => {
                let form = Form::in_element(action).ok_or(StanzaError::bad_request())?;
                Ok(Self::SetConfig { node, config: Some(form).filter(|f| !f.is_cancelled()) })
            }
            ("delete", IqKind::Set) => Ok(Self::Delete { node }),
            ("purge", IqKind::Set) => Ok(Self::Purge { node }),
            ("subscriptions", IqKind::Get) => Ok(Self::GetSubscriptions { node }),
            ("subscriptions", IqKind::Set) => {
                let changes = action.children_named(ns::PUBSUB_OWNER, "subscription").map(subscription_change);
                Ok(Self::SetSubscriptions { node, changes: changes.collect::<Result<_, _>>()? })
            }
            ("affiliations", IqKind::Get) => Ok(Self::GetAffiliations { node }),
            ("affiliations", IqKind::Set) => {
                let changes = action.children_named(ns::PUBSUB_OWNER, "affiliation").map(affiliation_change);
                Ok(Self::SetAffiliations { node, changes: changes.collect::<Result<_, _>>()? })
            }
            _ => Err(StanzaError::bad_request()),
        }
    }
}

/// Elements that stand beside another one in the entity's namespace.
fn is_companion(name: &str) -> bool {
    matches!(name, "publish-options" | "options")
}

fn node<'e>(action: &'e Element<'_>) -> Result<&'e str, StanzaError> {
    let missing = StanzaError::bad_request().with(PubsubCondition::NodeidRequired);
    action.attr("node").filter(|n| !n.is_empty()).ok_or(missing)
}

fn jid(action: &Element<'_>) -> Result<Jid, StanzaError> {
    let text = action.attr("jid").ok_or(StanzaError::bad_request().with(PubsubCondition::JidRequired))?;
    Jid::parse(text).map_err(|_| StanzaError::bad_request().with(PubsubCondition::InvalidJid))
}

fn publish<'e>(pubsub: &'e Element<'_>, action: &'e Element<'_>) -> Read<'e> {
    let node = node(action)?;
    let mut items = Vec::new();
    for item in action.children_named(ns::PUBSUB, "item") {
        if items.len() == ITEMS_MAX {
            return Err(StanzaError::new(StanzaCondition::NotAllowed).with(PubsubCondition::MaxItemsExceeded));
        }
        items.push(PublishedItem { id: item.attr("id"), payload: Payload::of_item(item)? });
    }
    let form = pubsub.child(ns::PUBSUB, "publish-options").and_then(Form::in_element);
    let options = form.map(PublishOptions::of_form).transpose()?.unwrap_or_default();
    let headers = shim::in_element(pubsub).ok_or(StanzaError::bad_request().because("too many headers"))?;
    Ok(Request::Publish { node, items, options, headers })
}

/// XEP-0060 §7.2.3
fn retract<'e>(action: &'e Element<'_>) -> Read<'e> {
    let node = node(action)?;
    let required = || StanzaError::bad_request().with(PubsubCondition::ItemRequired);
    let ids = action.children_named(ns::PUBSUB, "item").map(|item| item.attr("id").ok_or_else(required));
    let ids: Vec<_> = ids.collect::<Result<_, _>>()?;
    if ids.is_empty() {
        return Err(required());
    }
    let notify = matches!(action.attr("notify"), Some("1" | "true"));
    Ok(Request::Retract { node, ids, notify })
}

fn set_options<'e>(action: &'e Element<'_>, node: Option<&'e str>) -> Read<'e> {
    let invalid = || StanzaError::bad_request().with(PubsubCondition::InvalidOptions);
    let form = Form::in_element(action).ok_or_else(invalid)?;
    let options = Some(form).filter(|form| !form.is_cancelled());
    Ok(Request::SetOptions { node, jid: jid(action)?, subid: action.attr("subid"), options })
}

fn items<'e>(pubsub: &'e Element<'_>, action: &'e Element<'_>) -> Read<'e> {
    let max_items = match action.attr("max_items") {
        Some(text) => Some(text.trim().parse().map_err(|_| StanzaError::bad_request())?),
        None => None,
    };
    let ids = action.children_named(ns::PUBSUB, "item").filter_map(|item| item.attr("id")).collect();
    Ok(Request::Items { node: node(action)?, max_items, ids, page: PageRequest::in_element(pubsub)? })
}

fn subscription_change(element: &Element<'_>) -> Result<SubscriptionChange, StanzaError> {
    let state = element.attr("subscription").and_then(SubscriptionState::from_name);
    Ok(SubscriptionChange { jid: jid(element)?, state: state.ok_or(StanzaError::bad_request())? })
}

fn affiliation_change(element: &Element<'_>) -> Result<AffiliationChange, StanzaError> {
    let affiliation = element.attr("affiliation").and_then(Affiliation::from_name);
    Ok(AffiliationChange { jid: jid(element)?, affiliation: affiliation.ok_or(StanzaError::bad_request())? })
}
