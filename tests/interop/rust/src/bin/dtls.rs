//! tokio-dtls (DTLS 1.3 only, certificates only) behind the line protocol of `clients_dtls.py`:
//!
//! `client ADDRESS CA [CHAIN KEY]` or `server CA CHAIN KEY`, all files PEM. A server prints `listening PORT` first and
//! takes one client, whose certificate it demands. `--limit BYTES` behind it is what it announces as the most that it
//! takes in a record (RFC 8449).
//!
//! Lines in: `send HEX`, `receive MILLISECONDS`, `close`. Lines out: `established DTLSv1.3 - CID -`, `data HEX`,
//! `silence`, `failed WHY`.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use dimpl13::Config;
use dimpl13::certificate::DtlsCertificate;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio_dtls::webpki::WebPkiVerifier;
use tokio_dtls::{ConfigOptions, DtlsConnection, DtlsServer};

/// Ours in every session; `-` where the library is told of none.
const IDENTIFIER: [u8; 4] = *b"tdtl";
/// RFC 8449 §4: the protocol's own limit, 2^14 + 1.
const LIMIT_MAX: u16 = 16_385;

/// The limit of records that is announced, and the other arguments.
fn limit(arguments: &[String]) -> Result<(u16, &[String]), Box<dyn Error>> {
    match arguments {
        [others @ .., flag, limit] if flag == "--limit" => Ok((limit.parse()?, others)),
        _ => Ok((LIMIT_MAX, arguments)),
    }
}

fn options(own: &[String]) -> Result<ConfigOptions, Box<dyn Error>> {
    let (limit, own) = limit(own)?;
    let config = Config::builder().connection_id(&IDENTIFIER).record_size_limit(limit);
    let config = config.require_client_certificate(true).build()?;
    let certificate = match own {
        [chain, key] => {
            let certificate = CertificateDer::from_pem_file(chain)?.to_vec();
            let private_key = PrivatePkcs8KeyDer::from_pem_file(key)?.secret_pkcs8_der().to_vec();
            Some(Arc::new(DtlsCertificate { certificate, private_key }))
        }
        _ => None,
    };
    Ok(ConfigOptions { dtls_config: Some(Arc::new(config)), dtls_cert: certificate, ..ConfigOptions::default() })
}

async fn serve(connection: &DtlsConnection) -> Result<(), Box<dyn Error>> {
    println!("established DTLSv1.3 - {} -", IDENTIFIER.map(|byte| format!("{byte:02x}")).concat());
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("send", hex) => {
                let digits: Vec<u8> = hex.bytes().collect();
                let bytes: Result<Vec<u8>, _> = digits
                    .chunks(2)
                    .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or("?"), 16))
                    .collect();
                connection.send(&bytes?).await?;
            }
            ("receive", milliseconds) => {
                let patience = Duration::from_millis(milliseconds.parse()?);
                match tokio::time::timeout(patience, connection.recv()).await {
                    Ok(data) => {
                        let hex: String = data?.iter().map(|byte| format!("{byte:02x}")).collect();
                        println!("data {hex}");
                    }
                    Err(_) => println!("silence"),
                }
            }
            ("close", _) => break,
            (word, _) => return Err(format!("`{word}`?").into()),
        }
    }
    connection.close().await?;
    Ok(())
}

async fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    match arguments {
        [role, address, ca, own @ ..] if role == "client" => {
            let verifier = WebPkiVerifier::builder()
                .trust_anchor_pem(&std::fs::read(ca)?)?
                .with_server_name("localhost".try_into()?)
                .build()?
                .into_validator();
            serve(&DtlsConnection::connect_with(address, move |leaf| verifier(leaf), options(own)?).await?).await
        }
        [role, ca, own @ ..] if role == "server" => {
            let verifier = WebPkiVerifier::builder()
                .trust_anchor_pem(&std::fs::read(ca)?)?
                .with_key_usage(rustls_webpki::KeyUsage::client_auth())
                .build()?
                .into_validator();
            let mut server = DtlsServer::bind("127.0.0.1:0", move |leaf| verifier(leaf), options(own)?).await?;
            println!("listening {}", server.local_addr().port());
            serve(&server.accept().await?).await
        }
        _ => Err("client ADDRESS CA [CHAIN KEY] [--limit BYTES] | server CA CHAIN KEY [--limit BYTES]".into()),
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Err(error) = run(&arguments).await {
        println!("failed {error}");
        std::process::exit(1);
    }
}
