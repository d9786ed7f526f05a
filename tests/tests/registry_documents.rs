//! What holds of every document: it comes back byte for byte, and checking it says what loading it does.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    fs,
    path::PathBuf,
};

use proptest::{
    prelude::*,
    sample::{Index, select},
    test_runner::{Config as Cases, TestCaseError, TestRunner},
};
use proto::{
    agent::v1::AgentDefinition,
    registry::v1::{
        ByNameRequest, Diagnostic, GetDocumentRequest, ListDiagnosticsRequest, ListRequest, ReloadRequest,
        RemoveRequest, ReplaceRequest, ValidateRequest, ValidateResponse, View,
        registry_service_client::RegistryServiceClient,
    },
};
use registry_svc::{agent::Digest, config::Config};
use serde_json::Value;
use service_kit::client::Connection;
use tests::{refusal::reason, registry::Registry, repository, scale::scaled};
use tokio::runtime::Runtime;
use tonic::Code;

/// What generators, editors and people put where it does not belong.
const PIECES: &[&str] = &[
    "---\n",
    "\n",
    "\r\n",
    "\r",
    "\u{feff}",
    "name: a\n",
    "name: reviewer\n",
    "name: b: c\n",
    "description: x: y\n",
    "tools: [read,\n",
    "tools:\n",
    "- bash\n",
    "disallowed_tools: write\n",
    "permission:\n  edit: deny\n",
    "spawns: '*'\n",
    "output:\n  type: object\n",
    "disable: true\n",
    "max_turns: many\n",
    "tool: read\n",
    "sandbox: none\n",
    "&a ",
    "*a",
    "<<: ",
    "'",
    "\"",
    "[",
    "}",
    ": ",
    " #",
    "\t",
    "é",
    "\u{200d}",
    "\u{202e}",
    "\0",
    "👩",
    "~",
];

/// One step from a document to another.
#[derive(Clone, Debug)]
enum Mutation {
    Insert(Index, &'static str),
    Overwrite(Index, u8),
    RemoveLine(Index),
    DoubleLine(Index),
    Cut(Index),
}

impl Mutation {
    fn apply(self, document: &mut Vec<u8>) {
        if document.is_empty() {
            return;
        }
        let mut lines: Vec<Vec<u8>> =
            document.split_inclusive(|byte| *byte == b'\n').map(Vec::from).collect();
        match self {
            Self::Insert(at, piece) => {
                let at = at.index(document.len());
                document.splice(at..at, piece.bytes());
            }
            Self::Overwrite(at, byte) => {
                let at = at.index(document.len());
                document[at] = byte;
            }
            Self::RemoveLine(at) => {
                lines.remove(at.index(lines.len()));
                *document = lines.concat();
            }
            Self::DoubleLine(at) => {
                let at = at.index(lines.len());
                lines.insert(at, lines[at].clone());
                *document = lines.concat();
            }
            Self::Cut(at) => document.truncate(at.index(document.len())),
        }
    }
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<Index>;
    prop_oneof![
        4 => (at(), select(PIECES)).prop_map(|(at, piece)| Mutation::Insert(at, piece)),
        1 => (at(), any::<u8>()).prop_map(|(at, byte)| Mutation::Overwrite(at, byte)),
        1 => at().prop_map(Mutation::RemoveLine),
        1 => at().prop_map(Mutation::DoubleLine),
        1 => at().prop_map(Mutation::Cut),
    ]
}

/// Documents of the corpus, most of them changed a little. None is empty.
fn documents() -> impl Strategy<Value = Vec<u8>> {
    let corpus: Vec<Value> =
        serde_json::from_str(&repository::read("tests/corpus/definitions.json")).expect("JSON");
    let texts = corpus.iter().filter_map(|case| Some(case["document"].as_str()?.as_bytes().to_vec()));
    let texts: Vec<Vec<u8>> = texts.filter(|text| text.len() < 8_192).collect();
    assert!(texts.len() > 100, "the corpus was not found");
    let mutated = (select(texts), prop::collection::vec(mutation(), 0..5));
    let mutated = mutated.prop_map(|(mut document, mutations)| {
        mutations.into_iter().for_each(|mutation| mutation.apply(&mut document));
        document
    });
    mutated.prop_filter("an empty document is no request", |document| !document.is_empty())
}

/// A registry over one root, into which one document at a time is put.
struct Bench {
    registry: Registry,
    client: RegistryServiceClient<Connection>,
    file: PathBuf,
}

/// Code and place of each finding: the messages of a file may offer its name.
type Findings = BTreeSet<(String, u32, u32)>;

impl Bench {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("the disk works");
        fs::create_dir_all(directory.path().join("project/.git")).expect("the disk works");
        let root = directory.path().join("root");
        fs::create_dir(&root).expect("the disk works");
        let file = root.join("document.md");
        let only_the_root = |config: &mut Config| {
            let workspace = config.workspaces.get_mut("default").expect("the default workspace");
            workspace.roots = vec![root];
            workspace.bundled = false;
        };
        let registry = Registry::start_in(directory, only_the_root).await;
        let client = registry.administrator().await;
        Self { registry, client, file }
    }

    async fn validate(&mut self, document: &[u8]) -> ValidateResponse {
        let request = ValidateRequest { document: document.to_vec(), workspace: "default".to_owned() };
        self.client.validate(request).await.expect("the registry answers").into_inner()
    }

    /// What a listing says once the document is a file.
    async fn load(&mut self, document: &[u8]) -> (Option<AgentDefinition>, Vec<Diagnostic>) {
        fs::write(&self.file, document).expect("the disk works");
        self.client.reload(ReloadRequest::default()).await.expect("the registry answers");
        let request = ListRequest { view: View::Full.into(), ..ListRequest::default() };
        let agents = self.client.list(request).await.expect("the registry answers").into_inner().agents;
        let findings = self
            .client
            .list_diagnostics(ListDiagnosticsRequest::default())
            .await
            .expect("the registry answers");
        fs::remove_file(&self.file).expect("the disk works");
        self.client.reload(ReloadRequest::default()).await.expect("the registry answers");
        (agents.into_iter().next(), findings.into_inner().diagnostics)
    }

    /// Writes the document, reads it back in every way, and takes it away again.
    async fn store(&mut self, document: &[u8], validated: &AgentDefinition) -> Result<(), TestCaseError> {
        let request = ReplaceRequest { document: document.to_vec(), ..ReplaceRequest::default() };
        let replaced = self.client.replace(request).await.expect("the registry answers").into_inner();
        let name = validated.name.clone();
        let request = ByNameRequest { workspace: String::new(), name: name.clone() };
        let found = self.client.by_name(request).await.expect("the registry answers").into_inner();
        let request = GetDocumentRequest { name: name.clone(), ..GetDocumentRequest::default() };
        let fetched = self.client.get_document(request).await.expect("the registry answers").into_inner();
        let request = RemoveRequest { name, ..RemoveRequest::default() };
        self.client.remove(request).await.expect("the registry answers");

        let digest = Digest::of(document).to_string();
        let agent = found.agent.clone().expect("an agent");
        prop_assert_eq!(&agent.digest, &digest);
        prop_assert_eq!((&fetched.digest, &fetched.document[..]), (&digest, document));
        prop_assert_eq!(replaced.generation, found.generation);
        prop_assert_eq!(replaced.agent, found.agent);
        prop_assert_eq!(without_place(agent), without_place(validated.clone()));
        Ok(())
    }

    async fn check(&mut self, document: &[u8]) -> Result<bool, TestCaseError> {
        let ValidateResponse { agent, diagnostics, would_shadow: _ } = self.validate(document).await;
        let (loaded, found) = self.load(document).await;
        prop_assert_eq!(findings(&diagnostics), findings(&found));
        prop_assert_eq!(agent.clone().map(without_place), loaded.map(without_place));
        match &agent {
            Some(agent) => self.store(document, agent).await?,
            None => {
                let request = ReplaceRequest { document: document.to_vec(), ..ReplaceRequest::default() };
                let refused = self.client.replace(request).await.expect_err("it is refused");
                reason(&refused, Code::InvalidArgument, "INVALID_DOCUMENT");
            }
        }
        Ok(agent.is_some())
    }
}

/// A definition but for what its place decides.
fn without_place(agent: AgentDefinition) -> AgentDefinition {
    AgentDefinition { source: None, ..agent }
}

/// `Validate` also looks for the agents and skills that a document names; loading does not.
fn findings(diagnostics: &[Diagnostic]) -> Findings {
    let of_the_document =
        diagnostics.iter().filter(|it| !["UNKNOWN_SPAWN", "UNKNOWN_SKILL"].contains(&&*it.code));
    of_the_document.map(|it| (it.code.clone(), it.line, it.column)).collect()
}

#[test]
fn a_document_comes_back_as_it_was_written_and_checking_it_says_what_loading_does() {
    let runtime = Runtime::new().expect("a runtime");
    let bench = runtime.block_on(Bench::new());
    let cases = u32::try_from(scaled(256, 5_000)).expect("a small number");
    let mut runner = TestRunner::new(Cases { cases, failure_persistence: None, ..Cases::default() });
    let (bench, usable) = (RefCell::new(bench), Cell::new(0));

    let outcome = runner.run(&documents(), |document| {
        let is_usable = runtime.block_on(bench.borrow_mut().check(&document))?;
        usable.set(usable.get() + u32::from(is_usable));
        Ok(())
    });

    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    assert!((cases / 10..cases).contains(&usable.get()), "{} of {cases} can be used", usable.get());
    runtime.block_on(bench.into_inner().registry.stop());
}
