//! Waiting without sleeping: for a future, for a condition, and until a future waits.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

/// How long a step of a test may take. Only a stalled step takes longer, also on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for the future.
///
/// # Panics
/// If the future takes longer than two minutes.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    soon_or(future, || what.to_owned()).await
}

/// As [`soon`]; the description is made when the future has taken too long.
///
/// # Panics
/// If the future takes longer than two minutes.
pub async fn soon_or<T>(future: impl Future<Output = T>, describe: impl FnOnce() -> String) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("stalled: {}", describe()),
    }
}

/// Asks again and again until the answer is `Some`. Other tasks run between two questions.
///
/// # Panics
/// If that takes longer than two minutes.
pub async fn until_some<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    soon(what, async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// Asks again and again until the condition holds. Other tasks run between two questions.
///
/// # Panics
/// If that takes longer than two minutes.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    until_some(what, async || holds().await.then_some(())).await;
}

/// Polls the future once, which starts it, and says whether it waits for something.
pub async fn starts_waiting<F: Future>(future: Pin<&mut F>) -> bool {
    let mut future = future;
    poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context).is_pending())).await
}
