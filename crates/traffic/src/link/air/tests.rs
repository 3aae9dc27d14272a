use super::super::conditions::Conditions;
use super::*;

fn air(conditions: &str) -> Air {
    conditions.parse::<Conditions>().unwrap().air
}

const DATA: usize = 1_514;
const ACK: usize = 66;
const PAYLOAD: u64 = 1_448;

/// Stations that always have full frames to send; how many frames of each way arrived in a second.
fn saturated(conditions: &str, ways: &[Way]) -> [u64; 2] {
    let start = Instant::now();
    let mut medium = Medium::new(air(conditions), 1, start);
    for way in ways {
        (0..200).for_each(|_| medium.offer(*way, start, vec![0; DATA]));
    }
    let mut counts = [0, 0];
    while let Some(arrived) = medium.advance(start + Duration::from_secs(1)) {
        counts[usize::from(arrived.way == Way::Down)] += 1;
        medium.offer(arrived.way, arrived.at, arrived.frame);
    }
    counts
}

/// Mbit/s of payload that TCP moves in each of the ways at once: 200 segments under way, of which every second is
/// acknowledged, which lets two more go.
fn tcp(conditions: &str, ways: &[Way]) -> f64 {
    let start = Instant::now();
    let mut medium = Medium::new(air(conditions), 1, start);
    for way in ways {
        (0..200).for_each(|_| medium.offer(*way, start, vec![0; DATA]));
    }
    let (mut segments, mut seen) = (0u64, [0u64; 2]);
    while let Some(Arrived { way, at, frame }) = medium.advance(start + Duration::from_secs(2)) {
        let back = if way == Way::Up { Way::Down } else { Way::Up };
        if frame.len() == ACK {
            (0..2).for_each(|_| medium.offer(back, at, vec![0; DATA]));
            continue;
        }
        segments += 1;
        let seen = &mut seen[usize::from(way == Way::Down)];
        *seen += 1;
        if *seen % 2 == 0 {
            medium.offer(back, at, vec![0; ACK]);
        }
    }
    (segments * PAYLOAD * 8) as f64 / 2e6
}

/// The mean time that a small frame and its answer take on a channel that is otherwise idle, in ms.
fn round_trip_ms(conditions: &str) -> f64 {
    let mut now = Instant::now();
    let mut medium = Medium::new(air(conditions), 1, now);
    let start = now;
    for _ in 0..500 {
        for way in [Way::Up, Way::Down] {
            medium.offer(way, now, vec![0; 100]);
            let arrived = medium.advance(now + Duration::from_secs(1)).unwrap();
            now = arrived.at;
        }
    }
    (now - start).as_secs_f64() * 1e3 / 500.0
}

#[test]
fn a_frame_alone_takes_what_the_standard_adds_up_to() {
    let start = Instant::now() + Duration::from_secs(1);
    let mut medium = Medium::new(air("air_client=65mbit"), 1, start - Duration::from_secs(1));
    medium.offer(Way::Up, start, vec![9; 100]);
    let arrived = medium.advance(start + Duration::from_secs(1)).unwrap();
    // The channel was idle for long: at once, 40 µs of preamble, 144 bytes at 65 Mbit/s, SIFS, and 32 µs of the answer.
    let takes = Duration::from_nanos(40_000 + 144 * 8_000 / 65 + 16_000 + 32_000);
    assert_eq!(arrived, Arrived { way: Way::Up, at: start + takes, frame: vec![9; 100] });
}

#[test]
fn both_directions_share_the_air() {
    let [up, _] = saturated("air_client=65mbit", &[Way::Up]);
    let [both_up, both_down] = saturated("air_client=65mbit", &[Way::Up, Way::Down]);
    let sum = both_up + both_down;
    // Less by collisions; a line would carry twice as much.
    assert!(sum < up && sum * 10 > up * 8, "{up} alone, {both_up} and {both_down} together");
    assert!(both_up.abs_diff(both_down) * 5 < sum, "{both_up} and {both_down}: access is fair");
}

#[test]
fn aggregates_pay_for_access_once() {
    let [many, _] = saturated("air_client=300mbit", &[Way::Up]);
    let [one, _] = saturated("air_client=300mbit,air_frames=1", &[Way::Up]);
    // 1 558 bytes are 41.5 µs; with AIFS, 7.5 slots, preamble and acknowledgement each takes 240.
    assert!((4_000..4_300).contains(&one), "{one}");
    assert!(many > 4 * one, "{many} to {one}");
}

#[test]
fn two_stations_send_each_frame_twice() {
    let [once, _] = saturated("air_client=65mbit", &[Way::Up]);
    let [twice, _] = saturated("air=65mbit", &[Way::Up]);
    assert!(twice * 2 <= once && twice * 10 > once * 4, "{twice} to {once}");
}

#[test]
fn a_slow_station_slows_the_other() {
    let both = [Way::Up, Way::Down];
    let [fast, _] = saturated("air_client=300mbit,air_gateway=300mbit", &both);
    let [slowed, _] = saturated("air_client=300mbit,air_gateway=6mbit", &both);
    assert!(slowed * 5 < fast, "{slowed} to {fast}");
}

#[test]
fn damaged_frames_are_sent_again_and_order_is_kept() {
    let start = Instant::now();
    let mut medium = Medium::new(air("air_client=65mbit,air_errors=20%"), 3, start);
    (0..200u8).for_each(|number| medium.offer(Way::Up, start, vec![number; 1_000]));
    let frames = std::iter::from_fn(|| medium.advance(start + Duration::from_secs(1)));
    let arrived: Vec<(Instant, u8)> = frames.map(|arrived| (arrived.at, arrived.frame[0])).collect();
    assert!(arrived.iter().map(|(_, number)| *number).eq(0..200), "{arrived:?}");
    assert!(arrived.is_sorted(), "times rise");
    let [clean, _] = saturated("air_client=65mbit", &[Way::Up]);
    let [noisy, _] = saturated("air_client=65mbit,air_errors=20%", &[Way::Up]);
    assert!((0.7..0.85).contains(&(noisy as f64 / clean as f64)), "{noisy} to {clean}");
}

#[test]
fn frames_that_are_never_sent_again_are_lost() {
    let start = Instant::now();
    let mut medium = Medium::new(air("air_client=65mbit,air_errors=20%,air_retries=0"), 3, start);
    let mut count = 0;
    for step in 0..2_000u32 {
        let at = start + step * Duration::from_millis(1);
        medium.offer(Way::Up, at, vec![0; 100]);
        count += usize::from(medium.advance(at + Duration::from_micros(900)).is_some());
    }
    assert!((1_500..1_700).contains(&count), "{count}, of 1 600");
}

#[test]
fn the_same_seed_does_the_same() {
    let both = [Way::Up, Way::Down];
    assert_eq!(saturated("air=65mbit,air_errors=5%", &both), saturated("air=65mbit,air_errors=5%", &both));
}

#[test]
fn the_queue_of_a_station_has_a_bound() {
    let start = Instant::now();
    let mut medium = Medium::new(air("air_client=65mbit"), 1, start);
    (0..1_500).for_each(|_| medium.offer(Way::Up, start, vec![0; 100]));
    let arrived = std::iter::from_fn(|| medium.advance(start + Duration::from_secs(1))).count();
    assert_eq!(arrived, QUEUE_FRAMES);
}

/// The numbers that a document prints, of a column of a table, for the rows of these names.
fn printed(paper: &str, table: &str, column: usize, rows: &[&str]) -> Vec<f64> {
    let paper = crate::paper::load(paper).unwrap();
    let table = paper.tables.iter().find(|other| other.id == table).unwrap();
    let row = |name: &&str| table.rows.iter().position(|row| row.name == *name).unwrap();
    rows.iter().map(|name| table.printed(row(name), column).number().unwrap()).collect()
}

#[test]
fn the_preset_of_the_thesis_gives_what_the_thesis_prints() {
    const PRESET: &str = "karamina2024";
    let [speed] = printed(PRESET, "15", 0, &["1000000 bytes"])[..] else { panic!("one") };
    let both = [Way::Up, Way::Down];
    let (print, model) = (speed * 8.0, tcp(PRESET, &both) / 2.0);
    assert!((225.0..226.0).contains(&print), "{print}");
    assert!((0.97..1.03).contains(&(model / print)), "{model} Mbit/s rather than {print}");

    let small = ["1 byte", "10 bytes", "100 bytes", "1000 bytes"];
    // CoAP and HTTP/3: tables on one machine and on Wi-Fi.
    let added: Vec<f64> = [("17", 0, "19", 0), ("21", 1, "25", 1)]
        .into_iter()
        .flat_map(|(near, column, far, other)| {
            printed(PRESET, far, other, &small).into_iter().zip(printed(PRESET, near, column, &small))
        })
        .map(|(far, near)| 1e3 / far - 1e3 / near)
        .collect();
    let print = added.iter().sum::<f64>() / added.len() as f64;
    let delay = PRESET.parse::<Conditions>().unwrap().up.delay.as_secs_f64() * 1e3;
    let model = round_trip_ms(PRESET) + 2.0 * delay;
    assert!((0.98..1.02).contains(&(model / print)), "{model} ms rather than {print}");
}

#[test]
fn the_round_trips_of_mladek2022_are_those_of_its_exchanges() {
    // §4.3: seconds for 65 536 exchanges of CoAP over UDP, on the Raspberry Pi (less 0.05 ms of machines) and ESP32.
    for (preset, seconds, machines_ms) in [("mladek2022", 239.182, 0.05), ("mladek2022-esp32", 1_716.413, 0.0)] {
        let delay = preset.parse::<Conditions>().unwrap().up.delay.as_secs_f64() * 1e3;
        let model = round_trip_ms(preset) + 2.0 * delay;
        let print = seconds * 1e3 / 65_536.0 - machines_ms;
        assert!((0.995..1.005).contains(&(model / print)), "{preset}: {model} ms rather than {print}");
    }
}

#[test]
fn the_round_trip_of_seoane2021_is_a_third_of_its_shortest_publication() {
    const PRESET: &str = "seoane2021";
    // Figure 20, QoS 0 without loss or security: TCP's handshake, CONNECT, and PUBLISH to the broker and on.
    const ROUND_TRIPS: f64 = 3.0;
    let [print] = printed(PRESET, "fig20", 0, &["QoS 0, 0 % loss"])[..] else { panic!("one") };
    let conditions = PRESET.parse::<Conditions>().unwrap();
    assert_eq!(conditions.air, Conditions::default().air, "Ethernet");
    let [up, down] = [conditions.up, conditions.down].map(|way| way.delay.as_secs_f64() * 1e3);
    let model = ROUND_TRIPS * (up + down);
    assert!((print - 8.6).abs() < f64::EPSILON && (0.995..1.005).contains(&(model / print)), "{model} ms, not {print}");
}
