//! Publish-subscribe (XEP-0060): requests as types, and the writing of answers and notifications.
//!
//! No node lives here. A request says what was asked, not whether it is allowed.

mod affiliation;
mod config;
mod notify;
mod options;
mod reply;
mod request;

pub use affiliation::{Affiliation, SubscriptionState};
pub use config::{AccessModel, NodeConfig, PublishModel, PublishOptions, SendLast};
pub use notify::{
    write_body, write_configuration, write_deleted, write_event_tail, write_head, write_item, write_notice,
    write_purged, write_retracted, write_subscription_notice,
};
pub use options::{Expire, FILTER_OPTION, FilterOption, SubscribeOptions};
pub use reply::{
    ItemOut, SubscriptionOut, write_affiliations, write_created, write_items, write_node_config,
    write_owner_affiliations, write_owner_subscriptions, write_published, write_subscribed, write_subscription_options,
    write_subscriptions,
};
pub use request::{AffiliationChange, PublishedItem, Request, SubscriptionChange};

/// The id of a topic's retained item, unless its publisher chose another (§12.20).
pub const CURRENT: &str = "current";
