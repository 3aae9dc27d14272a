//! Hand tool.
use fogmux_traffic::Experiment;
use fogmux_traffic::conductor::{Conductor, Target};
use fogmux_traffic::target::Home;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let directory = std::env::temp_dir().join(format!("B-{}", std::process::id()));
    let home = Home::make(directory.clone(), (&args[1]).into()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    let mut conductor = Conductor::new(Target::Gateway(home), None);
    for toml in &args[2..] {
        let experiment: Experiment = toml::from_str(&toml.replace(';', "\n")).unwrap();
        let outcome = local.block_on(&runtime, conductor.repeat(&experiment));
        match outcome {
            Err(error) => println!("{}: {:?} FAILED {error}", experiment.title(), experiment.operation),
            Ok(o) => {
                let n = o.delivered.max(o.acknowledged).max(1) as f64;
                println!(
                    "{} {:?} sent {} ack {} del {}/{} confl {} dup {} reord {} err {} {:?} disc {} | {:.0}/s | gw {:.2} us own {:.2} us | p50 {:?} p99 {:?} conn {:?} | {} | {:?}",
                    experiment.title(),
                    experiment.operation,
                    o.sent,
                    o.acknowledged,
                    o.delivered,
                    o.expected,
                    o.conflated,
                    o.duplicates,
                    o.reordered,
                    o.errors,
                    o.first_error,
                    o.disconnects,
                    n / o.seconds,
                    o.gateway.map_or(0.0, |g| g.cpu_us) / n,
                    o.generator.cpu_us / n,
                    o.answer.percentile_us(50.0),
                    o.answer.percentile_us(99.0),
                    o.connect.percentile_us(50.0),
                    o.cipher,
                    o.bytes
                );
            }
        }
    }
    let _ = std::fs::remove_dir_all(directory);
}
