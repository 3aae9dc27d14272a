//! Messages that a peer takes none of, because they are longer than it has announced.

use super::*;

#[test]
fn a_notification_above_the_peers_max_message_size_is_counted() {
    run(CoapConfig::default(), true, async |house| {
        let mut wire = house.wire().await;
        wire.send(&csm(&[(2, &[0x80])])).await;
        assert_eq!(wire.next().await.unwrap().code, signal::CSM);
        let observe: [(u16, &[u8]); 3] = [(6, b""), (11, b"ps"), (15, b"filter=t/#")];
        wire.send(&frame(Code::FETCH, b"o", &observe, b"")).await;
        assert_eq!(wire.next().await.unwrap().code, Code::CONTENT);
        // Its Location-Path alone is longer.
        house.publish(&format!("t/{}", "x".repeat(200)), b"1", None);
        house.publish("t/short", b"2", None);
        assert_eq!(wire.next().await.unwrap().payload(), b"2");
        assert_eq!(house.ctx.shared.metrics.coap_too_long.get(), 1);
    });
}
