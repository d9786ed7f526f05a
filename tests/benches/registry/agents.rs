//! Definitions as people write them: 1 to 6 KiB, half a dozen keys, four ways to write `tools`. The same for the same seed.

use std::{fmt::Write as _, fs, path::Path};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};

const NOUNS: &[&str] = &[
    "review", "test", "plan", "search", "data", "schema", "migrate", "deploy", "log", "trace", "cache",
    "index", "query", "parse", "doc", "release", "audit", "cost", "quota", "secret", "build", "lint", "fuzz",
];
const ROLES: &[&str] = &[
    "writer", "reader", "checker", "planner", "runner", "finder", "fixer", "tuner", "guard", "scout",
    "analyst",
];
const TOOLS: &[&str] = &[
    "read",
    "write",
    "edit",
    "bash",
    "grep",
    "glob",
    "find",
    "lsp",
    "web_search",
    "web_fetch",
    "todo",
    "ask",
];
const MODELS: &[&str] =
    &["default", "smol", "slow", "pi/smol, default", "gpt-4.1", "claude-sonnet-4", "inherit"];
const WORDS: &str = "the agent must read every file that it names before it answers and say what it did not read report \
                     only what a command printed never a guess stop when the budget is spent return the path and the \
                     line of each finding keep the summary under twelve lines do not edit a file outside of the folder";

/// Bytes of a document, its front matter included.
const BYTES: std::ops::Range<usize> = 1024..6144;

/// What was written.
#[derive(Debug)]
pub(crate) struct Set {
    pub(crate) names: Vec<String>,
    pub(crate) bytes: u64,
}

/// Writes so many definitions into a directory. `mark` stands in every description.
pub(crate) fn write(directory: &Path, count: usize, mark: &str) -> Set {
    fs::create_dir_all(directory).expect("a directory for agents");
    let mut random = StdRng::seed_from_u64(1);
    let mut set = Set { names: Vec::with_capacity(count), bytes: 0 };
    for index in 0..count {
        let (name, text) = document(index, mark, &mut random);
        set.bytes += text.len() as u64;
        fs::write(directory.join(format!("{name}.md")), text).expect("an agent is written");
        set.names.push(name);
    }
    set
}

fn document(index: usize, mark: &str, random: &mut StdRng) -> (String, String) {
    let (noun, role) = (pick(NOUNS, random), pick(ROLES, random));
    let name = format!("{noun}-{role}-{index:05}");
    let quote = if index.is_multiple_of(3) { "\"" } else { "" };
    let about = sentence(8..24, random);
    let mut text = format!(
        "---\nname: {name}\ndescription: {quote}Use {mark} to {noun} as a {role}, it {about}{quote}\n"
    );
    let tools: Vec<&str> = TOOLS.choose_multiple(random, random_count(2..8, index)).copied().collect();
    match index % 4 {
        0 => line(&mut text, &format!("tools: {}", tools.join(", "))),
        1 => line(&mut text, &format!("tools: [{}]", tools.join(", "))),
        2 => line(&mut text, &format!("tools:\n  - {}", tools.join("\n  - "))),
        _ => {}
    }
    line(&mut text, &format!("model: {}", pick(MODELS, random)));
    if index.is_multiple_of(5) {
        line(&mut text, "spawns: '*'");
    }
    if index.is_multiple_of(6) {
        line(&mut text, &format!("thinking-level: {}", pick(&["low", "medium", "high"], random)));
    }
    if index.is_multiple_of(7) {
        line(
            &mut text,
            "output:\n  properties:\n    summary:\n      type: string\n    files:\n      elements:\n        type: string",
        );
    }
    if index.is_multiple_of(10) {
        line(&mut text, &format!("blocking: true\nmax_turns: {}", random.random_range(5..80)));
    }
    let _ = write!(text, "---\n\n# {name}\n");
    let length = random.random_range(BYTES);
    while text.len() < length {
        paragraph(&mut text, random);
    }
    (name, text)
}

fn paragraph(text: &mut String, random: &mut StdRng) {
    text.push('\n');
    match random.random_range(0..20) {
        0..3 => line(text, &format!("## {}", sentence(3..4, random))),
        3..8 => {
            for _ in 0..random.random_range(3..8) {
                line(text, &format!("- {}", sentence(5..15, random)));
            }
        }
        8..10 => line(text, &format!("```bash\nrg -n '{}' src\n```", pick(NOUNS, random))),
        _ => line(text, &format!("{}.", sentence(20..70, random))),
    }
}

fn sentence(words: std::ops::Range<usize>, random: &mut StdRng) -> String {
    let all: Vec<&str> = WORDS.split_whitespace().collect();
    let count = random.random_range(words);
    (0..count).map(|_| pick(&all, random)).collect::<Vec<_>>().join(" ")
}

fn pick<'a>(words: &[&'a str], random: &mut StdRng) -> &'a str {
    words.choose(random).expect("a list of words is not empty")
}

/// Between the bounds, in turn.
fn random_count(range: std::ops::Range<usize>, index: usize) -> usize {
    range.start + index % range.len()
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}
