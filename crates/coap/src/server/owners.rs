//! The owners of what is kept for a client: users, or hosts of clients without a name (ADR 0036).

use std::rc::Rc;
use std::sync::Arc;

use fogmux_fair::Owner;

use crate::peer::Peer;
use crate::server::{Exchange, Owners};

/// The user of a security context or of an association, or the host of a client without one.
pub(crate) fn owner_of<P: Peer>(owners: &Owners, exchange: Option<&Rc<dyn Exchange>>, address: &P) -> Owner {
    let of_association = || owners.get(&address.association()).map(Arc::clone);
    let name = exchange.map(|exchange| Arc::clone(exchange.user())).or_else(of_association);
    name.map_or_else(|| Owner::nameless(address.host()), Owner::principal)
}
