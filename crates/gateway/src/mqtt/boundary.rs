//! A check that what is left of the input begins at a packet boundary. Only debug builds have it.

/// The bytes that were read and belong to no packet that was handled.
#[derive(Debug, Default)]
pub(super) struct Boundary {
    #[cfg(debug_assertions)]
    unhandled: usize,
}

impl Boundary {
    /// Notes bytes that were read.
    #[inline]
    pub(super) const fn read(&mut self, bytes: usize) {
        #[cfg(debug_assertions)]
        {
            self.unhandled += bytes;
        }
        #[cfg(not(debug_assertions))]
        let _ = (self, bytes);
    }

    /// Notes whole packets that are kept no more.
    #[inline]
    pub(super) const fn handled(&mut self, bytes: usize) {
        #[cfg(debug_assertions)]
        {
            self.unhandled -= bytes;
        }
        #[cfg(not(debug_assertions))]
        let _ = (self, bytes);
    }

    /// Asserts that all bytes that were read are of handled packets or among the `left` ones.
    #[inline]
    pub(super) fn check(&self, left: usize) {
        #[cfg(debug_assertions)]
        assert_eq!(self.unhandled, left, "input of a connection was lost in the middle of a packet");
        #[cfg(not(debug_assertions))]
        let _ = (self, left);
    }
}
