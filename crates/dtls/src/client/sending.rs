//! Data to the server: how much of it a record may hold, and what becomes of it.

use super::{Client, Session, State};
use crate::{suite::Wear, wire::ContentType};

impl Client {
    /// The most bytes of data that may be sent at once: what the server takes in a record (RFC 8449). 0 when there is
    /// no session.
    #[must_use]
    pub fn data_max(&self) -> usize {
        match &self.state {
            State::Established(Session::V12(session)) => session.data_max(),
            State::Established(Session::V13(session)) => session.data_max(),
            State::Handshake(_) | State::Newer(_) | State::Over => 0,
        }
    }

    /// Appends a record that holds `data`, for who sends it himself; `false` when there is no session, or the data are
    /// longer than [`Client::data_max`].
    pub fn seal(&mut self, data: &[u8], out: &mut Vec<u8>) -> bool {
        match &mut self.state {
            State::Established(Session::V12(session)) => {
                session.seal(ContentType::ApplicationData, data, out).is_some()
            }
            State::Established(Session::V13(session)) => session.seal(data, out).is_some(),
            State::Handshake(_) | State::Newer(_) | State::Over => false,
        }
    }

    /// Sends data; `false` when there is no session, its keys are used up and it ends here, or the data are longer than
    /// [`Client::data_max`].
    pub fn send(&mut self, data: &[u8], send: &mut dyn FnMut(&[u8])) -> bool {
        let mut record = Vec::new();
        let sealed = self.seal(data, &mut record);
        if sealed {
            send(&record);
        } else if self.is_spent() {
            self.close(send);
        }
        sealed
    }

    /// Whether no record can be protected any more.
    fn is_spent(&self) -> bool {
        match &self.state {
            State::Established(Session::V12(session)) => session.is_spent(),
            State::Established(Session::V13(session)) => session.wear() == Wear::Spent,
            State::Handshake(_) | State::Newer(_) | State::Over => false,
        }
    }
}
