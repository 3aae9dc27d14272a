//! CoAP over TCP (RFC 8323): several blocks in one message.

use super::*;

/// Keeps one value, over one connection (RFC 8323).
async fn serve_stream(mut socket: TcpStream) {
    let config = SessionConfig {
        message_bytes_max: 8 << 10,
        settings_timeout: Duration::from_secs(5),
        message_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(5),
        pong_timeout: Duration::from_secs(5),
    };
    let (peer, now) = (socket.peer_addr().unwrap(), Timestamp::ZERO);
    let config_of_server = ServerConfig { reliable: true, ..ServerConfig::default() };
    let mut server = Server::new(config_of_server, 1, Box::new(|_: &[u8]| [0; 8]));
    let (mut bytes, mut input) = (Vec::new(), Vec::new());
    let (mut value, mut tag) = (Vec::new(), 0);
    let mut session = Session::open(config, Framing::Stream, now, &mut bytes);
    socket.write_all(&bytes).await.unwrap();
    loop {
        let mut buffer = [0; 4096];
        let read = socket.read(&mut buffer).await.unwrap_or_default();
        if read == 0 {
            return;
        }
        input.extend_from_slice(&buffer[..read]);
        let (mut out, room, mut taken) = (Outbox::default(), Room::default(), 0);
        while let Some((heard, used)) = session.take(now, &input[taken..]).unwrap() {
            match heard {
                Received::Settings(limits) => server.connect(now, peer, limits, 4 << 10),
                Received::Message(message) => {
                    let Some(incoming) = server.handle_stream(now, peer, message, &room, &mut out) else {
                        taken += used;
                        continue;
                    };
                    if incoming.request.method == Code::PUT {
                        (value, tag) = (incoming.request.body.as_slice().to_vec(), tag + 1);
                        server.respond(now, incoming.ticket, &Response::new(Code::CHANGED), &mut out);
                    } else {
                        let payload = fogmux_coap::response::Payload::Slice(&value);
                        let etag = Some(fogmux_coap::ETag::from_u64(tag));
                        let response = Response { etag, payload, ..Response::new(Code::CONTENT) };
                        server.respond(now, incoming.ticket, &response, &mut out);
                    }
                }
                Received::Ping { .. } | Received::Nothing | Received::Released(_) | Received::Aborted(_) => {
                    panic!("this client says nothing of the kind");
                }
            }
            taken += used;
        }
        input.drain(..taken);
        bytes.clear();
        for (_, datagram) in out.iter() {
            Frame::of_datagram(datagram).unwrap().write(Framing::Stream, &mut bytes);
        }
        socket.write_all(&bytes).await.unwrap();
    }
}

#[test]
fn over_tcp_several_blocks_go_in_one_message_both_ways() {
    run(async {
        let listener = TcpListener::bind(LOOPBACK).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::task::spawn_local(async move { serve_stream(listener.accept().await.unwrap().0).await });
        let experiment = Experiment { door: Door::CoapTcp, payload_bytes: 100_000, ..experiment() };
        let driver = driver(Door::CoapTcp, &experiment, &access(address)).unwrap();
        let mut client = driver.connect(Role::Publisher, 0).await.unwrap().client;
        let mut heard = Heard::default();
        let large: Vec<u8> = (0..100_000_u32).map(|at| at.to_be_bytes()[2]).collect();
        client.submit(Request::Publish { topic: "t", payload: &large }, 1).unwrap();
        drive(&mut *client, &mut heard, |heard| heard.done.len() == 1).await.unwrap();
        // 8 KiB less options: seven blocks in a message, fourteen messages.
        assert!(client.bytes().protocol_up < 100_000 + 14 * 30, "{:?}", client.bytes());
        client.submit(Request::Get { topic: "t" }, 2).unwrap();
        client.submit(Request::Get { topic: "t" }, 3).unwrap();
        drive(&mut *client, &mut heard, |heard| heard.done.len() == 3).await.unwrap();
        assert_eq!(heard.done.get(&1), Some(&Ok(Vec::new())));
        assert_eq!(heard.done.get(&2), Some(&Ok(large.clone())));
        assert_eq!(heard.done.get(&3), Some(&Ok(large)));
        client.close().await;
    });
}
