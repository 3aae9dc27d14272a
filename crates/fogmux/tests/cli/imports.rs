//! `fogmux import mosquitto` of files that have no counterpart here.

use std::fs;

use crate::support::run;

#[test]
fn a_configuration_of_a_bridge_only_says_how_it_becomes_a_link() {
    let home = tempfile::tempdir().expect("a directory");
    let (file, data) = (home.path().join("mosquitto.conf"), home.path().join("data"));
    fs::write(&file, "# a comment\nconnection up\naddress broker.example:8883\ntopic sensors/# out 1\n")
        .expect("written");
    let [file, data] = [&file, &data].map(|path| path.to_str().expect("a plain path"));
    let done = run(&["import", "mosquitto", "--data", data, file]);
    assert_eq!(done.code, 0, "as of others whose lines are left out: {}", done.stderr);
    for line in ["conf:2: left out: --links FILE writes this bridge as a link", "1 line was left out"] {
        assert!(done.stdout.contains(line), "{line}: {}", done.stdout);
    }
    let json = run(&["import", "mosquitto", "--json", "--data", data, file]);
    let told: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!((json.code, told["imported"].as_array().map(Vec::len)), (0, Some(0)), "{told}");
    assert_eq!(told["notes"].as_array().map(Vec::len), Some(1), "{told}");
    assert_eq!(run(&["import", "mosquitto", "--data", data]).code, 64, "no file is named");
}
