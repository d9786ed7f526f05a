use super::*;

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let problems = Script::parse(text).expect_err("the script has mistakes");
    let found: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn the_whole_language_is_read() {
    let script = Script::parse(
        r#"
rules:
  - when: {agent: explore, turn: 1, last: "fn \\w+", tool: ls}
    do:
      - text: "Let me look."
      - call: {tool: grep, arguments: {pattern: "fn main"}}
      - call: {tool: ls}
      - call: {tool: ls, arguments: "{oops"}
      - submit: {data: {summary: "{{last}}"}}
      - submit: {error: "no"}
      - delay: 200ms
      - error: {status: 429, retry_after: 1s}
      - usage: {input_tokens: 10, output_tokens: 5}
  - do: []
"#,
    )
    .unwrap();

    assert_eq!(script.rules.len(), 2);
    assert_eq!(script.rules[0].steps.len(), 9);
    assert!(script.rules[1].steps.is_empty());
}

#[test]
fn every_mistake_is_told_with_its_line() {
    check("", &["1:1: `rules` is missing"]);
    check("rules: 7", &["1:1: `rules` must be a list"]);
    check("- a", &["1:1: a script must be a mapping"]);
    check("rules: []\nrule: []", &["2:1: `rule` is no key of a script, which has `rules`"]);
    check("rules:\n  - when: {}\n", &["2:5: `do` is missing"]);
    check("rules:\n  - do: {text: a}\n", &["2:5: `do` must be a list"]);
    check("rules:\n  - 7\n", &["2:5: a rule must be a mapping"]);
    check(
        "rules:\n  - when: {agnt: a}\n    do: []\n",
        &["2:12: `agnt` is no key of `when`, which has `agent`, `turn`, `last`, `tool`"],
    );
    check(
        "rules:\n  - when:\n      agent: 7\n      turn: 0\n      last: \"(\"\n      tool: [ls]\n    do: []\n",
        &[
            "3:7: `agent` must be text",
            "4:7: `turn` must be a whole number from 1 to 4294967295",
            "5:7: `last` is no regular expression: unclosed group",
            "6:7: `tool` must be text",
        ],
    );
    check(
        "rules:\n  - do:\n      - text: 1\n      - say: a\n      - hello\n      - text: a\n        delay: 1s\n",
        &[
            "3:9: `text` must be text",
            "4:9: `say` is no key of a step, which has `text`, `call`, `submit`, `delay`, `error`, `usage`",
            "5:9: a step is one of `text`, `call`, `submit`, `delay`, `error`, `usage`",
            "6:9: a step is one of `text`, `call`, `submit`, `delay`, `error`, `usage`",
        ],
    );
    check(
        "rules:\n  - do:\n      - call: {arguments: {}}\n      - call: {tool: ls, arguments: [1]}\n      - call: {tool: ls, args: {}}\n",
        &[
            "3:9: `tool` is missing",
            "4:26: `arguments` must be a mapping, or text to send as it is",
            "5:26: `args` is no key of `call`, which has `tool`, `arguments`",
        ],
    );
    check(
        "rules:\n  - do:\n      - submit: {}\n      - submit: {data: 1, error: a}\n      - submit: {error: 1}\n",
        &[
            "3:9: `submit` has either `data` or `error`",
            "4:9: `submit` has either `data` or `error`",
            "5:18: `error` must be text",
        ],
    );
    check(
        "rules:\n  - do:\n      - delay: 200\n      - error: {}\n      - error: {status: 200}\n      - error: {status: 429, retry_after: soon}\n      - usage: {input_tokens: -1}\n",
        &[
            "3:9: `delay` must be a duration such as `200ms`",
            "4:9: `status` is missing",
            "5:17: `status` must be a whole number from 400 to 599",
            "6:30: `retry_after` must be a duration such as `200ms`",
            "7:17: a number of tokens must be a whole number from 0 to 4294967295",
        ],
    );
    check(
        "rules:\n  - do:\n      - text: \"{{promt}}\"\n      - submit:\n          data:\n            a: [\"{{x}}\"]\n",
        &[
            "3:9: `{{promt}}` is not one of `prompt`, `last`, `agent`, `turn`",
            "6:17: `{{x}}` is not one of `prompt`, `last`, `agent`, `turn`",
        ],
    );
}

#[test]
fn a_text_that_is_no_yaml_is_told_with_its_line() {
    let problems = Script::parse("rules:\n  - do: [\n").unwrap_err();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].place.line >= 2, "{}", problems[0]);

    let twice = Script::parse("rules: []\nrules: []").unwrap_err();
    assert_eq!(twice[0].place.line, 2);
}

#[test]
fn the_script_that_is_shipped_is_read() {
    let text = include_str!("../../../../../deploy/rehearsal.yaml");
    assert!(Script::parse(text).is_ok());
}
