//! Every version against a server that is not ours, over sockets.

mod server;

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use fogmux_net::channel::Zeroizing;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::LocalSet;

use self::server::{Listens, Server};
use super::driver;
use crate::driver::testing::{self, Seen};
use crate::driver::{Client, DriverError, Request, Role, body_bytes_max};
use crate::experiment::{Credential, Door, Experiment};
use crate::target::Access;

const ALL: [Listens; 5] = [Listens::One, Listens::Two, Listens::OneOverTls, Listens::TwoOverTls, Listens::Three];

fn run(test: impl AsyncFnOnce()) {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(30), test()).await.expect("the test hangs");
    });
}

fn experiment(listens: Listens) -> Experiment {
    let (door, security) = match listens {
        Listens::One => (Door::Http1, "none"),
        Listens::Two => (Door::Http2, "none"),
        Listens::OneOverTls => (Door::Http1, "modern"),
        Listens::TwoOverTls => (Door::Http2, "modern"),
        Listens::Three => (Door::Http3, "modern"),
    };
    Experiment { door, security: security.parse().unwrap(), ..Experiment::default() }
}

fn access(address: SocketAddr) -> Access {
    Access { host: address.ip().to_string(), port: address.port(), name: "localhost".to_owned(), ..Access::default() }
}

async fn connect(experiment: &Experiment, access: &Access) -> Box<dyn Client> {
    let driver = driver(experiment.door, experiment, access).unwrap();
    driver.connect(Role::Publisher, 0).await.unwrap().client
}

async fn turn(client: &mut dyn Client, seen: &mut Seen, enough: impl Fn(&Seen) -> bool) -> Result<(), DriverError> {
    testing::turn(client, seen, |_, seen| enough(seen)).await
}

#[test]
fn every_publication_is_answered_once_and_what_is_kept_can_be_had() {
    for listens in ALL {
        run(async || {
            let (server, address) = Server::start(listens).await;
            let experiment = Experiment { retain: true, ..experiment(listens) };
            let mut client = connect(&experiment, &access(address)).await;
            let mut seen = Seen::default();
            for tag in 0..200 {
                let payload = tag.to_string();
                client.submit(Request::Publish { topic: "a/ü", payload: payload.as_bytes() }, tag).unwrap();
            }
            turn(client.as_mut(), &mut seen, |seen| seen.done.len() == 200).await.unwrap();
            let mut tags: Vec<_> = seen.done.iter().map(|(tag, _)| *tag).collect();
            tags.sort_unstable();
            assert_eq!(tags, (0..200).collect::<Vec<_>>(), "{listens:?}");
            assert!(seen.done.iter().all(|(_, answer)| answer.is_ok()), "{listens:?}");
            seen.done.clear();
            client.submit(Request::Publish { topic: "a/ü", payload: b"newest" }, 1).unwrap();
            turn(client.as_mut(), &mut seen, |seen| seen.done.len() == 1).await.unwrap();
            client.submit(Request::Get { topic: "a/ü" }, 2).unwrap();
            client.submit(Request::Get { topic: "b" }, 3).unwrap();
            turn(client.as_mut(), &mut seen, |seen| seen.done.len() == 3).await.unwrap();
            seen.done.sort_by_key(|(tag, _)| *tag);
            assert_eq!(
                seen.done[1..],
                [(2, Ok(b"newest".to_vec())), (3, Err("404 Not Found: nothing is kept".to_owned()))]
            );
            assert_eq!(server.asked.borrow()[0].1, "/topics/a/%C3%BC?qos=0");
            client.close().await;
        });
    }
}

#[test]
fn requests_are_under_way_together_but_over_http_1() {
    for listens in ALL {
        run(async || {
            let (server, address) = Server::start(listens).await;
            let mut client = connect(&experiment(listens), &access(address)).await;
            for tag in 0..20 {
                client.submit(Request::Publish { topic: "t", payload: b"x" }, tag).unwrap();
            }
            let mut seen = Seen::default();
            turn(client.as_mut(), &mut seen, |seen| seen.done.len() == 20).await.unwrap();
            let most = server.under_way_max.get();
            match listens {
                Listens::One | Listens::OneOverTls => assert_eq!(most, 1),
                Listens::Two | Listens::TwoOverTls | Listens::Three => assert!(most > 10, "{listens:?}: {most}"),
            }
        });
    }
}

#[test]
fn followers_get_every_message() {
    for listens in ALL {
        run(async || {
            let (_server, address) = Server::start(listens).await;
            let mut reader = connect(&experiment(listens), &access(address)).await;
            let mut writer = connect(&experiment(listens), &access(address)).await;
            let (mut read, mut written) = (Seen::default(), Seen::default());
            reader.submit(Request::Subscribe { topic: "t" }, 7).unwrap();
            turn(reader.as_mut(), &mut read, |seen| seen.done.len() == 1).await.unwrap();
            assert_eq!(read.done, [(7, Ok(Vec::new()))]);
            let payloads: Vec<Vec<u8>> = (0..50_u8).map(|n| vec![n, 0xff, b'\n', n]).collect();
            for (tag, payload) in (0..).zip(&payloads) {
                writer.submit(Request::Publish { topic: "t", payload }, tag).unwrap();
                turn(writer.as_mut(), &mut written, |seen| seen.done.len() as u64 == tag + 1).await.unwrap();
            }
            turn(reader.as_mut(), &mut read, |seen| seen.messages.len() == 50).await.unwrap();
            assert_eq!(read.messages, payloads, "{listens:?}");
            assert_eq!(reader.bytes().payload_down, 200);
            assert_eq!(writer.bytes().payload_up, 200);
        });
    }
}

#[test]
fn large_messages_pass_every_window() {
    for listens in ALL {
        run(async || {
            let (_server, address) = Server::start(listens).await;
            let experiment = Experiment { retain: true, payload_bytes: 8_000_000, ..experiment(listens) };
            let mut client = connect(&experiment, &access(address)).await;
            let payload: Vec<u8> = (0..8_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
            let mut seen = Seen::default();
            client.submit(Request::Publish { topic: "t", payload: &payload }, 0).unwrap();
            turn(client.as_mut(), &mut seen, |seen| seen.done.len() == 1).await.unwrap();
            client.submit(Request::Get { topic: "t" }, 1).unwrap();
            turn(client.as_mut(), &mut seen, |seen| seen.done.len() == 2).await.unwrap();
            assert!(seen.done[1] == (1, Ok(payload)), "{listens:?}");
        });
    }
}

#[test]
fn an_answer_larger_than_any_that_is_expected_is_an_error_of_its_request_alone() {
    for listens in ALL {
        run(async || {
            let (_server, address) = Server::start(listens).await;
            let experiment = Experiment { retain: true, ..experiment(listens) };
            let mut client = connect(&experiment, &access(address)).await;
            let mut seen = Seen::default();
            let bytes_max = body_bytes_max(&experiment);
            let kept = [("fits", bytes_max), ("large", bytes_max + 1), ("endless", 4_000_000), ("small", 1)];
            for (tag, (topic, bytes)) in (0..).zip(kept) {
                client.submit(Request::Publish { topic, payload: &vec![b'x'; bytes] }, tag).unwrap();
                turn(client.as_mut(), &mut seen, |seen| seen.done.len() as u64 == tag + 1).await.unwrap();
            }
            seen.done.clear();
            for (tag, (topic, _)) in (0..).zip(kept) {
                client.submit(Request::Get { topic }, tag).unwrap();
                turn(client.as_mut(), &mut seen, |seen| seen.done.len() as u64 == tag + 1).await.unwrap();
            }
            let error = Err("protocol: an answer of more than 65600 bytes".to_owned());
            let answers: Vec<_> = seen.done.iter().map(|(_, answer)| answer.clone().map(|body| body.len())).collect();
            assert_eq!(answers, [Ok(bytes_max), error.clone(), error, Ok(1)], "{listens:?}");
        });
    }
}

#[test]
fn bytes_are_counted_layer_by_layer() {
    for listens in ALL {
        run(async || {
            let (_server, address) = Server::start(listens).await;
            let mut client = connect(&experiment(listens), &access(address)).await;
            let mut seen = Seen::default();
            client.submit(Request::Publish { topic: "t", payload: &[b'x'; 1000] }, 0).unwrap();
            turn(client.as_mut(), &mut seen, |seen| seen.done.len() == 1).await.unwrap();
            let bytes = client.bytes();
            assert_eq!(bytes.payload_up, 1000);
            assert!((1010..1400).contains(&bytes.protocol_up), "{listens:?}: {bytes:?}");
            assert!((10..400).contains(&bytes.protocol_down), "{listens:?}: {bytes:?}");
            let security_up = bytes.socket_up - bytes.protocol_up;
            let security_down = bytes.socket_down - bytes.protocol_down;
            if matches!(listens, Listens::One | Listens::Two) {
                assert_eq!((security_up, security_down), (0, 0), "{listens:?}");
            } else {
                // At least a ClientHello and a certificate.
                assert!(security_up > 200 && security_down > 500, "{listens:?}: {bytes:?}");
            }
        });
    }
}

#[test]
fn whom_nobody_answers_any_more_is_told() {
    for listens in ALL {
        let (experiment, address) = (experiment(listens), std::cell::Cell::new(None));
        let kept = std::cell::RefCell::new(None);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let servers = LocalSet::new();
        servers.block_on(&runtime, async {
            address.set(Some(Server::start(listens).await.1));
            let mut client = connect(&experiment, &access(address.get().unwrap())).await;
            client.submit(Request::Subscribe { topic: "t" }, 0).unwrap();
            let mut seen = Seen::default();
            turn(client.as_mut(), &mut seen, |seen| seen.done.len() == 1).await.unwrap();
            *kept.borrow_mut() = Some(client);
        });
        // With its tasks, the server is gone.
        drop(servers);
        let mut client = kept.take().unwrap();
        let ended = runtime.block_on(async {
            let mut seen = Seen::default();
            tokio::time::timeout(Duration::from_secs(40), turn(client.as_mut(), &mut seen, |_| false)).await
        });
        assert!(matches!(ended, Ok(Err(DriverError::Connection(_)))), "{listens:?}: {ended:?}");
    }
}

/// Answers each request and closes behind it.
async fn curt(listener: TcpListener, connections: Rc<Cell<u32>>) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        connections.set(connections.get() + 1);
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            stream.read_buf(&mut asked).await.unwrap();
        }
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx";
        stream.write_all(answer).await.unwrap();
    }
}

/// Answers three requests of each connection over HTTP/2, then says goodbye; a fourth comes too late.
async fn forgetful(listener: TcpListener, connections: Rc<Cell<u32>>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        connections.set(connections.get() + 1);
        tokio::task::spawn_local(async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let mut answered = 0;
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                answered += 1;
                let mut body = respond.send_response(http::Response::new(()), false).unwrap();
                body.send_data(bytes::Bytes::from_static(b"x"), true).unwrap();
                if answered == 3 {
                    connection.graceful_shutdown();
                }
            }
        });
    }
}

#[test]
fn who_has_enough_of_a_connection_is_asked_over_the_next() {
    for listens in [Listens::One, Listens::Two] {
        run(async || {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let connections = Rc::new(Cell::new(0));
            if listens == Listens::One {
                tokio::task::spawn_local(curt(listener, Rc::clone(&connections)));
            } else {
                tokio::task::spawn_local(forgetful(listener, Rc::clone(&connections)));
            }
            let mut client = connect(&experiment(listens), &access(address)).await;
            let mut seen = Seen::default();
            for tag in 0..20 {
                client.submit(Request::Get { topic: "t" }, tag).unwrap();
                if tag % 4 == 3 {
                    turn(client.as_mut(), &mut seen, |seen| seen.done.len() as u64 == tag + 1).await.unwrap();
                }
            }
            assert!(seen.done.iter().all(|(_, answer)| answer.as_deref() == Ok(&b"x"[..])), "{listens:?}: {seen:?}");
            assert!(connections.get() > 1, "{listens:?}: {} connections", connections.get());
            assert!(client.bytes().socket_down >= 20, "{listens:?}: {:?}", client.bytes());
        });
    }
}

#[test]
fn credentials_stand_in_every_request() {
    for listens in ALL {
        run(async || {
            let (server, address) = Server::start(listens).await;
            let access = Access {
                password: Some(("u".to_owned(), Zeroizing::new("p".to_owned()))),
                token: Some(Zeroizing::new("a.b.c".to_owned())),
                ..access(address)
            };
            let wanted = [
                (Credential::OfProfile, Some("Basic dTpw")),
                (Credential::Password, Some("Basic dTpw")),
                (Credential::Token, Some("Bearer a.b.c")),
                (Credential::Anonymous, None),
            ];
            for (credential, header) in wanted {
                server.asked.borrow_mut().clear();
                let experiment = Experiment { credential, ..experiment(listens) };
                let mut client = connect(&experiment, &access).await;
                let mut seen = Seen::default();
                client.submit(Request::Publish { topic: "t", payload: b"x" }, 0).unwrap();
                client.submit(Request::Get { topic: "t" }, 1).unwrap();
                client.submit(Request::Subscribe { topic: "t" }, 2).unwrap();
                turn(client.as_mut(), &mut seen, |seen| seen.done.len() == 3).await.unwrap();
                assert!(server.asked.borrow().iter().all(|(_, _, shown)| shown.as_deref() == header), "{credential:?}");
            }
        });
    }
}

#[test]
fn a_peer_has_paths_of_its_own_and_no_event_streams() {
    for (prefix, path) in [("", "/a/b"), ("/files/", "/files/a/b")] {
        run(async || {
            let (server, address) = Server::start(Listens::One).await;
            let access = Access { prefix: Some(prefix.to_owned()), ..access(address) };
            let mut client = connect(&experiment(Listens::One), &access).await;
            client.submit(Request::Publish { topic: "a/b", payload: b"x" }, 0).unwrap();
            let refused = client.submit(Request::Subscribe { topic: "a/b" }, 1);
            assert!(matches!(refused, Err(DriverError::Unsupported { .. })));
            turn(client.as_mut(), &mut Seen::default(), |_| !server.asked.borrow().is_empty()).await.unwrap();
            assert_eq!(server.asked.borrow()[0].1, path);
        });
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_connected() {
    let access = access(([127, 0, 0, 1], 1).into());
    let refused = |door, security: &str, credential| {
        let experiment = Experiment { door, security: security.parse().unwrap(), credential, ..Experiment::default() };
        driver(door, &experiment, &access).err().unwrap()
    };
    assert!(matches!(refused(Door::Http3, "none", Credential::OfProfile), DriverError::Unsupported { .. }));
    assert!(matches!(refused(Door::Http3, "low", Credential::OfProfile), DriverError::Unsupported { .. }));
    assert!(matches!(refused(Door::Mqtt, "none", Credential::OfProfile), DriverError::Unsupported { .. }));
    for credential in [Credential::Password, Credential::Token] {
        assert!(matches!(refused(Door::Http1, "none", credential), DriverError::Refused(_)));
    }
    assert!(matches!(refused(Door::Http1, "modern", Credential::Certificate), DriverError::Refused(_)));
}
