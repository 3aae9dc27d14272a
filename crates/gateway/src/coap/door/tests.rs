//! The order of work in a turn.

use std::collections::VecDeque;

use fogmux_coap::{Call, Client, ClientConfig, Code, Message, Outbox};

use super::*;
use crate::coap::{
    CoapConfig, Path,
    tests::{get, run},
};

/// A scripted input, and the output of each write.
#[derive(Default)]
struct Script {
    coming: VecDeque<Vec<u8>>,
    came: Option<Vec<u8>>,
    writes: Vec<Vec<Code>>,
}

impl Transport for Script {
    fn poll_receive(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.came = self.coming.pop_front();
        if self.came.is_some() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn datagrams(&self) -> impl Iterator<Item = (Path, &[u8])> {
        let path = Path { remote: "127.0.0.1:5".parse().unwrap(), local: None, association: 0 };
        self.came.iter().map(move |datagram| (path, datagram.as_slice()))
    }

    fn poll_send(&mut self, _: &mut Context<'_>, out: &mut Outbox<Path>) -> Poll<u64> {
        self.writes.push(out.iter().map(|(_, datagram)| Message::decode(datagram).unwrap().code).collect());
        out.clear();
        Poll::Ready(0)
    }
}

/// Has the door work on a request.
async fn ask(door: &mut Door<Script>, device: &mut Client, call: Call) {
    let mut out = Outbox::default();
    device.request(door.core.machine_now(), call, &mut out).unwrap();
    door.transport.coming.extend(out.iter().map(|((), datagram)| datagram.to_vec()));
    let _ = poll_fn(|cx| Poll::Ready(door.poll(cx))).await;
}

#[test]
fn who_asked_is_answered_before_observers_are_told() {
    run(CoapConfig::default(), true, async |house| {
        let listener = Listener { by: None, anonymous: true, sources: fogmux_auth::SourceSet::ALL };
        let mut door = Door::open(Rc::clone(&house.ctx), Script::default(), listener).unwrap();
        let mut device = Client::new(ClientConfig::default(), 7);
        house.keep("a", b"1");
        ask(&mut door, &mut device, Call { observe: true, ..get("/ps/a") }).await;
        house.keep("a", b"2");
        ask(&mut door, &mut device, get("/ps/nothing")).await;
        assert_eq!(door.transport.writes, [[Code::CONTENT], [Code::NOT_FOUND], [Code::CONTENT]]);
    });
}
