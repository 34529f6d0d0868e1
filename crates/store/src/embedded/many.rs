//! Many batches of events handed to the log at once.

use std::sync::Arc;

use promethean_log::{AppendError, Submission as LogSubmission};

use super::commit::{Outcome, received};
use super::parts::Parts;
use crate::port::{Batch, Class, CommitError, Receipt};
use crate::state::plan;

/// Whether a batch can go straight to the log.
pub(super) fn is_plain(batch: &Batch) -> bool {
    matches!(batch.class, Class::Durable(_)) && batch.state.is_empty() && !batch.asks_nothing()
}

/// A batch on its way, or why it is not.
type Sent = Result<Outcome, CommitError>;

impl Parts {
    /// Commits plain batches, in their order and each on its own.
    pub(super) async fn commit_plain(
        self: &Arc<Self>,
        batches: Vec<Batch>,
    ) -> Vec<Result<Receipt, CommitError>> {
        let permit = match self.admit(batches.iter().map(Batch::bytes).sum()).await {
            Ok(permit) => Arc::new(permit),
            Err(error) => return vec![Err(error); batches.len()],
        };
        let mut new_topics = Vec::new();
        let mut submissions = Vec::with_capacity(batches.len());
        let mut sent: Vec<Sent> = Vec::with_capacity(batches.len());
        for batch in &batches {
            let prepared = plan::check(batch).and_then(|()| {
                let Class::Durable(asked) = batch.class else { return Err(CommitError::DerivedWithEvents) };
                Ok((self.encode(batch, None, &mut new_topics, true)?, self.offered(asked)?))
            });
            sent.push(prepared.map(|(encoded, durability)| {
                let (done, outcome) = self.completion(&permit);
                submissions.push(LogSubmission { batch: encoded, durability, done });
                outcome
            }));
        }
        self.log.submit_all(submissions);
        self.push_policies(&new_topics);
        drop(permit);
        let mut results = Vec::with_capacity(batches.len());
        for (batch, sent) in batches.into_iter().zip(sent) {
            results.push(self.result(batch, sent).await);
        }
        results
    }

    async fn result(self: &Arc<Self>, batch: Batch, sent: Sent) -> Result<Receipt, CommitError> {
        let outcome = sent?.await;
        if let Ok(Err(AppendError::Conflict { .. } | AppendError::KeyConflict { .. })) = &outcome
            && self.is_retry(&batch)?
            && let Class::Durable(asked) = batch.class
        {
            return self.commit_durable(batch, asked).await;
        }
        received(outcome)
    }
}
