//! Clients that say nothing, or do not read what they are told.

use super::*;

#[test]
fn who_is_slow_or_silent_is_cut() {
    let short = Duration::from_millis(60);
    let cases: [(&str, CoapConfig, Vec<u8>, &str); 4] = [
        ("no CSM", CoapConfig { settings_timeout: short, ..CoapConfig::default() }, vec![], "CSM came too slowly"),
        ("half a CSM", CoapConfig { settings_timeout: short, ..CoapConfig::default() }, vec![0x10], "too slowly"),
        (
            "half a message",
            CoapConfig { message_timeout: short, ..CoapConfig::default() },
            [csm(&[]), vec![0x50, 1, b'x']].concat(),
            "a message came too slowly",
        ),
        (
            "no Pong",
            CoapConfig { idle_timeout: short, pong_timeout: short, ..CoapConfig::default() },
            csm(&[]),
            "no answer to Ping",
        ),
    ];
    for (name, config, bytes, reason) in cases {
        run(config, true, async |house| {
            let mut wire = house.wire().await;
            wire.send(&bytes).await;
            let abort = timeout(Duration::from_secs(5), wire.abort()).await.expect(name);
            assert!(abort.text().contains(reason), "{name}: {}", abort.text());
        });
    }
    // A peer that answers stays.
    let config = CoapConfig { idle_timeout: short, pong_timeout: Duration::from_secs(5), ..CoapConfig::default() };
    run(config, true, async |house| {
        let mut wire = house.settled().await;
        for _ in 0..3 {
            let ping = wire.next().await.unwrap();
            assert_eq!(ping.code, signal::PING);
            wire.send(&frame(signal::PONG, &ping.token, &[], b"")).await;
        }
    });
}

#[test]
fn a_reader_that_does_not_read_costs_little_and_hears_the_newest() {
    run(CoapConfig::default(), true, async |house| {
        let mut deaf = house.settled().await;
        let observe: [(u16, &[u8]); 3] = [(6, b""), (11, b"ps"), (11, b"flood")];
        deaf.send(&frame(Code::GET, b"o", &observe, b"")).await;
        assert_eq!(deaf.next().await.unwrap().code, Code::CONTENT);
        let (count, size) = (2000_u32, 16 << 10);
        for value in 0..count {
            let mut payload = vec![0; size];
            payload[..4].copy_from_slice(&value.to_be_bytes());
            house.keep("flood", &payload);
            if value % 8 == 0 {
                tokio::task::yield_now().await;
            }
        }
        // Others do not wait for it.
        let mut other = house.settled().await;
        other.send(&request(Code::GET, b"g", "flood", b"")).await;
        let answer = timeout(Duration::from_secs(5), other.next()).await.unwrap().unwrap();
        assert_eq!(answer.payload()[..4], (count - 1).to_be_bytes());
        // Now it reads: fewer than there were, in order, the newest at the end.
        let (mut heard, mut last) = (0, 0);
        while last < count - 1 {
            let value = deaf.next().await.unwrap().payload();
            let value = u32::from_be_bytes(value[..4].try_into().unwrap());
            assert!(heard == 0 || value > last);
            (heard, last) = (heard + 1, value);
        }
        assert!(heard < count, "{heard}");
    });
}

#[test]
fn who_asks_and_does_not_read_is_not_read_from_and_is_cut() {
    let config = CoapConfig { write_timeout: Duration::from_millis(200), ..CoapConfig::default() };
    run(config, true, async |house| {
        house.keep("large", &[5; 50_000]);
        let mut deaf = house.settled().await;
        let ask = request(Code::GET, b"g", "large", b"").repeat(1000);
        let _ = timeout(Duration::from_secs(1), deaf.send(&ask)).await;
        let mut other = house.settled().await;
        other.send(&frame(signal::PING, b"p", &[], b"")).await;
        assert_eq!(other.next().await.unwrap().code, signal::PONG);
        while house.ctx.shared.metrics.coap.timed_out.get() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut bytes = 0;
        while let Some(came) = deaf.next().await {
            bytes += came.body.len();
        }
        assert!(bytes < 30 << 20, "{bytes}");
    });
}
