//! Access rules: reading a file, and decisions that no cache knows.
//!
//! Reading is linear if each size has the same throughput. A decision is to take 5 µs at most at 10 000 rules.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]

use std::{hint::black_box, path::Path, sync::Arc, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fogmux_auth::{Acl, Action, AnonymousPolicy, Authority, Door, Principal, Rules, Users};

const RULES: u32 = 10_000;

/// Rules for everybody, N in the filter being the number of the rule.
fn file(rules: u32, who: &str, filter: &str) -> String {
    let rule = |number: u32| {
        let (who, filter) = (who.replace('N', &number.to_string()), filter.replace('N', &number.to_string()));
        format!("[[allow]]\n{who}\nboth = [\"{filter}\"]\n\n")
    };
    (0..rules).map(rule).collect()
}

fn read(c: &mut Criterion) {
    let mut group = c.benchmark_group("acl_read");
    for rules in [2_500, 5_000, RULES] {
        let text = file(rules, "authenticated = true", "plant/N/#");
        group.throughput(Throughput::Elements(rules.into()));
        group.bench_with_input(BenchmarkId::from_parameter(rules), &text, |b, text| {
            b.iter(|| Acl::parse(Path::new("acl.toml"), black_box(text)).unwrap());
        });
    }
    group.finish();
}

fn decide(c: &mut Criterion) {
    let users = Users::parse(Path::new("users.toml"), "[users.user-7]\n").unwrap();
    // More topics than any cache of decisions holds.
    let topics: Vec<String> = (0..20_000).map(|number| format!("plant/{number}/line/{}", number % 97)).collect();
    let mut group = c.benchmark_group("acl_decision_10000_rules");
    for (name, who, filter) in [
        ("everybody, a subtree each", "authenticated = true\nanonymous = true", "plant/N/#"),
        ("everybody, + at the start", "authenticated = true\nanonymous = true", "+/N/line/+"),
        ("everybody, + throughout", "authenticated = true\nanonymous = true", "+/+/+/N"),
        ("everybody, N then +", "authenticated = true\nanonymous = true", "N/+/+/state"),
        ("everybody, the same filter", "authenticated = true\nanonymous = true", "plant/+/line/#"),
        ("everybody, placeholders", "authenticated = true\nanonymous = true", "%c/N/#"),
        ("one user each", "user = \"user-N\"", "plant/N/#"),
    ] {
        let acl = Acl::parse(Path::new("acl.toml"), &file(RULES, who, filter)).unwrap();
        let authority = Arc::new(Authority::new(Rules::new(users.clone(), Some(acl), AnonymousPolicy::Everywhere)));
        for principal in [Principal::anonymous(), authority.principal("user-7").unwrap()] {
            let access = authority.access(&principal, "client", Door::Mqtt);
            let mut next = topics.iter().cycle();
            group.bench_function(format!("{name}, as {}", principal.name), |b| {
                b.iter(|| access.may_write(black_box(next.next().unwrap())));
            });
        }
        let access = authority.access(&Principal::anonymous(), "client", Door::Mqtt);
        assert_eq!(access.may_write("plant/5/line/5"), access.decide(Action::Write, "plant/5/line/5").allowed);
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(2));
    targets = read, decide
}
criterion_main!(benches);
