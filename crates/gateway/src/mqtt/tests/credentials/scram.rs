//! Enhanced authentication with SCRAM (§4.12).

use super::*;

/// SCRAM by AUTH packets; gives what CONNACK, or AUTH of success, said.
async fn prove(wire: &mut Wire, mut scram: ScramClient) {
    let challenge = wire
        .next(|event| match event {
            Event::Authentication { reason: ReasonCode::CONTINUE_AUTHENTICATION, data } => data.unwrap().to_vec(),
            other => panic!("{other:?}"),
        })
        .await;
    let last = scram.respond(&challenge).unwrap();
    let mut out = Vec::new();
    let said = Authentication { method: "SCRAM-SHA-256", data: Some(&last) };
    said.encode(ReasonCode::CONTINUE_AUTHENTICATION, &mut out).unwrap();
    wire.stream.write_all(&out).await.unwrap();
    let proof = wire
        .next(|event| match event {
            Event::Connected { properties, .. } => properties.authentication.unwrap().data.unwrap().to_vec(),
            Event::Authentication { reason: ReasonCode::SUCCESS, data } => data.unwrap().to_vec(),
            other => panic!("{other:?}"),
        })
        .await;
    scram.verify(&proof).unwrap();
}

fn scram(password: &str) -> ScramClient {
    ScramClient::new(ScramHash::Sha256, "alice", password, "nonce-of-the-client").unwrap()
}

impl House {
    /// CONNECT with the first message of SCRAM.
    async fn begin(&self, hello: &Authentication<'_>) -> Wire {
        let mut list = PropertyBuffer::new();
        hello.push(&mut list).unwrap();
        let connect = Connect { properties: list.properties(), ..connect(Version::V5, "c") };
        let mut out = Vec::new();
        let client = Client::connect(&connect, ClientLimits::default(), &mut out).unwrap();
        let mut wire = Wire { stream: self.open_as(peer()), client, buffer: Vec::new(), session_present: false };
        wire.stream.write_all(&out).await.unwrap();
        wire
    }
}

async fn refused(wire: &mut Wire) -> ReasonCode {
    wire.next(|event| match event {
        Event::Refused { reason, .. } | Event::Disconnected { reason, .. } => *reason,
        other => panic!("{other:?}"),
    })
    .await
}

#[test]
fn s4_12_scram_and_again() {
    run_under(MqttConfig::default(), rules(""), async |house: House| {
        let right = scram("wonderland");
        let first = right.first();
        let hello = Authentication { method: "SCRAM-SHA-256", data: Some(&first) };
        let mut alice = house.begin(&hello).await;
        prove(&mut alice, right).await;
        alice.subscribe("open/#", Qos::AtLeastOnce).await;

        let again = scram("wonderland");
        let first = again.first();
        let mut out = Vec::new();
        let said = Authentication { method: "SCRAM-SHA-256", data: Some(&first) };
        said.encode(ReasonCode::RE_AUTHENTICATE, &mut out).unwrap();
        alice.stream.write_all(&out).await.unwrap();
        prove(&mut alice, again).await;
        alice.publish(&message("open/x", b"still here", Qos::AtLeastOnce)).await;

        out.clear();
        Authentication { method: "OAUTHBEARER", data: None }.encode(ReasonCode::RE_AUTHENTICATE, &mut out).unwrap();
        alice.stream.write_all(&out).await.unwrap();
        let end = alice.next(|event| match event {
            Event::Disconnected { reason, .. } => Some(*reason),
            Event::Message(_) => None,
            other => panic!("{other:?}"),
        });
        let end = end.await;
        let end = if end.is_none() { Some(alice.disconnected().await) } else { end };
        assert_eq!(end, Some(ReasonCode::PROTOCOL_ERROR), "[MQTT-4.12.1-1]");
    });
}

#[test]
fn s4_12_what_is_refused() {
    run_under(MqttConfig::default(), rules(""), async |house: House| {
        let unknown = Authentication { method: "GS2-KRB5", data: None };
        assert_eq!(refused(&mut house.begin(&unknown).await).await, ReasonCode::BAD_AUTHENTICATION_METHOD);
        let first = scram("wonderland").first();
        let hello = Authentication { method: "SCRAM-SHA-256", data: Some(&first) };
        let go_on = |data: &'static [u8]| {
            let mut out = Vec::new();
            let said = Authentication { method: "SCRAM-SHA-256", data: Some(data) };
            said.encode(ReasonCode::CONTINUE_AUTHENTICATION, &mut out).unwrap();
            out
        };
        for (answer, reason) in [
            (go_on(b"c=biws,r=x,p=AA=="), ReasonCode::NOT_AUTHORIZED),
            (vec![0xC0, 0], ReasonCode::PROTOCOL_ERROR),
            (vec![0xF0, 1, 0x18], ReasonCode::PROTOCOL_ERROR),
            (vec![0xF0, 0], ReasonCode::PROTOCOL_ERROR),
        ] {
            let mut wire = house.begin(&hello).await;
            let challenged = wire.next(|event| matches!(event, Event::Authentication { .. })).await;
            assert!(challenged);
            wire.stream.write_all(&answer).await.unwrap();
            assert_eq!(refused(&mut wire).await, reason);
        }
        let mut plain = house.come(peer(), &shown(Version::V5, Some("alice"), Some("wonderland"))).await.unwrap();
        plain.stream.write_all(&go_on(b"x")).await.unwrap();
        assert_eq!(plain.disconnected().await, ReasonCode::PROTOCOL_ERROR, "[MQTT-4.12.0-7]");
    });
}
