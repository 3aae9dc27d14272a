//! Answers that wait for the store, to a client that acknowledges nothing.

use std::sync::Mutex;

use fogmux_bus::{Completer, Completion, Message, Stored, Topic};

use super::*;

/// A store whose writes complete when the test says so.
#[derive(Clone, Default)]
struct Late(Arc<Mutex<Vec<Arc<Completer>>>>);

impl Late {
    fn completion(&self) -> Completion {
        let completer = Arc::<Completer>::default();
        self.0.lock().unwrap().push(Arc::clone(&completer));
        Completion::Waiting(completer)
    }
}

impl RetainedStore for Late {
    fn put(&self, _: &Arc<Message>, _: Option<u64>, _: Option<&Arc<Message>>) -> Completion {
        self.completion()
    }

    fn remove(&self, _: &Topic, _: Option<&Arc<Message>>) -> Completion {
        self.completion()
    }

    fn pending(&self, _: &str) -> Completion {
        Completion::Ready
    }

    fn load(&self, _: &mut dyn FnMut(Stored)) {}
}

/// The bytes that come until nothing has come for `quiet`.
async fn received(socket: &UdpSocket, quiet: Duration) -> usize {
    let (mut buffer, mut bytes) = (vec![0; 2048], 0);
    while let Ok(length) = tokio::time::timeout(quiet, socket.recv(&mut buffer)).await {
        bytes += length.unwrap();
    }
    bytes
}

#[test]
fn rfc9175_s2_4_a_late_answer_to_an_unproven_address_has_at_most_three_times_the_bytes_of_its_request() {
    let store = Late::default();
    let config = CoapConfig {
        amplification: Amplification::All,
        ack_timeout: Duration::from_millis(30),
        ..CoapConfig::default()
    };
    run_on(Box::new(store.clone()), config, true, async |house| {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(house.address).await.unwrap();
        // A Confirmable PUT of /ps/a with a token of eight bytes, and "x".
        let put = b"\x48\x03\x00\x01tokentok\xb2ps\x01a\xffx";
        socket.send(put).await.unwrap();
        // The acknowledgement comes after half a second.
        let mut bytes = received(&socket, Duration::from_millis(900)).await;
        assert_eq!(bytes, 4, "an Empty acknowledgement");
        store.0.lock().unwrap().drain(..).for_each(|completer| completer.complete(Ok(())));
        bytes += received(&socket, Duration::from_millis(900)).await;
        assert!(bytes > 4 + 12 && bytes <= 3 * put.len(), "{bytes} bytes for {}", put.len());
    });
}
