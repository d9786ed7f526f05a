//! The gRPC interface as Rust code. Everything here is generated from `roster/**/*.proto`.

/// Agent definitions, shared by both services.
pub mod agent {
    #[allow(clippy::all, clippy::pedantic, unreachable_pub, missing_docs)]
    pub mod v1 {
        tonic::include_proto!("roster.agent.v1");
    }
}

/// The registry's services.
pub mod registry {
    #[allow(clippy::all, clippy::pedantic, unreachable_pub, missing_docs)]
    pub mod v1 {
        tonic::include_proto!("roster.registry.v1");
    }
}

/// The executor's services.
pub mod executor {
    #[allow(clippy::all, clippy::pedantic, unreachable_pub, missing_docs)]
    pub mod v1 {
        tonic::include_proto!("roster.executor.v1");
    }
}

/// The encoded `FileDescriptorSet` of all files above and what they import, for reflection.
pub const DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::DESCRIPTOR_SET;

    #[test]
    fn the_descriptor_set_names_every_service() {
        let set = FileDescriptorSet::decode(DESCRIPTOR_SET).expect("the build wrote a descriptor set");

        let mut services: Vec<String> = set
            .file
            .iter()
            .flat_map(|file| {
                file.service.iter().map(|service| format!("{}.{}", file.package(), service.name()))
            })
            .collect();
        services.sort();

        assert_eq!(
            services,
            [
                "roster.executor.v1.ExecutorService",
                "roster.executor.v1.ReviewService",
                "roster.executor.v1.SessionService",
                "roster.registry.v1.CommandService",
                "roster.registry.v1.RegistryService",
                "roster.registry.v1.SkillService",
            ]
        );
    }
}
