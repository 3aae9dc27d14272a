//! Answers over HTTP/3 that share a connection whose client reads slowly.

use std::{future::poll_fn, time::SystemTime};

use bytes::Buf as _;
use fogmux_net::{TlsConfig, listener, pki, quic};
use h3::{
    client::{RequestStream, SendRequest},
    error::ConnectionError,
};
use http::Request;
use tokio::{
    sync::Mutex,
    task::{JoinHandle, spawn_local},
    time::{Instant, sleep},
};
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use super::*;
use crate::{
    http::serve_quic,
    listener::{Listen, Listener},
};

type Answer = RequestStream<h3_quinn::BidiStream<bytes::Bytes>, bytes::Bytes>;
type Requests = SendRequest<h3_quinn::OpenStreams, bytes::Bytes>;

const ANSWERS: usize = 20;
const BYTES: usize = 128 << 10;
/// Far less than the answers together need.
const WRITE_TIMEOUT: Duration = Duration::from_millis(300);
/// The bytes of the connection that the client takes before it has read them, and that the gateway holds for it.
const WINDOW_BYTES: u32 = 64 << 10;

#[test]
fn a_client_that_reads_all_the_time_gets_every_answer_of_an_http3_connection() {
    run(HttpConfig { write_timeout: WRITE_TIMEOUT, ..HttpConfig::default() }, async |house| {
        let mut requests = fill_and_connect(&house, 1 << 20).await;
        let (pace, began) = (Rc::new(Mutex::new(())), Instant::now());
        let mut readers = Vec::new();
        for number in 0..ANSWERS {
            readers.push(spawn_local(read(ask(&mut requests, number).await, Rc::clone(&pace))));
        }
        for reader in readers {
            assert_eq!(reader.await.unwrap(), Ok(BYTES), "after {:?}", began.elapsed());
        }
        assert!(began.elapsed() > 3 * WRITE_TIMEOUT, "the client was too fast for this test: {:?}", began.elapsed());
    });
}

#[test]
fn an_answer_whose_window_stays_closed_is_reset_and_others_go_on() {
    run(HttpConfig { write_timeout: WRITE_TIMEOUT, ..HttpConfig::default() }, async |house| {
        let mut requests = fill_and_connect(&house, 16 << 10).await;
        let mut unread = ask(&mut requests, 0).await;
        unread.recv_response().await.unwrap();
        let other = ask(&mut requests, 1).await;
        assert_eq!(read(other, Rc::default()).await, Ok(BYTES));
        let timed_out = &house.ctx.shared.metrics.http.timed_out;
        while timed_out.get() == 0 {
            sleep(Duration::from_millis(10)).await;
        }
        assert!(read(unread, Rc::default()).await.is_err());
    });
}

#[test]
fn answers_whose_windows_stay_closed_hold_no_other_up() {
    /// Together they leave room on the connection.
    const UNREAD: usize = 3;
    run(HttpConfig::default(), async |house| {
        let mut requests = fill_and_connect(&house, WINDOW_BYTES / 4).await;
        let mut unread = Vec::new();
        for number in 0..UNREAD {
            let mut answer = ask(&mut requests, number).await;
            answer.recv_response().await.unwrap();
            unread.push(answer);
        }
        let began = Instant::now();
        assert_eq!(read(ask(&mut requests, UNREAD).await, Rc::default()).await, Ok(BYTES));
        assert!(began.elapsed() < Duration::from_secs(2), "an answer waited for others: {:?}", began.elapsed());
    });
}

#[test]
fn a_client_that_only_pings_is_left_when_it_has_been_idle() {
    let idle_timeout = Duration::from_millis(500);
    run(HttpConfig { idle_timeout, ..HttpConfig::default() }, async |house| {
        let began = Instant::now();
        let (mut requests, closed) = connect(&house, 16 << 10).await;
        assert_eq!(read(ask(&mut requests, 0).await, Rc::default()).await, Ok(BYTES));
        let reason = closed.await.unwrap();
        assert!(reason.is_h3_no_error(), "{reason}");
        assert!(began.elapsed() >= idle_timeout, "after {:?}", began.elapsed());
    });
}

/// Reads everything, not more than a packet in a millisecond.
async fn read(mut answer: Answer, pace: Rc<Mutex<()>>) -> Result<usize, String> {
    answer.recv_response().await.map_err(|error| error.to_string())?;
    let mut length = 0;
    while let Some(data) = answer.recv_data().await.map_err(|error| format!("{error} after {length}"))? {
        length += data.remaining();
        let _turn = pace.lock().await;
        sleep(Duration::from_millis(1)).await;
    }
    Ok(length)
}

async fn ask(requests: &mut Requests, number: usize) -> Answer {
    let request = Request::get(format!("https://localhost/topics/big/{number}")).body(()).unwrap();
    let mut answer = requests.send_request(request).await.unwrap();
    answer.finish().await.unwrap();
    answer
}

async fn fill_and_connect(house: &House, stream_window_bytes: u32) -> Requests {
    connect(house, stream_window_bytes).await.0
}

/// Connects a client that sends PINGs. Returns what it can ask with, and a task that ends with the connection.
async fn connect(house: &House, stream_window_bytes: u32) -> (Requests, JoinHandle<ConnectionError>) {
    for number in 0..ANSWERS {
        house.publish_retained(&format!("big/{number}"), &vec![b'x'; BYTES]);
    }
    let any_port = ([127, 0, 0, 1], 0).into();
    let directory = tempfile::tempdir().unwrap();
    let made = pki::ensure(directory.path(), &[], SystemTime::now()).unwrap();
    let tls = TlsConfig::load(&made.certificate, &made.key).unwrap();
    let listen = Listen { anonymous: true, ..Listen::new(Listener::Http3, any_port) };
    let limits = quic::QuicLimits { send_window_bytes: WINDOW_BYTES, ..quic::QuicLimits::default() };
    let socket = listener::udp(any_port, listener::PortSharing::Exclusive).unwrap();
    let endpoint = quic::server(socket, &tls, &listen.security, &[b"h3"], &limits).unwrap();
    let address = endpoint.local_addr().unwrap();
    spawn_local(serve_quic(Rc::clone(&house.ctx), endpoint, tls, listen, None));

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&made.ca).unwrap()).unwrap();
    let mut crypto = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    crypto.alpn_protocols = vec![b"h3".to_vec()];
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(crypto).unwrap();
    let mut transport = quinn::TransportConfig::default();
    transport.receive_window(WINDOW_BYTES.into()).stream_receive_window(stream_window_bytes.into());
    transport.keep_alive_interval(Some(Duration::from_millis(50)));
    let mut config = quinn::ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport));
    let mut endpoint = quinn::Endpoint::client(any_port).unwrap();
    endpoint.set_default_client_config(config);
    let quic = endpoint.connect(address, "localhost").unwrap().await.unwrap();
    let (mut driver, requests) = h3::client::new(h3_quinn::Connection::new(quic)).await.unwrap();
    (requests, spawn_local(async move { poll_fn(|cx| driver.poll_close(cx)).await }))
}
