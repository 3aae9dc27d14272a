//! Retransmission, Reset, acknowledgements, unexpected messages (RFC 7252 §4.2, §5.2.2) and Echo (RFC 9175), against a
//! scripted server.

use super::*;

#[test]
fn s4_2_a_confirmable_is_sent_as_often_as_it_may_be_and_is_lost_then() {
    run(async {
        let mut hand = Hand::new().await;
        let began = Instant::now();
        let asking = ask(hand.address(), experiment(), Request::Get { topic: "t" });
        let (kind, code, first, ..) = hand.hear().await;
        assert_eq!((kind, code), (Type::Confirmable, Code::GET));
        for _ in 0..3 {
            assert_eq!(hand.hear().await.2, first);
        }
        assert_eq!(asking.await.unwrap().done.get(&7), Some(&Err("lost".to_owned())));
        // 50 + 100 + 200 + 400 ms.
        assert!(began.elapsed() >= Duration::from_millis(750));
    });
}

#[test]
fn s4_2_a_reset_ends_a_request() {
    run(async {
        let mut hand = Hand::new().await;
        let asking = ask(hand.address(), experiment(), Request::Get { topic: "t" });
        let (_, _, id, _, from) = hand.hear().await;
        hand.say(from, |out| fogmux_coap::encode::empty(out, Type::Reset, id)).await;
        assert_eq!(asking.await.unwrap().done.get(&7), Some(&Err("Reset".to_owned())));
    });
}

#[test]
fn s5_2_2_an_acknowledged_request_is_not_sent_again_and_its_answer_is_acknowledged_each_time() {
    run(async {
        let mut hand = Hand::new().await;
        let asking = ask(hand.address(), experiment(), Request::Subscribe { topic: "t" });
        let (_, _, id, token, from) = hand.hear().await;
        hand.say(from, |out| fogmux_coap::encode::empty(out, Type::Acknowledgement, id)).await;
        assert!(timeout(Duration::from_millis(200), hand.hear()).await.is_err());
        let answer = |out: &mut Vec<u8>| {
            Encoder::new(out, Type::Confirmable, Code::CONTENT, 9, &token).uint(OptionNumber::OBSERVE, 5).finish();
        };
        hand.say(from, answer).await;
        assert_eq!(asking.await.unwrap().done.get(&7), Some(&Ok(Vec::new())));
    });
}

#[test]
fn s4_2_what_nobody_asked_for_is_rejected_and_a_repeat_is_acknowledged_again() {
    run(async {
        let mut hand = Hand::new().await;
        let address = hand.address();
        let experiment = experiment();
        let following = tokio::task::spawn_local(async move {
            let driver = quick(&experiment, address);
            let mut client = driver.connect(Role::Subscriber, 0).await.unwrap().client;
            let mut heard = Heard::default();
            client.submit(Request::Subscribe { topic: "t" }, 7).unwrap();
            drive(&mut *client, &mut heard, |heard| heard.messages.len() == 2).await.unwrap();
            client.close().await;
            heard.messages
        });
        let (_, _, id, token, from) = hand.hear().await;
        let notify = |kind, id, sequence, payload: &'static [u8]| {
            move |out: &mut Vec<u8>| {
                let encoder = Encoder::new(out, kind, Code::CONTENT, id, &token);
                encoder.uint(OptionNumber::OBSERVE, sequence).payload(payload);
            }
        };
        hand.say(from, notify(Type::Acknowledgement, id, 1, b"")).await;
        for expected in [Type::Acknowledgement; 2] {
            hand.say(from, notify(Type::Confirmable, 100, 2, b"two")).await;
            let (kind, _, id, ..) = hand.hear().await;
            assert_eq!((kind, id), (expected, 100));
        }
        let stranger = fogmux_coap::Token::new(b"strange").unwrap();
        hand.say(from, |out| Encoder::new(out, Type::Confirmable, Code::CONTENT, 101, &stranger).finish()).await;
        let (kind, _, id, ..) = hand.hear().await;
        assert_eq!((kind, id), (Type::Reset, 101));
        // RFC 7641 §3.4: an older state that comes later is no news.
        hand.say(from, notify(Type::NonConfirmable, 102, 1, b"one")).await;
        hand.say(from, notify(Type::NonConfirmable, 103, 3, b"three")).await;
        // RFC 7641 §3.6: the end is asked for with the same token.
        let (kind, code, id, again, _) = hand.hear().await;
        assert_eq!((kind, code, again), (Type::Confirmable, Code::GET, token));
        let ended = |out: &mut Vec<u8>| Encoder::new(out, Type::Acknowledgement, Code::CONTENT, id, &token).finish();
        hand.say(from, ended).await;
        assert_eq!(following.await.unwrap(), [b"two".to_vec(), b"three".to_vec()]);
    });
}

#[test]
fn rfc_9175_an_echo_is_sent_back_once() {
    run(async {
        let mut hand = Hand::new().await;
        let asking = ask(hand.address(), experiment(), Request::Get { topic: "t" });
        let (_, _, first, _, from) = hand.hear().await;
        for turn in 0..2 {
            let length = hand.buffer.len();
            let message = Message::decode(hand.buffer.get(..length).unwrap()).unwrap_or_else(|_| unreachable!());
            let (id, token) = (message.message_id, message.token);
            assert_eq!(turn == 0, id == first);
            assert_eq!(message.option(OptionNumber::ECHO).is_some(), turn == 1);
            let demand = |out: &mut Vec<u8>| {
                let encoder = Encoder::new(out, Type::Acknowledgement, Code::UNAUTHORIZED, id, &token);
                encoder.option(OptionNumber::ECHO, b"freshness").finish();
            };
            hand.say(from, demand).await;
            if turn == 0 {
                hand.hear().await;
            }
        }
        assert_eq!(asking.await.unwrap().done.get(&7), Some(&Err("4.01".to_owned())));
    });
}
