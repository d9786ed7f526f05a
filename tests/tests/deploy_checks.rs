//! What the repository carries for deployment and for its own checks: protos, images, Kubernetes, scripts.

use std::{fs, process::Command};

use tests::repository::{self, printed, run, tool};

const MANIFESTS: &str = "deploy/kubernetes/base";

#[test]
fn the_protos_keep_the_style_that_buf_checks() {
    run(Command::new(tool("buf")).arg("lint"));
}

#[test]
fn the_scripts_are_executable_and_readable_to_the_shell() {
    for script in ["deploy/up", "deploy/test", "deploy/tools", ".ci/run"] {
        run(Command::new("bash").args(["-n", script]));
        run(Command::new("test").args(["-x", script]));
        assert!(
            repository::read(script).contains("\nset -euo pipefail\n"),
            "{script} goes on after a failure"
        );
    }
}

#[test]
fn the_dockerfile_passes_the_linter_and_builds_with_our_toolchain() {
    run(Command::new(tool("hadolint")).arg("deploy/docker/Dockerfile"));

    let dockerfile = repository::read("deploy/docker/Dockerfile");
    let toolchain = repository::read("rust-toolchain.toml");
    let version = toolchain.split('"').nth(1).expect("the channel is quoted");
    let (channel, _) = version.rsplit_once('.').expect("the channel has a patch number");
    assert!(
        dockerfile.contains(&format!("FROM rust:{channel}-alpine AS build")),
        "built with another Rust than {version}"
    );
    assert_eq!(dockerfile.matches("\nFROM scratch AS ").count(), 2);
    assert_eq!(dockerfile.matches("\nUSER 65532:65532\n").count(), 2);
}

#[test]
fn the_kubernetes_base_is_valid_and_every_name_in_it_leads_somewhere() {
    let manifests = manifests();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("base.yaml");
    fs::write(&file, &manifests).unwrap();

    run(Command::new(tool("kubernetes-validate")).arg("--strict").arg(&file));

    assert_eq!(manifests.matches("\nkind: Deployment\n").count(), 2);
    for restriction in [
        "allowPrivilegeEscalation: false",
        "automountServiceAccountToken: false",
        "readOnlyRootFilesystem: true",
        "runAsNonRoot: true",
        "type: RuntimeDefault",
        "path: /livez",
        "path: /readyz",
    ] {
        assert!(manifests.matches(restriction).count() >= 2, "a deployment lacks `{restriction}`");
    }
    for name in ["incident-investigator.md: |", "specialist-sre.md: |", "name: roster-agents\n"] {
        assert!(manifests.contains(name), "the agents are not there: `{name}`");
    }
    assert!(!manifests.contains("subPath"), "what is mounted by subPath is never updated");
}

#[test]
fn a_manifest_that_is_wrong_is_refused_by_the_validator() {
    let wrong = manifests().replace("runAsNonRoot: true", "runAsNonRoot: \"perhaps\"");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("wrong.yaml");
    fs::write(&file, wrong).unwrap();

    let outcome = repository::outcome(Command::new(tool("kubernetes-validate")).arg("--strict").arg(&file));

    assert!(!outcome.status.success(), "{}", printed(&outcome));
}

#[test]
fn the_programs_accept_the_configurations_we_ship() {
    for directory in ["deploy/docker", "deploy/kubernetes/base/config"] {
        for service in ["registry", "executor"] {
            let mut command = Command::new(repository::programs().join(format!("{service}-svc")));
            command.args(["serve", "--print-config", "--config"]).arg(format!("{directory}/{service}.yaml"));

            let text = run(&mut command);

            assert!(text.contains("0.0.0.0"), "{directory}/{service}.yaml: {text}");
        }
    }
}

fn manifests() -> String {
    let output = repository::outcome(Command::new("kubectl").args(["kustomize", MANIFESTS]));
    assert!(output.status.success(), "{}", printed(&output));
    String::from_utf8(output.stdout).expect("kustomize prints UTF-8")
}
