use proptest::prelude::*;

use super::*;
use crate::{
    agent::Digest,
    document::{
        Authored,
        tests::{document, source},
    },
};

const GOOD: &str = "description: d";
/// Cannot be used, for a fault that is in no restriction.
const BROKEN: &str = "";
/// Cannot be used, for a fault in a restriction.
const BLOCKING: &str = "description: d\ndissallowed_tools: bash";

fn policy(on_broken_override: OnBrokenOverride) -> Policy {
    Policy { protected: vec!["reviewer".to_owned()], on_broken_override }
}

fn fall_through() -> Policy {
    policy(OnBrokenOverride::FallThrough)
}

fn at(kind: SourceKind, precedence: u32, path: &str, name: &str, fields: &str) -> Arc<Document> {
    let text = format!("---\nname: {name}\n{fields}\n---\nBody of {path}.\n");
    Arc::new(document(source(kind, precedence, path), &text))
}

fn project(path: &str, name: &str, fields: &str) -> Arc<Document> {
    at(SourceKind::Project, 1, path, name, fields)
}

fn user(path: &str, name: &str, fields: &str) -> Arc<Document> {
    at(SourceKind::User, 2, path, name, fields)
}

fn root(path: &str, name: &str, fields: &str) -> Arc<Document> {
    at(SourceKind::Root, 9, path, name, fields)
}

fn authored(name: &str, by_administrator: bool, shadowed: &[&Arc<Document>]) -> Arc<Document> {
    let text = format!("---\nname: {name}\ndescription: d\n---\nAuthored.\n");
    let written = Authored {
        document: text.clone().into(),
        by_administrator,
        shadowed: shadowed.iter().map(|it| (it.source.path.clone(), it.digest)).collect(),
    };
    let document = document(source(SourceKind::Authored, 0, ""), &text);
    Arc::new(Document { authored: Some(written), ..document })
}

/// Merges and says what became of a name: each candidate's standing and path, then the codes of the merge.
#[track_caller]
fn check(
    documents: &[Arc<Document>],
    policy: &Policy,
    name: &str,
    standings: &[(Standing, &str)],
    codes: &[Code],
) {
    let merged = merge(documents.to_vec(), &[], policy);

    let named = &merged.names[name];
    let actual: Vec<_> =
        named.candidates.iter().map(|it| (it.standing, it.document.source.path.as_str())).collect();
    assert_eq!(actual, standings);
    let found: Vec<Code> = named.candidates.iter().flat_map(|it| &it.findings).map(|it| it.code).collect();
    assert_eq!(found, codes);
    for finding in named.candidates.iter().flat_map(|it| &it.findings) {
        assert!(merged.diagnostics.contains(finding), "{finding:?}");
    }
}

#[track_caller]
fn in_force(documents: &[Arc<Document>], policy: &Policy) -> Vec<String> {
    let merged = merge(documents.to_vec(), &[], policy);
    merged.in_force.iter().map(|definition| definition.source.path.clone()).collect()
}

#[test]
fn the_first_source_wins_and_the_others_stand_shadowed() {
    let documents = [root("/r", "a", GOOD), user("/u", "a", GOOD), project("/p", "a", GOOD)];

    check(
        &documents,
        &fall_through(),
        "a",
        &[(Standing::InForce, "/p"), (Standing::Shadowed, "/u"), (Standing::Shadowed, "/r")],
        &[],
    );
}

#[test]
fn a_fault_in_no_restriction_falls_through_or_blocks_as_the_workspace_says() {
    let documents = [project("/p", "a", BROKEN), user("/u", "a", GOOD)];

    check(
        &documents,
        &fall_through(),
        "a",
        &[(Standing::Broken, "/p"), (Standing::InForce, "/u")],
        &[Code::BrokenOverride],
    );
    check(
        &documents,
        &policy(OnBrokenOverride::Block),
        "a",
        &[(Standing::Broken, "/p"), (Standing::Shadowed, "/u")],
        &[Code::BrokenOverride],
    );
}

#[test]
fn a_fault_in_a_restriction_always_blocks() {
    let below = [project("/p", "a", BLOCKING), user("/u", "a", GOOD)];
    check(
        &below,
        &fall_through(),
        "a",
        &[(Standing::Broken, "/p"), (Standing::Shadowed, "/u")],
        &[Code::BrokenOverride],
    );

    let alone = [project("/p", "a", BLOCKING)];
    check(&alone, &fall_through(), "a", &[(Standing::Broken, "/p")], &[]);
    let merged = merge(alone.to_vec(), &[], &fall_through());
    assert!(matches!(merged.names["a"].resolution, Resolution::Blocked(_)));
}

#[test]
fn a_broken_document_below_the_winner_changes_nothing() {
    let documents = [project("/p", "a", GOOD), user("/u", "a", BLOCKING)];

    check(&documents, &fall_through(), "a", &[(Standing::InForce, "/p"), (Standing::Broken, "/u")], &[]);
}

#[test]
fn a_stem_is_a_claim_only_where_it_blocks() {
    let nameless = |fields: &str| {
        let text = format!("---\n{fields}\n---\nB\n");
        [Arc::new(document(source(SourceKind::Project, 1, "/p"), &text)), user("/u", "stem", GOOD)]
    };
    let of_user = [(Standing::InForce, "/u")];
    let blocked = [(Standing::Broken, "/p"), (Standing::Shadowed, "/u")];

    check(&nameless("description: d"), &fall_through(), "stem", &of_user, &[]);
    check(&nameless("description: d\ntools:"), &fall_through(), "stem", &blocked, &[Code::BrokenOverride]);
    let policy = policy(OnBrokenOverride::Block);
    check(&nameless("description: d"), &policy, "stem", &blocked, &[Code::BrokenOverride]);
}

#[test]
fn a_disabled_document_is_not_there() {
    let documents = [project("/p", "a", "description: d\ndisable: true"), user("/u", "a", GOOD)];

    check(&documents, &fall_through(), "a", &[(Standing::InForce, "/u")], &[]);
    let merged = merge(documents.to_vec(), &[], &fall_through());
    assert!(merged.diagnostics.iter().any(|it| it.code == Code::Disabled && it.path == "/p"));
}

#[test]
fn only_the_operators_places_define_protected_names() {
    let documents = [project("/p", "reviewer", GOOD), root("/r", "reviewer", GOOD)];
    let standings = [(Standing::Protected, "/p"), (Standing::InForce, "/r")];
    check(&documents, &fall_through(), "reviewer", &standings, &[Code::ProtectedName]);

    let by_author = [authored("reviewer", false, &[]), root("/r", "reviewer", GOOD)];
    let standings = [(Standing::Protected, ""), (Standing::InForce, "/r")];
    check(&by_author, &fall_through(), "reviewer", &standings, &[Code::ProtectedName]);

    let below = root("/r", "reviewer", GOOD);
    let by_administrator = [authored("reviewer", true, &[&below]), below];
    let standings = [(Standing::InForce, ""), (Standing::Shadowed, "/r")];
    check(&by_administrator, &fall_through(), "reviewer", &standings, &[]);
}

#[test]
fn a_place_that_may_not_define_a_name_never_blocks_it() {
    let documents = [project("/p", "reviewer", BLOCKING), root("/r", "reviewer", GOOD)];

    let standings = [(Standing::Broken, "/p"), (Standing::InForce, "/r")];
    check(&documents, &policy(OnBrokenOverride::Block), "reviewer", &standings, &[]);
}

#[test]
fn two_of_a_name_in_one_tree_or_in_two_roots_are_said() {
    let in_one = [project("/p/1", "a", GOOD), project("/p/2", "a", GOOD)];
    let standings = [(Standing::InForce, "/p/1"), (Standing::Shadowed, "/p/2")];
    check(&in_one, &fall_through(), "a", &standings, &[Code::DuplicateName]);

    let in_two_roots = [root("/r", "a", GOOD), at(SourceKind::Root, 10, "/r2", "a", GOOD)];
    let standings = [(Standing::InForce, "/r"), (Standing::Shadowed, "/r2")];
    check(&in_two_roots, &fall_through(), "a", &standings, &[Code::DuplicateName]);
}

#[test]
fn names_in_force_that_differ_only_in_case_are_said_once_each() {
    let documents = [project("/1", "Task", GOOD), project("/2", "task", GOOD), user("/3", "TASK", GOOD)];

    let merged = merge(documents.to_vec(), &[], &fall_through());

    let twins = merged.diagnostics.iter().filter(|it| it.code == Code::NameDiffersOnlyInCase);
    assert_eq!(twins.map(|it| it.path.as_str()).collect::<Vec<_>>(), ["/2", "/3"]);
}

#[test]
fn a_change_below_an_authored_definition_is_said_and_what_was_there_before_is_not() {
    let known = user("/u", "a", GOOD);
    let changed = user("/u", "a", "description: another");
    let in_force = |documents: &[Arc<Document>], codes: &[Code]| {
        let standings = [(Standing::InForce, ""), (Standing::Shadowed, "/u")];
        check(documents, &fall_through(), "a", &standings, codes);
    };

    in_force(&[authored("a", false, &[&known]), Arc::clone(&known)], &[]);
    in_force(&[authored("a", false, &[&known]), changed], &[Code::ShadowedByAuthored]);
}

#[test]
fn diagnostics_are_sorted_by_path_then_line() {
    let finding = |path: &str, line| {
        let mut finding = Diagnostic::new(Severity::Warning, Code::UnknownKey, line, 1, "m");
        finding.path = path.to_owned();
        finding
    };
    let findings = [finding("/b", 2), finding("/a", 9), finding("/b", 1), finding("/B", 1)];

    let merged = merge(Vec::new(), &findings, &fall_through());

    let order: Vec<_> = merged.diagnostics.iter().map(|it| (it.path.as_str(), it.line)).collect();
    assert_eq!(order, [("/B", 1), ("/a", 9), ("/b", 1), ("/b", 2)]);
}

#[test]
fn the_order_is_that_of_sources_then_of_the_bytes_of_paths() {
    let documents = [
        root("/r/b.md", "n1", GOOD),
        root("/r/a/z.md", "n2", GOOD),
        root("/r/a.md", "n3", GOOD),
        root("/r/B.md", "n4", GOOD),
        user("/u/z.md", "n5", GOOD),
    ];

    assert_eq!(
        in_force(&documents, &fall_through()),
        ["/u/z.md", "/r/B.md", "/r/a.md", "/r/a/z.md", "/r/b.md"]
    );
}

fn any_document() -> impl Strategy<Value = Arc<Document>> {
    let kind = prop::sample::select(vec![
        (SourceKind::Project, 1),
        (SourceKind::User, 2),
        (SourceKind::Plugin, 3),
        (SourceKind::Root, 4),
        (SourceKind::Root, 5),
        (SourceKind::Bundled, 6),
    ]);
    let name = prop::sample::select(vec!["a", "A", "b", "reviewer"]);
    let fields = prop::sample::select(vec![GOOD, BROKEN, BLOCKING, "description: d\ndisabled: true"]);
    let file = prop::sample::select(vec!["1", "2", "3", "4", "5", "6"]);
    (kind, name, fields, file).prop_map(|((kind, precedence), name, fields, file)| {
        at(kind, precedence, &format!("/{precedence}/{file}"), name, fields)
    })
}

proptest! {
    #[test]
    fn the_result_does_not_depend_on_the_order_of_reading(
        documents in prop::collection::vec(any_document(), 0..24),
        block in any::<bool>(),
        seed in any::<prop::sample::Index>(),
    ) {
        // A place holds one document.
        let mut places = std::collections::HashSet::new();
        let documents: Vec<_> =
            documents.into_iter().filter(|it| places.insert(it.source.path.clone())).collect();
        let policy = policy(if block { OnBrokenOverride::Block } else { OnBrokenOverride::FallThrough });
        let mut shuffled = documents.clone();
        shuffled.reverse();
        if !shuffled.is_empty() {
            let middle = seed.index(shuffled.len());
            shuffled.rotate_left(middle);
        }

        let (left, right) = (merge(documents, &[], &policy), merge(shuffled, &[], &policy));

        prop_assert_eq!(&left.in_force, &right.in_force);
        prop_assert_eq!(&left.diagnostics, &right.diagnostics);
        prop_assert_eq!(left.names.len(), right.names.len());
        for (name, named) in &left.names {
            let standings = |named: &Named| -> Vec<(Standing, Digest)> {
                named.candidates.iter().map(|it| (it.standing, it.document.digest)).collect()
            };
            prop_assert_eq!(standings(named), standings(&right.names[name]));
        }
    }

    #[test]
    fn a_name_has_at_most_one_winner_and_no_winner_below_a_block(
        documents in prop::collection::vec(any_document(), 0..24),
    ) {
        let merged = merge(documents, &[], &fall_through());

        for named in merged.names.values() {
            let winners = named.candidates.iter().filter(|it| it.standing == Standing::InForce).count();
            match &named.resolution {
                Resolution::InForce(_) => prop_assert_eq!(winners, 1),
                Resolution::Blocked(_) | Resolution::Nothing => prop_assert_eq!(winners, 0),
            }
        }
    }
}
