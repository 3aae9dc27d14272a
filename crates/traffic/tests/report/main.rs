//! Rendering of a report: each format is written from it and has the same content.
//!
//! The files stay under the target directory, where `cargo xtask test bench` opens the pages in a browser.

mod sample;

use std::fs;
use std::path::{Path, PathBuf};

use fogmux_traffic::outcome::Report;
use fogmux_traffic::report::figure::Figure;
use fogmux_traffic::report::terminal::{self, Layout};
use fogmux_traffic::report::{self, compare, csv, html, json, markdown};

/// A directory of this test's own, which stays.
fn place(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report").join(name);
    fs::create_dir_all(&place).expect("a directory");
    place
}

fn page(report: &Report) -> String {
    html::document(report, &report::summaries(&report.runs))
}

/// But for what a terminal acts on, which a report of somebody else may have.
#[test]
fn json_is_read_as_it_was_written() {
    let (hostile, path) = (sample::hostile(), place("json").join("report.json"));
    json::write(&hostile, &path).unwrap();
    let report = json::read(&path).unwrap();
    let mut experiment = hostile.runs[0].experiment.clone();
    experiment.link = experiment.link.replace('\0', "\\u{0}");
    assert_eq!(report.runs[0].experiment, experiment);
    json::write(&report, &path).unwrap();
    let read = json::read(&path).unwrap();
    let (read, report) = (page(&read), page(&report));
    assert!(read == report, "{:?}", read.lines().zip(report.lines()).find(|(read, written)| read != written));
}

#[test]
fn a_format_of_the_future_is_refused_by_its_version() {
    let path = place("future").join("report.json");
    fs::write(&path, r#"{"version": 1000, "runs": "of another kind"}"#).unwrap();
    assert!(json::read(&path).unwrap_err().to_string().contains("format 1000 is newer"));
    fs::write(&path, "[]").unwrap();
    assert!(json::read(&path).unwrap_err().to_string().contains("no report"));
}

#[test]
fn all_formats_are_written_and_all_are_named() {
    let report = sample::matrix(7);
    let written = report::render(&report, &place("matrix")).unwrap();
    assert!(written.iter().all(|path| path.exists()));
    for ending in
        ["report.csv", "report.md", "report.html", "report.rate-1.svg", "report.latency-1.svg", "report.bytes-1.svg"]
    {
        assert!(written.iter().any(|path| path.ends_with(ending)), "{ending} of {written:?}");
    }
}

#[test]
fn csv_has_a_line_for_each_repetition_and_as_many_fields_everywhere() {
    let report = sample::matrix(7);
    let table = csv::table(&report.runs);
    let lines: Vec<&str> = table.split_terminator("\r\n").collect();
    let outcomes: usize = report.runs.iter().map(|run| run.outcomes.len()).sum();
    assert_eq!(lines.len(), outcomes + 1);
    let fields = lines[0].split(',').count();
    assert!(lines.iter().all(|line| line.split(',').count() == fields));
}

#[test]
fn nothing_that_somebody_says_becomes_markup() {
    let report = sample::hostile();
    report::render(&report, &place("hostile")).unwrap();
    let page = page(&report);
    assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
    assert!(page.contains("&lt;script&gt;"));
    let text = markdown::document(&report, &report::summaries(&report.runs));
    assert!(!text.lines().skip(1).any(|line| line.contains("<script")), "{text}");
}

#[test]
fn a_page_needs_nothing_else() {
    let page = page(&sample::matrix(7));
    for loads in ["<script", "http://", "https://", "@import", "url(", " src=", "<iframe"] {
        assert!(!page.contains(loads), "{loads}");
    }
    for id in ["rate", "payload", "latency", "tail", "cpu", "connect", "bytes", "time"] {
        assert!(page.contains(&format!("<section id=\"{id}\">")), "{id}");
    }
}

#[test]
fn a_document_and_its_claims_stand_before_our_own_table() {
    let report = sample::paper(5);
    report::render(&report, &place("paper")).unwrap();
    let page = page(&report);
    let document = page.find("A document that nobody wrote").unwrap();
    assert!(document < page.find("<h2>Results</h2>").unwrap());
    assert_eq!(page.matches("the handshake has two flights fewer").count(), 1);
    let text = markdown::document(&report, &report::summaries(&report.runs));
    assert!(text.contains("### Table 6: Packets of a message (§5.2), in packets"), "{text}");
}

#[test]
fn an_empty_report_is_a_report() {
    let report = sample::report("fogmux bench run", Vec::new());
    assert!(page(&report).contains("fogmux bench run"));
    assert!(terminal::results(&report::summaries(&report.runs), at(Some(80))).contains("Nothing was measured."));
}

fn at(width: Option<usize>) -> Layout<'static> {
    Layout { width, figures: &[] }
}

#[test]
fn a_table_keeps_to_the_width_of_the_terminal() {
    let report = sample::matrix(7);
    let summaries = report::summaries(&report.runs);
    let widest = |width| {
        let table = terminal::results(&summaries, at(width));
        println!("{table}");
        table.lines().map(|line| line.chars().count()).max().unwrap()
    };
    for width in [30, 60, 80, 120] {
        assert!(widest(Some(width)) <= width);
    }
    assert!(widest(None) > 120);
}

#[test]
fn columns_without_room_are_named_as_the_flag_takes_them() {
    let report = sample::matrix(7);
    let summaries = report::summaries(&report.runs);
    let all = terminal::results(&summaries, at(None));
    assert!(all.contains(" memory ") && !all.contains("--columns"), "{all}");
    let narrow = terminal::results(&summaries, at(Some(80)));
    let (table, foot) = narrow.split_once("Medians of").unwrap();
    assert!(!table.contains(" memory ") && foot.contains("--columns NAME,…"), "{narrow}");
    let figures: Vec<Figure> = foot
        .split([' ', ',', '.', '\n'])
        .filter_map(|word| serde_json::from_value(serde_json::Value::String(word.to_owned())).ok())
        .collect();
    assert!(figures.contains(&Figure::Memory) && !figures.contains(&Figure::Rate), "{figures:?}");
    // Columns that are asked for are there, in the order in which they are asked for, also beyond the width.
    let layout = Layout { width: Some(20), figures: &[Figure::Memory, Figure::Rate] };
    let chosen = terminal::results(&summaries, layout);
    let head = chosen.lines().next().unwrap();
    assert!(head.find("memory") < head.find("rate") && !head.contains("p50"), "{chosen}");
    assert!(!chosen.contains("--columns"), "{chosen}");
}

#[test]
fn one_run_is_a_list_of_everything() {
    let mut report = sample::matrix(7);
    report.runs.truncate(1);
    let summaries = report::summaries(&report.runs);
    let list = terminal::results(&summaries, at(Some(60)));
    println!("{list}");
    let lines: Vec<_> = list.lines().collect();
    assert_eq!(lines[0], summaries[0].label);
    assert!(lines[1].starts_with("  rate /s ") && lines[1].contains('–'), "{list}");
    assert!(lines.iter().any(|line| line.starts_with("  memory ")), "{list}");
    assert!(list.ends_with("Medians of 5 repetitions and 95 % intervals.\n"), "{list}");
}

#[test]
fn a_comparison_keeps_to_the_width_of_the_terminal() {
    let (before, mut after) = (sample::matrix(7), sample::matrix(7));
    after.runs.iter_mut().flat_map(|run| &mut run.outcomes).for_each(|outcome| outcome.seconds *= 2.0);
    let comparison = compare::compare(&before, &after, compare::SESSION);
    assert!(comparison.count(compare::Verdict::Regression) > 0);
    let text = |width| comparison.terminal(compare::Shown::Everything, Some(width));
    for width in [40, 60, 80, 120] {
        let widest = text(width).lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= width, "{width}: {}", text(width));
        assert!(text(width).contains("regression"), "{width}");
    }
    assert!(text(120).contains("before") && !text(120).contains("Left out"));
    assert!(text(60).contains("Left out for lack of room: before, after,"), "{}", text(60));
    // A list has room for everything.
    assert!(text(40).contains("\n  before") && !text(40).contains("Left out"), "{}", text(40));
}

#[test]
fn a_comparison_is_a_page_with_ratios_and_effects() {
    let (before, mut after) = (sample::matrix(7), sample::matrix(7));
    after.runs.iter_mut().flat_map(|run| &mut run.outcomes).for_each(|outcome| outcome.seconds *= 2.0);
    let comparison = compare::compare(&before, &after, compare::SESSION);
    let written = comparison.render(&place("comparison"), ["monday.json", "<b>tuesday.json"]).unwrap();
    let names: Vec<_> = written.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    assert!(names.starts_with(&["compare.html", "compare.md", "compare.ratio-1.svg"]), "{names:?}");
    let page = fs::read_to_string(&written[0]).unwrap();
    assert!(page.contains("monday.json") && page.contains("&lt;b&gt;tuesday.json"));
    assert!(page.contains("-1.00 large") && page.contains("regression") && page.contains("<svg"));
    // A rate by half, drawn at its ratio and coloured by its verdict.
    assert!(page.contains(">0.500</text>") && page.contains("bar c1"), "{}", names.join(" "));
    let hostile = sample::hostile();
    let comparison = compare::compare(&hostile, &hostile, compare::SESSION);
    let page = comparison.html(["<script>", "b"]);
    assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
}

#[test]
fn a_rerun_keeps_to_the_width_of_the_terminal() {
    let report = sample::paper(5);
    let result = report.paper.as_ref().unwrap();
    for width in [40, 80] {
        let text = report::paper::terminal(result, Some(width));
        let long: Vec<_> = text.lines().filter(|line| line.chars().count() > width).collect();
        assert!(long.is_empty(), "{width}: {long:#?}");
    }
}
