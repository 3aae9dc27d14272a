//! SUBSCRIBE with many filters under many access rules.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fogmux_tests::gateway::Gateway;
use fogmux_tests::mqtt::{Connection, V5, subscribe};
use fogmux_tests::suite::Case;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "mqtt: 1000 filters in one SUBSCRIBE are looked at in no time that grows with the rules",
        run: many_rules,
    },
    Case { name: "mqtt: filters beyond what a client may have are refused with 0x97", run: beyond },
];

const FILTERS: usize = 1000;
const TRIALS: u32 = 5;

/// The shortest of a few times from SUBSCRIBE to SUBACK, with the codes.
fn subscribed(gateway: &Gateway, filters: &[&str]) -> Result<(Duration, Vec<u8>)> {
    let (mut best, mut codes) = (Duration::MAX, Vec::new());
    for trial in 0..TRIALS {
        let mut client = Connection::open(gateway.address("mqtt")?, V5, &format!("subscriber-{trial}"))?;
        let began = Instant::now();
        codes = client.subscribe(1, filters, 1)?;
        best = best.min(began.elapsed());
    }
    Ok((best, codes))
}

fn many_rules() -> Result<String> {
    let filters: Vec<String> = (0..FILTERS)
        .map(|number| match number % 4 {
            0 => format!("plant/{number}/state"),
            1 => format!("plant/{number}/+"),
            2 => format!("+/{number}/#"),
            _ => format!("other/{number}/+"),
        })
        .collect();
    let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
    let mut times = Vec::new();
    for count in [FILTERS, 20 * FILTERS] {
        let rule = |number| format!("[[allow]]\nanonymous = true\nread = [\"plant/{number}/state\"]\n");
        let rules: String = (0..count).map(rule).collect();
        let mut gateway = Gateway::start_furnished(&["workers.count=1"], &[("acl.toml", &rules)])?;
        let (took, codes) = subscribed(&gateway, &filters)?;
        for (number, code) in codes.iter().enumerate() {
            let expected = if number % 4 == 3 { 0x87 } else { 1 };
            ensure!(*code == expected, "{code:#x} for {:?}", filters.get(number));
        }
        ensure!(codes.len() == FILTERS, "{} codes", codes.len());
        times.push(took);
        gateway.settle()?;
    }
    let [few, many] = times.as_slice() else { anyhow::bail!("two times") };
    // Twenty times the rules took twenty times as long when each filter was compared with each rule.
    ensure!(
        *many < *few * 5 + Duration::from_millis(20),
        "{few:?} with {FILTERS} rules, {many:?} with 20 times as many"
    );
    Ok(format!("{few:?}, {many:?}"))
}

fn beyond() -> Result<String> {
    let mut gateway = Gateway::start(&["mqtt.subscriptions_max=10"])?;
    let filters: Vec<String> = (0..25).map(|number| format!("a/{number}")).collect();
    let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
    let mut client = Connection::open(gateway.address("mqtt")?, V5, "subscriber")?;
    client.stream.write_all(&subscribe(V5, 1, &filters, 1))?;
    let (first, body) = client.read()?;
    ensure!(first == 0x90, "{first:#x} instead of SUBACK");
    let codes: Vec<u8> = body.into_iter().skip(3).collect();
    ensure!(codes == [[1; 10].as_slice(), &[0x97; 15]].concat(), "{codes:02x?}");
    drop(client);
    gateway.settle()?;
    Ok(String::new())
}
