//! Messages as JSON with the names of the interface, from its own descriptors.

use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};

use super::Ending;

static DESCRIPTORS: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(proto::DESCRIPTOR_SET).expect("the build wrote a descriptor set")
});

/// One line of JSON. `name` is the message's full name.
pub(super) fn line(name: &str, message: &impl Message) -> Result<String, Ending> {
    let failed = |error: String| Ending::FailedWith(format!("`{name}` cannot be written as JSON: {error}"));
    let descriptor = DESCRIPTORS
        .get_message_by_name(name)
        .ok_or_else(|| failed("it is not part of the interface".to_owned()))?;
    let message = DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice())
        .map_err(|error| failed(error.to_string()))?;
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::new(&mut bytes);
    // Numbers of 64 bits as numbers: every one of ours is a count.
    let options = SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(false);
    message.serialize_with_options(&mut serializer, &options).map_err(|error| failed(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use proto::executor::v1::{WorkerEvent, worker_event};

    use super::line;

    #[test]
    fn an_event_is_one_line_with_the_names_of_the_interface() {
        let event = WorkerEvent {
            worker_id: "worker-1".to_owned(),
            sequence: 3,
            time: Some(prost_types::Timestamp { seconds: 0, nanos: 0 }),
            body: Some(worker_event::Body::StateChanged(worker_event::StateChanged {
                status: proto::executor::v1::WorkerStatus::Running.into(),
            })),
        };

        let text = line("roster.executor.v1.WorkerEvent", &event).unwrap();

        assert!(!text.contains('\n'));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["sequence"], 3);
        assert_eq!(value["state_changed"]["status"], "WORKER_STATUS_RUNNING");
        assert_eq!(value["time"], "1970-01-01T00:00:00Z");
    }
}
