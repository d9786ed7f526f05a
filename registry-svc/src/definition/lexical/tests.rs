use super::*;

#[track_caller]
fn accepted(block: &str) {
    assert!(scan(block).is_ok(), "{block:?}: {:?}", scan(block));
}

/// `place` is the text that begins where the refusal stands.
#[track_caller]
fn refused(block: &str, place: &str) {
    let Err(Refusal::Unsupported(at)) = scan(block) else {
        panic!("{block:?} is accepted");
    };
    assert!(block[at..].starts_with(place), "{block:?}: {:?}", &block[at..]);
}

#[track_caller]
fn repaired(block: &str, place: &str) {
    let at = scan(block).unwrap().first_repaired.unwrap();
    assert!(block[at..].starts_with(place), "{block:?}: {:?}", &block[at..]);
}

#[track_caller]
fn literal(block: &str, count: usize) {
    let marks = scan(block).unwrap();
    assert_eq!((marks.literal.len(), marks.first_repaired), (count, None), "{block:?}");
}

#[test]
fn indicators_at_the_beginning_of_a_value_are_refused_at_any_depth() {
    refused("metadata: &d text\n", "&d");
    refused("version: *d\n", "*d");
    refused("metadata: !!python/object x\n", "!!python");
    refused("metadata: !x\n", "!x");
    refused("a:\n  b:\n    c: *x\n", "*x");
    refused("a:\n  - *x\n", "*x");
    refused("a:\n- b: *x\n", "*x");
    refused("a:\n- - *x\n", "*x");
    refused("a:\n  *x\n", "*x");
    refused("a:\n\n  # comment\n  &x y\n", "&x");
    refused("a:\t*x\n", "*x");
    refused("a: [b, *x]\n", "*x");
    refused("a: {b: [c, {d: &x e}]}\n", "&x");
    refused("a: [b,\n*x]\n", "*x");
    refused("a: [\"b\", 'c', !d e]\n", "!d");
    refused("a: {\"b\":*x}\n", "*x");
    refused("*x\n", "*x");
    refused("!!map\na: b\n", "!!map");
    refused("&x\na: b\n", "&x");
}

#[test]
fn keys_with_indicators_and_merge_keys_are_refused() {
    refused("<<: *x\n", "<<");
    refused("<<: {a: b}\n", "<<");
    refused("a:\n  <<: b\n", "<<");
    refused("a: {<<: b}\n", "<<");
    refused("*x: b\n", "*x");
    refused("*x : b\n", "*x");
    refused("*: deny\n", "*");
    refused("&x a: b\n", "&x");
    refused("!!str a: b\n", "!!str");
    refused("a: {*x: b}\n", "*x");
    refused("a: {*: b}\n", "*");
    refused("a: {* : b}\n", "*");
    refused("a: {*}\n", "*");
    refused("a: [* : b]\n", "*");
    refused("? *x\n: b\n", "*x");
    refused("? a\n: *x\n", "*x");
}

#[test]
fn a_quoted_key_is_text() {
    accepted("\"<<\": a\n\"*\": b\n'&x': c\n");
    accepted("permission:\n  \"*\": deny\n");
    accepted("permission: {\"*\": deny, '!x': ask}\n");
}

#[test]
fn a_lone_star_is_text() {
    literal("tools: *\n", 1);
    literal("tools: * # all\n", 1);
    literal("tools: *", 1);
    literal("tools:\n  *\n", 1);
    literal("tools:\n- *\n- read\n", 1);
    literal("spawns: [*]\n", 1);
    literal("spawns: [*, a, * ]\n", 2);
    literal("spawns: [*\n]\n", 1);
    literal("metadata: {a: *}\n", 1);
    literal("metadata: {a: *, b: [*]}\n", 2);
    literal("description: * item\n", 1);
    literal("description: d\n* item\n", 1);
    refused("tools: **\n", "**");
    refused("tools: *)\n", "*)");
}

#[test]
fn a_text_field_at_the_top_level_is_read_as_text() {
    repaired("name: a\ndescription: **Use** it\n", "**Use**");
    repaired("description: !important\n", "!important");
    repaired("when_to_use: &c\n", "&c");
    repaired("criticalReminder:\t*never*\n", "*never*");
    repaired("\"description\": *x*\n", "*x*");
    repaired("description:\n  *x*\n", "*x*");
    repaired("  name: a\n  description: *x*\n", "*x*");
    refused("a:\n  description: *x*\n", "*x*");
    refused("description:\n  - *x*\n", "*x*");
    refused("- description: *x*\n", "*x*");
}

#[test]
fn lines_that_a_rescue_would_join_are_looked_at_too() {
    refused("description: x: y\nuser: *waves*\n", "*waves*");
    refused("description: x: y\n**Example** text\n", "**Example**");
    refused("description: x: y\n- **bold** item\n", "**bold**");
    refused("description: x: y\n*Note*: text\n", "*Note*");
}

#[test]
fn lines_inside_scalars_begin_no_value() {
    accepted("description: |\n  - **Bold** text\n  *more* &c !x\n\n  a: *b\nname: a\n");
    accepted("a:\n  - |\n    *x\n  - >-\n    &y\n");
    accepted("a:\n- b: |\n    *x\n  c: d\n");
    accepted("description: one\n  *two* three\n  - &x\n  key: *y\n");
    accepted("description:\n  one\n  *two*\n");
    accepted("a:\n  - one\n    *two*\n");
    accepted("description: \"one\n  *two*\n&three\n\"\nname: a\n");
    accepted("description: 'it''s\n  *two*'\n");
    accepted("description: \"a \\\" *b\"\n");
    accepted("a: [b *c, d&e, f!g]\n");
    accepted("a: b *c\n");
    refused("description: |\n  text\nversion: *x\n", "*x");
    refused("description: one\n  two\nversion: *x\n", "*x");
    refused("a:\n  - one\n  - *two\n", "*two");
    refused("description: \"one\n  two\"\nversion: *x\n", "*x");
    refused("description: |x\nversion: *x\n", "*x");
}

#[test]
fn comments_begin_no_value() {
    accepted("# *x\na: b # *y\nc: # &z\n  d\n");
    accepted("a: [b, # *x\n  c]\n");
    refused("a: # comment\n  *x\n", "*x");
}

#[test]
fn an_unclosed_quote_or_flow_ends_before_the_next_key() {
    refused("description: \"unfinished\nversion: *x\n", "*x");
    refused("a: [b,\nversion: *x\n", "*x");
    refused("a:\n  b: 'c\n  d: *x\n", "*x");
    refused("a:\n  - \"c\nd: *x\n", "*x");
    accepted("description: \"one\n  two: *x\n\"\n");
    accepted("a: [\"it's\", 'b']\nc: d's\n");
}

#[test]
fn a_quote_or_flow_that_would_swallow_a_key_is_noted() {
    for block in ["description: \"x\ntools: read\nwhen_to_use: y\"\n", "a: [b,\ndisallowed_tools: bash\n]\n"]
    {
        assert!(scan(block).unwrap().swallows_key.is_some(), "{block:?}");
    }
    for block in
        ["description: \"x\nuser: y\"\n", "a: {\n\"tools\": [],\n}\n", "description: \"x\n  tools: y\"\n"]
    {
        assert!(scan(block).unwrap().swallows_key.is_none(), "{block:?}");
    }
}

#[test]
fn a_block_that_costs_too_much_is_refused() {
    let mut block = "a:\n".to_owned();
    block.push_str(&" - [\n".repeat(10_000));
    block.push_str("b: c\n");

    assert!(matches!(scan(&block), Err(Refusal::TooCostly(_))));
}
