//! Reports as a bench would write them, made of a seed: for tests of what is done with reports, never for anything that
//! is said about speed.

use fogmux_traffic::experiment::Qos;
use fogmux_traffic::measure::environment::Environment;
use fogmux_traffic::measure::latency::Latency;
use fogmux_traffic::outcome::{Bytes, Outcome, ProcessUse, Report, Run, Wire};
use fogmux_traffic::paper::table::{Cell, ClaimResult, PaperResult, Printed, TableResult, Verdict};
use fogmux_traffic::{Door, Experiment};

/// Marsaglia's xorshift64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// From 0 to 1.
    pub(crate) fn share(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About 1, by so much at most.
    fn about_one(&mut self, by: f64) -> f64 {
        1.0 + (self.share() * 2.0 - 1.0) * by
    }
}

/// Doors by profiles by payloads: what `bench matrix` gives.
pub(crate) fn matrix(seed: u64) -> Report {
    let doors = [Door::Mqtt, Door::Coap, Door::Http2, Door::Xmpp];
    let mut random = Random::new(seed);
    let mut runs = Vec::new();
    for door in doors {
        for security in ["none", "high", "oscore"] {
            if security == "oscore" && door != Door::Coap {
                continue;
            }
            for payload_bytes in [16, 1_024, 65_536] {
                let experiment = Experiment {
                    door,
                    security: security.parse().expect("a profile"),
                    payload_bytes,
                    qos: Qos::AtLeastOnce,
                    link: "lossless".to_owned(),
                    ..Experiment::default()
                };
                runs.push(run(experiment, &mut random));
            }
        }
    }
    report("fogmux bench matrix --quick --link lossless", runs)
}

/// A document's table and claims, beside numbers of the seed.
pub(crate) fn paper(seed: u64) -> Report {
    let mut random = Random::new(seed);
    let rows = ["0 %", "5 %", "10 %", "15 %", "20 %"].map(str::to_owned).to_vec();
    let columns = ["NOSEC", "PSK", "PKI"].map(str::to_owned).to_vec();
    let mut cell = |packets: f64| Cell {
        paper: Printed::Number(packets),
        computed: Some(packets),
        measured: Some(packets * random.about_one(0.1)),
        low: Some(packets * 0.9),
        high: Some(packets * 1.1),
        exact: Some(false),
        because: Some("the handshake has two flights fewer".to_owned()),
        ..Cell::default()
    };
    let cells = rows.iter().map(|_| [2.0, 14.0, 21.5].map(&mut cell).to_vec()).collect();
    let table = TableResult {
        id: "6".to_owned(),
        title: "Packets of a message".to_owned(),
        place: "§5.2".to_owned(),
        unit: "packets".to_owned(),
        computed: true,
        rows,
        columns,
        cells,
        notes: vec!["Loss is in both directions.".to_owned()],
    };
    let claim = |id: &str, verdict| ClaimResult {
        id: id.to_owned(),
        text: "Certificates cost more packets than pre-shared keys.".to_owned(),
        place: "§6".to_owned(),
        verdict,
        because: "21.5 > 14 packets at 0 % loss".to_owned(),
        paper_agrees: Some(true),
    };
    let claims =
        vec![claim("c1", Verdict::Holds), claim("c2", Verdict::DoesNotHold), claim("c3", Verdict::CannotBeTested)];
    let (title, authors) = ("A document that nobody wrote".to_owned(), "Nobody".to_owned());
    let result = PaperResult {
        title,
        authors,
        year: 2021,
        repetitions: 5,
        tables: vec![table],
        claims,
        ..PaperResult::default()
    };
    Report { paper: Some(result), ..report("fogmux bench paper run", vec![run(Experiment::default(), &mut random)]) }
}

/// One experiment, that a peer with ill intentions has answered.
pub(crate) fn hostile() -> Report {
    let mut random = Random::new(3);
    let evil = "</title></svg><script>alert(1)</script><img src=x onerror=\"alert(1)\">|`\u{0}";
    let mut run = run(Experiment { link: evil.to_owned(), ..Experiment::default() }, &mut random);
    run.target = evil.to_owned();
    run.problem = Some(evil.to_owned());
    for outcome in &mut run.outcomes {
        outcome.errors = 1;
        outcome.first_error = Some(evil.to_owned());
        outcome.cipher = evil.to_owned();
        outcome.limited_by_generator = Some(evil.to_owned());
    }
    let mut report = report(evil, vec![run]);
    report.environment.kernel = evil.to_owned();
    let mut document = paper(3).paper.unwrap_or_default();
    document.title = evil.to_owned();
    document.claims.iter_mut().for_each(|claim| claim.because = evil.to_owned());
    document.tables.iter_mut().for_each(|table| table.notes.push(evil.to_owned()));
    report.paper = Some(document);
    report
}

pub(crate) fn report(command: &str, runs: Vec<Run>) -> Report {
    let mut environment = Environment::default();
    environment.kernel.push_str("Linux 6.1.0 aarch64");
    Report {
        version: 1,
        command: command.to_owned(),
        began_unix_s: 1_790_000_000,
        environment,
        resumed_unix_s: Vec::new(),
        gateway_environment: None,
        runs,
        paper: None,
    }
}

pub(crate) fn run(experiment: Experiment, random: &mut Random) -> Run {
    let outcomes = (0..5).map(|_| outcome(&experiment, random)).collect();
    Run { outcomes, ..Run::of(experiment, "fogmux 0.1.0".to_owned()) }
}

/// Messages a second, and what a message costs, of a door under a protection.
fn speed(experiment: &Experiment) -> (f64, f64) {
    let door = match experiment.door {
        Door::Mqtt => 1.0,
        Door::Mqtt5 => 1.05,
        Door::MqttWs => 1.3,
        Door::Coap => 1.6,
        Door::CoapTcp => 1.2,
        Door::Http1 | Door::Http2 | Door::Http3 => 3.5,
        Door::Xmpp | Door::Xmpps => 5.0,
    };
    let security = match experiment.security.to_string().as_str() {
        "none" => 1.0,
        "oscore" => 2.2,
        "low" => 1.15,
        "psk" => 1.2,
        _ => 1.3,
    };
    let size = 1.0 + experiment.payload_bytes as f64 / 8_192.0;
    (90_000.0 / door / security / size, 6.0 * door * security * size)
}

fn outcome(experiment: &Experiment, random: &mut Random) -> Outcome {
    let (rate, cost) = speed(experiment);
    let rate = rate * random.about_one(0.04);
    let seconds = 5.0;
    let delivered = whole(rate * seconds);
    let mut delivery = Latency::default();
    for _ in 0..20_000 {
        let usual = cost * 20_000.0 * (1.0 + 1.5 * random.share() * random.share());
        let tail = if random.share() < 0.004 { 4.0 + 60.0 * random.share() } else { 1.0 };
        delivery.record_ns(whole(usual * tail));
    }
    let mut connect = Latency::default();
    let shake = if experiment.security.is_secure() { 2_100_000.0 } else { 220_000.0 };
    for _ in 0..2 {
        connect.record_ns(whole(shake * random.about_one(0.1)));
    }
    let per_tenth = (0..50).map(|_| whole(rate / 10.0 * random.about_one(0.06))).collect();
    Outcome {
        sent: delivered,
        acknowledged: delivered,
        expected: delivered,
        delivered,
        seconds,
        delivery,
        connect,
        per_tenth,
        bytes: bytes(experiment, delivered),
        connect_bytes: bytes(experiment, 8),
        cipher: if experiment.security.is_secure() { "TLS_AES_128_GCM_SHA256".to_owned() } else { String::new() },
        gateway: Some(ProcessUse {
            cpu_us: cost * delivered as f64 * random.about_one(0.03),
            wall_us: 5e6,
            resident_bytes: 14_000_000,
            peak_resident_bytes: whole(16_000_000.0 * random.about_one(0.05)),
            ..ProcessUse::default()
        }),
        gateway_connect: Some(ProcessUse { cpu_us: 700.0, wall_us: 1e4, ..ProcessUse::default() }),
        generator: ProcessUse { cpu_us: cost * 0.7 * delivered as f64, wall_us: 5e6, ..ProcessUse::default() },
        ..Outcome::default()
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "none of these numbers is near the limits")]
fn whole(value: f64) -> u64 {
    value as u64
}

fn bytes(experiment: &Experiment, messages: u64) -> Bytes {
    let payload = experiment.payload_bytes as u64;
    let protocol = payload + if experiment.door == Door::Xmpp { 310 } else { 14 };
    let socket = protocol + if experiment.security.is_secure() || experiment.security.oscore { 29 } else { 0 };
    let packets = socket.div_ceil(1_460);
    Bytes {
        payload_up: payload * messages,
        payload_down: payload * messages,
        protocol_up: protocol * messages,
        protocol_down: (protocol + 4) * messages,
        socket_up: socket * messages,
        socket_down: (socket + 4) * messages,
        wire: Some(Wire {
            bytes_up: (socket + 66 * packets) * messages,
            bytes_down: (socket + 4 + 66 * packets) * messages,
            packets_up: packets * messages,
            packets_down: packets * messages,
        }),
    }
}
