//! Challenges of an ACME server (RFC 8555 §8.3).

use super::*;

#[test]
fn a_challenge_is_answered_under_its_name_and_nothing_else_is_there() {
    run(HttpConfig::default(), async |house| {
        let ask = async |line: &str, host: &str| {
            let mut client = house.connect(true);
            let request = format!("{line} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
            client.stream.write_all(request.as_bytes()).await.unwrap();
            let head_only = line.starts_with("HEAD");
            client.receive(head_only).await
        };
        let path = "GET /.well-known/acme-challenge/token-1";
        assert_eq!(ask(path, "fog.example").await.status(), 404);
        let under_way = house.ctx.shared.challenges.begin_http("fog.example", "token-1", "token-1.thumb");
        let answer = ask(path, "fog.example").await;
        assert_eq!((answer.status(), answer.text()), (200, "token-1.thumb"));
        assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
        assert_eq!(ask(path, "Fog.Example:80").await.text(), "token-1.thumb");
        assert_eq!(ask("HEAD /.well-known/acme-challenge/token-1", "fog.example").await.status(), 200);
        for (line, host) in [
            (path, "localhost"),
            (path, "other.example"),
            ("GET /.well-known/acme-challenge/token-2", "fog.example"),
            ("GET /.well-known/acme-challenge/", "fog.example"),
            ("GET /.well-known/acme-challenge/token-1/", "fog.example"),
            ("GET /.well-known/acme-challenge/token%2d1", "fog.example"),
            ("GET /.well-known/acme-challenge", "fog.example"),
            ("POST /.well-known/acme-challenge/token-1", "fog.example"),
            ("PUT /.well-known/acme-challenge/token-1", "fog.example"),
            ("OPTIONS /.well-known/acme-challenge/token-1", "fog.example"),
        ] {
            assert_eq!(ask(line, host).await.status(), 404, "{line} {host}");
        }
        assert_eq!(ask("GET /topics/a", "fog.example").await.status(), 421, "the name opens no other route");
        drop(under_way);
        assert_eq!(ask(path, "fog.example").await.status(), 404);
    });
}
