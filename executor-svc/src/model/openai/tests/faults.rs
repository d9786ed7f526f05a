//! What servers and networks do wrong: repeated where that may help, told clearly where not.

use super::*;

fn error_body(message: &str) -> String {
    json!({"error": {"message": message, "type": "x"}}).to_string()
}

fn refusal(status: u16) -> Answer {
    Answer::new(status, "application/json", error_body("not now"))
}

/// The fault comes first and a good answer behind it: the model is asked again.
async fn check_repeated(name: &str, fault: Answer) -> Vec<Duration> {
    let stub = Stub::start([fault, hello()]).await;
    let (outcome, text, waits) = ask(&stub).await;
    assert_eq!(outcome.unwrap_or_else(|error| panic!("{name}: {error:?}")).text, "Hello.", "{name}");
    assert_eq!(text, "Hello.", "{name}");
    assert_eq!(waits.len(), 1, "{name}");
    assert_eq!(stub.finish().len(), 2, "{name}");
    waits
}

/// The fault is the end.
async fn check_final(name: &str, fault: Answer) -> Error {
    let stub = Stub::start([fault]).await;
    let (outcome, _, waits) = ask(&stub).await;
    assert_eq!(waits, [], "{name}: nothing is repeated");
    assert_eq!(stub.finish().len(), 1, "{name}");
    outcome.expect_err(name)
}

#[tokio::test]
async fn a_429_is_repeated_after_the_wait_that_it_names() {
    let named = check_repeated("named", refusal(429).with_header("retry-after", "7")).await;
    assert_eq!(named, [Duration::from_secs(7)]);

    let past =
        check_repeated("past", refusal(429).with_header("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"))
            .await;
    assert_eq!(past, [Duration::ZERO]);

    let own = check_repeated("unnamed", refusal(429)).await;
    assert!(own[0] >= Duration::from_millis(250) && own[0] <= Duration::from_millis(500), "{own:?}");
}

#[tokio::test]
async fn server_faults_before_the_first_token_are_repeated() {
    check_repeated("503", refusal(503)).await;
    check_repeated("529", refusal(529)).await;
    check_repeated("HTML", Answer::new(502, "text/html", "<html>Bad Gateway</html>")).await;
    check_repeated("nothing", Answer::stream("")).await;
    check_repeated("only a role", Answer::stream(&events(&[delta(json!({"role": "assistant"}))]))).await;
    let limited = json!({"error": {"message": "slow down", "code": 429}});
    check_repeated("an error in the stream", Answer::stream(&events(&[limited]))).await;
    let overloaded = json!({"error": {"message": "busy", "type": "server_error"}}).to_string();
    check_repeated("an error with status 200", Answer::new(200, "application/json", overloaded)).await;
}

#[tokio::test]
async fn a_connection_cut_before_the_first_token_is_repeated() {
    let fault = Answer::stream(&events(&[delta(json!({"role": "assistant"}))])).cut();
    let stub = Stub::start([fault, hello()]).await;

    let (outcome, _, waits) = ask(&stub).await;

    assert_eq!(outcome.unwrap().text, "Hello.");
    assert_eq!((stub.cuts(), waits.len()), (1, 1));
    stub.finish();
}

#[tokio::test]
async fn a_connection_cut_after_the_first_token_is_final() {
    let token = json!([{"index": 0, "id": "a", "function": {"name": "ls", "arguments": ""}}]);
    for token in [
        delta(json!({"content": "Hel"})),
        delta(json!({"tool_calls": token})),
        delta(json!({"reasoning": "Hm"})),
    ] {
        let stub = Stub::start([Answer::stream(&events(&[token])).cut()]).await;

        let (outcome, _, waits) = ask(&stub).await;

        assert!(matches!(outcome, Err(Error::Unreachable { .. })), "{outcome:?}");
        assert_eq!((stub.cuts(), waits.len()), (1, 0));
        stub.finish();
    }
}

#[tokio::test]
async fn a_connection_cut_after_the_last_token_costs_nothing() {
    let body = events(&[delta(json!({"content": "Hello."})), finish("stop")]);
    let stub = Stub::start([Answer::stream(&body).cut()]).await;

    let (outcome, ..) = ask(&stub).await;

    assert_eq!(outcome.unwrap().text, "Hello.");
    stub.finish();
}

#[tokio::test]
async fn an_answer_that_ends_early_is_no_answer() {
    let error = check_final("cut text", Answer::stream(&events(&[delta(json!({"content": "Hel"}))]))).await;
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn faults_behind_a_token_are_final() {
    let body =
        events(&[delta(json!({"content": "Hel"})), json!({"error": {"message": "slow down", "code": 429}})]);
    let error = check_final("an error in the stream", Answer::stream(&body)).await;
    assert!(matches!(error, Error::Status { status: 429, .. }), "{error:?}");
}

#[tokio::test]
async fn what_is_no_chat_completion_is_malformed() {
    for (name, answer) in [
        ("a chunk that is no JSON", Answer::stream("data: {oops\n\n")),
        ("a page", Answer::new(200, "text/html", "<html>Welcome</html>")),
        ("half a document", Answer::new(200, "application/json", r#"{"choices": ["#)),
        ("another document", Answer::new(200, "application/json", r#"{"models": []}"#)),
        ("no choices", Answer::new(200, "application/json", r#"{"choices": []}"#)),
        (
            "a call without a name",
            Answer::stream(&stream(&[delta(json!({"tool_calls": [{"index": 0, "function": {}}]}))], "stop")),
        ),
        ("an endless event", Answer::stream(&format!("data: {}", "x".repeat(2 * 1024 * 1024)))),
    ] {
        let error = check_final(name, answer).await;
        assert!(matches!(error, Error::Malformed { .. }), "{name}: {error:?}");
    }
}

#[tokio::test]
async fn refusals_that_stay_are_told_in_the_servers_words() {
    let error = check_final("400", Answer::new(400, "application/json", error_body("unknown model"))).await;
    assert_eq!(error.to_string(), "model provider `local` answered 400: unknown model");

    let error =
        check_final("a redirect", Answer::new(307, "text/plain", "").with_header("location", "/v1/chat"))
            .await;
    assert!(matches!(error, Error::Status { status: 307, .. }), "{error:?}");

    let long = json!({"error": {"message": "?", "code": "context_length_exceeded"}}).to_string();
    let error = check_final("too long", Answer::new(400, "application/json", long)).await;
    assert_eq!(error.to_string(), "the context is too long for the model `local/qwen3`");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_asked_four_times() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let ear = Ear::default();

    let outcome = model_at(&url, None).complete(&sample::turn(), &ear, &CancellationToken::new()).await;

    assert!(matches!(outcome, Err(Error::Unreachable { .. })), "{outcome:?}");
    assert_eq!(ear.waits.into_inner().len(), 3);
}

#[tokio::test]
async fn a_connection_closed_without_an_answer_is_repeated() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let closing = async {
        for _ in 0..4 {
            let (mut peer, _) = listener.accept().await.unwrap();
            let read = peer.read(&mut [0; 1024]).await.unwrap();
            assert!(read > 0, "the request came");
        }
    };
    let ear = Ear::default();
    let model = model_at(&url, None);
    let (turn, cancel) = (sample::turn(), CancellationToken::new());

    let (outcome, ()) = tokio::join!(model.complete(&turn, &ear, &cancel), closing);

    assert!(matches!(outcome, Err(Error::Unreachable { .. })), "{outcome:?}");
    assert_eq!(ear.waits.into_inner().len(), 3);
}

#[tokio::test]
async fn what_is_asked_is_a_chat_completion_with_the_key() {
    let stub = Stub::start([hello()]).await;
    let messages = sample::conversation();
    let turn = Turn { messages: &messages, ..sample::turn() };

    let key = Some("sk-0123456789");
    model_at(&stub.url, key).complete(&turn, &Ear::default(), &CancellationToken::new()).await.unwrap();

    let asked: VecDeque<_> = stub.finish().into();
    assert_eq!(asked[0].path, "/v1/chat/completions");
    assert_eq!(asked[0].headers["authorization"], "Bearer sk-0123456789");
    assert_eq!(asked[0].body, request::body("qwen3", &turn, None, Dialect::FULL));
}

#[tokio::test]
async fn a_server_is_asked_again_without_the_parts_that_it_does_not_know() {
    let refusals = ["unknown argument: reasoning_effort", "stream_options: extra fields not permitted"];
    let refusals = refusals.map(|message| Answer::new(400, "application/json", error_body(message)));
    let stub = Stub::start(refusals.into_iter().chain([hello(), hello()])).await;
    let model = model_at(&stub.url, None);
    let turn = Turn { thinking: Some(ThinkingLevel::High), ..sample::turn() };

    for _ in 0..2 {
        let ear = Ear::default();
        let reply = model.complete(&turn, &ear, &CancellationToken::new()).await.unwrap();
        assert_eq!(reply.text, "Hello.");
        assert_eq!(ear.waits.into_inner(), [], "it is no retry");
    }

    let has =
        |key: &str| -> Vec<bool> { stub.asked().iter().map(|asked| asked.get(key).is_some()).collect() };
    assert_eq!(has("reasoning_effort"), [true, false, false, false]);
    assert_eq!(has("stream_options"), [true, true, false, false]);
    stub.finish();
}
