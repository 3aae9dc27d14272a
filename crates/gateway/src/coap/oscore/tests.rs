//! The keyring over restarts, reloads and power cuts, with real files.

mod lives;
mod restores;
mod starts;

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use fogmux_auth::{Acl, AnonymousPolicy, Rules, Users};
use fogmux_coap::{
    Code, Encoder, Message, OptionNumber, Timestamp, Token, Type,
    server::{Opened, Protection, Role},
};
use fogmux_oscore::{
    Context, Id, Parameters, Requests, Reservation, SequenceStore, Start,
    file::{aiocoap, libcoap, toml},
};

use super::{BackedUp, Keyring, note_restored, shield::Shield, start::since_1970};
use crate::coap::{CoapConfig, tests::run};

struct Granted;

impl SequenceStore for Granted {
    fn reserve(&self, reservation: Reservation) {
        reservation.is_durable();
    }
}

/// A data directory of its own.
struct Data(PathBuf);

impl Data {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("fogmux-keyring-{}-{number}", std::process::id()));
        fs::create_dir_all(path.join("oscore")).unwrap();
        Self(path)
    }

    fn contexts(&self) -> PathBuf {
        self.0.join("oscore")
    }

    fn journal(&self) -> PathBuf {
        super::keyring::journal_path(&self.0)
    }

    fn add(&self, file: &str, text: &str) {
        fs::write(self.contexts().join(file), text).unwrap();
    }

    fn open(&self) -> Arc<Keyring> {
        self.open_at(since_1970)
    }

    fn open_at(&self, wall_clock: fn() -> Duration) -> Arc<Keyring> {
        let keyring = Arc::new(Keyring::with_clock(wall_clock));
        self.reload(&keyring);
        keyring
    }

    fn reload(&self, keyring: &Keyring) {
        let fresh = keyring.read(&self.contexts()).unwrap();
        keyring.replace(fresh, &self.journal()).unwrap();
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The server's side of the device with this number.
fn parameters(number: u8) -> Parameters {
    Parameters {
        master_secret: vec![number; 16].into(),
        master_salt: Vec::new(),
        id_context: None,
        sender_id: Id::new(b"s").unwrap(),
        recipient_id: Id::new(&[number]).unwrap(),
        algorithm: fogmux_oscore::Algorithm::default(),
    }
}

fn device(number: u8) -> Arc<Context> {
    let start = Start { next: 0, durable: 1024, requests: Requests::SeenBelow(0) };
    Context::new("device".into(), &parameters(number).mirrored(), start, Arc::new(Granted)).unwrap()
}

fn request(device: &Arc<Context>, echo: Option<&[u8]>) -> (Vec<u8>, fogmux_oscore::Pending) {
    let mut plain = Vec::new();
    let token = Token::new(b"t").unwrap();
    let mut encoder = Encoder::new(&mut plain, Type::Confirmable, Code::GET, 7, &token);
    encoder.push(OptionNumber::URI_PATH, b"ps");
    echo.into_iter().for_each(|echo| encoder.push(OptionNumber::ECHO, echo));
    encoder.finish();
    let mut sealed = Vec::new();
    let pending = device.seal_request(&Message::decode(&plain).unwrap(), &mut sealed).unwrap();
    (sealed, pending)
}

fn open(shield: &mut Shield, request: &[u8]) -> (Opened, Vec<u8>) {
    let mut inner = Vec::new();
    (shield.open(Timestamp::ZERO, &Message::decode(request).unwrap(), &mut inner), inner)
}

fn is_taken(shield: &mut Shield, device: &Arc<Context>) -> bool {
    matches!(open(shield, &request(device, None).0).0, Opened::Request(_))
}

fn own_toml(number: u8, user: &str) -> String {
    own_toml_at(number, user, since_1970())
}

fn own_toml_at(number: u8, user: &str, made: Duration) -> String {
    toml::write(Some(user), &parameters(number)).to_string() + &toml::made(made.as_secs())
}

/// A wall clock that is two seconds ahead. The clock gives 256 numbers in each second.
fn later() -> Duration {
    since_1970() + Duration::from_secs(2)
}

fn is_asked_for_proof(shield: &mut Shield, device: &Arc<Context>) -> bool {
    matches!(open(shield, &request(device, None).0).0, Opened::Answer(_))
}

#[test]
fn contexts_of_three_formats() {
    let data = Data::new();
    data.add("one.toml", &own_toml(1, "alice"));
    data.add("bob.conf", &libcoap::write(&parameters(2)));
    let files = aiocoap::write(&parameters(3));
    fs::create_dir(data.contexts().join("carol")).unwrap();
    data.add("carol/settings.json", &files.settings);
    data.add("carol/secret.json", &files.secret);
    data.add("README", "nothing");
    let keyring = data.open();
    let mut shield = Shield::new(keyring);
    for (number, user) in [(1, "alice"), (2, "bob"), (3, "carol")] {
        let (Opened::Request(exchange) | Opened::Answer(exchange), _) =
            open(&mut shield, &request(&device(number), None).0)
        else {
            panic!("{user} is refused")
        };
        assert_eq!(&**exchange.user(), user);
    }
}

#[test]
fn all_that_is_wrong_is_said_at_once_and_nothing_changes() {
    let data = Data::new();
    data.add("one.toml", &own_toml(1, "alice"));
    let keyring = data.open();
    data.add("two.toml", &own_toml(1, "bob"));
    data.add("three.conf", "what");
    let error = keyring.read(&data.contexts()).unwrap_err().to_string();
    assert!(error.contains("three.conf: line 1"), "{error}");
    fs::remove_file(data.contexts().join("three.conf")).unwrap();
    let error = keyring.read(&data.contexts()).unwrap_err().to_string();
    assert!(error.contains("are those of") && error.contains("alice's"), "{error}");
    assert_eq!(keyring.len(), 1);
}

/// Such as one that a full disk or the end of a process left empty.
#[test]
fn a_file_that_gives_no_context_is_left_out_and_duplicates_are_not() {
    let data = Data::new();
    data.add("one.toml", &own_toml(1, "alice"));
    data.add("two.toml", "");
    data.add("three.conf", "what");
    let keyring = Keyring::default();
    let usable = || keyring.read_usable(&data.contexts());
    let fresh = usable().unwrap();
    let [three, two] = fresh.left_out() else { panic!("{:?}", fresh.left_out()) };
    assert!(three.contains("three.conf: ") && two.contains("two.toml: "), "{three} {two}");
    keyring.replace(fresh, &data.journal()).unwrap();
    assert_eq!(keyring.len(), 1);
    assert!(is_taken(&mut Shield::new(Arc::new(keyring)), &device(1)));

    let keyring = Keyring::default();
    data.add("four.toml", &own_toml(1, "bob"));
    assert!(keyring.read_usable(&data.contexts()).unwrap_err().to_string().contains("are those of"));
}

/// A device that has the sender key of device 1, but another recipient ID.
fn sibling() -> Parameters {
    Parameters { recipient_id: Id::new(b"other").unwrap(), ..parameters(1) }
}

#[test]
fn s3_3_two_contexts_of_one_sender_key_are_refused_at_start_and_at_reload() {
    let data = Data::new();
    data.add("one.toml", &own_toml(1, "alice"));
    let keyring = data.open();
    data.add("two.toml", &toml::write(Some("alice"), &sibling()));
    for keyring in [&keyring, &Arc::default()] {
        let error = keyring.read(&data.contexts()).unwrap_err().to_string();
        assert!(error.contains("two.toml: the sender key is that of"), "{error}");
    }
    // Nor may one take the place of the other while the window of the other is in use.
    fs::remove_file(data.contexts().join("one.toml")).unwrap();
    let error = keyring.read(&data.contexts()).unwrap_err().to_string();
    assert!(error.contains("another only after a restart"), "{error}");

    assert!(is_taken(&mut Shield::new(Arc::clone(&keyring)), &device(1)));
    drop(keyring);
    let mut shield = Shield::new(data.open());
    let start = Start { next: 0, durable: 1024, requests: Requests::SeenBelow(0) };
    let other = Context::new("other".into(), &sibling().mirrored(), start, Arc::new(Granted)).unwrap();
    assert!(is_asked_for_proof(&mut shield, &other));
    assert!(matches!(open(&mut shield, &request(&device(1), None).0).0, Opened::Refused { .. }));
}

#[test]
fn a_directory_of_contexts_is_one_gateways() {
    let (data, elsewhere) = (Data::new(), Data::new());
    data.add("one.toml", &own_toml(1, "alice"));
    let keyring = data.open();
    let other = Keyring::default();
    let error = other.replace(other.read(&data.contexts()).unwrap(), &elsewhere.journal()).unwrap_err().to_string();
    assert!(error.contains("another gateway"), "{error}");
    drop(keyring);
    other.replace(other.read(&data.contexts()).unwrap(), &elsewhere.journal()).unwrap();
}

#[test]
fn a_reload_adds_and_removes_and_resets_no_window() {
    let data = Data::new();
    data.add("one.toml", &own_toml(1, "alice"));
    let keyring = data.open();
    let mut shield = Shield::new(Arc::clone(&keyring));
    let (one, two) = (device(1), device(2));
    let (old, _) = request(&one, None);
    let Opened::Request(exchange) = open(&mut shield, &old).0 else { panic!("it is refused") };
    let number = exchange.scope();
    assert!(keyring.holds(number));
    assert!(!is_taken(&mut shield, &two));

    data.add("two.toml", &own_toml(2, "bob"));
    data.reload(&keyring);
    assert!(is_taken(&mut shield, &two));
    let refused = |shield: &mut Shield, request: &[u8], expected| {
        let (Opened::Refused { text, .. }, _) = open(shield, request) else { panic!("it is let in") };
        assert_eq!(text, expected);
    };
    refused(&mut shield, &old, "Replay detected");

    let file = data.contexts().join("one.toml");
    fs::remove_file(&file).unwrap();
    data.reload(&keyring);
    refused(&mut shield, &request(&one, None).0, "Security context not found");
    assert!(!keyring.holds(number));
    data.add("one.toml", &own_toml(1, "alice"));
    data.reload(&keyring);
    refused(&mut shield, &old, "Replay detected");
    assert!(keyring.holds(number) && is_taken(&mut shield, &one));
}

/// The next response under OSCORE: its code and its payload.
async fn answer(socket: &tokio::net::UdpSocket, pending: &mut fogmux_oscore::Pending) -> (Code, Vec<u8>) {
    let (mut datagram, mut inner) = (vec![0; 2048], Vec::new());
    let length = socket.recv(&mut datagram).await.unwrap();
    pending.open(&Message::decode(&datagram[..length]).unwrap(), &mut inner).unwrap();
    let inner = Message::decode(&inner).unwrap();
    (inner.code, inner.payload().to_vec())
}

#[test]
fn a_context_that_was_removed_observes_nothing_any_more() {
    const RULES: &str = "[[allow]]\nuser = \"alice\"\nboth = [\"#\"]\n";
    let rules = || {
        let acl = Acl::parse(Path::new("acl.toml"), RULES).unwrap();
        Rules::new(Users::default(), Some(acl), AnonymousPolicy::Never)
    };
    run(CoapConfig::default(), false, async |house| {
        let (data, keyring) = (Data::new(), Arc::clone(&house.ctx.door.oscore));
        data.add("one.toml", &own_toml(1, "alice"));
        data.add("two.toml", &own_toml(2, "alice"));
        data.reload(&keyring);
        house.ctx.authority().replace(rules());
        house.keep("t", b"1");
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(house.address).await.unwrap();
        let mut plain = Vec::new();
        let mut encoder = Encoder::new(&mut plain, Type::NonConfirmable, Code::GET, 7, &Token::new(b"t").unwrap());
        encoder.push(OptionNumber::OBSERVE, b"");
        encoder.push(OptionNumber::URI_PATH, b"ps");
        encoder.push(OptionNumber::URI_PATH, b"t");
        encoder.finish();
        let mut sealed = Vec::new();
        let mut pending = device(1).seal_request(&Message::decode(&plain).unwrap(), &mut sealed).unwrap();
        socket.send(&sealed).await.unwrap();
        assert_eq!(answer(&socket, &mut pending).await, (Code::CONTENT, b"1".to_vec()));
        house.keep("t", b"2");
        assert_eq!(answer(&socket, &mut pending).await, (Code::CONTENT, b"2".to_vec()));

        // The user stays, with another device.
        fs::remove_file(data.contexts().join("one.toml")).unwrap();
        data.reload(&keyring);
        house.ctx.authority().replace(rules());
        house.keep("t", b"3");
        assert_eq!(answer(&socket, &mut pending).await.0, Code::UNAUTHORIZED);
        house.keep("t", b"4");
        let silence = tokio::time::timeout(Duration::from_millis(300), answer(&socket, &mut pending)).await;
        assert!(silence.is_err(), "{silence:?}");
    });
}
