//! Sessions of peers that have announced a limit of records (RFC 8449). That each record keeps to it they see for
//! themselves.

use super::{client_12::Client12, client_13::Client13, server_12::Server12, server_13::Server13};

impl Client12 {
    /// A session in which our server sends so many bytes at once, and no byte more.
    pub(crate) fn gets_at_most(&mut self, most: usize) {
        self.session().house.sends_at_most(most);
        self.hear();
        // It does not open what comes with an identifier.
        if self.cid.is_empty() {
            assert_eq!(self.data.pop().map(|data| data.len()), Some(most));
        }
    }
}

impl Client13 {
    /// A session in which our server sends so many bytes at once, and no byte more.
    pub(crate) fn gets_at_most(&mut self, most: usize) {
        self.session().house.sends_at_most(most);
        self.hear();
        assert_eq!(self.data.pop().map(|data| data.len()), Some(most));
    }
}

impl Server12 {
    /// A session in which our client sends so many bytes at once, and no byte more.
    pub(crate) fn gets_at_most(&mut self, most: usize) {
        self.session().guest.sends_at_most(most);
        self.hear();
        assert_eq!(self.data.pop().map(|data| data.len()), Some(most));
    }
}

impl Server13 {
    /// A session in which our client sends so many bytes at once, and no byte more.
    pub(crate) fn gets_at_most(&mut self, most: usize) {
        self.session().guest.sends_at_most(most);
        self.hear();
        assert_eq!(self.data.pop().map(|data| data.len()), Some(most));
    }
}
