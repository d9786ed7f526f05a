use super::*;
use crate::{
    agent::SourceKind,
    document::tests::{document, source},
    merge::{OnBrokenOverride, Policy, merge},
};

fn snapshot(names: &[&str]) -> Snapshot {
    let documents = names.iter().enumerate().map(|(index, name)| {
        let path = format!("/r/{index:05}.md");
        let text = format!("---\nname: {name}\ndescription: d\n---\nB\n");
        Arc::new(document(source(SourceKind::Root, 9, &path), &text))
    });
    of(documents.collect())
}

fn of(documents: Vec<Arc<Document>>) -> Snapshot {
    let policy = Policy { protected: Vec::new(), on_broken_override: OnBrokenOverride::FallThrough };
    Snapshot::new(7, Arc::from("store"), merge(documents, &[], &policy), Vec::new(), Vec::new())
}

#[track_caller]
fn check_unknown(names: &[&str], asked: &str, text: &str, suggestion: Option<&str>) {
    let miss = snapshot(names).by_name(asked).unwrap_err();
    assert_eq!(miss.to_string(), text);
    match miss {
        Miss::Unknown { suggestion: actual, available_count, .. } => {
            assert_eq!(actual.as_deref(), suggestion);
            assert_eq!(available_count, names.len());
        }
        Miss::Broken { .. } => panic!("{miss:?}"),
    }
}

#[test]
fn a_name_is_found_exactly_or_not_at_all() {
    let snapshot = snapshot(&["Task", "task"]);

    assert_eq!(snapshot.by_name("Task").unwrap().source.path, "/r/00000.md");
    assert_eq!(snapshot.by_name("task").unwrap().source.path, "/r/00001.md");
    assert!(snapshot.by_name("TASK").is_err());
    assert!(snapshot.by_name(" task").is_err());
}

#[test]
fn an_unknown_name_is_answered_with_those_in_force_and_the_nearest_of_them() {
    check_unknown(&[], "x", "Unknown agent \"x\". Available: none", None);
    let some = &["explore", "plan"];
    check_unknown(some, "explroe", "Unknown agent \"explroe\". Available: explore, plan", Some("explore"));
    check_unknown(some, "Explore", "Unknown agent \"Explore\". Available: explore, plan", Some("explore"));
    check_unknown(some, "x", "Unknown agent \"x\". Available: explore, plan", None);
    check_unknown(some, "", "Unknown agent \"\". Available: explore, plan", None);
}

#[test]
fn a_long_list_of_names_is_cut_by_number_and_by_size() {
    let names: Vec<String> = (0..25).map(|number| format!("a{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let shown = names[..20].join(", ");
    check_unknown(&names, "?", &format!("Unknown agent \"?\". Available: {shown}, … (5 more)"), None);
    check_unknown(&names[..20], "?", &format!("Unknown agent \"?\". Available: {shown}"), None);

    let long: Vec<String> = (0..10).map(|number| format!("{number}{}", "x".repeat(126))).collect();
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    let shown = long[..7].join(", ");
    check_unknown(&long, "?", &format!("Unknown agent \"?\". Available: {shown}, … (3 more)"), None);
}

#[test]
fn a_blocked_name_says_by_what() {
    let text = "---\nname: a\ndescription: d\ndissallowed_tools: bash\n---\nB\n";
    let snapshot = of(vec![Arc::new(document(source(SourceKind::Root, 9, "/r/a.md"), text))]);

    let miss = snapshot.by_name("a").unwrap_err();

    let expected =
        Miss::Broken { name: "a".into(), path: "/r/a.md".into(), codes: vec!["MISSPELT_RESTRICTION"] };
    assert_eq!(miss, expected);
    assert_eq!(snapshot.candidates("a").unwrap().len(), 1);
    assert!(snapshot.in_force().is_empty());
}
