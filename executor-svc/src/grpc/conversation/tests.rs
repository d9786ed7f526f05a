//! A turn whose callers leave runs on for a while: on the paused clock, over the real store.

use std::time::Duration;

use futures::FutureExt as _;

use super::*;
use crate::{
    admission::Budget,
    clock::Clock,
    config::Config,
    dispatch::Talk,
    double::{Acting, Agents, Core, Standstill, Step, anybody, definition},
    session::sqlite::Store,
    worker::StopReason,
};

fn talk() -> Talk {
    Talk {
        workspace: None,
        session: None,
        agent: None,
        message: "hello".to_owned(),
        locale: String::new(),
        request: None,
        plan_mode: false,
        output_schema: None,
        budget: Budget::default(),
        deadline: None,
    }
}

/// Time that passes, and what it causes.
async fn pass(kernel: &Arc<Kernel>, time: Duration) {
    settle(kernel).await;
    tokio::time::advance(time).await;
    settle(kernel).await;
}

/// Lets every task come to where it waits. A read of the store lies behind whatever was begun before it; it may be answered
/// before anybody else had a turn.
async fn settle(kernel: &Arc<Kernel>) {
    for _ in 0..8 {
        tokio::task::yield_now().await;
        kernel.log.roots(Default::default()).await.expect("the store answers");
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_callers_leave_runs_on_for_a_minute_in_which_another_takes_it_over() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::start();
    let store = Arc::new(Store::open(directory.path(), Arc::new(move || clock.now())).unwrap());
    let agents = Agents([("default".to_owned(), definition("default"))].into());
    let model = Arc::new(Acting::new(|_| Step::Hang));
    let _still = Standstill::begin();
    let core = Core::start(Config::default(), clock, Arc::clone(&store), Arc::new(agents), model, Vec::new());
    let kernel = &core.kernel;
    let turn = kernel.converse(&anybody(), talk()).await.unwrap();
    let root = turn.root.clone();
    let open = kernel.open.get(&root).expect("it runs");
    let is_stopped = || open.stopped().now_or_never().is_some();

    drop(Conversation::of_turn(kernel, turn));
    pass(kernel, GRACE - Duration::from_secs(1)).await;
    assert!(!is_stopped(), "somebody may come");
    let watch = Conversation::of_session(kernel, root.clone(), 0, View::Full, kernel.attend(&root));
    pass(kernel, Duration::from_secs(2)).await;
    assert!(!is_stopped(), "somebody came");
    drop(watch);
    pass(kernel, GRACE - Duration::from_secs(1)).await;
    assert!(!is_stopped(), "the minute begins anew");
    pass(kernel, Duration::from_secs(2)).await;

    assert_eq!(open.closed().await.stop_reason, Some(StopReason::CallerGone));
    core.end().await;
    store.close().await;
}
