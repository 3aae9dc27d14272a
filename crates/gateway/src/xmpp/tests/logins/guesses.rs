//! Failed logins delay the next ones.

use super::*;

#[tokio::test]
async fn guesses_make_the_next_ones_wait() {
    let gateway = secured();
    let mut failures = Vec::new();
    for _ in 0..4 {
        let (mut client, ..) = Client::secure(&gateway, None).await;
        for _ in 0..3 {
            failures.extend(client.scram("SCRAM-SHA-256", ClientBinding::None, "guess").await.err());
        }
        has(&client.until("</stream:stream>").await, "<policy-violation");
    }
    assert_eq!(failures.iter().filter(|condition| *condition == "not-authorized").count(), 11, "{failures:?}");
    assert_eq!(failures.last().map(String::as_str), Some("temporary-auth-failure"));
    let (client, ..) = Client::secure(&gateway, None).await;
    let plain = client.tried("PLAIN", format!("\0ada\0{PASSWORD}").as_bytes()).await;
    assert_eq!(plain, Err("temporary-auth-failure".to_owned()), "the same name by another mechanism");
    let (client, ..) = Client::secure(&gateway, None).await;
    let plain = client.tried("PLAIN", format!("\0bob\0{PASSWORD}").as_bytes()).await;
    assert_eq!(plain.as_deref(), Ok("bob@localhost"), "another name does not wait");
}

#[tokio::test]
async fn exchanges_begun_together_are_no_more_guesses_than_one_after_another() {
    let gateway = secured();
    let mut begun = Vec::new();
    for _ in 0..20 {
        let (mut client, ..) = Client::secure(&gateway, None).await;
        let mut scram = ScramClient::new(ScramHash::Sha256, "ada", "guess", "nonce").expect("prepared");
        client.auth("SCRAM-SHA-256", &scram.first()).await;
        let proof = scram.respond(&client.data("challenge").await).expect("a challenge");
        begun.push((client, proof));
    }
    let mut judged = 0;
    for (mut client, proof) in begun {
        client.response(&proof).await;
        judged += usize::from(client.failure().await == "not-authorized");
    }
    assert_eq!(judged, 11);
}
