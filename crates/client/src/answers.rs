//! Answers that futures wait for, without a channel for each.

use std::task::{Poll, Waker};

/// The place of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AnswerSlot {
    at: u32,
    /// Grows each time the place is used: an answer for an earlier use is dropped.
    generation: u32,
}

/// Places for answers. There are as many as were awaited at the same time.
#[derive(Debug)]
pub(crate) struct Answers<T> {
    places: Vec<AnswerPlace<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct AnswerPlace<T> {
    generation: u32,
    state: AnswerState<T>,
}

#[derive(Debug)]
enum AnswerState<T> {
    Waiting(Option<Waker>),
    Done(T),
    Free,
}

impl<T> Default for Answers<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Answers<T> {
    /// Takes a place.
    pub(crate) fn open(&mut self) -> AnswerSlot {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(AnswerPlace { generation: 0, state: AnswerState::Free });
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let Some(place) = self.places.get_mut(at as usize) else { return AnswerSlot { at, generation: 0 } };
        place.generation = place.generation.wrapping_add(1);
        place.state = AnswerState::Waiting(None);
        AnswerSlot { at, generation: place.generation }
    }

    /// Gives an answer; returns whom to wake. An answer that is no longer awaited is dropped.
    pub(crate) fn answer(&mut self, slot: AnswerSlot, answer: T) -> Option<Waker> {
        let place = self.place(slot)?;
        match std::mem::replace(&mut place.state, AnswerState::Done(answer)) {
            AnswerState::Waiting(waker) => waker,
            AnswerState::Done(_) | AnswerState::Free => None,
        }
    }

    /// Takes the answer, which frees the place.
    pub(crate) fn poll(&mut self, slot: AnswerSlot, waker: &Waker) -> Poll<Option<T>> {
        let Some(place) = self.place(slot) else { return Poll::Ready(None) };
        match &mut place.state {
            AnswerState::Waiting(Some(known)) if known.will_wake(waker) => Poll::Pending,
            AnswerState::Waiting(known) => {
                *known = Some(waker.clone());
                Poll::Pending
            }
            AnswerState::Done(_) | AnswerState::Free => Poll::Ready(self.close(slot)),
        }
    }

    /// Frees a place; returns the answer if it was there.
    pub(crate) fn close(&mut self, slot: AnswerSlot) -> Option<T> {
        let place = self.place(slot)?;
        let state = std::mem::replace(&mut place.state, AnswerState::Free);
        place.generation = place.generation.wrapping_add(1);
        self.free.push(slot.at);
        match state {
            AnswerState::Done(answer) => Some(answer),
            AnswerState::Waiting(_) | AnswerState::Free => None,
        }
    }

    fn place(&mut self, slot: AnswerSlot) -> Option<&mut AnswerPlace<T>> {
        self.places.get_mut(slot.at as usize).filter(|place| place.generation == slot.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_reaches_its_own_wait_only() {
        let mut answers = Answers::default();
        let (first, waker) = (answers.open(), Waker::noop());
        assert!(answers.poll(first, waker).is_pending());
        assert!(answers.answer(first, 1).is_some());
        assert_eq!(answers.poll(first, waker), Poll::Ready(Some(1)));
        let second = answers.open();
        assert_eq!(second.at, first.at, "the place is used again");
        assert!(answers.answer(first, 7).is_none());
        assert!(answers.poll(second, waker).is_pending());
        assert_eq!(answers.close(second), None);
        assert_eq!(answers.poll(second, waker), Poll::Ready(None));
    }
}
