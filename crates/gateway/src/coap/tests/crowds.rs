//! Many observations of one host beside few of another: what all share has shares (ADR 0031, ADR 0036).

use std::collections::BTreeSet;

use fogmux_coap::{Encoder, Message, OptionNumber, Token, Type};

use super::*;

/// A client on an address of loopback.
async fn host(house: &House, address: &str) -> UdpSocket {
    let socket = UdpSocket::bind((address, 0)).await.unwrap();
    socket.connect(house.address).await.unwrap();
    socket
}

/// A GET with its number as identifier and token.
async fn get_with(socket: &UdpSocket, number: u16, options: &[(OptionNumber, &[u8])]) {
    let mut bytes = Vec::new();
    let token = Token::new(&number.to_be_bytes()).unwrap();
    let mut encoder = Encoder::new(&mut bytes, Type::Confirmable, Code::GET, number, &token);
    options.iter().for_each(|(number, value)| encoder.push(*number, value));
    encoder.finish();
    socket.send(&bytes).await.unwrap();
}

async fn observe(socket: &UdpSocket, number: u16, filter: &str) {
    let query = format!("filter={filter}");
    let options = [
        (OptionNumber::OBSERVE, &b""[..]),
        (OptionNumber::URI_PATH, b"ps"),
        (OptionNumber::URI_QUERY, query.as_bytes()),
    ];
    get_with(socket, number, &options).await;
    let mut buffer = [0; 2048];
    let length = socket.recv(&mut buffer).await.unwrap();
    assert_eq!(Message::decode(&buffer[..length]).unwrap().code, Code::CONTENT);
}

/// Has the door take what was published.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn backlogs_of_many_observations_of_one_host_do_not_end_that_of_another() {
    let config = CoapConfig { notification_bytes_max: 96 << 10, ..CoapConfig::default() };
    run(config, true, async |house| {
        let (hog, other) = (host(&house, "127.0.0.2").await, host(&house, "127.0.0.1").await);
        for number in 0..100 {
            observe(&hog, number, "hog/#").await;
        }
        observe(&other, 1, "own/#").await;
        // Neither acknowledges: topics wait.
        for number in 0..100 {
            house.publish(&format!("own/{number}"), b"1", None);
            settle().await;
        }
        for number in 0..20 {
            house.publish(&format!("hog/{number}"), b"1", None);
            settle().await;
        }
        assert!(house.ctx.shared.metrics.coap.timed_out.get() > 0, "there is room for all");
        let (mut topics, mut buffer) = (BTreeSet::new(), [0; 2048]);
        while topics.len() < 100 {
            let length = other.recv(&mut buffer).await.unwrap();
            let message = Message::decode(&buffer[..length]).unwrap();
            assert_eq!(message.code, Code::CONTENT, "it gives way to many small ones, after {}", topics.len());
            if message.kind == Type::Confirmable {
                let [high, low] = message.message_id.to_be_bytes();
                other.send(&[0x60, 0, high, low]).await.unwrap();
            }
            let levels = message.options().filter(|option| option.number == OptionNumber::LOCATION_PATH);
            topics.insert(levels.last().unwrap().value.to_vec());
        }
    });
}

#[test]
fn endpoints_that_observe_leave_room_for_others() {
    const PEERS: u16 = 16;
    let peers = usize::from(PEERS);
    let config = CoapConfig { peers_max: peers, observers_max: peers, ..CoapConfig::default() };
    run(config, true, async |house| {
        house.keep("ab", b"1");
        let path = [(OptionNumber::URI_PATH, &b"ps"[..]), (OptionNumber::URI_PATH, b"ab")];
        let (mut hogs, mut buffer) = (Vec::new(), [0; 2048]);
        for number in 0..2 * PEERS {
            let hog = host(&house, "127.0.0.2").await;
            get_with(&hog, number, &[&[(OptionNumber::OBSERVE, &b""[..])], &path[..]].concat()).await;
            let length = hog.recv(&mut buffer).await.unwrap();
            assert!(length > 0);
            hogs.push(hog);
        }
        let other = host(&house, "127.0.0.1").await;
        get_with(&other, 1, &path).await;
        let length = other.recv(&mut buffer).await.unwrap();
        assert_eq!(Message::decode(&buffer[..length]).unwrap().code, Code::CONTENT);
    });
}
