//! What a top-level key means: a field, another product's restriction, a near miss of one, or nothing we know.

/// A field of the definition format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Name,
    Description,
    WhenToUse,
    Tools,
    DisallowedTools,
    Spawns,
    Model,
    ThinkingLevel,
    Output,
    PermissionMode,
    MaxTurns,
    CriticalReminder,
    Skills,
    McpServers,
    Blocking,
}

/// A restriction of another product that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Translated {
    ReadOnly,
    SandboxMode,
    ApprovalMode,
    Permission,
}

/// A key with which an owner switches a definition off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switch {
    /// Off when true.
    Disable,
    /// Off when false.
    Enabled,
}

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Field(Field),
    Translated(Translated),
    Switch(Switch),
    /// A restriction of another product that cannot be read.
    Foreign,
    /// So near to the key of this restricting field that it is taken for a slip.
    NearMiss(Field),
    /// Known from another product; not interpreted.
    Known,
    Unknown,
}

/// Folded spellings of the fields, the documented one of each first.
const FIELDS: &[(Field, &[&str])] = &[
    (Field::Name, &["name"]),
    (Field::Description, &["description"]),
    (Field::WhenToUse, &["whentouse"]),
    (Field::Tools, &["tools", "allowedtools"]),
    (Field::DisallowedTools, &["disallowedtools", "deniedtools"]),
    (Field::Spawns, &["spawns", "agents"]),
    (Field::Model, &["model"]),
    (
        Field::ThinkingLevel,
        &["thinkinglevel", "thinking", "effort", "reasoningeffort", "modelreasoningeffort"],
    ),
    (Field::Output, &["output"]),
    (Field::PermissionMode, &["permissionmode"]),
    (Field::MaxTurns, &["maxturns", "steps", "maxsteps"]),
    (Field::CriticalReminder, &["criticalreminder"]),
    (Field::Skills, &["skills"]),
    (Field::McpServers, &["mcpservers"]),
    (Field::Blocking, &["blocking"]),
];

/// Folded keys of other products that are kept without a word.
#[rustfmt::skip]
const KNOWN: &[&str] = &[
    "color", "metadata", "memory", "hooks", "isolation", "mode", "temperature", "topp", "hidden", "background",
    "initialprompt", "omitclaudemd", "capabilities", "candelegate", "version", "license", "tags", "author", "kind",
    "displayname", "argumenthint", "userinvocable", "target", "experimental", "autoloadskills", "agent", "category",
    "prompt", "type", "role", "handoffs", "disablemodelinvocation", "nicknamecandidates", "timeoutmins", "infer",
];

/// Folded restrictions of other products that cannot be read.
#[rustfmt::skip]
const FOREIGN: &[&str] = &[
    "sandbox", "allow", "deny", "denytools", "blockedtools", "excludetools", "excludedtools", "disabledtools",
    "forbiddentools", "avoidtools", "toolfilter", "writeguard",
];

/// Up to this many letters a near miss is one edit away, above it two.
const SHORT_KEY: usize = 6;

impl Field {
    /// The key as documented.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Description => "description",
            Self::WhenToUse => "when_to_use",
            Self::Tools => "tools",
            Self::DisallowedTools => "disallowed_tools",
            Self::Spawns => "spawns",
            Self::Model => "model",
            Self::ThinkingLevel => "thinking_level",
            Self::Output => "output",
            Self::PermissionMode => "permission_mode",
            Self::MaxTurns => "max_turns",
            Self::CriticalReminder => "critical_reminder",
            Self::Skills => "skills",
            Self::McpServers => "mcp_servers",
            Self::Blocking => "blocking",
        }
    }

    /// True where losing the value would widen what the agent may do.
    pub(super) fn restricts(self) -> bool {
        match self {
            Self::Tools | Self::DisallowedTools | Self::Spawns | Self::Output | Self::PermissionMode => true,
            Self::Name
            | Self::Description
            | Self::WhenToUse
            | Self::Model
            | Self::ThinkingLevel
            | Self::MaxTurns
            | Self::CriticalReminder
            | Self::Skills
            | Self::McpServers
            | Self::Blocking => false,
        }
    }

    /// True for the fields whose value is text whatever it looks like.
    pub(super) fn is_text(self) -> bool {
        match self {
            Self::Name | Self::Description | Self::WhenToUse | Self::CriticalReminder => true,
            Self::Tools
            | Self::DisallowedTools
            | Self::Spawns
            | Self::Model
            | Self::ThinkingLevel
            | Self::Output
            | Self::PermissionMode
            | Self::MaxTurns
            | Self::Skills
            | Self::McpServers
            | Self::Blocking => false,
        }
    }
}

impl Meaning {
    /// What `key` means at the top level of front matter.
    pub(super) fn of(key: &str) -> Self {
        let folded = fold(key);
        let field = FIELDS.iter().find(|(_, spellings)| spellings.contains(&folded.as_str()));
        if let Some((field, _)) = field {
            return Self::Field(*field);
        }
        match folded.as_str() {
            "readonly" => Self::Translated(Translated::ReadOnly),
            "sandboxmode" => Self::Translated(Translated::SandboxMode),
            "approvalmode" => Self::Translated(Translated::ApprovalMode),
            "permission" | "permissions" => Self::Translated(Translated::Permission),
            "disable" | "disabled" => Self::Switch(Switch::Disable),
            "enabled" => Self::Switch(Switch::Enabled),
            folded if FOREIGN.contains(&folded) => Self::Foreign,
            folded if KNOWN.contains(&folded) => Self::Known,
            folded => near_field(folded, Field::restricts).map_or(Self::Unknown, Self::NearMiss),
        }
    }

    pub(super) fn is_text_field(self) -> bool {
        matches!(self, Self::Field(field) if field.is_text())
    }

    /// True where overlooking the key could lose a restriction.
    pub(super) fn concerns_restriction(self) -> bool {
        match self {
            Self::Field(field) => field.restricts(),
            Self::Translated(_) | Self::Switch(_) | Self::Foreign | Self::NearMiss(_) => true,
            Self::Known | Self::Unknown => false,
        }
    }
}

/// A key or word as it is compared: without `_`, `-` and case.
pub(super) fn fold(word: &str) -> String {
    word.chars().filter(|character| !matches!(character, '_' | '-')).flat_map(char::to_lowercase).collect()
}

/// What two keys share when they are the same key: aliases of one field do.
pub(super) fn identity(key: &str) -> String {
    let folded = fold(key);
    if folded == "permissions" {
        return "permission".to_owned();
    }
    match FIELDS.iter().find(|(_, spellings)| spellings.contains(&folded.as_str())) {
        Some((_, spellings)) => spellings[0].to_owned(),
        None => folded,
    }
}

/// The field that a key without meaning was perhaps meant to be.
pub(super) fn likely_field(key: &str) -> Option<Field> {
    near_field(&fold(key), |_| true)
}

fn near_field(folded: &str, counts: impl Fn(Field) -> bool) -> Option<Field> {
    let is_near_one = |spellings: &[&str]| spellings.iter().any(|spelling| is_near(folded, spelling));
    FIELDS.iter().find(|(field, spellings)| counts(*field) && is_near_one(spellings)).map(|(field, _)| *field)
}

/// An exchange of two neighbours counts as one edit.
fn is_near(folded: &str, spelling: &str) -> bool {
    let edits_max = if spelling.len() <= SHORT_KEY { 1 } else { 2 };
    // The distance is at least the difference in length, and long keys are not worth its square cost.
    let length = folded.chars().count();
    length.abs_diff(spelling.len()) <= edits_max && strsim::damerau_levenshtein(folded, spelling) <= edits_max
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, meaning: Meaning) {
        assert_eq!(Meaning::of(key), meaning, "{key:?}");
    }

    #[test]
    fn keys_are_compared_without_separators_and_case() {
        for key in ["max_turns", "max-turns", "maxTurns", "MAXTURNS", "m-a_x-t_u-r_n-s"] {
            check(key, Meaning::Field(Field::MaxTurns));
        }
        check("max turns", Meaning::Unknown);
    }

    #[test]
    fn aliases_are_one_key() {
        for (one, other) in [
            ("tools", "allowed-tools"),
            ("disallowedTools", "denied_tools"),
            ("spawns", "agents"),
            ("effort", "model_reasoning_effort"),
            ("steps", "maxTurns"),
            ("permission", "permissions"),
            ("my_key", "myKey"),
        ] {
            assert_eq!(identity(one), identity(other));
        }
        assert_ne!(identity("tools"), identity("skills"));
    }

    #[test]
    fn a_near_miss_of_a_restricting_key_is_seen() {
        for key in
            ["tool", "toosl", "otols", "toolz", "stools", "spawn", "agens", "outputs", "ouptut", "utput"]
        {
            assert!(matches!(Meaning::of(key), Meaning::NearMiss(_)), "{key}");
        }
        for key in ["dissallowedTools", "disalowed_tool", "allow_tools", "permision_mod", "permission_modes"]
        {
            assert!(matches!(Meaning::of(key), Meaning::NearMiss(_)), "{key}");
        }
        for key in
            ["goals", "todos", "toolset", "tooling", "outputting", "spanning", "perms", "modes", "input"]
        {
            check(key, Meaning::Unknown);
        }
    }

    #[test]
    fn fields_and_known_keys_are_never_near_misses() {
        check("skills", Meaning::Field(Field::Skills));
        check("agent", Meaning::Known);
        check("mode", Meaning::Known);
        check("displayName", Meaning::Known);
        check("tags", Meaning::Known);
        check("model", Meaning::Field(Field::Model));
    }

    #[test]
    fn restrictions_of_other_products_are_told_apart() {
        for key in ["sandbox", "denyTools", "excluded-tools", "disabled_tools", "write_guard", "allow"] {
            check(key, Meaning::Foreign);
        }
        check("read_only", Meaning::Translated(Translated::ReadOnly));
        check("readonly", Meaning::Translated(Translated::ReadOnly));
        check("permissions", Meaning::Translated(Translated::Permission));
    }
}
