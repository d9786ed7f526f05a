//! Who may call what: one row for every method. What has no row cannot be called.

use service_kit::auth::{Role, Rule};

/// Every known caller may look.
const ANYBODY: &[Role] = &[Role::Reader, Role::Spawner, Role::Auditor, Role::Author, Role::Approver];

const AUTHORS: &[Role] = &[Role::Author];

/// The access table of the registry.
pub(crate) const RULES: &[Rule] = &[
    Rule::read("/roster.registry.v1.RegistryService/ByName", ANYBODY, true),
    Rule::read("/roster.registry.v1.RegistryService/GetDocument", ANYBODY, true),
    Rule::read("/roster.registry.v1.RegistryService/List", ANYBODY, true),
    Rule::read("/roster.registry.v1.RegistryService/Explain", ANYBODY, true),
    Rule::read("/roster.registry.v1.RegistryService/ListDiagnostics", ANYBODY, true),
    Rule::read("/roster.registry.v1.RegistryService/GetCatalog", ANYBODY, true),
    Rule::work("/roster.registry.v1.RegistryService/Watch", ANYBODY, true),
    Rule::work("/roster.registry.v1.RegistryService/Replace", AUTHORS, false),
    Rule::work("/roster.registry.v1.RegistryService/Remove", AUTHORS, false),
    Rule::work("/roster.registry.v1.RegistryService/Reload", AUTHORS, true),
    Rule::read("/roster.registry.v1.RegistryService/Validate", ANYBODY, true),
    Rule::read("/roster.registry.v1.CommandService/ListCommands", ANYBODY, true),
    Rule::read("/roster.registry.v1.CommandService/GetCommand", ANYBODY, true),
    Rule::read("/roster.registry.v1.SkillService/ListSkills", ANYBODY, true),
    Rule::read("/roster.registry.v1.SkillService/ResolveSkills", ANYBODY, true),
];

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::RULES;

    #[test]
    fn every_method_of_the_registry_has_a_row_and_every_row_a_method() {
        let set = FileDescriptorSet::decode(proto::DESCRIPTOR_SET).unwrap();
        let mut methods: Vec<String> = set
            .file
            .iter()
            .filter(|file| file.package() == "roster.registry.v1")
            .flat_map(|file| &file.service)
            .flat_map(|service| {
                let name = service.name().to_owned();
                service
                    .method
                    .iter()
                    .map(move |method| format!("/roster.registry.v1.{name}/{}", method.name()))
            })
            .collect();
        let mut rows: Vec<&str> = RULES.iter().map(|rule| rule.method).collect();
        methods.sort();
        rows.sort_unstable();

        assert_eq!(rows, methods);
    }

    #[test]
    fn only_what_writes_needs_credentials_on_loopback() {
        let guarded: Vec<&str> = RULES
            .iter()
            .filter(|rule| !rule.anonymous)
            .map(|rule| rule.method.rsplit('/').next().unwrap())
            .collect();

        assert_eq!(guarded, ["Replace", "Remove"]);
    }
}
