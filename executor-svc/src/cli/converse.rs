//! `executor-svc converse`: a chat with a coordinator, with what it dispatches shown as it runs.

use std::{
    collections::HashMap,
    io::{BufRead as _, IsTerminal as _},
};

use clap::Args;
use proto::executor::v1::{
    ConverseRequest, ConverseResponse, StopReason, StopWorkerRequest,
    converse_response::{Answer, Body},
    executor_service_client::ExecutorServiceClient,
    session_service_client::SessionServiceClient,
    worker_event::Body as Event,
};
use service_kit::{
    client::{Connection, explain},
    console::Colour,
};
use tokio::{signal, sync::mpsc};

use super::{Ending, Outcome, Output, Target, json, progress::Progress, refused};

/// Lines that were read ahead, so that a pipe does not fill the memory.
const LINES_MAX: usize = 16;

#[derive(Args)]
pub(super) struct Converse {
    /// One message; without it, each line of standard input is one
    message: Option<String>,
    #[command(flatten)]
    target: Target,
    /// Root session to go on with
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    session: String,
    /// Agent to talk with; the workspace's coordinator where it is left out
    #[arg(long, value_name = "AGENT", default_value = "", hide_default_value = true)]
    agent: String,
    /// Workspace; `default` where it is left out
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    workspace: String,
    /// Language of the answers, as a BCP 47 tag
    #[arg(long, value_name = "TAG", default_value = "", hide_default_value = true)]
    locale: String,
    /// Look and plan only
    #[arg(long)]
    plan_mode: bool,
}

/// A conversation under way.
struct Chat<'o> {
    output: &'o Output,
    json: bool,
    sessions: SessionServiceClient<Connection>,
    executor: ExecutorServiceClient<Connection>,
    /// The next message, but for its text. Its session is known from the first answer on.
    next: ConverseRequest,
}

/// One turn as it is shown.
struct Shown<'o> {
    output: &'o Output,
    own: Progress<'o>,
    below: HashMap<String, Progress<'o>>,
    answer: Option<Answer>,
}

impl Converse {
    pub(super) async fn run(self, output: &Output) -> Outcome {
        let Self { message, target, session, agent, workspace, locale, plan_mode } = self;
        let next = ConverseRequest {
            workspace,
            session_id: session,
            agent,
            locale,
            plan_mode,
            ..ConverseRequest::default()
        };
        let (sessions, executor) = (target.sessions().await?, target.executor().await?);
        let mut chat = Chat { output, json: target.json, sessions, executor, next };
        match message {
            Some(message) => chat.turn(message).await,
            None => chat.talk().await,
        }
    }
}

impl Chat<'_> {
    /// One turn a line, to the end of the input. A refusal of one message does not end the conversation at a terminal.
    async fn talk(&mut self) -> Outcome {
        let is_typed = std::io::stdin().is_terminal();
        let mut lines = lines();
        loop {
            if is_typed && self.output.is_terminal() {
                self.output.write(&self.output.paint(Colour::Bold, "> "))?;
            }
            let line = tokio::select! {
                line = lines.recv() => line.transpose()?,
                pressed = signal::ctrl_c() => pressed.map(|()| None)?,
            };
            let Some(line) = line else { break };
            if line.trim().is_empty() {
                continue;
            }
            match self.turn(line).await {
                Err(Ending::Refused(why)) if is_typed && !self.next.session_id.is_empty() => {
                    self.output.line(&self.output.paint(Colour::Red, &why))?;
                }
                Ok(()) | Err(Ending::Failed) if is_typed => {}
                outcome => outcome?,
            }
        }
        match self.json || self.next.session_id.is_empty() {
            true => Ok(()),
            false => {
                let again = format!("go on with: executor-svc converse --session {}", self.next.session_id);
                self.output.line(&self.output.paint(Colour::Dim, &again))
            }
        }
    }

    /// Says one thing and shows what follows. Ctrl-C stops the turn; the session stays.
    async fn turn(&mut self, message: String) -> Outcome {
        let request = ConverseRequest { message, ..self.next.clone() };
        let stream = self.sessions.converse(request).await.map_err(|status| refused(&status))?;
        let mut stream = stream.into_inner();
        let mut shown = Shown::new(self.output);
        let mut is_stopped = false;
        loop {
            tokio::select! {
                response = stream.message() => match response {
                    Ok(Some(response)) => {
                        self.next.session_id.clone_from(&response.session_id);
                        if self.json {
                            let line = json::line("roster.executor.v1.ConverseResponse", &response)?;
                            self.output.line(&line)?;
                        }
                        shown.take(response, self.json)?;
                    }
                    Ok(None) => return shown.ending(),
                    Err(status) => return Err(Ending::FailedWith(explain(&status))),
                },
                pressed = signal::ctrl_c() => {
                    pressed?;
                    if is_stopped || self.next.session_id.is_empty() {
                        return Err(Ending::FailedWith("given up; the turn is being stopped".to_owned()));
                    }
                    is_stopped = true;
                    self.stop().await?;
                }
            }
        }
    }

    async fn stop(&mut self) -> Outcome {
        let request = StopWorkerRequest {
            worker_id: self.next.session_id.clone(),
            reason: "interrupted on the command line".to_owned(),
            wait: None,
        };
        self.executor.stop_worker(request).await.map_err(|status| refused(&status))?;
        Ok(())
    }
}

impl<'o> Shown<'o> {
    fn new(output: &'o Output) -> Self {
        Self { output, own: Progress::chat(output), below: HashMap::new(), answer: None }
    }

    /// Takes the next response in, and shows it unless it was shown as JSON.
    fn take(&mut self, response: ConverseResponse, is_shown: bool) -> Outcome {
        let ConverseResponse { session_id, body } = response;
        let event = match body {
            Some(Body::Event(event)) => event,
            Some(Body::Answer(answer)) => {
                self.answer = Some(answer);
                return Ok(());
            }
            None => return Ok(()),
        };
        if is_shown {
            return Ok(());
        }
        if event.worker_id == session_id {
            return self.own.show(&event);
        }
        if matches!(event.body, Some(Event::TextDelta(_))) {
            // Several may talk at once: each is shown whole, turn by turn.
            return Ok(());
        }
        let below = self.below.entry(event.worker_id.clone()).or_insert_with(|| {
            let agent = match &event.body {
                Some(Event::Accepted(accepted)) => {
                    accepted.worker.as_ref().map(|worker| worker.agent.as_str())
                }
                _ => None,
            };
            Progress::below(self.output, agent.unwrap_or("worker"))
        });
        below.show(&event)
    }

    /// How the turn ends: as the coordinator did.
    fn ending(&self) -> Outcome {
        match self.answer.as_ref().map(Answer::stop_reason) {
            Some(StopReason::Finished) => Ok(()),
            Some(_) => Err(Ending::Failed),
            None => Err(Ending::FailedWith("the executor ended before the turn did".to_owned())),
        }
    }
}

/// The lines of standard input. They are read by a thread of their own, which ends with the process: a read of a terminal
/// cannot be given up.
fn lines() -> mpsc::Receiver<std::io::Result<String>> {
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
