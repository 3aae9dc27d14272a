//! The bodies of the fuzz targets that need what nobody outside of the crate has: peers that know the key and
//! misbehave. Each takes the fuzzer's bytes, does the same for the same bytes, and panics when something does not hold.
//!
//! Unit tests play the committed corpus, so that the targets are compiled and run with every other test.

#![expect(clippy::indexing_slicing, reason = "a target that panics has found something, in itself at least")]

mod client;
mod client12;
mod client13;
mod input;
mod pair;
mod reassembly;
mod records;
mod server;
#[path = "../../tests/script/toys.rs"]
mod toys;
mod updates;

use crate::{CookieKey, Credentials, Endpoint, EndpointConfig, Platform, Psk, client::ClientConfig};

pub use self::{
    client::client, reassembly::reassembly, records::records_12, records::records_13, server::server, updates::updates,
};

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::pair::{Pair, Way};

    /// Plays the corpus of a target.
    fn play(target: &str, run: fn(&[u8])) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let files: Vec<_> = fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() > 3, "{} has {} files", corpus.display(), files.len());
        for file in files {
            println!("{}", file.display());
            run(&fs::read(&file).unwrap());
        }
    }

    /// A test of the targets: without the fuzzer all is well, so that what they find is not of their own making. With
    /// certificates it is RFC 8422 §5.10, too: those of Ed25519 go with the suites of ECDSA in DTLS 1.2.
    #[test]
    fn every_way_makes_a_session() {
        for way in (0..=u8::MAX).map(Way::new) {
            let mut pair = Pair::new(way);
            pair.settle();
            assert!(pair.client.is_established() && pair.made == 1, "{way:?}: {:?}", pair.events);
            pair.serves_others(way);
        }
    }

    #[test]
    fn the_corpus_of_dtls_records() {
        play("dtls_records", |data| {
            super::records_12(data);
            super::records_13(data);
        });
    }

    #[test]
    fn the_corpus_of_dtls_reassembly() {
        play("dtls_reassembly", super::reassembly);
    }

    #[test]
    fn the_corpus_of_dtls_server() {
        play("dtls_server", super::server);
    }

    #[test]
    fn the_corpus_of_dtls_client() {
        play("dtls_client", super::client);
    }

    #[test]
    fn the_corpus_of_dtls_updates() {
        play("dtls_updates", super::updates);
    }
}
