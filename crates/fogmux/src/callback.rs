//! The callback of `[auth.callback]` over HTTP: asks another service whether a name and a password belong together.
//!
//! A POST of `{"user", "password" or "password_base64", "client", "door", "address"}` is answered by 200 with
//! `{"allow": true|false, "groups": ["…"], "variables": {"name": "…" or ["…"]}, "expires_in": seconds}`, of which only
//! `allow` is required, or by 401 or 403. Anything else counts as no answer and refuses the login.

pub(crate) mod target;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fogmux_auth::{Answer, Callback, NoAnswer, Question, Remote, Variables};
use fogmux_client::tls::{self, Trust};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use self::target::Target;
use crate::client::trust_here;
use crate::config::auth;

/// Concurrent questions; more wait, within their own time limit.
const QUESTIONS_MAX: usize = 64;
/// The largest accepted answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Returns the source that the configuration defines, if any.
pub(crate) fn configured(config: &auth::Callback) -> Option<Callback> {
    let target = Target::parse(&config.url)?;
    let trust = config.ca_file.clone().map_or_else(trust_here, Trust::File);
    let http = Http { target, trust, timeout: config.timeout, turns: Arc::new(Semaphore::new(QUESTIONS_MAX)) };
    Some(Callback::new(Box::new(http), config.cache))
}

/// Asks over HTTP/1.1 with one connection per question: logins are rare, and the service may restart at any time.
struct Http {
    target: Target,
    trust: Trust,
    timeout: Duration,
    turns: Arc<Semaphore>,
}

impl Remote for Http {
    fn ask<'a>(
        &'a self,
        question: Question<'a>,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, NoAnswer>> + Send + 'a>> {
        Box::pin(async move {
            let asked = tokio::time::timeout(self.timeout, self.post(&question)).await;
            asked.unwrap_or_else(|_| Err(NoAnswer(format!("no answer within {:?}", self.timeout))))
        })
    }
}

impl Http {
    async fn post(&self, question: &Question<'_>) -> Result<Answer, NoAnswer> {
        let _turn = self.turns.acquire().await.map_err(no_answer)?;
        let Target { host, port, .. } = &self.target;
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(no_answer)?;
        if self.target.secure {
            let stream = tls::connect(stream, host, &self.trust, &[b"http/1.1"]).await.map_err(no_answer)?;
            self.exchange(stream, question).await
        } else {
            self.exchange(stream, question).await
        }
    }

    async fn exchange<S>(&self, stream: S, question: &Question<'_>) -> Result<Answer, NoAnswer>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(no_answer)?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(&self.target.path)
            .header(header::HOST, &self.target.authority)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .header(header::CONNECTION, "close")
            .body(Full::new(Bytes::from(body(question).to_string())))
            .map_err(no_answer)?;
        let answered = async {
            let response = sender.send_request(request).await.map_err(no_answer)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            read(status, &body.map_err(|error| NoAnswer(error.to_string()))?.to_bytes())
        };
        // The connection's own result is not needed: it only transports the exchange.
        let moved = async {
            let _ = connection.await;
            std::future::pending::<Result<Answer, NoAnswer>>().await
        };
        tokio::select! {
            biased;
            answer = answered => answer,
            never = moved => never,
        }
    }
}

fn no_answer(error: impl std::fmt::Display) -> NoAnswer {
    NoAnswer(error.to_string())
}

fn body(question: &Question<'_>) -> Value {
    let mut body = Map::new();
    let mut put = |name: &str, text: String| body.insert(name.to_owned(), Value::String(text));
    put("user", question.user.to_owned());
    match std::str::from_utf8(question.password) {
        Ok(text) => put("password", text.to_owned()),
        Err(_) => put("password_base64", STANDARD.encode(question.password)),
    };
    put("client", question.client.to_owned());
    put("door", question.door.name().to_owned());
    put("address", question.address.to_string());
    Value::Object(body)
}

/// Interprets the answer.
fn read(status: StatusCode, body: &[u8]) -> Result<Answer, NoAnswer> {
    match status {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Ok(Answer::No),
        other => return Err(NoAnswer(format!("status {other}"))),
    }
    let said: Map<String, Value> = serde_json::from_slice(body).map_err(no_answer)?;
    match said.get("allow") {
        Some(Value::Bool(true)) => {}
        Some(Value::Bool(false)) => return Ok(Answer::No),
        Some(_) | None => return Err(NoAnswer("no \"allow\": true or false".to_owned())),
    }
    let groups = said.get("groups").map_or(Some(Vec::new()), texts);
    let groups = groups.ok_or_else(|| NoAnswer("\"groups\" is not a list of strings".to_owned()))?;
    let expires_in = match said.get("expires_in") {
        None | Some(Value::Null) => None,
        Some(seconds) => {
            let seconds = seconds.as_u64().ok_or_else(|| NoAnswer("\"expires_in\" is not a number".to_owned()))?;
            Some(Duration::from_secs(seconds))
        }
    };
    let variables = said.get("variables").and_then(Value::as_object).into_iter().flatten();
    let variables: Variables =
        variables.filter_map(|(name, value)| Some((name.as_str().into(), texts(value)?.into()))).collect();
    Ok(Answer::Yes { groups: groups.into_iter().map(Arc::from).collect(), variables, expires_in })
}

/// A string, or a list of strings.
fn texts(value: &Value) -> Option<Vec<Box<str>>> {
    match value {
        Value::String(text) => Some(vec![text.as_str().into()]),
        Value::Array(list) => list.iter().map(|text| text.as_str().map(Box::from)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use fogmux_auth::Door;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn only_a_clear_yes_is_one() {
        let yes = |body: &str| matches!(read(StatusCode::OK, body.as_bytes()), Ok(Answer::Yes { .. }));
        assert!(yes(r#"{"allow":true}"#));
        let body = r#"{"allow":true,"groups":["a"],"variables":{"site":"north","n":1},"expires_in":60}"#;
        let Ok(Answer::Yes { groups, variables, expires_in }) = read(StatusCode::OK, body.as_bytes()) else {
            panic!("no yes")
        };
        assert_eq!((&*groups[0], expires_in), ("a", Some(Duration::from_secs(60))));
        assert_eq!(variables.len(), 1);
        assert_eq!(read(StatusCode::OK, br#"{"allow":false}"#), Ok(Answer::No));
        assert_eq!(read(StatusCode::FORBIDDEN, b""), Ok(Answer::No));
        for (status, body) in [
            (200, ""),
            (200, "{}"),
            (200, "true"),
            (200, r#"{"allow":"true"}"#),
            (200, r#"{"allow":true,"groups":"a,b","expires_in":"x"}"#),
            (204, ""),
            (302, ""),
            (500, r#"{"allow":true}"#),
        ] {
            assert!(read(StatusCode::from_u16(status).unwrap(), body.as_bytes()).is_err(), "{status} {body}");
        }
    }

    async fn asked(answer: &'static str, timeout: Duration) -> (Result<Answer, NoAnswer>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/login", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heard = Vec::new();
            while !heard.ends_with(b"}") {
                stream.read_buf(&mut heard).await.unwrap();
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            if answer.is_empty() {
                // Reads until the other side has sent everything.
                let _ = stream.read_buf(&mut heard).await;
            }
            String::from_utf8(heard).unwrap()
        });
        let turns = Arc::new(Semaphore::new(1));
        let http = Http { target: Target::parse(&url).unwrap(), trust: trust_here(), timeout, turns };
        let question = Question {
            user: "alice",
            password: b"se\"cret",
            client: "c1",
            door: Door::Mqtt,
            address: [192, 0, 2, 1].into(),
        };
        let answer = http.ask(question).await;
        (answer, server.await.unwrap())
    }

    #[tokio::test]
    async fn a_question_is_a_post_and_silence_is_no_answer() {
        let second = Duration::from_secs(10);
        let (answer, heard) = asked("HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{\"allow\":true}", second).await;
        assert!(matches!(answer, Ok(Answer::Yes { .. })), "{answer:?}");
        assert!(heard.starts_with("POST /login HTTP/1.1\r\n"), "{heard}");
        let (_, body) = heard.split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["password"], "se\"cret");
        assert_eq!((body["door"].as_str(), body["address"].as_str()), (Some("mqtt"), Some("192.0.2.1")));
        let (answer, _) = asked("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"allow\":true}", second).await;
        assert!(answer.is_err(), "cut short");
        let (answer, _) = asked("", Duration::from_millis(100)).await;
        assert!(answer.is_err(), "{answer:?}");
    }
}
