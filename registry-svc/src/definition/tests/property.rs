//! What holds for every document: no panic, the same answer twice, bounded time, no lost restriction.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{super::*, origin, parse_front};
use crate::agent::ToolSelection;

/// A hundred times what 64 KiB take here in an optimised build: only worse than linear growth can miss it.
const PATIENCE: Duration = Duration::from_secs(3);

/// Pieces from which generators, and people in a hurry, build front matter.
const PIECES: &[&str] = &[
    "name: a\n",
    "description: d\n",
    "description: x: y\n",
    "tools: [read,\n",
    "tools: read\n",
    "disallowed_tools:\n",
    "- bash\n",
    "  - write\n",
    "\t- x\n",
    "output:\n",
    "  type: object\n",
    "|\n",
    ">-\n",
    "\"",
    "'",
    "[",
    "]",
    "{",
    "}",
    "*",
    "&a ",
    "!b ",
    "<<: ",
    ": ",
    ":",
    ",",
    "# c\n",
    " #",
    "\n",
    "\r\n",
    "\r",
    " ",
    "\t",
    "---\n",
    "...\n",
    "permission:\n",
    "  edit: deny\n",
    "user: hi\n",
    "é",
    "\u{200d}",
    "\u{202e}",
    "👩",
    "\\",
    "? ",
    "- ",
    "%",
    "@",
    "`",
    "\u{feff}",
    "\0",
    "\u{85}",
    "spawns: *\n",
    "disable: true\n",
    "42",
    "~",
];

/// Restrictions as people write them, each in a valid way.
const RESTRICTIONS: &[&str] = &[
    "tools: read, grep\n",
    "tools: [read, 'Agent(a)']\n",
    "tools:\n  - read\n  - grep\n",
    "tools:\n- read\n# - bash\n- grep\n",
    "tools:\n  bash: false\n  '*': false\n  read: true\n",
    "tools: []\n",
    "allowedTools: >-\n  read,\n  grep\n",
    "disallowed_tools: [bash, 'mcp__*']\n",
    "denied-tools:\n  - write\n  - Bash(rm *)\n",
    "spawns: a, b\n",
    "agents: []\n",
    "permission_mode: plan\n",
    "permissionMode: 'dual-sign' # both\n",
    "readonly: true\n",
    "sandbox_mode: read-only\n",
    "permission:\n  edit: deny\n  bash:\n    'rm *': deny\n",
    "permission: {task: {a: allow, '*': deny}}\n",
    "output:\n  type: object\n  properties:\n    a: {type: string}\n",
    "output: '{\"type\": \"object\"}'\n",
    "output: |\n  {\"type\": \"object\"}\n",
];

/// What breaks YAML beside them.
const BREAKERS: &[&str] = &[
    "note: a: b\n",
    "note: \"a\n",
    "note: 'it's'\n",
    "note: [a\n",
    "note: {a: b\n",
    "note: a]\n  b: c\n",
    "note: @a\n",
    "note: %a: b\n",
    "note:\n  a: b: c\n",
    "note:\n\t- a\n",
    "note: |x\n  a\n",
    "when_to_use: a: b\nuser: hi\n<example>\n",
    "when_to_use: \"a\" b\n",
    "critical_reminder: `a: b`\n- item\n",
    "no key at all\n",
    "@\n",
    "{{ template }}\n",
];

/// All that a definition may restrict.
fn restrictions(agent: &Agent) -> impl PartialEq + std::fmt::Debug {
    let Agent { tools, disallowed_tools, spawns, permission_mode, output_schema, .. } = agent.clone();
    (tools, disallowed_tools, spawns, permission_mode, output_schema)
}

fn formats() -> [Origin<'static>; 3] {
    [origin(), Origin { bundled: true, ..origin() }, Origin { format: Format::Toml, ..origin() }]
}

fn check(document: &[u8]) {
    for origin in formats() {
        let parsed = parse(document, &origin);
        let again = parse(document, &origin);
        assert_eq!(parsed.diagnostics, again.diagnostics);
        assert_eq!(parsed.agent, again.agent);
        assert!(parsed.agent.is_none() || !parsed.diagnostics.iter().any(Diagnostic::is_error));
        assert!(parsed.agent.is_some() || parsed.diagnostics.iter().any(Diagnostic::is_error));
        assert!(
            parsed
                .diagnostics
                .iter()
                .all(|found| found.line > 0 && found.column > 0 && !found.message.is_empty())
        );
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(document in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&document);
    }

    #[test]
    fn any_text_between_fences_is_read_without_a_panic(front in "\\PC{0,200}") {
        check(format!("---\n{front}\n---\n{front}").as_bytes());
    }

    #[test]
    fn any_pieces_of_front_matter_are_read_without_a_panic(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40),
    ) {
        check(format!("---\nname: a\n{}\n---\n", pieces.concat()).as_bytes());
    }

    #[test]
    fn a_list_of_tools_is_never_lost(
        before in prop::collection::vec(prop::sample::select(pieces_without_fence()), 0..8),
        after in prop::collection::vec(prop::sample::select(PIECES), 0..8),
    ) {
        let (before, after) = (before.concat(), after.concat());
        let document = format!("---\nname: a\ndescription: d\n{before}\ntools: read\n{after}\n---\n");
        if let Some(agent) = parse(document.as_bytes(), &origin()).agent {
            prop_assert_ne!(agent.tools, ToolSelection::Inherit, "{}", document);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn what_breaks_yaml_elsewhere_takes_no_restriction_away(
        restricting in prop::sample::subsequence(RESTRICTIONS, 1..4),
        breakers in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(BREAKERS)), 1..3),
    ) {
        let mut blocks = ["name: a\n", "description: d\n"].to_vec();
        blocks.extend(restricting);
        let valid = parse_front(&blocks.concat());
        for (at, breaker) in breakers {
            blocks.insert(at.index(blocks.len() + 1), breaker);
        }
        let front = blocks.concat();

        let broken = parse_front(&front);

        // Of two that exclude each other neither document is used.
        if let (Some(valid), Some(broken)) = (&valid.agent, &broken.agent) {
            prop_assert_eq!(restrictions(valid), restrictions(broken), "{}", front);
        }
        prop_assert!(valid.agent.is_some() || broken.agent.is_none(), "{}", front);
    }
}

fn pieces_without_fence() -> Vec<&'static str> {
    PIECES.iter().copied().filter(|piece| !piece.starts_with("---")).collect()
}

#[test]
fn every_cut_of_a_document_is_read_without_a_panic() {
    let document = "---\nname: a\ndescription: \"x: é\"\ntools: [read, 'Agent(b)']\noutput:\n  type: |\n    object\n---\nBody 👩\u{200d}💻\n";
    for end in 0..document.len() {
        check(&document.as_bytes()[..end]);
        check(&[&document.as_bytes()[..end], b"\n---\n"].concat());
    }
}

#[test]
fn hostile_front_matter_takes_no_time() {
    let fill = |piece: &str| piece.repeat((FRONT_MATTER_MAX - 100) / piece.len());
    let numbered = |template: &str| {
        let mut text = String::new();
        for number in 0.. {
            let next = template.replace('#', &number.to_string());
            if text.len() + next.len() > FRONT_MATTER_MAX - 100 {
                return text;
            }
            text.push_str(&next);
        }
        text
    };
    let blocks = [
        ("brackets", format!("x: {}", fill("["))),
        ("braces", format!("x: {}", fill("{"))),
        ("pairs of brackets", format!("x: {}", fill("[]"))),
        ("unclosed flows", format!("x:\n{}\ny: z", fill(" - [\n"))),
        ("unclosed quotes", format!("x:\n{}\ny: z", fill(" - \"\n"))),
        ("unclosed quotes at keys", numbered("k#: \"\n")),
        ("lines of flows", numbered("k#: [\n")),
        ("dashes", fill("- ")),
        ("question marks", fill("? ")),
        ("deep blocks", (0..300).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect()),
        ("distinct keys", numbered("k#: v\n")),
        ("near keys", numbered("t#ols: v\n")),
        ("one key again", fill("k: v\n")),
        ("tools", format!("tools: {}", numbered("t#,"))),
        ("denials", format!("disallowed_tools: {}", numbered("*t#,"))),
        ("spawns", format!("spawns: {}", numbered("t#,"))),
        ("parentheses", format!("tools: {}", fill("("))),
        ("agents", format!("tools: Agent({})", numbered("t#,"))),
        ("comments", fill("# c\n")),
        ("blank lines", fill("\n")),
        ("a long line", fill("x")),
        ("colons", format!("description: {}", fill("a: "))),
        ("joined lines", format!("description: a: b\n{}", fill("x\n"))),
        ("joined keys", format!("description: a: b\n{}", numbered("u#: x\n"))),
        ("indented lines", format!("description: a: b\n{}", fill(" x: y\n"))),
        ("tabs", format!("x: a: b\ntools:\n{}", fill("\t- a\n"))),
        ("stars", format!("x: [{}]", fill("*,"))),
        ("hidden characters", format!("description: \"{}\"", fill("\u{200b}"))),
        ("joiners", format!("description: \"{}\"", fill("\u{200d}"))),
        ("marks and joiners", format!("description: \"{}\"", fill("\u{301}\u{200d}"))),
        ("tags", format!("description: \"{}\"", fill("\u{e0041}"))),
        ("a long key", format!("{}: x", fill("k"))),
        ("escapes", format!("description: \"{}\"", fill("\\u0041"))),
        ("many nodes", format!("x: [{}]", fill("a,"))),
        ("permissions", format!("permission: {{'*': deny, {}}}\ntools: {}", "", numbered("t#,"))),
    ];
    for (what, block) in blocks {
        for document in [
            format!("---\nname: a\n{block}\n---\n"),
            format!("---\nname: a\ndescription: a: b\n{block}\n---\n"),
        ] {
            let start = Instant::now();
            let parsed = parse(document.as_bytes(), &origin());
            let taken = start.elapsed();
            assert!(taken < PATIENCE, "{what}: {taken:?}");
            assert!(!parsed.diagnostics.is_empty() || parsed.agent.is_some(), "{what}");
        }
    }
}

#[test]
fn a_hostile_role_takes_no_time() {
    let fill = |piece: &str| piece.repeat((DOCUMENT_MAX - 100) / piece.len());
    let keys: String = (0..100_000).map(|number| format!("k{number}=1\n")).collect();
    let documents = [
        ("brackets", format!("x = {}", fill("["))),
        ("braces", format!("x = {}", fill("{a="))),
        ("a long dotted key", format!("{}a = 1", fill("a."))),
        ("a long header", format!("[{}a]", fill("a."))),
        ("many headers", fill("[[x]]\n")),
        ("nested headers", fill("[[x.y.z]]\n")),
        ("many keys", keys),
        ("one key again", fill("a=1\n")),
        ("a long text", format!("x = \"{}\"", fill("x"))),
        ("escapes", format!("developer_instructions = \"{}\"", fill("\\u200b"))),
        ("comments", fill("# c\n")),
    ];
    for (what, document) in documents {
        let start = Instant::now();
        let parsed = parse(document.as_bytes(), &Origin { format: Format::Toml, ..origin() });
        let taken = start.elapsed();
        assert!(taken < 4 * PATIENCE, "{what}: {taken:?}");
        assert!(parsed.agent.is_none(), "{what}");
    }
}
