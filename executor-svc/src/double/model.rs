//! A model that follows a script. A turn that is not in it fails the test, and so does a step that is left over.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    kernel::Models,
    model::{
        Error, Finish, Listener, Model, Reply, Turn,
        provider::{NoModel, Resolved, Wishes},
    },
    transcript::{Message, ToolCall},
    worker::Usage,
};

/// What the model does when it is asked.
pub(crate) enum Step {
    Reply(Reply),
    Fail(Error),
    Panic,
    /// Never answers.
    Hang,
    /// Asks to wait before a retry, then answers.
    Pause(Duration, Reply),
    /// Answers late, and holds its slot until then.
    After(Duration, Reply),
}

/// A model that does for each turn what a function says.
pub(crate) struct Acting<F>(F);

pub(crate) struct Scripted {
    steps: Mutex<VecDeque<Step>>,
    /// The last message of each turn that was asked.
    asked: Mutex<Vec<Message>>,
    rehearses_below: bool,
}

impl Scripted {
    pub(super) fn new(steps: impl IntoIterator<Item = Step>, rehearses_below: bool) -> Self {
        Self { steps: Mutex::new(steps.into_iter().collect()), asked: Mutex::default(), rehearses_below }
    }

    pub(crate) fn asked(&self) -> Vec<Message> {
        self.asked.lock().clone()
    }

    /// Fails where a step was not used.
    pub(super) fn finish(&self) {
        assert_eq!(self.steps.lock().len(), 0, "steps of the script were not used");
    }
}

#[async_trait]
impl Model for Scripted {
    async fn complete(
        &self,
        turn: &Turn<'_>,
        listener: &dyn Listener,
        _: &CancellationToken,
    ) -> Result<Reply, Error> {
        self.asked.lock().push(turn.messages.last().expect("a turn has a message").clone());
        let step = self.steps.lock().pop_front();
        let step = step.unwrap_or_else(|| panic!("turn {} is not in the script", turn.number));
        step.perform(listener).await
    }
}

impl Step {
    async fn perform(self, listener: &dyn Listener) -> Result<Reply, Error> {
        match self {
            Self::Reply(reply) => {
                listener.text(&reply.text);
                Ok(reply)
            }
            Self::Fail(error) => Err(error),
            Self::Panic => panic!("a defect, as the script says"),
            Self::Hang => std::future::pending().await,
            Self::Pause(wait, reply) => {
                listener.pause(wait).await;
                Ok(reply)
            }
            Self::After(wait, reply) => {
                tokio::time::sleep(wait).await;
                Ok(reply)
            }
        }
    }
}

impl<F> Acting<F>
where
    F: Fn(&Turn<'_>) -> Step + Send + Sync + 'static,
{
    pub(crate) fn new(act: F) -> Arc<Self> {
        Arc::new(Self(act))
    }
}

#[async_trait]
impl<F> Model for Acting<F>
where
    F: Fn(&Turn<'_>) -> Step + Send + Sync + 'static,
{
    async fn complete(
        &self,
        turn: &Turn<'_>,
        listener: &dyn Listener,
        _: &CancellationToken,
    ) -> Result<Reply, Error> {
        let step = (self.0)(turn);
        step.perform(listener).await
    }
}

impl<F> Models for Arc<Acting<F>>
where
    F: Fn(&Turn<'_>) -> Step + Send + Sync + 'static,
{
    fn resolve(&self, _: Wishes<'_>) -> Result<Resolved, NoModel> {
        let model = Arc::clone(self) as Arc<dyn Model>;
        Ok(Resolved { name: "test/acting".to_owned(), model, is_rehearsal: false, input_tokens_max: None })
    }
}

impl Models for Arc<Scripted> {
    fn resolve(&self, wishes: Wishes<'_>) -> Result<Resolved, NoModel> {
        let model = Arc::clone(self) as Arc<dyn Model>;
        let is_rehearsal = self.rehearses_below && !wishes.parent.is_empty();
        Ok(Resolved { name: "test/scripted".to_owned(), model, is_rehearsal, input_tokens_max: None })
    }
}

/// An answer of text.
pub(crate) fn text(text: &str) -> Reply {
    calls(text, &[])
}

/// An answer with calls: id, tool and arguments.
pub(crate) fn calls(text: &str, calls: &[(&str, &str, &str)]) -> Reply {
    let call = |(id, tool, arguments): &(&str, &str, &str)| ToolCall {
        id: (*id).to_owned(),
        tool: (*tool).to_owned(),
        arguments: (*arguments).to_owned(),
    };
    Reply {
        text: text.to_owned(),
        tool_calls: calls.iter().map(call).collect(),
        usage: Usage { input_tokens: 100, output_tokens: 10, turns: 1, ..Usage::default() },
        finish: Finish::Stop,
    }
}
