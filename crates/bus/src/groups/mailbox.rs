//! A bounded queue with one reader.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use promethean_model::IgnorePoison;
use tokio::sync::Notify;

use crate::error::BusError;

/// Messages that wait before senders do.
const MESSAGES_MAX: usize = 1024;

/// What others want of the reader. Takes no memory worth mentioning while it is empty.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    state: Mutex<MailboxState<T>>,
    room: Notify,
}

#[derive(Debug)]
struct MailboxState<T> {
    messages: VecDeque<T>,
    /// The reader, while it waits. Under the same lock, so that a message costs one.
    reader: Option<Waker>,
    /// Why nothing is taken any more. On the heap, as most are open.
    closed: Option<Box<BusError>>,
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> Self {
        let state = Mutex::new(MailboxState { messages: VecDeque::new(), reader: None, closed: None });
        Self { state, room: Notify::new() }
    }

    /// Puts a message in when there is room. Cancel-safe: a dropped call has put nothing in.
    pub(crate) async fn send(&self, message: T) -> Result<(), BusError> {
        let mut message = Some(message);
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            // Before the look: what is taken out after it must wake us.
            room.as_mut().enable();
            {
                let mut state = self.lock();
                if let Some(why) = &state.closed {
                    return Err(BusError::clone(why));
                }
                if state.messages.len() < MESSAGES_MAX {
                    state.messages.extend(message.take());
                    wake(state);
                    return Ok(());
                }
            }
            room.await;
        }
    }

    /// Puts a message in whatever the room: only for messages whose number is bounded otherwise.
    pub(crate) fn send_now(&self, message: T) -> Result<(), BusError> {
        let mut state = self.lock();
        if let Some(why) = &state.closed {
            return Err(BusError::clone(why));
        }
        state.messages.push_back(message);
        wake(state);
        Ok(())
    }

    /// Moves all messages to `into`.
    pub(crate) fn take(&self, into: &mut VecDeque<T>) {
        let mut state = self.lock();
        if state.messages.is_empty() {
            return;
        }
        if into.is_empty() {
            std::mem::swap(into, &mut state.messages);
        } else {
            into.append(&mut state.messages);
        }
        drop(state);
        self.room.notify_waiters();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().messages.is_empty()
    }

    /// Ready when there is a message. For the reader only.
    pub(crate) fn poll_arrived(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if !state.messages.is_empty() {
            return Poll::Ready(());
        }
        note(&mut state.reader, context);
        Poll::Pending
    }

    /// Takes no more messages; those that wait come back.
    pub(crate) fn close(&self, why: BusError) -> VecDeque<T> {
        let mut state = self.lock();
        state.closed.get_or_insert_with(|| Box::new(why));
        let left = std::mem::take(&mut state.messages);
        drop(state);
        self.room.notify_waiters();
        left
    }

    fn lock(&self) -> MutexGuard<'_, MailboxState<T>> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.state.lock().ignore_poison()
    }
}

/// Wakes the reader if it waits, without the lock, which it takes next.
fn wake<T>(mut state: MutexGuard<'_, MailboxState<T>>) {
    let reader = state.reader.take();
    drop(state);
    if let Some(reader) = reader {
        reader.wake();
    }
}

/// Remembers whom to wake.
pub(super) fn note(reader: &mut Option<Waker>, context: &Context<'_>) {
    match reader {
        Some(known) => known.clone_from(context.waker()),
        None => *reader = Some(context.waker().clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn senders_wait_for_room_and_hear_of_the_end() {
        let mailbox = Arc::new(Mailbox::new());
        for message in 0..MESSAGES_MAX {
            mailbox.send(message).await.unwrap();
        }
        let waiting = {
            let mailbox = Arc::clone(&mailbox);
            tokio::task::JoinSet::from_iter([async move { mailbox.send(MESSAGES_MAX).await }])
        };
        tokio::task::yield_now().await;
        let mut taken = VecDeque::new();
        mailbox.take(&mut taken);
        assert_eq!(taken.len(), MESSAGES_MAX);
        assert_eq!(waiting.join_all().await, [Ok(())]);
        std::future::poll_fn(|context| mailbox.poll_arrived(context)).await;
        mailbox.take(&mut taken);
        assert_eq!(taken.back(), Some(&MESSAGES_MAX));
        mailbox.send_now(7).unwrap();
        assert_eq!(mailbox.close(BusError::Closed), [7]);
        assert_eq!(mailbox.send(8).await, Err(BusError::Closed));
        assert_eq!(mailbox.send_now(8), Err(BusError::Closed));
        assert!(mailbox.is_empty());
    }
}
