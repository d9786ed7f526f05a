//! `ByName` from bytes that were encoded once per definition, since an executor asks at every spawn.
//!
//! The other methods go to the generated server; so does this one for callers that see shortened paths.

use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use ::proto::registry::v1::{self as proto, registry_service_server::RegistryServiceServer};
use bytes::{Buf as _, BufMut as _, Bytes};
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
    from_proto::View,
    to_proto::{self, Paths},
};

const METHOD: &str = "/roster.registry.v1.RegistryService/ByName";

/// Field numbers of `ByNameResponse`.
const AGENT_FIELD: u32 = 1;
const GENERATION_FIELD: u32 = 2;

/// The generated server with a quicker way for one method.
#[derive(Clone)]
pub(crate) struct WithReadyAnswers {
    registry: Registry,
    others: RegistryServiceServer<Registry>,
}

/// A `ByNameResponse` whose first field is encoded already.
struct Answer {
    agent: Bytes,
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
        let encode = |paths: &Paths| encode_agent(&to_proto::definition(definition, View::Full, paths));
        let agent = if self.sees_whole_paths(identity) {
            definition.encoded(|_| encode(&Paths::Absolute)).clone()
        } else {
            encode(&Paths::below(&snapshot))
        };
        Ok(Answer { agent, generation: snapshot.generation() })
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
        let Answer { agent, generation } = answer;
        buffer.put(agent);
        encode_key(GENERATION_FIELD, WireType::Varint, buffer);
        encode_varint(generation, buffer);
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

/// A definition as the first field of the response: key, length, message.
fn encode_agent(agent: &::proto::agent::v1::AgentDefinition) -> Bytes {
    let length = agent.encoded_len();
    let mut bytes = Vec::with_capacity(length + 16);
    encode_key(AGENT_FIELD, WireType::LengthDelimited, &mut bytes);
    encode_varint(length as u64, &mut bytes);
    agent.encode_raw(&mut bytes);
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_bytes_are_the_message_that_prost_writes() {
        let agent = ::proto::agent::v1::AgentDefinition {
            name: "explore".to_owned(),
            system_prompt: "p".repeat(300),
            max_turns: Some(3),
            ..Default::default()
        };
        let mut bytes = encode_agent(&agent).to_vec();
        encode_key(GENERATION_FIELD, WireType::Varint, &mut bytes);
        encode_varint(700, &mut bytes);

        let response = proto::ByNameResponse { agent: Some(agent), generation: 700 };
        assert_eq!(bytes, response.encode_to_vec());
    }
}
