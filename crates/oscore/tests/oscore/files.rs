//! Context files: what is written is read again, what others write is read, what is wrong is said.

use crate::support::{hex, parameters};
use fogmux_oscore::{
    Algorithm, Id, Parameters,
    file::{aiocoap, libcoap, toml},
};

fn full() -> Parameters {
    Parameters { id_context: Some(vec![0, 255]), algorithm: Algorithm::A128Gcm, ..parameters("0a0b", "") }
}

#[test]
fn what_is_written_is_read_again() {
    for parameters in [full(), parameters("", "01")] {
        let named = toml::read(&toml::write(Some("a \"b\""), &parameters)).unwrap();
        assert_eq!((named.user.as_deref(), &named.parameters), (Some("a \"b\""), &parameters));
        assert_eq!(libcoap::read(&libcoap::write(&parameters)).unwrap(), parameters);
        let files = aiocoap::write(&parameters);
        assert_eq!(aiocoap::read([files.settings.as_str(), files.secret.as_str()]).unwrap(), parameters);
    }
}

#[test]
fn aiocoap_directories() {
    let settings = r#"{"sender-id_ascii": "s", "recipient-id_hex": "01", "algorithm": "AES-CCM-16-64-128",
        "kdf-hashfun": "sha256", "window": 32}"#;
    let secret = r#"{"secret_ascii": "a secret", "salt_hex": "9e7c"}"#;
    let read = aiocoap::read([settings, secret]).unwrap();
    assert_eq!(read.master_secret.as_slice(), b"a secret");
    assert_eq!((read.sender_id, read.recipient_id), (Id::new(b"s").unwrap(), Id::new(&[1]).unwrap()));
    assert_eq!((read.master_salt, read.id_context), (hex("9e7c"), None));
    assert!(aiocoap::read([settings]).unwrap_err().to_string().contains("secret is missing"));
    assert!(aiocoap::read([r#"{"kdf-hashfun": "sha512"}"#]).is_err());
}

#[test]
fn libcoap_files() {
    let text = "# a comment\nmaster_secret,hex,\"0102030405060708090a0b0c0d0e0f10\"\nmaster_salt,hex,\"9e7ca92223786340\"\n\
                sender_id,ascii,\"server\"\nrecipient_id,ascii,\"client\"\nreplay_window,integer,30\n\
                aead_alg,text,\"AES-CCM-16-64-128\"\nhkdf_alg,text,\"direct+HKDF-SHA-256\"\nrfc8613_b_1_2,bool,false\n";
    let read = libcoap::read(text).unwrap();
    assert_eq!((read.sender_id.as_slice(), read.recipient_id.as_slice()), (&b"server"[..], &b"client"[..]));
    assert_eq!(read.algorithm, Algorithm::AesCcm1664128);
    let error = libcoap::read("master_secret,hex,01\nwhat,is,this\n").unwrap_err();
    assert_eq!(error.to_string(), "line 2: what is not known");
}

#[test]
fn wrong_files_are_told_and_secrets_are_not() {
    let wrong = toml::read("master_secret = \"c0ffee1\"\nsender_id = \"\"\nrecipient_id = \"01\"\n").unwrap_err();
    assert!(wrong.to_string().contains("master_secret") && !wrong.to_string().contains("c0ffee"));
    let unknown = toml::read("master_secret = \"c0ffee\"\nsender_id = \"\"\nrecipient_id = \"01\"\nreply = 1\n");
    assert!(unknown.unwrap_err().to_string().contains("reply"));
    let same = toml::read("master_secret = \"c0ffee\"\nsender_id = \"01\"\nrecipient_id = \"01\"\n").unwrap_err();
    assert_eq!(same.to_string(), "sender ID and recipient ID are the same");
    let long =
        "master_secret = \"c0ffee\"\nsender_id = \"01020304050607\"\nrecipient_id = \"\"\nalgorithm = \"A128GCM\"";
    assert!(toml::read(long).unwrap_err().to_string().contains("6 bytes"));
    assert!(!format!("{:?}", full()).contains("secret"));
}
