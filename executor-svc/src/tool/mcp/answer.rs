//! What a model is told of an MCP tool's answer: text as it is, everything else in words.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use crate::tool::{Error, limits::HeadTail};

/// For what the protocol may grow.
const UNKNOWN: &str = "[content of a kind that is not known here]";

/// The answer as text, bounded like every result. One that says it is an error is an error.
pub(super) fn text(result: CallToolResult) -> Result<String, Error> {
    let CallToolResult { content, structured_content, is_error, .. } = result;
    let mut kept = HeadTail::default();
    let structured = structured_content.filter(|value| !is_said(value, &content));
    let parts = content.into_iter().map(words).chain(structured.map(|value| value.to_string()));
    for (index, part) in parts.enumerate() {
        if index > 0 {
            kept.push("\n");
        }
        kept.push(&part);
    }
    let text = kept.finish("ask the tool for less");
    match (is_error.unwrap_or(false), text.is_empty()) {
        (true, true) => Err(Error::Failed("the tool failed and did not say why".to_owned())),
        (true, false) => Err(Error::Failed(text)),
        (false, true) => Ok("(the tool answered nothing)".to_owned()),
        (false, false) => Ok(text),
    }
}

fn words(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => {
            format!("[an image of type {}, which cannot be shown]", image.mime_type)
        }
        ContentBlock::Audio(audio) => format!("[audio of type {}, which cannot be played]", audio.mime_type),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[resource {uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, .. } => {
                let kind = mime_type.map_or_else(String::new, |kind| format!(" of type {kind}"));
                format!("[resource {uri}{kind}, which is not text and cannot be shown]")
            }
            _ => UNKNOWN.to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[a link to the resource {} ({})]", link.name, link.uri),
        _ => UNKNOWN.to_owned(),
    }
}

/// Servers say structured content once more as text, for clients that do not know it. Once is enough.
fn is_said(value: &Value, content: &[ContentBlock]) -> bool {
    content.iter().any(|block| match block {
        ContentBlock::Text(text) => {
            serde_json::from_str::<Value>(&text.text).is_ok_and(|said| said == *value)
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::limits::RESULT_MAX;

    fn read(result: Value) -> Result<String, String> {
        text(serde_json::from_value(result).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn every_kind_of_content_has_words() {
        let resource = |rest: Value| {
            let mut resource = json!({"uri": "file:///a"});
            resource.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            json!({"type": "resource", "resource": resource})
        };
        for (content, expected) in [
            (json!([]), "(the tool answered nothing)"),
            (json!([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]), "one\ntwo"),
            (
                json!([{"type": "image", "data": "AAAA", "mimeType": "image/png"}]),
                "[an image of type image/png, which cannot be shown]",
            ),
            (
                json!([{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]),
                "[audio of type audio/wav, which cannot be played]",
            ),
            (json!([resource(json!({"text": "inside"}))]), "[resource file:///a]\ninside"),
            (
                json!([resource(json!({"blob": "AAAA", "mimeType": "application/zip"}))]),
                "[resource file:///a of type application/zip, which is not text and cannot be shown]",
            ),
            (
                json!([{"type": "resource_link", "uri": "file:///b", "name": "b"}]),
                "[a link to the resource b (file:///b)]",
            ),
        ] {
            assert_eq!(read(json!({"content": content})).unwrap(), expected);
        }
    }

    #[test]
    fn structured_content_is_told_once() {
        let structured = json!({"a": [1, 2]});
        let alone = read(json!({"content": [], "structuredContent": structured}));
        let with_text =
            read(json!({"content": [{"type": "text", "text": "done"}], "structuredContent": structured}));
        let twice = read(
            json!({"content": [{"type": "text", "text": "{ \"a\": [1, 2] }"}], "structuredContent": structured}),
        );

        assert_eq!(alone.unwrap(), r#"{"a":[1,2]}"#);
        assert_eq!(with_text.unwrap(), "done\n{\"a\":[1,2]}");
        assert_eq!(twice.unwrap(), "{ \"a\": [1, 2] }");
    }

    #[test]
    fn an_error_is_an_error_and_everything_is_bounded() {
        let error = json!({"content": [{"type": "text", "text": "no such file"}], "isError": true});
        assert_eq!(read(error).unwrap_err(), "no such file");
        assert!(read(json!({"content": [], "isError": true})).unwrap_err().contains("did not say why"));

        let long = json!({"content": [{"type": "text", "text": "x".repeat(RESULT_MAX)}, {"type": "text", "text": "end"}]});
        let text = read(long).unwrap();
        assert!(text.len() <= RESULT_MAX && text.ends_with("end") && text.contains("left out"), "{text}");
    }
}
