//! The grants of a credential beside the name.

use std::{collections::BTreeMap, sync::Arc};

/// Claims about the holder of a credential, for `%{name}` in rules: values by claim.
pub type Variables = BTreeMap<Box<str>, Box<[Box<str>]>>;

/// The grants of a credential beside the name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grant {
    pub(crate) groups: Vec<Arc<str>>,
    pub(crate) variables: Option<Arc<Variables>>,
}
