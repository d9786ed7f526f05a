//! Documents in any order → what is in force, what is shadowed, what is broken. Pure, so that every replica agrees.

use std::{
    borrow::Cow,
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use crate::{
    agent::{AgentName, Source, SourceKind},
    diagnostic::{Code, Diagnostic, Severity},
    document::{Claim, Content, Definition, Document},
};

/// What a workspace decides about its merge.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Names that resolve only from places of the operator.
    pub protected: Vec<String>,
    pub on_broken_override: OnBrokenOverride,
}

/// What a document does to its name when it cannot be used for a fault that is not in a restriction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBrokenOverride {
    /// The next candidate comes into force.
    FallThrough,
    /// Nothing is in force under the name.
    Block,
}

/// The result of one merge.
#[derive(Debug)]
pub struct Merged {
    /// In merge order.
    pub in_force: Vec<Arc<Definition>>,
    pub names: HashMap<AgentName, Named>,
    /// Sorted by path, then line, then column, then code.
    pub diagnostics: Vec<Diagnostic>,
}

/// All that is known of one name.
#[derive(Debug)]
pub struct Named {
    /// In merge order; never empty.
    pub candidates: Vec<Candidate>,
    pub resolution: Resolution,
}

/// What a name resolves to.
#[derive(Clone, Debug)]
pub enum Resolution {
    InForce(Arc<Definition>),
    /// A document that cannot be used keeps the name, so that a restriction in it is not lost.
    Blocked(Arc<Document>),
    Nothing,
}

/// One place that defines, or tried to define, a name.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub standing: Standing,
    pub document: Arc<Document>,
    /// What the merge found about it; what the parser found stays with the document.
    pub findings: Vec<Diagnostic>,
}

/// What became of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    InForce,
    Shadowed,
    Broken,
    Protected,
}

/// Merges documents. `findings` are what reading the sources said beside the documents.
pub fn merge(mut documents: Vec<Arc<Document>>, findings: &[Diagnostic], policy: &Policy) -> Merged {
    documents.sort_by(|left, right| rank(left).cmp(&rank(right)));

    let mut groups: Vec<(AgentName, Vec<Arc<Document>>)> = Vec::new();
    let mut index: HashMap<AgentName, usize> = HashMap::with_capacity(documents.len());
    for document in &documents {
        let Some(name) = claimed_name(document, policy) else { continue };
        let position = *index.entry(name.clone()).or_insert_with(|| {
            groups.push((name, Vec::with_capacity(1)));
            groups.len() - 1
        });
        groups[position].1.push(Arc::clone(document));
    }

    let mut names = HashMap::with_capacity(groups.len());
    for (name, documents) in groups {
        let named = resolve(&name, documents, policy);
        names.insert(name, named);
    }

    let in_force = in_force(&documents, &names);
    for (later, finding) in case_twins(&in_force) {
        let named = names.get_mut(&later).expect("a definition in force has its name among the names");
        if let Some(winner) = named.candidates.iter_mut().find(|it| it.standing == Standing::InForce) {
            winner.findings.push(finding);
        }
    }

    let diagnostics = collect_diagnostics(&documents, &names, findings);
    Merged { in_force, names, diagnostics }
}

/// The order in which documents are asked: by source, within it by the bytes of the path.
fn rank(document: &Document) -> (u32, &str, &str, [u8; 32]) {
    let name = match &document.content {
        Content::Usable(definition) => definition.agent.name.as_str(),
        Content::Broken { .. } | Content::Disabled => "",
    };
    (document.source.precedence, &document.source.path, name, *document.digest.as_bytes())
}

fn claimed_name(document: &Document, policy: &Policy) -> Option<AgentName> {
    match &document.content {
        Content::Usable(definition) => Some(definition.agent.name.clone()),
        Content::Broken { claim: Claim::Name(name), .. } => Some(name.clone()),
        Content::Broken { claim: Claim::Stem(name), blocks } => {
            let effective = *blocks || policy.on_broken_override == OnBrokenOverride::Block;
            effective.then(|| name.clone())
        }
        Content::Broken { claim: Claim::None, .. } | Content::Disabled => None,
    }
}

fn resolve(name: &AgentName, documents: Vec<Arc<Document>>, policy: &Policy) -> Named {
    let is_protected = policy.protected.iter().any(|protected| protected == name.as_str());
    let count = documents.len();
    let mut resolution = Resolution::Nothing;
    let mut candidates: Vec<Candidate> = Vec::with_capacity(count);

    for (position, document) in documents.into_iter().enumerate() {
        let admitted = !is_protected || may_define_protected(&document);
        let is_open = matches!(resolution, Resolution::Nothing);
        let mut findings = Vec::new();
        let standing = match &document.content {
            Content::Usable(_) if !admitted => {
                findings.push(protected_name(name, &document.source));
                Standing::Protected
            }
            Content::Usable(definition) if is_open => {
                resolution = Resolution::InForce(Arc::clone(definition));
                Standing::InForce
            }
            Content::Usable(_) => {
                findings.extend(shadowed_by_authored(name, &document, &candidates));
                Standing::Shadowed
            }
            Content::Broken { blocks, .. } => {
                if admitted && is_open {
                    let blocking = *blocks || policy.on_broken_override == OnBrokenOverride::Block;
                    if position + 1 < count {
                        findings.push(broken_override(name, &document.source, blocking));
                    }
                    if blocking {
                        resolution = Resolution::Blocked(Arc::clone(&document));
                    }
                } else {
                    findings.extend(shadowed_by_authored(name, &document, &candidates));
                }
                Standing::Broken
            }
            Content::Disabled => continue,
        };
        findings.extend(duplicate_name(name, &document, &candidates));
        candidates.push(Candidate { standing, document, findings });
    }
    Named { candidates, resolution }
}

/// Protected names decide what may happen to the world, so only the operator's places may define them.
fn may_define_protected(document: &Document) -> bool {
    match document.source.kind {
        SourceKind::Authored => document.authored.as_ref().is_some_and(|authored| authored.by_administrator),
        SourceKind::Root | SourceKind::Bundled => true,
        SourceKind::Project | SourceKind::User | SourceKind::Plugin => false,
    }
}

/// The definitions in force in the order of their documents.
fn in_force(documents: &[Arc<Document>], names: &HashMap<AgentName, Named>) -> Vec<Arc<Definition>> {
    let wins = |definition: &&Arc<Definition>| match &names[&definition.agent.name].resolution {
        Resolution::InForce(winner) => Arc::ptr_eq(winner, definition),
        Resolution::Blocked(_) | Resolution::Nothing => false,
    };
    documents.iter().filter_map(|document| document.definition()).filter(wins).cloned().collect()
}

fn collect_diagnostics(
    documents: &[Arc<Document>],
    names: &HashMap<AgentName, Named>,
    findings: &[Diagnostic],
) -> Vec<Diagnostic> {
    let of_documents = documents.iter().flat_map(|document| &document.diagnostics);
    let of_merge = names.values().flat_map(|named| &named.candidates).flat_map(|it| &it.findings);
    let mut all: Vec<Diagnostic> = of_documents.chain(of_merge).chain(findings).cloned().collect();
    all.sort_by(|left, right| {
        let key = |it: &Diagnostic| (it.line, it.column, it.code, it.severity);
        left.path
            .cmp(&right.path)
            .then_with(|| key(left).cmp(&key(right)))
            .then_with(|| left.agent.cmp(&right.agent))
            .then_with(|| left.message.cmp(&right.message))
    });
    all
}

fn protected_name(name: &AgentName, source: &Source) -> Diagnostic {
    at(
        source,
        name,
        Severity::Error,
        Code::ProtectedName,
        format!(
            "`{name}` is protected: only an administrator, a root or the bundled set may define it; use another name"
        ),
    )
}

fn broken_override(name: &AgentName, source: &Source, blocking: bool) -> Diagnostic {
    let (severity, consequence) = match blocking {
        true => (Severity::Error, "the name is blocked until it is mended"),
        false => (Severity::Warning, "another definition is asked in its place"),
    };
    at(
        source,
        name,
        severity,
        Code::BrokenOverride,
        format!("this definition of `{name}` cannot be used; {consequence}"),
    )
}

/// Says that a file changed after an authored definition of its name was written: the change has no effect.
fn shadowed_by_authored(name: &AgentName, document: &Document, above: &[Candidate]) -> Option<Diagnostic> {
    let winner = above.iter().find(|candidate| candidate.standing == Standing::InForce)?;
    let authored = winner.document.authored.as_ref()?;
    let known = authored
        .shadowed
        .iter()
        .any(|(path, digest)| *path == document.source.path && *digest == document.digest);
    (!known).then(|| {
        at(&document.source, name, Severity::Warning, Code::ShadowedByAuthored, format!(
            "the change has no effect: an authored definition of `{name}` is in force; remove it, or change it by Replace"
        ))
    })
}

fn duplicate_name(name: &AgentName, document: &Document, above: &[Candidate]) -> Option<Diagnostic> {
    document.definition()?;
    let first = above.iter().find(|candidate| {
        candidate.document.definition().is_some() && same_tree(&candidate.document.source, &document.source)
    })?;
    let path = &first.document.source.path;
    Some(at(
        &document.source,
        name,
        Severity::Warning,
        Code::DuplicateName,
        format!("`{name}` is also defined in `{path}`, which is asked first; rename one of them"),
    ))
}

/// All roots count as one tree: the operator gave them together.
fn same_tree(left: &Source, right: &Source) -> bool {
    match (left.kind, right.kind) {
        (SourceKind::Root, SourceKind::Root) => true,
        _ => left.precedence == right.precedence,
    }
}

/// Names in force that differ only in case, each with a finding for the later one.
fn case_twins(in_force: &[Arc<Definition>]) -> Vec<(AgentName, Diagnostic)> {
    let mut folded: HashMap<Cow<'_, str>, &AgentName> = HashMap::with_capacity(in_force.len());
    let mut twins = Vec::new();
    for definition in in_force {
        let name = &definition.agent.name;
        match folded.entry(name.folded()) {
            Entry::Occupied(first) => {
                let first = first.get();
                let message = format!("`{name}` differs from `{first}` only in case; rename one of them");
                let code = Code::NameDiffersOnlyInCase;
                twins.push((name.clone(), at(&definition.source, name, Severity::Warning, code, message)));
            }
            Entry::Vacant(vacant) => {
                vacant.insert(name);
            }
        }
    }
    twins
}

fn at(source: &Source, name: &AgentName, severity: Severity, code: Code, message: String) -> Diagnostic {
    Diagnostic {
        severity,
        code,
        message,
        path: source.path.clone(),
        line: 0,
        column: 0,
        agent: name.as_str().to_owned(),
    }
}

#[cfg(test)]
mod tests;
