//! `callwright bench`, run as a program.

use crate::program::{callwright, run};
use serde_json::Value;
use std::path::Path;

fn cases() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/bench/cases.jsonl").display().to_string()
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_run_holds_the_tools_that_its_suite_names_by_path() {
    let home = tempfile::tempdir().unwrap();
    let suite = home.path().join("cases.jsonl");
    std::fs::write(home.path().join("tools.json"), r#"[{"name": "clock"}]"#).unwrap();
    let case = r#"{"prompt": "What time is it?", "tools": "tools.json", "expected": "any"}"#;
    std::fs::write(&suite, format!("// Without ids, which are the lines' numbers then.\n{case}\n\n{case}\n")).unwrap();
    let out = home.path().join("run");
    let bench = |arguments: &[&str]| {
        let mut command = callwright(home.path());
        command.args(["bench", "--limit", "2", "--suite"]).arg(&suite);
        run(command.arg("--out").arg(&out).args(arguments))
    };
    assert_eq!(bench(&[]).code, 0);
    let resumed = bench(&["--resume"]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    let samples = std::fs::read_to_string(out.join("samples.jsonl")).unwrap();
    assert!(samples.contains("line-2") && samples.contains("line-4") && samples.lines().count() == 2, "{samples}");
    for command in ["report", "rescore"] {
        let ran = run(callwright(home.path()).args(["bench", command]).arg(&out));
        assert_eq!(ran.code, 0, "{command}: {}", ran.err);
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn tasks_of_several_turns_from_init_to_report() {
    let home = tempfile::tempdir().unwrap();
    let suite = home.path().join("cases.jsonl");
    let init = || run(callwright(home.path()).args(["bench", "init", "--multi-turn"]).arg(&suite));
    let first = init();
    assert_eq!((first.code, first.err.as_str()), (0, ""));
    assert!(home.path().join("cases.toml").exists());
    assert!(init().err.contains("cases.jsonl exists already"));
    let (whole, out) = (home.path().join("whole"), home.path().join("run"));
    let bench = |out: &Path, arguments: &[&str]| {
        let mut command = callwright(home.path());
        run(command.args(["bench", "--exact", "--suite"]).arg(&suite).arg("--out").arg(out).args(arguments))
    };
    let ran = bench(&whole, &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let samples = |out: &Path| -> Vec<Value> {
        let text = std::fs::read_to_string(out.join("samples.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (turns, verdicts): (Vec<_>, Vec<_>) =
        samples(&whole).into_iter().map(|sample| (sample["turns"].clone(), sample["verdict"].clone())).unzip();
    assert_eq!(turns.iter().map(|turns| turns.as_array().unwrap().len()).collect::<Vec<_>>(), [1, 2, 1, 1]);
    assert!(turns.iter().all(|turns| turns[0]["messages"][0]["role"] == "user" && turns[0]["status"] != "error"));

    // A run that ends in the middle of a case goes on with that case, and comes to the same.
    assert_eq!(bench(&out, &[]).code, 0);
    let text = std::fs::read_to_string(out.join("samples.jsonl")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    std::fs::write(out.join("samples.jsonl"), format!("{}\n{}", lines[0], &lines[1][..40])).unwrap();
    let resumed = run(callwright(home.path()).args(["bench", "--resume"]).arg(&out));
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    let again: Vec<Value> = samples(&out).into_iter().map(|sample| sample["verdict"].clone()).collect();
    assert_eq!(again, verdicts);
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("Turn on the heating in the kitchen."));
    let refused = bench(&home.path().join("more"), &["--more-tools", "3"]);
    assert!(refused.code == 2 && refused.err.contains("has several turns"), "{}", refused.err);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_users_own_suite_from_init_to_report() {
    let home = tempfile::tempdir().unwrap();
    let suite = home.path().join("cases.jsonl");
    let init = run(callwright(home.path()).args(["bench", "init"]).arg(&suite));
    assert_eq!((init.code, init.err.as_str()), (0, ""));
    let again = run(callwright(home.path()).args(["bench", "init"]).arg(&suite));
    assert_eq!(again.code, 2);
    assert!(again.err.contains("exists already"), "{}", again.err);

    let out = home.path().join("run");
    let bench = |arguments: &[&str]| {
        let mut command = callwright(home.path());
        command.args(["bench", "--constrain", "off", "--constrain", "strict", "--suite"]).arg(&suite);
        run(command.arg("--out").arg(&out).args(arguments))
    };
    let ran = bench(&["--fail-under", "0"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("constrain strict: 4 answers") && ran.out.contains("report.html"), "{}", ran.out);
    let lines = |name: &str| std::fs::read_to_string(out.join(name)).unwrap().lines().count();
    assert_eq!((lines("samples.jsonl"), lines("outcomes.jsonl"), lines("prompts.jsonl")), (8, 8, 4));
    let plan: Value = serde_json::from_str(&std::fs::read_to_string(out.join("run.json")).unwrap()).unwrap();
    assert_eq!(plan["configurations"][0]["model_sha256"].as_str().unwrap().len(), 64);
    assert!(plan["command"].as_array().unwrap().contains(&"strict".into()));

    assert_eq!(bench(&[]).code, 2, "there is a run");
    let elsewhere = run(callwright(home.path()).args(["bench", "--suite"]).arg(&suite).arg("--out").arg(home.path()));
    assert_eq!(elsewhere.code, 2, "{}", elsewhere.out);
    assert!(elsewhere.err.contains("is not empty and no run: it has "), "{}", elsewhere.err);
    let failed = bench(&["--resume", "--fail-under", "0.9999"]);
    assert!(failed.err.contains("constrain strict: accuracy is below 100.0%: "), "{}", failed.err);
    assert!(failed.err.contains(" of 4)\n"), "{}", failed.err);
    let resumed = bench(&["--resume", "--json"]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    let report: Value = serde_json::from_str(&resumed.out).unwrap();
    assert_eq!((&report["missing"], &report["configurations"][1]["samples"]), (&0.into(), &4.into()));
    assert_eq!(lines("samples.jsonl"), 8);

    let failed = bench(&["--resume", "--fail-under", "1:bfcl"]);
    assert_eq!(failed.code, 3);
    assert!(failed.err.contains("constrain off: bfcl is below 100.0%: nothing to count"), "{}", failed.err);
    assert_eq!(bench(&["--resume", "--baseline", out.to_str().unwrap()]).code, 0);
    let other = bench(&["--resume", "--temp", "0.7", "--max-tokens", "99"]);
    assert_eq!(other.code, 2, "{}", other.out);
    assert!(other.err.contains("no --temp, not --temp 0.7; --max-tokens 512, not --max-tokens 99"), "{}", other.err);
    let other = home.path().join("other");
    let ran =
        run(callwright(home.path()).args(["bench", "--limit", "2", "--baseline"]).arg(&out).arg("--out").arg(&other));
    assert_eq!(ran.code, 2, "{}", ran.out);
    assert!(ran.err.contains("has other cases: it is no baseline for these"), "{}", ran.err);
    let ran = run(callwright(home.path())
        .args(["bench", "--temp", "0.5", "--temp", "0.9", "--suite"])
        .arg(&suite)
        .arg("--baseline")
        .arg(&out)
        .arg("--out")
        .arg(&other));
    assert_eq!(ran.code, 2, "{}", ran.out);
    assert!(ran.err.contains("has no configurations that belong to these"), "{}", ran.err);
    assert!(!other.exists(), "something was asked");

    let rescored = run(callwright(home.path()).args(["bench", "rescore"]).arg(&out));
    assert_eq!(
        (rescored.code, rescored.out),
        (0, run(callwright(home.path()).args(["bench", "report"]).arg(&out)).out)
    );
    let compared = run(callwright(home.path()).args(["bench", "compare"]).arg(&out).arg(&out));
    assert_eq!(compared.code, 0);
    assert!(
        compared.out.starts_with(
            "constrain off in the second run may be as good as the one in the first: each of 4 cases is right "
        ) && compared.out.contains("p = 1.0000"),
        "{}",
        compared.out
    );
    let compared = run(callwright(home.path()).args(["bench", "compare", "--json"]).arg(&out).arg(&out));
    assert_eq!(serde_json::from_str::<Value>(&compared.out).unwrap()[1]["cases"], 4);
    let within = run(callwright(home.path()).args(["bench", "compare"]).arg(&out));
    assert_eq!(within.code, 0, "{}", within.err);
    assert!(
        within.out.starts_with("constrain strict may be as good as constrain off: ")
            && within.out.contains("over 4 cases"),
        "{}",
        within.out
    );

    // Reports that cannot be written keep nobody from reading the table.
    std::fs::remove_file(out.join("report.html")).unwrap();
    std::fs::create_dir_all(out.join("report.html/taken")).unwrap();
    let unwritable = run(callwright(home.path()).args(["bench", "report"]).arg(&out));
    assert!(unwritable.code == 2 && unwritable.out.contains("constrain strict: 4 answers"), "{}", unwritable.out);
    assert!(unwritable.err.contains("cannot write") && unwritable.err.contains("report.html"), "{}", unwritable.err);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn failures_are_reported_and_are_no_success() {
    let home = tempfile::tempdir().unwrap();
    let template = home.path().join("strict.jinja");
    std::fs::write(&template, "{{ raise_exception('nothing to write') }}").unwrap();
    let bench = |out: &str, more: &[&str]| {
        let mut command = callwright(home.path());
        command
            .args(["bench", "--suite", &cases(), "--limit", "2", "--max-tokens", "16", "--out"])
            .arg(home.path().join(out));
        run(command.args(more))
    };
    let broken = bench("broken", &["--format", "hermes", "--template", template.to_str().unwrap()]);
    assert_eq!(broken.code, 1, "{}", broken.err);
    assert!(broken.err.contains("note: 2 of 2 answers broke, which says nothing of the model"), "{}", broken.err);
    assert!(broken.err.contains("nothing to write; `callwright bench --resume "), "{}", broken.err);
    // They are no wrong answers of the model's.
    let report = std::fs::read_to_string(home.path().join("broken/report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let measured = &report["configurations"][0];
    assert_eq!((&measured["outcomes"]["infra_error"], measured["scores"].get("accuracy")), (&2.into(), None));
    let missed =
        bench("missed", &["--format", "hermes", "--template", template.to_str().unwrap(), "--fail-under", "0.5"]);
    assert_eq!(missed.code, 3, "{}", missed.err);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_comparison_names_what_differs_and_what_is_not_finished() {
    let home = tempfile::tempdir().unwrap();
    let folder = |name: &str| home.path().join(name);
    for (name, more) in [("a", ["--temp", "0", "--max-tokens", "16"]), ("b", ["--temp", "1", "--max-tokens", "16"])] {
        let ran = run(callwright(home.path())
            .args(["bench", "--suite", &cases(), "--limit", "2", "--out"])
            .arg(folder(name))
            .args(more));
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
    let compare = || run(callwright(home.path()).args(["bench", "compare"]).arg(folder("a")).arg(folder("b")));
    let compared = compare();
    assert!(compared.out.starts_with("temp 1 may be as good as temp 0: "), "{}", compared.out);
    assert!(!compared.err.contains("lacks"), "{}", compared.err);

    let journal = folder("b").join("samples.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, text.split_inclusive('\n').next().unwrap()).unwrap();
    let compared = compare();
    assert!(compared.out.contains("over 1 cases"), "{}", compared.out);
    let alone = run(callwright(home.path()).args(["bench", "compare"]).arg(folder("a")));
    assert!(
        alone.code == 2 && alone.err.contains("has one configuration: nothing to compare it with"),
        "{}",
        alone.err
    );
    assert!(compared.err.contains("b lacks 1 of its 2 answers: it is not finished"), "{}", compared.err);

    // Another number of cases, or a case that was edited, is no going on.
    let edited = home.path().join("edited 2.jsonl");
    let suite = std::fs::read_to_string(cases()).unwrap();
    std::fs::write(&edited, suite.replace("\"prompt\": \"", "\"prompt\": \"Well, ")).unwrap();
    let resume = |suite: &str, limit: &str, out: &str| {
        run(callwright(home.path())
            .args([
                "bench",
                "--suite",
                suite,
                "--limit",
                limit,
                "--temp",
                "1",
                "--max-tokens",
                "16",
                "--resume",
                "--out",
            ])
            .arg(folder(out)))
    };
    let other = resume(&cases(), "1", "b");
    assert!(other.code == 2 && other.err.contains("--limit 2, not --limit 1"), "{}", other.err);
    let other = resume(edited.to_str().unwrap(), "2", "b");
    assert!(other.code == 2 && other.err.contains("edited 2.jsonl"), "{}", other.err);
    // Where nothing is there to go on with, that is said; and the report's command can be given to a shell.
    let new = resume(edited.to_str().unwrap(), "2", "new");
    assert!(new.code == 0 && new.err.contains("note: there was no run in "), "{}", new.err);
    let report = std::fs::read_to_string(folder("new").join("report.md")).unwrap();
    assert!(report.contains(&format!("--suite '{}' --limit 2", edited.display())), "{report}");

    // Gone on with several at a time, it was asked several at a time.
    let resumed = run(callwright(home.path())
        .args(["bench", "--suite", &cases(), "--limit", "2", "--temp", "1", "--max-tokens", "16", "--resume"])
        .args(["--parallel-cases", "3", "--out"])
        .arg(folder("b")));
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    let report = std::fs::read_to_string(folder("b").join("report.md")).unwrap();
    assert!(report.contains("Up to 3 cases were asked at a time"), "{report}");
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn several_cases_at_a_time_come_to_the_same() {
    let home = tempfile::tempdir().unwrap();
    let outcomes = |name: &str, count: &str, threads: &[&str]| {
        let out = home.path().join(name);
        let ran = run(callwright(home.path())
            .args(["bench", "--limit", "24", "--constrain", "off", "--constrain", "strict", "--max-tokens", "128"])
            .args(["--parallel-cases", count])
            .args(threads)
            .arg("--out")
            .arg(&out));
        assert_eq!(ran.code, 0, "{}", ran.err);
        let text = std::fs::read_to_string(out.join("outcomes.jsonl")).unwrap();
        let outcome = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            format!("{} {} {}", line["case"], line["config"], line["outcome"])
        };
        let report = std::fs::read_to_string(out.join("report.md")).unwrap();
        assert_eq!(report.contains("Up to 6 cases were asked at a time"), count == "6");
        text.lines().map(outcome).collect::<Vec<_>>()
    };
    let alone = outcomes("alone", "1", &[]);
    assert_eq!(alone.len(), 48);
    // A number of threads is for one context, which they then share; without it they may have one each.
    for (name, threads) in [("together", &["--threads", "1"][..]), ("apart", &[])] {
        let several = outcomes(name, "6", threads);
        assert_eq!(several.len(), 48);
        let same = alone.iter().zip(&several).filter(|(a, b)| a == b).count();
        assert!(same >= 47, "{name}: {same} of 48 are the same");
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn prompts_that_do_not_fit_are_an_outcome() {
    let home = tempfile::tempdir().unwrap();
    let ran = run(callwright(home.path())
        .args(["bench", "--ctx", "16", "--limit", "1", "--json", "--suite", &cases(), "--out"])
        .arg(home.path().join("run")));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["configurations"][0]["outcomes"]["prompt_too_long"], 1, "{}", ran.out);
    let ran = run(callwright(home.path()).args(["bench", "report"]).arg(home.path().join("run")));
    assert!(ran.out.contains(": 1 answer; prompt_too_long 1\n"), "{}", ran.out);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn wrong_options_are_reported() {
    let home = tempfile::tempdir().unwrap();
    for (arguments, message) in [
        (&["--fail-under", "95"][..], "the share is no number from 0 to 1"),
        (&["--fail-under", "0.9:format"], "there is no score \"format\""),
        (&["--fail-under", "0.9:acuracy"], "did you mean accuracy?"),
        (&["--suite", "nowhere.jsonl"], "there is no suite \"nowhere.jsonl\""),
        (&["--temp", "0", "--temp", "0"], "duplicate configuration"),
        (&["--temp", "0.5", "--temp", "0.5"], "--temp 0.5 was given twice"),
        (&["--constrain", "off", "--constrain", "off"], "--constrain off was given twice"),
        (&["--tool-choice", "auto", "--tool-choice", "auto"], "--tool-choice auto was given twice"),
        (&["--tool-choice", "none"], "invalid value 'none'"),
        (&["--resume"], "--resume DIR"),
        (&["--resume", "nowhere"], "there is no run in nowhere"),
        (&["--resume", "a", "--out", "b"], "--resume a and --out b are two runs"),
        (&["--parallel-cases", "0"], "not a whole number from 1 to 256"),
        (&["--preset", "formats", "--format", "hermes"], "cannot be used with"),
        (&["report", "nowhere"], "there is no run in nowhere"),
        (&["compare", "a", "b"], "there is no run in a"),
    ] {
        let ran = run(callwright(home.path()).current_dir(home.path()).arg("bench").args(arguments));
        assert_eq!(ran.code, 2, "{arguments:?}");
        assert!(ran.err.contains(message), "{arguments:?}\n{}", ran.err);
    }
    assert_eq!(
        std::fs::read_dir(home.path())
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("bench-") })
            .count(),
        0,
        "nothing was started"
    );
}

#[test]
fn answers_made_elsewhere_are_scored() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    std::fs::create_dir_all(data.join("possible_answer")).unwrap();
    let tool = r#"{"name": "power", "description": "Powers.", "parameters": {"type": "dict", "properties": {"base": {"type": "integer"}, "exponent": {"type": "float"}}, "required": ["base"]}}"#;
    let write = |name: &str, text: &str| std::fs::write(data.join(name), text).unwrap();
    let question = r#"[[{"role": "user", "content": "2 to the 80th?"}]]"#;
    write("BFCL_v4_simple_python.json", &format!(r#"{{"id": "s_0", "question": {question}, "function": [{tool}]}}"#));
    write("BFCL_v4_irrelevance.json", &format!(r#"{{"id": "i_0", "question": {question}, "function": [{tool}]}}"#));
    write(
        "possible_answer/BFCL_v4_simple_python.json",
        r#"{"id": "s_0", "ground_truth": [{"power": {"base": [1208925819614629174706177], "exponent": ["", 5]}}]}"#,
    );
    let rows = [
        (r#"{"id": "s_0", "candidate": [{"power": {"base": 1208925819614629174706177}}]}"#, "null"),
        (r#"{"id": "s_0", "candidate": [{"power": {"base": 1208925819614629174706177, "exponent": 5}}]}"#, "null"),
        (r#"{"id": "s_0", "candidate": [{"power": {"base": 1208925819614629174706176}}]}"#, "\"value_error:others\""),
        (r#"{"id": "s_0", "candidate": [{"power": {"base": 5.0}}]}"#, "\"type_error:simple\""),
        (r#"{"id": "s_0", "candidate": null}"#, "\"ast_decoder:decoder_failed\""),
        (r#"{"id": "s_0", "candidate": {}}"#, "\"ast_decoder:decoder_wrong_output_format\""),
        (r#"{"id": "i_0", "candidate": [{"power": {}}]}"#, "\"irrelevance_error:decoder_success\""),
        (r#"{"id": "i_0", "candidate": []}"#, "null"),
    ];
    let text: String = rows.iter().map(|(row, _)| format!("{row}\n")).collect();
    let suite = format!("bfcl:{}", home.path().display());
    let score = |text: &str, suite: &str| {
        run(callwright(home.path()).args(["bench", "score", "--suite", suite, "-"]).write_stdin(text))
    };
    let ran = score(&text, &suite);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for (line, (row, error_type)) in ran.out.lines().zip(rows) {
        let valid = error_type == "null";
        let id = &row[8..11];
        assert_eq!(line, format!(r#"{{"id":"{id}","valid":{valid},"error_type":{error_type}}}"#), "{row}");
    }
    assert!(ran.err.contains("simple_python: 2 of 6 valid (33.3%)"), "{}", ran.err);
    assert!(ran.err.contains("6 lines answer a case that an earlier line answers; each line counts"), "{}", ran.err);
    assert!(!ran.err.contains("have no answer"), "{}", ran.err);
    let ran = score(rows[7].0, &suite);
    assert!(ran.err.contains("irrelevance: 1 of 1 valid (100.0%)"), "{}", ran.err);
    assert!(ran.err.contains("1 of 2 cases have no answer; the counts leave them out"), "{}", ran.err);

    for (text, suite, message) in [
        ("{\"id\": \"s_9\", \"candidate\": []}", suite.as_str(), "<standard input>:1: the suite has no case \"s_9\""),
        ("\n{\"id\": \"s_0\"}", &suite, "<standard input>:2: the line has no \"id\" or no \"candidate\""),
        ("{\"id\"", &suite, "<standard input>:1:6: not valid JSON"),
        ("{\"id\": \"call\", \"candidate\": []}", &cases(), "the case \"call\" is none of BFCL's"),
    ] {
        let ran = score(text, suite);
        assert_eq!(ran.code, 2);
        assert!(ran.err.contains(message), "{}", ran.err);
    }
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_run_goes_on_with_what_it_was_begun_with() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().join("run");
    let began =
        ["bench", "--suite", &cases(), "--limit", "2", "--temp", "1", "--max-tokens", "16", "--constrain", "off"];
    assert_eq!(run(callwright(home.path()).args(began).arg("--out").arg(&out)).code, 0);
    let samples = out.join("samples.jsonl");
    let whole = std::fs::read_to_string(&samples).unwrap();
    let first = whole.split_inclusive('\n').next().unwrap();
    std::fs::write(&samples, first).unwrap();
    let resumed = run(callwright(home.path()).args(["bench", "--threads", "1", "--json", "--resume"]).arg(&out));
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    let report: Value = serde_json::from_str(&resumed.out).unwrap();
    assert_eq!(report["missing"], 0, "{report}");
    let again = std::fs::read_to_string(&samples).unwrap();
    let raw = |text: &str| serde_json::from_str::<Value>(text.lines().nth(1).unwrap()).unwrap()["raw"].clone();
    assert_eq!((again.lines().count(), raw(&again)), (2, raw(&whole)));
    let other = run(callwright(home.path()).args(["bench", "-m", "other.gguf", "--seed", "0", "--resume"]).arg(&out));
    assert_eq!(other.code, 2, "{}", other.out);
    assert!(other.err.contains("begun with other options: --model bundled, not --model other.gguf\n"), "{}", other.err);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_call_is_required_where_there_are_tools() {
    let home = tempfile::tempdir().unwrap();
    let suite = home.path().join("cases.jsonl");
    let tool = r#"[{"name": "add", "parameters": {"properties": {"a": {"type": "integer"}}, "required": ["a"]}}]"#;
    let case = |id: &str, tools: &str| {
        format!("{{\"id\": \"{id}\", \"prompt\": \"Thanks!\", \"tools\": {tools}, \"expected\": []}}\n")
    };
    std::fs::write(&suite, case("with", tool) + &case("without", "[]")).unwrap();
    let out = home.path().join("run");
    let began = ["bench", "--max-tokens", "64", "--tool-choice", "auto", "--tool-choice", "required", "--suite"];
    let ran = run(callwright(home.path()).args(began).arg(&suite).arg("--out").arg(&out));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("call required: 2 answers; call_when_none_needed 1\n"), "{}", ran.out);
    let plan: Value = serde_json::from_str(&std::fs::read_to_string(out.join("run.json")).unwrap()).unwrap();
    let choice = |index: usize| plan["configurations"][index]["tool_choice"].as_str();
    assert_eq!((choice(0), choice(1)), (None, Some("required")));
    let report = std::fs::read_to_string(out.join("report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["configurations"][1]["tool_choice"], "required");
    assert!(std::fs::read_to_string(out.join("report.md")).unwrap().contains("tool choice required"));
    let within = run(callwright(home.path()).args(["bench", "compare"]).arg(&out));
    assert!(within.out.starts_with("call required "), "{}", within.out);
    // A resumed run has the choices of its start, and no others.
    std::fs::write(out.join("samples.jsonl"), "").unwrap();
    let resumed = run(callwright(home.path()).args(["bench", "--resume"]).arg(&out));
    assert!(resumed.out.contains("call required: 2 answers; call_when_none_needed 1\n"), "{}", resumed.out);
    let other = run(callwright(home.path()).args(["bench", "--tool-choice", "auto", "--resume"]).arg(&out));
    assert_eq!(other.code, 2, "{}", other.out);
    assert!(other.err.contains("--tool-choice auto --tool-choice required, not --tool-choice auto"), "{}", other.err);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn a_threshold_is_found_written_and_used() {
    let home = tempfile::tempdir().unwrap();
    let calibrate = |folds: &str, arguments: &[&str]| {
        let mut command = callwright(home.path());
        run(command.args(["bench", "calibrate", "--limit", "24", "--folds", folds]).args(arguments))
    };
    let (models, page) = (home.path().join("models.toml"), home.path().join("curve.html"));
    let ran = calibrate("2", &["--json", "--write", models.to_str().unwrap(), "--html", page.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    assert!(found["auc"]["value"].as_f64().unwrap() > 0.5, "{}", found["auc"]);
    let threshold = found["best"]["threshold"].as_f64().unwrap();
    assert_eq!(found["held_out"]["thresholds"].as_array().unwrap().len(), 2);
    let case = &found["cases"][0];
    assert!(case["needs_call"].is_boolean() && case["call_probability"]["marker"].is_number(), "{case}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<polyline") && page.contains("</html>"), "{page}");
    let entry = std::fs::read_to_string(&models).unwrap();
    assert!(
        entry.contains("name = \"bundled\"") && entry.contains(&format!("call_threshold = {threshold:?}")),
        "{entry}"
    );
    let ran = run(callwright(home.path()).args(["model", "--models"]).arg(&models).arg("list"));
    assert_eq!(ran.code, 0, "{}", ran.err);

    let text = calibrate("2", &[]);
    assert!(text.out.contains("AUC 0.") || text.out.contains("AUC 1."), "{}", text.out);
    assert!(text.out.contains(&format!("call_threshold = {threshold:?}")), "{}", text.out);
    let few = calibrate("1000", &[]);
    assert_eq!(few.code, 2, "{}", few.err);
    assert!(few.err.contains("too few for 1000 folds"), "{}", few.err);
    let twice = calibrate("2", &["--suite", "builtin", "--suite", "builtin"]);
    assert!(twice.err.contains("two cases with the id"), "{}", twice.err);
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn samples_and_reports_have_the_decision_to_call() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().join("run");
    let mut command = callwright(home.path());
    command.args([
        "bench",
        "--limit",
        "40",
        "--max-tokens",
        "100",
        "--call-threshold",
        "0.5",
        "--no-call-below",
        "0.01",
    ]);
    let ran = run(command.arg("--out").arg(&out));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let samples = std::fs::read_to_string(out.join("samples.jsonl")).unwrap();
    let samples: Vec<Value> = samples.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let probability = |sample: &Value| sample["call_probability"]["marker"].as_f64();
    assert!(samples.iter().any(|sample| probability(sample).is_some()));
    for sample in &samples {
        let decided = match probability(sample) {
            Some(probability) if probability >= 0.5 => Value::from("call"),
            Some(probability) if probability < 0.01 => Value::from("text"),
            _ => Value::Null,
        };
        assert_eq!(sample["decided"], decided, "{sample}");
    }
    let report: Value = serde_json::from_str(&std::fs::read_to_string(out.join("report.json")).unwrap()).unwrap();
    let configuration = &report["configurations"][0];
    assert_eq!((&configuration["call_threshold"], &configuration["no_call_below"]), (&0.5.into(), &0.01.into()));
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert_eq!(page.contains("<polyline class=\"line\""), configuration["decision"].is_object());
}

#[test]
#[cfg_attr(not(feature = "llama"), ignore = "needs llama.cpp")]
fn shards_are_merged_to_the_run_that_one_process_makes() {
    let home = tempfile::tempdir().unwrap();
    let bench = |arguments: &[&str]| {
        let options = ["bench", "--limit", "8", "--max-tokens", "128", "--constrain", "off", "--constrain", "strict"];
        run(callwright(home.path()).current_dir(home.path()).args(options).args(arguments))
    };
    let merge = |arguments: &[&str]| {
        run(callwright(home.path()).current_dir(home.path()).args(["bench", "merge"]).args(arguments))
    };
    let read = |name: &str| std::fs::read_to_string(home.path().join(name)).unwrap();
    assert_eq!(bench(&["--out", "whole"]).code, 0);
    for index in ["1", "2", "3"] {
        let (shard, out) = (format!("{index}/3"), format!("part-{index}"));
        // As a script that a scheduler starts again does it.
        let ran = bench(&["--shard", &shard, "--resume", "--out", &out]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(!ran.out.contains("missing"), "{}", ran.out);
    }
    let few = merge(&["part-1", "part-3", "--out", "merged"]);
    assert!(few.code == 2 && few.err.contains("shard 2 of 3 is missing"), "{}", few.err);
    let ran = merge(&["part-1", "part-2", "part-3", "--out", "merged", "--baseline", "whole", "--fail-under", "0"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("constrain strict: 8 answers; "), "{}", ran.out);
    assert!(ran.err.contains("+0.0 points"), "{}", ran.err);
    assert_eq!(merge(&["part-1", "part-2", "part-3", "--out", "failed", "--fail-under", "1"]).code, 3);
    assert_eq!(read("merged/outcomes.jsonl"), read("whole/outcomes.jsonl"));
    assert_eq!(read("merged/prompts.jsonl"), read("whole/prompts.jsonl"));
    let figures = |name: &str| {
        let mut report: Value = serde_json::from_str(&read(name)).unwrap();
        for configuration in report["configurations"].as_array_mut().unwrap() {
            configuration.as_object_mut().unwrap().remove("timing");
        }
        report
    };
    assert_eq!(figures("merged/report.json"), figures("whole/report.json"));
    let command = |name: &str| serde_json::from_str::<Value>(&read(name)).unwrap()["command"].to_string();
    let (whole, merged) = (command("whole/run.json"), command("merged/run.json"));
    assert_eq!(merged.replace("merged", "whole"), whole);

    // The merged run is a run like another: answers that are lost are asked for again.
    let samples = read("merged/samples.jsonl");
    let first = samples.split_inclusive('\n').next().unwrap();
    std::fs::write(home.path().join("merged/samples.jsonl"), first).unwrap();
    let resumed = run(callwright(home.path()).current_dir(home.path()).args(["bench", "--resume", "merged"]));
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert_eq!(read("merged/outcomes.jsonl"), read("whole/outcomes.jsonl"));

    let other =
        run(callwright(home.path()).current_dir(home.path()).args(["bench", "--shard", "2/3", "--resume", "part-1"]));
    assert!(other.code == 2 && other.err.contains("--shard 1/3, not --shard 2/3"), "{}", other.err);
    for (shard, message) in
        [("4/3", "there is no shard 4 of 3"), ("half", "not I/N"), ("1/9", "8 cases are too few for 9")]
    {
        let wrong = bench(&["--shard", shard]);
        assert!(wrong.code == 2 && wrong.err.contains(message), "{}", wrong.err);
    }
}

/// What a user sees first of two recorded runs, in a terminal of 100 columns.
#[test]
fn a_report_begins_with_a_verdict_and_fits_a_terminal() {
    let home = tempfile::tempdir().unwrap();
    let shown = |name: &str| {
        let (from, to) =
            (Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/runs").join(name), home.path().join(name));
        std::fs::create_dir(&to).unwrap();
        for file in ["run.json", "suite.jsonl", "samples.jsonl", "prompts.jsonl"] {
            std::fs::copy(from.join(file), to.join(file)).unwrap();
        }
        let ran = run(callwright(home.path()).current_dir(home.path()).args(["bench", "report", name]));
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.out.lines().all(|line| line.chars().count() <= 100), "{}", ran.out);
        ran.out
    };
    insta::assert_snapshot!("verdict_formats", shown("formats"));
    insta::assert_snapshot!("verdict_sections", shown("sections-gemma3-plain"));
}

/// A smaller file of the bundled model, and whether it calls tools as well.
#[test]
#[cfg_attr(not(all(feature = "llama", feature = "bundled-model")), ignore = "needs llama.cpp")]
fn a_file_is_quantized_and_certified() {
    let home = tempfile::tempdir().unwrap();
    let here = |arguments: &[&str]| run(callwright(home.path()).current_dir(home.path()).args(arguments));
    let made = here(&["model", "quantize", "bundled", "small.gguf", "q2_k"]);
    assert_eq!(made.code, 0, "{}", made.err);
    assert!(made.out.starts_with("small.gguf: Q2_K, ") && made.err.contains("few bits already (Q8_0)"), "{}", made.err);
    let again = here(&["model", "quantize", "bundled", "small.gguf", "Q4_0"]);
    assert!(again.code == 2 && again.err.contains("small.gguf exists already"), "{}", again.err);
    let unknown = here(&["model", "quantize", "bundled", "other.gguf", "Q9"]);
    assert!(unknown.code == 2 && unknown.err.contains("not one of F32, F16"), "{}", unknown.err);
    let nowhere = here(&["model", "quantize", "bundled", "no/such/folder.gguf", "Q4_0"]);
    assert!(nowhere.code != 0 && !home.path().join("no").exists(), "{}", nowhere.err);

    // A file whose weights are partly lost.
    let mut bytes = std::fs::read(home.path().join("small.gguf")).unwrap();
    let size = bytes.len();
    bytes[size * 7 / 10..size * 8 / 10].fill(0);
    std::fs::write(home.path().join("damaged.gguf"), bytes).unwrap();
    let options = ["--quick", "--limit", "40", "--json", "--out", "card"];
    let certify = |more: &[&str]| here(&[&["certify", "small.gguf"], more, &options].concat());
    assert_eq!(certify(&["--no-worse-than", "small.gguf"]).code, 0);
    let ran = certify(&["damaged.gguf", "--no-worse-than", "bundled"]);
    assert_eq!(ran.code, 3, "{}{}", ran.out, ran.err);
    let card: Value = serde_json::from_str(&ran.out).unwrap();
    let [reference, small, damaged] = [0, 1, 2].map(|index: usize| &card["files"][index]);
    assert_eq!((&reference["word"], &damaged["word"]), (&"reference".into(), &"worse".into()));
    let likely = |file: &Value| file["figures"]["token_probability"].as_f64().unwrap();
    assert!(likely(reference) > likely(small) && likely(small) > likely(damaged), "{card:#}");
    assert!(damaged["against"]["p_holm"].as_f64().unwrap() < 0.01, "{card:#}");
    let divergence = |file: &Value| file["against"]["divergence"].as_f64().unwrap();
    assert!(divergence(small) > 0.0 && divergence(damaged) > divergence(small), "{card:#}");
    let said = card["verdict"].to_string();
    assert!(
        said.contains("Worse than bundled: damaged.") && said.contains("depart from bundled: small < damaged ("),
        "{said}"
    );
    assert_eq!(reference["faults"], serde_json::json!([]));
    for (name, part) in
        [("certify.html", "</html>"), ("certify.svg", "</svg>"), ("certify.md", "Worse than bundled: damaged.")]
    {
        let text = std::fs::read_to_string(home.path().join("card").join(name)).unwrap();
        assert!(text.contains(part) && text.contains("worse"), "{name}: {text}");
    }
    let below = here(&["certify", "bundled", "--quick", "--limit", "24", "--out", "own", "--fail-under", "1"]);
    assert!(below.code == 3 && below.err.contains("bundled: below 100.0%: "), "{}", below.err);
    assert!(below.out.contains("to the letter"), "{}", below.out);

    // Chat templates, and types of the KV cache, of one file.
    let variants = ["--template", "chatml", "--template", "plain", "--also-cache-type", "q4_0"];
    let ran =
        here(&[&["certify", "bundled", "--quick", "--limit", "8", "--json", "--out", "kv"], &variants[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let card: Value = serde_json::from_str(&ran.out).unwrap();
    let labels: Vec<&str> =
        card["files"].as_array().unwrap().iter().map(|row| row["label"].as_str().unwrap()).collect();
    let expected = ["chatml", "plain", "chatml, KV q4_0", "plain, KV q4_0"].map(|rest| format!("bundled ({rest})"));
    assert_eq!(labels, expected);
    let changed = |at: usize| card["files"][at]["against"]["divergence"].as_f64().unwrap() > 0.0;
    assert!(
        changed(2) && card["files"][2]["cache_type"] == "q4_0" && card["files"][1]["cache_type"].is_null(),
        "{card:#}"
    );

    // A token that is another one makes another tokenizer.
    let mut bytes = std::fs::read(home.path().join("small.gguf")).unwrap();
    let key = bytes.windows(21).position(|part| part == b"tokenizer.ggml.tokens").unwrap();
    // After the key: its type, the type of its elements, their number, and the length of the first one.
    let first = key + 21 + 4 + 4 + 8 + 8;
    // A sign that no other token has.
    bytes[first] = 0x7f;
    std::fs::write(home.path().join("other.gguf"), bytes).unwrap();
    let other = here(&["certify", "other.gguf", "--against", "bundled", "--quick", "--out", "none"]);
    assert_eq!(other.code, 2, "{}", other.err);
    assert!(other.err.contains("has another tokenizer") && !home.path().join("none").exists(), "{}", other.err);
    let empty = home.path().join("empty.jsonl");
    std::fs::write(&empty, "{\"prompt\": \"Hello\", \"expected\": []}\n").unwrap();
    let none = here(&["certify", "bundled", "--suite", "empty.jsonl"]);
    assert!(none.code == 2 && none.err.contains("says which call is right"), "{}", none.err);
}

/// With answers: the same ones as `bench` gives, and a run that can be gone on with.
#[test]
#[cfg_attr(not(all(feature = "llama", feature = "bundled-model")), ignore = "needs llama.cpp")]
fn a_certified_file_answers_the_cases_too() {
    let home = tempfile::tempdir().unwrap();
    let here = |arguments: &[&str]| run(callwright(home.path()).current_dir(home.path()).args(arguments));
    let certify = || here(&["certify", "bundled", "--limit", "8", "--out", "card", "--fail-under", "0"]);
    let ran = certify();
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("The card: card/certify.html"), "{}", ran.out);
    let read = |name: &str| std::fs::read_to_string(home.path().join("card").join(name)).unwrap();
    assert!(read("report.html").contains("</html>") && read("certify.html").contains("report.html"));
    let card: Value = serde_json::from_str(&read("certify.json")).unwrap();
    assert_eq!(card["files"][0]["correct"]["trials"], 8);
    let samples = read("samples.jsonl");
    let (first, _) = samples.split_once('\n').unwrap();
    std::fs::write(home.path().join("card/samples.jsonl"), format!("{first}\n")).unwrap();
    assert_eq!(certify().code, 0);
    assert_eq!(read("samples.jsonl").lines().count(), 8);
    assert!(read("samples.jsonl").starts_with(first));
}
