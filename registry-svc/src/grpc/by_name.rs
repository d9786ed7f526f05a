//! `ByName` from bytes that were encoded once per definition, since an executor asks at every spawn.
//!
//! Only the prompt is left out of them: it is nearly all of a definition, and is not to be in memory twice. The other
//! methods go to the generated server.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use ::proto::registry::v1::{self as proto, registry_service_server::RegistryServiceServer};
use bytes::{Buf as _, BufMut, Bytes};
use futures::future::BoxFuture;
use http::Request as HttpRequest;
use prost::{
    Message as _,
    encoding::{WireType, encode_key, encode_varint},
};
use service_kit::server::{self, REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX};
use tonic::{
    Request, Response, Status,
    body::Body,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::Service,
    server::{Grpc, NamedService, UnaryService},
};

use super::{
    Registry, from_proto,
    to_proto::{self, Paths},
};
use crate::document::Definition;

const METHOD: &str = "/roster.registry.v1.RegistryService/ByName";

/// Field numbers of `ByNameResponse`.
const AGENT_FIELD: u32 = 1;
const GENERATION_FIELD: u32 = 2;

/// Field number of `AgentDefinition.system_prompt`.
const PROMPT_FIELD: u32 = 4;

/// The generated server with a quicker way for one method.
#[derive(Clone)]
pub(crate) struct WithReadyAnswers {
    registry: Registry,
    others: RegistryServiceServer<Registry>,
}

/// A `ByNameResponse` with a definition that is encoded already, but for its prompt.
struct Answer {
    definition: Arc<Definition>,
    encoded: Bytes,
    generation: u64,
}

#[derive(Clone, Copy, Default)]
struct AnswerCodec;

struct ByName(Registry);

impl WithReadyAnswers {
    pub(crate) fn new(registry: Registry) -> Self {
        let others = service_kit::limited!(RegistryServiceServer::new(registry.clone()));
        Self { registry, others }
    }
}

impl Registry {
    fn answer(&self, request: &Request<proto::ByNameRequest>) -> Result<Answer, Status> {
        let identity = server::identity(request)?;
        let proto::ByNameRequest { workspace, name } = request.get_ref();
        let name = from_proto::name(name)?;
        let snapshot = self.handle(identity, workspace)?.peek();
        let definition = match snapshot.by_name(name) {
            Ok(definition) => definition,
            Err(miss) => return Err(self.shown(identity, &snapshot, miss).into()),
        };
        let encode = |paths: &Paths| to_proto::without_prompt(definition, paths).encode_to_vec().into();
        let encoded = if self.sees_whole_paths(identity) {
            definition.encoded(|_| encode(&Paths::Absolute)).clone()
        } else {
            // A definition knows its directory; only findings have to look for theirs.
            encode(&Paths::Below(Vec::new()))
        };
        Ok(Answer { definition: Arc::clone(definition), encoded, generation: snapshot.generation() })
    }
}

impl NamedService for WithReadyAnswers {
    const NAME: &'static str = <RegistryServiceServer<Registry> as NamedService>::NAME;
}

impl Service<HttpRequest<Body>> for WithReadyAnswers {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        if request.uri().path() != METHOD {
            return self.others.call(request);
        }
        let by_name = ByName(self.registry.clone());
        Box::pin(async move {
            let mut grpc = Grpc::new(AnswerCodec)
                .max_decoding_message_size(REQUEST_BYTES_MAX)
                .max_encoding_message_size(RESPONSE_BYTES_MAX);
            Ok(grpc.unary(by_name, request).await)
        })
    }
}

impl UnaryService<proto::ByNameRequest> for ByName {
    type Response = Answer;
    type Future = std::future::Ready<Result<Response<Answer>, Status>>;

    fn call(&mut self, request: Request<proto::ByNameRequest>) -> Self::Future {
        std::future::ready(self.0.answer(&request).map(Response::new))
    }
}

impl Codec for AnswerCodec {
    type Encode = Answer;
    type Decode = proto::ByNameRequest;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for AnswerCodec {
    type Item = Answer;
    type Error = Status;

    fn encode(&mut self, answer: Answer, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        answer.encode(buffer);
        Ok(())
    }
}

impl Decoder for AnswerCodec {
    type Item = proto::ByNameRequest;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        let request = proto::ByNameRequest::decode(bytes);
        request.map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}

impl Answer {
    fn encode(&self, buffer: &mut impl BufMut) {
        let Self { definition, encoded, generation } = self;
        let prompt = &definition.agent.system_prompt;
        // Fields may come in any order, so the prompt comes last.
        let of_prompt = match prompt.is_empty() {
            true => 0,
            false => prost::encoding::string::encoded_len(PROMPT_FIELD, prompt),
        };
        encode_key(AGENT_FIELD, WireType::LengthDelimited, buffer);
        encode_varint((encoded.len() + of_prompt) as u64, buffer);
        buffer.put_slice(encoded);
        if of_prompt > 0 {
            prost::encoding::string::encode(PROMPT_FIELD, prompt, buffer);
        }
        encode_key(GENERATION_FIELD, WireType::Varint, buffer);
        encode_varint(*generation, buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::from_proto::View, *};
    use crate::{agent::Agent, document::tests::definition};

    #[track_caller]
    fn check(prompt: &str) {
        let written = definition("explore", "Looks around.");
        let agent = Agent { system_prompt: prompt.to_owned(), ..Agent::clone(&written.agent) };
        let definition = Arc::new(Definition::new(Arc::new(agent), Arc::clone(&written.source), 0));
        let paths = Paths::Absolute;
        let encoded = to_proto::without_prompt(&definition, &paths).encode_to_vec().into();
        let whole = to_proto::definition(&definition, View::Full, &paths);
        let mut bytes = Vec::new();

        Answer { definition, encoded, generation: 700 }.encode(&mut bytes);

        let response = proto::ByNameResponse::decode(&*bytes).unwrap();
        assert_eq!(response, proto::ByNameResponse { agent: Some(whole), generation: 700 });
        assert_eq!(bytes.len(), response.encoded_len());
    }

    #[test]
    fn an_answer_in_two_parts_is_the_message_that_prost_reads() {
        check(&"p".repeat(300));
        check("");
    }
}
