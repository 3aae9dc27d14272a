//! The driver against a service of publish-subscribe on the server's machine of `fogmux_xmpp`, over TCP.

mod service;

use std::collections::HashSet;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};

use self::service::Service;
use super::driver;
use crate::driver::testing::{self, Seen as Told};
use crate::driver::{Client, Driver, DriverError, Request, Role};
use crate::experiment::{Door, Experiment};
use crate::target::Access;

/// Turns `client` until the sink has been told enough.
async fn turn(client: &mut dyn Client, told: &mut Told, enough: impl Fn(&Told) -> bool) -> Result<(), DriverError> {
    let turns = testing::turn(client, told, |_, told| enough(told));
    tokio::time::timeout(Duration::from_secs(20), turns).await.expect("it comes within 20 seconds")
}

/// Sends a request and returns its answer.
async fn ask(client: &mut dyn Client, request: Request<'_>) -> Result<Vec<u8>, String> {
    let mut told = Told::default();
    client.submit(request, 77).unwrap();
    turn(client, &mut told, |told| !told.done.is_empty()).await.unwrap();
    let (tag, answer) = told.done.pop().unwrap();
    assert_eq!((tag, told.done.len()), (77, 0));
    answer
}

fn open(service: &Service, experiment: &Experiment) -> Box<dyn Driver> {
    let access = Access { host: "127.0.0.1".to_owned(), port: service.port(), ..Access::default() };
    driver(Door::Xmpp, experiment, &access).unwrap()
}

async fn connect(driver: &dyn Driver, role: Role) -> Box<dyn Client> {
    driver.connect(role, 0).await.unwrap().client
}

fn passing() -> Experiment {
    Experiment { door: Door::Xmpp, ..Experiment::default() }
}

/// Runs `test` on the one thread where everything is.
fn run(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(test);
}

#[test]
fn everything_that_is_published_arrives_as_it_was_in_its_order() {
    run(async {
        let service = Service::start().await;
        let driver = open(&service, &passing());
        let mut subscriber = connect(&*driver, Role::Subscriber).await;
        let mut publisher = connect(&*driver, Role::Publisher).await;
        assert_eq!(ask(&mut *subscriber, Request::Subscribe { topic: "a/b" }).await, Ok(vec![]));
        let payloads: Vec<Vec<u8>> = (0..2_000_u32)
            .map(|n| match n % 4 {
                0 => format!("text {n}").into_bytes(),
                1 => format!("<{n}> & \r\n").into_bytes(),
                2 => n.to_be_bytes().to_vec(),
                _ => vec![],
            })
            .collect();
        let (mut sent, mut came) = (Told::default(), Told::default());
        for (payload, tag) in payloads.iter().zip(0x1_0000..) {
            publisher.submit(Request::Publish { topic: "a/b", payload }, tag).unwrap();
        }
        turn(&mut *publisher, &mut sent, |told| told.done.len() == payloads.len()).await.unwrap();
        turn(&mut *subscriber, &mut came, |told| told.messages.len() == payloads.len()).await.unwrap();
        assert!(came.messages == payloads && came.done.is_empty() && sent.messages.is_empty());
        let tags: HashSet<u64> = sent.done.iter().map(|(tag, _)| *tag).collect();
        assert!(tags.len() == payloads.len() && sent.done.iter().all(|(_, answer)| answer == &Ok(vec![])));

        let total: u64 = payloads.iter().map(|payload| payload.len() as u64).sum();
        let (up, down) = (publisher.bytes(), subscriber.bytes());
        assert_eq!((up.payload_up, up.payload_down), (total, 0));
        assert_eq!((down.payload_up, down.payload_down), (0, total));
        assert!(up.protocol_up > total && up.socket_up >= up.protocol_up && down.socket_down >= down.protocol_down);
        // The node was made once, for both, and so that nothing is kept; then nobody had to say so again.
        assert_eq!(service.log(), ["create a/b persist=0", "subscribe a/b", "publish a/b"]);
    });
}

#[test]
fn a_node_that_is_there_is_configured_and_somebody_elses_gets_options() {
    run(async {
        for (owned, options, expected) in [
            (true, true, vec!["conflict t", "configure t persist=0", "publish t"]),
            (false, true, vec!["conflict t", "forbidden t", "disco", "publish t persist=0"]),
            (false, false, vec!["conflict t", "forbidden t", "disco", "publish t"]),
        ] {
            let service = Service::start().await;
            service.has_node("t", owned, options);
            let driver = open(&service, &passing());
            let mut publisher = connect(&*driver, Role::Publisher).await;
            let mut told = Told::default();
            for tag in 0..3 {
                publisher.submit(Request::Publish { topic: "t", payload: b"x" }, tag).unwrap();
            }
            turn(&mut *publisher, &mut told, |told| told.done.len() == 3).await.unwrap();
            assert_eq!(told.done, [(0, Ok(vec![])), (1, Ok(vec![])), (2, Ok(vec![]))]);
            assert_eq!(service.log(), expected);
        }
    });
}

#[test]
fn kept_items_are_asked_for() {
    run(async {
        let service = Service::start().await;
        let driver = open(&service, &Experiment { retain: true, ..passing() });
        let mut client = connect(&*driver, Role::Publisher).await;
        assert_eq!(ask(&mut *client, Request::Get { topic: "t" }).await, Err("item-not-found".to_owned()));
        for payload in [&b"\0\x01"[..], b"22 <C>", b"22.5"] {
            assert_eq!(ask(&mut *client, Request::Publish { topic: "t", payload }).await, Ok(vec![]));
            assert_eq!(ask(&mut *client, Request::Get { topic: "t" }).await.as_deref(), Ok(payload));
        }
        assert_eq!(service.log().first().map(String::as_str), Some("create t persist=1"));
        assert_eq!(client.bytes().payload_down, 2 + 6 + 4);
    });
}

#[test]
fn large_messages_come_in_pieces() {
    run(async {
        let service = Service::start().await;
        let driver = open(&service, &Experiment { payload_bytes: 300_000, ..passing() });
        let mut subscriber = connect(&*driver, Role::Subscriber).await;
        let mut publisher = connect(&*driver, Role::Publisher).await;
        ask(&mut *subscriber, Request::Subscribe { topic: "t" }).await.unwrap();
        let payloads = [vec![b'x'; 300_000], vec![0xFF; 300_000], b"small".to_vec()];
        let mut came = Told::default();
        for payload in &payloads {
            ask(&mut *publisher, Request::Publish { topic: "t", payload }).await.unwrap();
        }
        turn(&mut *subscriber, &mut came, |told| told.messages.len() == 3).await.unwrap();
        assert!(came.messages == payloads);
    });
}

#[test]
fn a_stanza_larger_than_any_that_is_expected_ends_the_connection() {
    run(async {
        let service = Service::start().await;
        let driver = open(&service, &passing());
        let mut subscriber = connect(&*driver, Role::Subscriber).await;
        let mut publisher = connect(&*driver, Role::Publisher).await;
        ask(&mut *subscriber, Request::Subscribe { topic: "t" }).await.unwrap();
        ask(&mut *publisher, Request::Publish { topic: "t", payload: &[b'x'; 100_000] }).await.unwrap();
        let ended = turn(&mut *subscriber, &mut Told::default(), |told| !told.messages.is_empty()).await;
        assert!(matches!(ended, Err(DriverError::Protocol(_))), "{ended:?}");
    });
}

#[test]
fn scram_proves_the_password_and_a_wrong_one_is_refused() {
    run(async {
        let service = Service::start().await;
        service.wants_password("ada", "secret");
        let driver_of = |password: &str| {
            let access = Access {
                host: "127.0.0.1".to_owned(),
                port: service.port(),
                password: Some(("ada".to_owned(), password.to_owned().into())),
                ..Access::default()
            };
            driver(Door::Xmpp, &passing(), &access).unwrap()
        };
        assert!(driver_of("secret").connect(Role::Publisher, 0).await.is_ok());
        let refused = driver_of("wrong").connect(Role::Publisher, 0).await.err();
        assert!(matches!(refused, Some(DriverError::Refused(_))), "{refused:?}");
        let nobody = open(&service, &passing()).connect(Role::Publisher, 0).await.err();
        assert!(matches!(nobody, Some(DriverError::Refused(_))), "{nobody:?}");
    });
}

#[test]
fn a_ping_is_answered_and_the_end_of_the_stream_is_told() {
    run(async {
        let service = Service::start().await;
        let driver = open(&service, &passing());
        let mut client = connect(&*driver, Role::Subscriber).await;
        service.say("<iq type='get' id='p1' from='localhost'><ping xmlns='urn:xmpp:ping'/></iq>");
        service.say("<iq type='get' id='q' from='localhost'><query xmlns='jabber:iq:version'/></iq>");
        ask(&mut *client, Request::Subscribe { topic: "t" }).await.unwrap();
        assert_eq!(service.log(), ["create t persist=0", "result p1", "error q", "subscribe t"]);
        service.say("<stream:error><system-shutdown xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>");
        let ended = turn(&mut *client, &mut Told::default(), |_| false).await;
        let Err(DriverError::Connection(why)) = ended else { panic!("{ended:?}") };
        assert!(why.contains("system-shutdown"), "{why}");
    });
}

#[test]
fn closing_ends_the_stream_in_good_order() {
    run(async {
        let service = Service::start().await;
        let driver = open(&service, &passing());
        let client = connect(&*driver, Role::Publisher).await;
        client.close().await;
        assert_eq!(service.log(), ["end"]);
    });
}

#[test]
fn what_does_not_go_together_is_refused_at_once() {
    let access = Access { host: "127.0.0.1".to_owned(), port: 1, ..Access::default() };
    let refused = |door, experiment: &Experiment| driver(door, experiment, &access).err();
    let oscore = Experiment { security: "oscore".parse().unwrap(), ..passing() };
    let certificate = Experiment { credential: crate::experiment::Credential::Certificate, ..passing() };
    for (door, experiment) in [(Door::Xmpp, &oscore), (Door::Xmpps, &passing()), (Door::Xmpp, &certificate)] {
        assert!(matches!(refused(door, experiment), Some(DriverError::Unsupported { .. })), "{experiment:?}");
    }
}

#[test]
fn an_address_of_this_machine_is_no_domain() {
    for (host, domain) in [("127.0.0.1", "localhost"), ("::1", "localhost"), ("pi.example", "pi.example")] {
        assert_eq!(super::default_domain(host), domain);
    }
}
