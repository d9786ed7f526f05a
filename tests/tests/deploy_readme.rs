//! Every shell example of the README is run against a pair that `deploy/up` started, and must print what is shown below it.

use std::process::Command;

use tests::{
    program::{Running, deploy_up},
    repository::{self, printed},
};

/// A fenced block of the README.
struct Block {
    language: String,
    text: String,
    line: usize,
}

/// An example, and the lines that its output must contain in this order.
struct Example {
    script: String,
    expected: Vec<String>,
    line: usize,
}

#[test]
fn every_shell_example_runs_and_prints_what_is_shown() {
    let examples = examples();
    assert!(examples.len() >= 6, "the README has lost its examples");
    let data = tempfile::tempdir().unwrap();
    let mut up = Running::start(&mut deploy_up(data.path()));
    let registry = address(&up.line("registry ready on "));
    let executor = address(&up.line("executor ready on "));
    up.line("both stay up");

    for example in &examples {
        let script = example
            .script
            .replace("127.0.0.1:7401", &registry)
            .replace("127.0.0.1:7402", &executor)
            .replace("target/debug", &repository::programs().display().to_string())
            .replace("var/token", &data.path().join("token").display().to_string());
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", &script]).env("PATH", repository::search_path());

        let output = repository::outcome(&mut shell);

        let text = printed(&output);
        assert!(output.status.success(), "README.md:{}: {}\n{text}", example.line, output.status);
        prints(example, &text);
    }

    up.signal("INT");
    assert!(up.end().0.success());
}

#[test]
fn the_two_commands_come_first() {
    let blocks = blocks();
    let shell: Vec<&Block> = blocks.iter().filter(|block| block.language == "sh").collect();

    // These start what this test, and the tests of `deploy/up`, run by themselves.
    assert_eq!(shell[0].text, "deploy/up\n");
    assert_eq!(shell[1].text, "deploy/test\n");
    let known = ["sh", "text", "markdown", "yaml"];
    for block in &blocks {
        assert!(known.contains(&block.language.as_str()), "README.md:{}: a block of what?", block.line);
    }
}

/// The shell blocks behind the first two, each with the `text` block that follows it, if one does.
fn examples() -> Vec<Example> {
    let mut examples = Vec::new();
    for block in blocks() {
        match block.language.as_str() {
            "sh" => examples.push(Example { script: block.text, expected: Vec::new(), line: block.line }),
            "text" => {
                let example = examples.last_mut().expect("output follows an example");
                example.expected = block.text.lines().map(|line| line.trim().to_owned()).collect();
            }
            _ => {}
        }
    }
    examples.split_off(2)
}

fn blocks() -> Vec<Block> {
    let readme = repository::read("README.md");
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = false;
    for (index, line) in readme.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(language) => {
                inside = !inside;
                if inside {
                    blocks.push(Block {
                        language: language.to_owned(),
                        text: String::new(),
                        line: index + 1,
                    });
                }
            }
            None if inside => {
                let block = blocks.last_mut().expect("a block is open");
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {}
        }
    }
    assert!(!inside, "the README ends inside a block");
    blocks
}

/// Each line shown must be part of a line printed, in order. A line `…` stands for any number of lines.
#[track_caller]
fn prints(example: &Example, text: &str) {
    let mut printed = text.lines();
    for expected in example.expected.iter().filter(|line| *line != "…") {
        assert!(
            printed.any(|line| line.contains(expected.as_str())),
            "README.md:{}: `{expected}` is not printed, or not there:\n{text}",
            example.line,
        );
    }
}

fn address(announcement: &str) -> String {
    let (_, rest) = announcement.split_once(" ready on ").expect("the line announces an address");
    rest.split(',').next().expect("an address comes first").to_owned()
}
