//! Admission of connections: by certificate, and by what the listener says of anonymous clients.

use super::*;

#[test]
fn who_has_shown_a_certificate_is_somebody_until_it_ends() {
    run(CoapConfig::default(), true, async |house| {
        let channel = crate::channels::certified("ada", crate::credential::unix_s() + 2);
        // That the listener lets anybody in does not make somebody else of them.
        let peer = |from| Peer::plain(from, true).over(Arc::clone(&channel));
        let mut wire = house.wire_of(peer).await;
        wire.send(&csm(&[])).await;
        assert_eq!(wire.next().await.unwrap().code, signal::CSM);
        house.keep("a", b"1");
        let observe: [(u16, &[u8]); 3] = [(6, b""), (11, b"ps"), (11, b"a")];
        wire.send(&frame(Code::GET, b"o", &observe, b"")).await;
        assert_eq!(wire.next().await.unwrap().code, Code::CONTENT);
        // The end of a certificate is in seconds of the wall clock: it is asked for until then.
        let mut answers = Vec::new();
        while answers.last() != Some(&Code::UNAUTHORIZED) {
            tokio::time::sleep(Duration::from_millis(20)).await;
            wire.send(&request(Code::GET, b"t", "a", b"")).await;
            answers.push(wire.next().await.unwrap().code);
        }
        assert_eq!(answers.first(), Some(&Code::CONTENT));
        house.keep("a", b"2");
        let told = wire.next().await.unwrap();
        assert_eq!((told.code, &*told.token, &*told.payload()), (Code::UNAUTHORIZED, &b"o"[..], &b""[..]));
        wire.send(&request(Code::GET, b"t", "a", b"")).await;
        assert_eq!(wire.next().await.unwrap().code, Code::UNAUTHORIZED);
        // Nor is there a way in by connecting once more.
        let mut again = house.wire_of(peer).await;
        again.send(&csm(&[])).await;
        assert_eq!(again.next().await.unwrap().code, signal::CSM);
        again.send(&request(Code::GET, b"t", "a", b"")).await;
        assert_eq!(again.next().await.unwrap().code, Code::UNAUTHORIZED);
    });
}

#[test]
fn the_listener_says_whether_nobody_in_particular_is_let_in() {
    run(CoapConfig::default(), true, async |house| {
        for (anonymous, code) in [(true, Code::NOT_FOUND), (false, Code::UNAUTHORIZED)] {
            for address in [[127, 0, 0, 1], [192, 0, 2, 7]] {
                let mut wire = house.wire_of(|_| Peer::plain((address, 5683).into(), anonymous)).await;
                wire.send(&csm(&[])).await;
                assert_eq!(wire.next().await.unwrap().code, signal::CSM);
                wire.send(&request(Code::GET, b"t", "none", b"")).await;
                assert_eq!(wire.next().await.unwrap().code, code, "{address:?} {anonymous}");
            }
        }
    });
}
