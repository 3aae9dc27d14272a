//! The limits of idempotency keys, and their gauges.

use fogmux_http::idempotency::Limits;

use super::*;
use crate::metrics::Counted as _;

#[test]
fn keys_are_bounded_as_configured_and_counted() {
    let idempotency = Limits { entries: 2, bytes: 8192, lifetime: Duration::from_secs(600) };
    run(HttpConfig { idempotency, ..HttpConfig::default() }, async |house| {
        let post = |key: &str| format!("POST /topics/a?retain=true|idempotency-key: {key}||1");
        for key in ["k1", "k2", "k3"] {
            assert_eq!(house.ask(&post(key)).await.status(), 202);
        }
        house.ask("DELETE /topics/a").await;
        assert_eq!(house.ask(&post("k3")).await.status(), 202);
        assert_eq!(house.ask("GET /topics/a").await.status(), 404, "the answer of the third key is kept");
        assert_eq!(house.ask(&post("k1")).await.status(), 202);
        assert_eq!(house.ask("GET /topics/a").await.text(), "1", "that of the first had to go");
        let gauges = house.ctx.door.counts().gauges;
        let value = |wanted| gauges.iter().find(|(name, ..)| *name == wanted).map(|(.., value)| *value);
        assert_eq!(value("http_idempotency_keys"), Some(2));
        assert_eq!(value("http_idempotency_bytes"), Some(8192));
    });
}
