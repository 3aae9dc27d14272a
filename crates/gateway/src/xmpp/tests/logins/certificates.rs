//! Logins with client certificates (XEP-0178), alone and beside other credentials.

use super::*;

#[tokio::test]
async fn xep0178_external_by_the_names_of_the_certificate() {
    let gateway = secured();
    let invalid = || Err("invalid-authzid".to_owned());
    let cases: [(Identity<'_>, &str, Result<&str, String>); 17] = [
        // Nobody's here: EXTERNAL is not offered.
        (addresses(&["eve@elsewhere"]), "", Err("invalid-mechanism".to_owned())),
        (named("ada"), "", Ok("ada@localhost")),
        (named("ada"), "ada@localhost", Ok("ada@localhost")),
        (named("ada"), "ada", Ok("ada@localhost")),
        (named("ada"), "bob@localhost", invalid()),
        (named("ada"), "ada@elsewhere", invalid()),
        (named("ada"), "ada@localhost/r", invalid()),
        (named("ada"), "a\0b", Err("malformed-request".to_owned())),
        (named("Sensor 7"), "\\53ensor\\207@localhost", Ok("\\53ensor\\207@localhost")),
        (named("mapped"), "", Ok("ada@localhost")),
        (Identity { dns: &["pump.example"], ..named("") }, "", Ok("pump.example@localhost")),
        (addresses(&["ada@localhost"]), "", Ok("ada@localhost")),
        (Identity { xmpp: &["eve@elsewhere"], ..named("bob") }, "", Ok("bob@localhost")),
        // An address says more than a common name.
        (Identity { xmpp: &["ada@localhost"], ..named("Ada Lovelace") }, "", Ok("ada@localhost")),
        (addresses(&["ada@localhost", "bob@localhost"]), "bob@localhost", Ok("bob@localhost")),
        (addresses(&["ada@localhost", "bob@localhost"]), "", invalid()),
        (addresses(&["ada@localhost", "bob@localhost"]), "eve@localhost", invalid()),
    ];
    for (identity, authzid, expected) in cases {
        let (client, ..) = Client::secure(&gateway, Some(&identity)).await;
        let (common_name, xmpp) = (identity.common_name, identity.xmpp);
        let tried = client.tried("EXTERNAL", authzid.as_bytes()).await;
        assert_eq!(tried, expected.map(str::to_owned), "{common_name:?} {xmpp:?} as {authzid:?}");
    }
    // Without an initial response there is an empty challenge first.
    let (mut client, ..) = Client::secure(&gateway, Some(&named("ada"))).await;
    client.send("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='EXTERNAL'/>").await;
    client.until("<challenge xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>").await;
    client.send("<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>").await;
    client.until("<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>").await;
}

#[tokio::test]
async fn a_session_ends_with_the_certificate_below_it() {
    let gateway = secured();
    let brief = |name| Identity { seconds: Some(3), ..named(name) };
    let (mut external, ..) = Client::secure(&gateway, Some(&brief("bob"))).await;
    let (mut scram, ..) = Client::secure(&gateway, Some(&brief("ada"))).await;
    external.auth("EXTERNAL", b"").await;
    external.until("<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>").await;
    external.bind().await;
    scram.scram("SCRAM-SHA-256", ClientBinding::None, PASSWORD).await.expect("a login");
    scram.bind().await;
    for mut client in [external, scram] {
        let last = tokio::time::timeout(Duration::from_secs(10), client.until("</stream:stream>")).await;
        has(&last.expect("an end"), "<reset xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>");
    }
}

/// A certificate, a mechanism with its message, and what comes of both.
type Shown<'a> = (&'a Identity<'a>, &'a str, &'a [u8], Result<&'a str, String>);

#[tokio::test]
async fn who_shows_a_certificate_and_something_else_is_the_same_in_both() {
    let gateway = secured();
    let (ada, bob) = (format!("\0ada\0{PASSWORD}"), format!("\0bob\0{PASSWORD}"));
    let bearer = Bearer::encode(&token("ada", 600, SECRET), "localhost", 5222);
    let no = || Err("not-authorized".to_owned());
    let both = addresses(&["ada@localhost", "bob@localhost"]);
    let cases: [Shown<'_>; 10] = [
        (&named("ada"), "PLAIN", ada.as_bytes(), Ok("ada@localhost")),
        (&named("mapped"), "PLAIN", ada.as_bytes(), Ok("ada@localhost")),
        (&both, "PLAIN", bob.as_bytes(), Ok("bob@localhost")),
        (&named("ada"), "OAUTHBEARER", &bearer, Ok("ada@localhost")),
        (&named("bob"), "PLAIN", ada.as_bytes(), no()),
        (&named("mapped"), "PLAIN", bob.as_bytes(), no()),
        // A certificate that is refused, or that is nobody's here, is not made good by a password.
        (&named("refused"), "PLAIN", ada.as_bytes(), no()),
        (&named("refused"), "EXTERNAL", b"", Err("invalid-mechanism".to_owned())),
        (&addresses(&["eve@elsewhere"]), "PLAIN", ada.as_bytes(), no()),
        (&named("ada"), "ANONYMOUS", b"", Err("invalid-mechanism".to_owned())),
    ];
    for (identity, mechanism, message, expected) in cases {
        let (client, ..) = Client::secure(&gateway, Some(identity)).await;
        let tried = client.tried(mechanism, message).await;
        let (common_name, xmpp) = (identity.common_name, identity.xmpp);
        assert_eq!(tried, expected.map(str::to_owned), "{common_name:?} {xmpp:?} by {mechanism}");
    }
    let (mut client, ..) = Client::secure(&gateway, Some(&named("bob"))).await;
    let tried = client.scram("SCRAM-SHA-256", ClientBinding::None, PASSWORD).await;
    assert_eq!(tried, Err("not-authorized".to_owned()));
    // A token is of another.
    let (mut client, ..) = Client::secure(&gateway, Some(&named("bob"))).await;
    client.auth("OAUTHBEARER", &bearer).await;
    assert_eq!(client.failure().await, "not-authorized");
}

#[tokio::test]
async fn where_a_certificate_is_required_there_is_no_way_around_starttls() {
    let security = Security { client_certificates: ClientCertificates::Required, ..Security::default() };
    let listen = Listen { security, anonymous: true, ..listen() };
    let gateway = start(XmppConfig::default(), listen, Some(tls()), rules());
    let mut plain = Client::connect(&gateway).await;
    let features = plain.open().await;
    has(&features, "<required/>");
    assert!(!features.contains("mechanism"), "{features}");
    plain.auth("ANONYMOUS", b"").await;
    assert_eq!(plain.failure().await, "encryption-required");
    let (client, ..) = Client::secure(&gateway, Some(&named("ada"))).await;
    assert_eq!(client.tried("EXTERNAL", b"").await.as_deref(), Ok("ada@localhost"));
}
