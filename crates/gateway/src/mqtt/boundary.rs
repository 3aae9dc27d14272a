//! A check that what is left of the input begins at a packet boundary. Only debug builds have it.

/// The bytes that were read, and those of the packets that were handled.
#[derive(Debug, Default)]
pub(super) struct Boundary {
    #[cfg(debug_assertions)]
    read: u64,
    #[cfg(debug_assertions)]
    handled: u64,
}

impl Boundary {
    /// Notes bytes that were read.
    #[inline]
    pub(super) const fn read(&mut self, bytes: usize) {
        #[cfg(debug_assertions)]
        {
            self.read += bytes as u64;
        }
        #[cfg(not(debug_assertions))]
        let _ = (self, bytes);
    }

    /// Notes whole packets that are kept no more.
    #[inline]
    pub(super) const fn handled(&mut self, bytes: usize) {
        #[cfg(debug_assertions)]
        {
            self.handled += bytes as u64;
        }
        #[cfg(not(debug_assertions))]
        let _ = (self, bytes);
    }

    /// Asserts that all bytes that were read are of handled packets or among the `left` ones.
    #[inline]
    pub(super) fn check(&self, left: usize) {
        #[cfg(debug_assertions)]
        assert_eq!(self.read, self.handled + left as u64, "input of a connection was lost in the middle of a packet");
        #[cfg(not(debug_assertions))]
        let _ = (self, left);
    }
}
