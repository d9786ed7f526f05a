//! What was found wrong, or odd, in a document or a place. Broken input is normal input: findings are values, not errors.

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    pub code: Code,
    /// For a person: the offending value and the mend. Lower case, no full stop.
    pub message: String,
    /// The file or directory; empty inside the parser, which does not know it.
    pub path: String,
    /// From 1; 0 when unknown.
    pub line: u32,
    /// From 1, in characters; 0 when unknown.
    pub column: u32,
    /// The agent concerned; empty while its name is not known.
    pub agent: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Loaded; something was ignored or repaired.
    Warning,
    /// The document or place was not loaded.
    Error,
}

macro_rules! codes {
    ($($variant:ident = $text:literal,)*) => {
        /// Stable code of a finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($variant,)* }

        impl Code {
            /// Every code, for documentation and tests.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The code as clients see it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

codes! {
    BrokenOverride = "BROKEN_OVERRIDE",
    ConfusableName = "CONFUSABLE_NAME",
    Disabled = "DISABLED",
    DuplicateKey = "DUPLICATE_KEY",
    DuplicateName = "DUPLICATE_NAME",
    ForeignRestriction = "FOREIGN_RESTRICTION",
    FrontMatterRescued = "FRONT_MATTER_RESCUED",
    HiddenCharacters = "HIDDEN_CHARACTERS",
    InvalidField = "INVALID_FIELD",
    InvalidName = "INVALID_NAME",
    InvalidOutputSchema = "INVALID_OUTPUT_SCHEMA",
    LinkEscapes = "LINK_ESCAPES",
    MissingField = "MISSING_FIELD",
    MisspeltRestriction = "MISSPELT_RESTRICTION",
    NameDiffersOnlyInCase = "NAME_DIFFERS_ONLY_IN_CASE",
    NoFrontMatter = "NO_FRONT_MATTER",
    NotAMapping = "NOT_A_MAPPING",
    NotUtf8 = "NOT_UTF8",
    PluginEntryInvalid = "PLUGIN_ENTRY_INVALID",
    PluginRegistryInvalid = "PLUGIN_REGISTRY_INVALID",
    PrivilegeIgnored = "PRIVILEGE_IGNORED",
    ProtectedName = "PROTECTED_NAME",
    ShadowedByAuthored = "SHADOWED_BY_AUTHORED",
    TomlInvalid = "TOML_INVALID",
    TooLarge = "TOO_LARGE",
    UnclosedFrontMatter = "UNCLOSED_FRONT_MATTER",
    UnknownKey = "UNKNOWN_KEY",
    UnknownSkill = "UNKNOWN_SKILL",
    UnknownSpawn = "UNKNOWN_SPAWN",
    UnknownValue = "UNKNOWN_VALUE",
    Unreadable = "UNREADABLE",
    UnsupportedSpecifier = "UNSUPPORTED_SPECIFIER",
    UntrustedOwner = "UNTRUSTED_OWNER",
    ValueCutByComment = "VALUE_CUT_BY_COMMENT",
    YamlInvalid = "YAML_INVALID",
    YamlUnsupported = "YAML_UNSUPPORTED",
}

impl Diagnostic {
    /// A finding at a place inside a document.
    pub fn new(severity: Severity, code: Code, line: u32, column: u32, message: impl Into<String>) -> Self {
        Self {
            severity,
            code,
            message: message.into(),
            path: String::new(),
            line,
            column,
            agent: String::new(),
        }
    }

    /// True when the document or place was not loaded.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}
