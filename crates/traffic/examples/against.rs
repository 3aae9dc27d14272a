//! Hand tool.
use fogmux_traffic::Experiment;
use fogmux_traffic::driver;
use fogmux_traffic::measure::process::ProcessProbe;
use fogmux_traffic::pattern::{self, Bench};
use fogmux_traffic::target::Access;
use std::rc::Rc;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (port, pid, toml) = (args[1].parse().unwrap(), args[2].parse::<u32>().unwrap(), &args[3]);
    let mut prefix = args.get(4).cloned();
    if prefix.as_deref() == Some("-") {
        prefix = None;
    }
    let experiment: Experiment = toml::from_str(toml).unwrap();
    let access = Access {
        host: "127.0.0.1".into(),
        port,
        name: "localhost".into(),
        prefix,
        psk: Some(("dev1".into(), b"secretPSK".to_vec().into())),
        oscore: args.get(5).map(Into::into),
        ..Access::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let publishers: Rc<dyn driver::Driver> = Rc::from(driver::open(experiment.door, &experiment, &access).unwrap());
        let mut bench = Bench { subscribers: Rc::clone(&publishers), publishers, gateway: Some(ProcessProbe::of(&[pid])), generator: ProcessProbe::own(), wire: None, conflates: true };
        let o = pattern::run(&experiment, &mut bench).await.unwrap();
        let n = o.delivered.max(o.acknowledged).max(1) as f64;
        println!("{} sent {} ack {} del {}/{} confl {} err {} {:?} disc {} | {:.0}/s | gw {:.2} us own {:.2} us | p50 {:?} p99 {:?} | {} | {:?}",
            experiment.title(), o.sent, o.acknowledged, o.delivered, o.expected, o.conflated, o.errors, o.first_error, o.disconnects, n / o.seconds,
            o.gateway.map_or(0.0, |g| g.cpu_us) / n, o.generator.cpu_us / n, o.answer.percentile_us(50.0), o.answer.percentile_us(99.0), o.cipher, o.bytes);
    });
}
