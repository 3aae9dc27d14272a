//! What a credential grants beside the name.

use std::{collections::BTreeMap, sync::Arc};

/// What a credential says of its holder beside the name, for `%{name}` in rules: values by claim.
pub type Variables = BTreeMap<Box<str>, Box<[Box<str>]>>;

/// What a credential grants beside the name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grant {
    pub(crate) groups: Vec<Arc<str>>,
    pub(crate) variables: Option<Arc<Variables>>,
}
