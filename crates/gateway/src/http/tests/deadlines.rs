//! Slow readers, slow bodies, and the bound of unfinished uploads.

use super::*;

#[test]
fn who_is_slow_is_cut_and_told() {
    let short = Duration::from_millis(100);
    let config =
        HttpConfig { header_timeout: short, body_timeout: short, idle_timeout: short, ..HttpConfig::default() };
    run(config, async |house| {
        let mut slow = house.connect(true);
        slow.stream.write_all(b"GET /healthz HTTP/1.1\r\nho").await.unwrap();
        assert_eq!(slow.receive(false).await.status(), 408);
        let mut slow = house.connect(true);
        slow.stream
            .write_all(b"PUT /topics/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n1")
            .await
            .unwrap();
        assert_eq!(slow.receive(false).await.status(), 408);
        let mut silent = house.connect(true);
        assert!(!silent.more().await);
        let mut idle = house.connect(true);
        assert_eq!(idle.ask("GET /healthz").await.status(), 200);
        assert!(!idle.more().await);
    });
}

#[test]
fn a_body_that_makes_progress_has_more_time() {
    let body_timeout = Duration::from_millis(100);
    let config = HttpConfig { body_timeout, body_bytes_per_second: 1, ..HttpConfig::default() };
    run(config, async |house| {
        let mut slow = house.connect(true);
        let begin = b"PUT /topics/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n1";
        slow.stream.write_all(begin).await.unwrap();
        for byte in b"2345" {
            tokio::time::sleep(body_timeout).await;
            slow.stream.write_all(&[*byte]).await.unwrap();
        }
        assert_eq!(slow.receive(false).await.status(), 201);
    });
}

#[test]
fn unfinished_uploads_have_a_bound_together() {
    let config = HttpConfig { batch_bytes_max: 1 << 10, ..HttpConfig::default() };
    run(config, async |house| {
        let mut uploads = Vec::new();
        let body = vec![0; 1_000_000];
        for _ in 0..40 {
            let mut client = house.connect(true);
            client
                .stream
                .write_all(b"PUT /topics/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000001\r\n\r\n")
                .await
                .unwrap();
            client.stream.write_all(&body).await.unwrap();
            uploads.push(client);
        }
        assert_eq!(uploads.last_mut().unwrap().receive(false).await.status(), 503);
        uploads.first_mut().unwrap().stream.write_all(b"x").await.unwrap();
        assert_eq!(uploads.first_mut().unwrap().receive(false).await.status(), 201);
        drop(uploads);
        assert_eq!(house.ask("PUT /topics/a||x").await.status(), 204);
    });
}
