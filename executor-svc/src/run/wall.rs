//! A worker's wall time, which stands still while it waits for a decision, and its tree's, which does not.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// The time that a worker has left.
pub(super) struct Wall {
    until: watch::Sender<Until>,
    /// Absent where the tree has no limit.
    tree: Option<Instant>,
}

#[derive(Clone, Copy)]
enum Until {
    Running(Instant),
    /// What is left once it goes on.
    Standing(Duration),
}

impl Wall {
    pub(super) fn new(left: Duration, tree_left: Option<Duration>) -> Self {
        let now = Instant::now();
        let until = watch::Sender::new(Until::Running(now + left));
        Self { until, tree: tree_left.map(|left| now + left) }
    }

    pub(super) fn stand(&self) {
        self.until.send_modify(|until| {
            if let Until::Running(deadline) = *until {
                *until = Until::Standing(deadline.saturating_duration_since(Instant::now()));
            }
        });
    }

    pub(super) fn go_on(&self) {
        self.until.send_if_modified(|until| match *until {
            Until::Running(_) => false,
            Until::Standing(left) => {
                *until = Until::Running(Instant::now() + left);
                true
            }
        });
    }

    /// Resolves when either is used up, with what to tell of it.
    pub(super) async fn used_up(&self) -> &'static str {
        let tree = async {
            match self.tree {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.own_used_up() => "its wall time is used up",
            () = tree => "the wall time of its tree is used up (`limits.tree_wall_time`)",
        }
    }

    async fn own_used_up(&self) {
        let mut until = self.until.subscribe();
        loop {
            let now = *until.borrow_and_update();
            let passed = async {
                match now {
                    Until::Running(deadline) => sleep_until(deadline).await,
                    Until::Standing(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                () = passed => return,
                // The sender is in `self`, so this only tells of changes.
                _ = until.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_that_stands_is_not_used_up() {
        let wall = Wall::new(Duration::from_secs(10), None);
        tokio::time::advance(Duration::from_secs(4)).await;
        wall.stand();
        tokio::time::advance(Duration::from_secs(100)).await;
        assert!(wall.used_up().now_or_never().is_none());

        wall.go_on();
        wall.go_on();
        let began = Instant::now();
        wall.used_up().await;

        assert_eq!(began.elapsed().as_secs(), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_the_tree_runs_on_while_a_worker_waits() {
        let wall = Wall::new(Duration::from_secs(10), Some(Duration::from_secs(60)));
        let began = Instant::now();
        wall.stand();

        let told = wall.used_up().await;

        assert_eq!(began.elapsed().as_secs(), 60);
        assert!(told.contains("tree_wall_time"), "{told}");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waited_already_sees_it_stand_and_go_on() {
        let wall = Wall::new(Duration::from_secs(10), None);
        let began = Instant::now();
        let story = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            wall.stand();
            tokio::time::sleep(Duration::from_secs(60)).await;
            wall.go_on();
        };

        tokio::join!(wall.used_up(), story);

        assert_eq!(began.elapsed().as_secs(), 70);
    }
}
