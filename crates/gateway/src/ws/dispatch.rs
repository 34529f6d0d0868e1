//! Which family of ops answers a frame, and the answers of ops that take time.

use axum::http::StatusCode;
use promethean_model::wire::{ClientFrame, Corr, Op};
use serde_json::value::RawValue;

use super::connection::{Connection, PendingOp, PendingOutcome, TOO_MANY};
use super::seek::seek;
use crate::auth::{AuthError, AuthSession};
use crate::metrics::op_name;
use crate::refusal::Refusal;

impl Connection {
    /// Does what a frame asks for, or starts to.
    pub(super) fn request(&mut self, text: &str) {
        let (corr, frame) = ClientFrame::read(text);
        let op = frame.as_ref().ok().map(ClientFrame::op);
        self.frame_counts.add(op);
        let result = match frame {
            Err(error) => Err(Refusal::new(StatusCode::BAD_REQUEST, error.code(), error.to_string())),
            Ok(frame) => self.start(corr, frame, text.len()),
        };
        if let Err(refusal) = result {
            if refusal.code == "forbidden" {
                // The message names the scope that the token lacks.
                self.auth.record(op_name(op), refusal.code, Some(&refusal.message));
            }
            self.out.refuse(corr, &refusal);
        }
    }

    fn start(&mut self, corr: Corr<'_>, frame: ClientFrame<'_>, bytes: usize) -> Result<(), Refusal> {
        let op = frame.op();
        if op != Op::Auth && !self.auth.is_known() {
            return Err(AuthError::Missing.into());
        }
        if !matches!(frame, ClientFrame::Publish(_)) {
            // Events published before this frame go to the bus first.
            self.publishes.hand_over();
        }
        let Self { auth, publishes, subscriptions, acks, fetches, out, .. } = self;
        match frame {
            ClientFrame::Auth { token } => {
                let pending = auth.authenticate(token.as_deref());
                self.wait_for(corr, pending);
            }
            ClientFrame::Publish(item) => publishes.publish(auth, corr, item, bytes)?,
            ClientFrame::PublishMany(items) => publishes.publish_many(auth, corr, items, bytes)?,
            ClientFrame::Subscribe { topic, group, batch, opts } => {
                let pending = subscriptions.subscribe(auth, (&topic, &group), batch, &opts)?;
                if opts.member_id.is_some() {
                    self.deadlines.is_member();
                }
                self.wait_for(corr, pending);
            }
            ClientFrame::Unsubscribe(target) => {
                let number = subscriptions.find(&target)?.number;
                acks.flush(subscriptions);
                subscriptions.unsubscribe(number, out);
                out.ok(corr);
            }
            ClientFrame::Ack(target, ids) => acks.ack(subscriptions, out, corr, &target, &ids)?,
            ClientFrame::Nack { target, ids, delay_ms, reason } => {
                let said = (reason.as_deref().unwrap_or_default(), auth.name());
                acks.nack(subscriptions, out, corr, &target, (&ids, delay_ms, said))?;
            }
            ClientFrame::Modack { target, ids, extend_ms } => {
                acks.modack(subscriptions, out, corr, &target, (&ids, extend_ms))?;
            }
            ClientFrame::Pause(target) | ClientFrame::Resume(target) => {
                let pending = subscriptions.pause(&target, op == Op::Pause)?;
                self.wait_for(corr, pending);
            }
            ClientFrame::Fetch { target, max, wait_ms } => {
                fetches.fetch(subscriptions, corr, &target, max, wait_ms)?;
            }
            ClientFrame::Seek(target, opts) => {
                let pending = seek(auth, &target, &opts)?;
                self.wait_for(corr, pending);
            }
        }
        Ok(())
    }

    /// Reads no further frame until this op ends.
    fn wait_for(&mut self, corr: Corr<'_>, pending: PendingOp) {
        self.pending = Some((corr.map(RawValue::to_owned), pending));
    }

    /// Answers the frame of an op that has ended.
    pub(super) fn finish_pending(&mut self, corr: Corr<'_>, outcome: PendingOutcome) {
        let result = match outcome {
            PendingOutcome::Authenticated(Ok(session)) => self.admit(*session),
            PendingOutcome::Authenticated(Err(error)) => {
                if let Some((code, why)) = self.auth.refused(&error) {
                    self.close(code, why);
                }
                Err(error.into())
            }
            PendingOutcome::Subscribed(result) => {
                result.and_then(|subscription| self.subscriptions.add(&self.auth, *subscription))
            }
            PendingOutcome::Sought(Ok(report)) => return self.out.ok_with(corr, &report),
            PendingOutcome::Sought(Err(refusal)) => Err(refusal),
            PendingOutcome::Done(result) => result,
        };
        match result {
            Ok(()) => self.out.ok(corr),
            Err(refusal) => self.out.refuse(corr, &refusal),
        }
    }

    /// Takes the session of an AUTH frame, if the quota of its token has room for this connection.
    fn admit(&mut self, session: AuthSession) -> Result<(), Refusal> {
        if let Err(refusal) = self.auth.count_new(&session, &mut self.subscriptions) {
            if !self.auth.is_known() {
                self.closing = Some((TOO_MANY, "the token has as many connections as it may"));
            }
            return Err(refusal);
        }
        self.set_session(session);
        self.auth.record(Op::Auth.name(), "ok", None);
        Ok(())
    }

    /// The client is the identity of this session from now on. Ends subscriptions that the identity may not
    /// have.
    pub(super) fn set_session(&mut self, session: AuthSession) {
        let identity = &session.identity;
        let clock = &self.app.clock;
        self.deadlines.known(clock.monotonic_ms(), clock.wall_ms(), identity.expires_ms);
        if let Some(slot) = &self.slot {
            slot.keep();
        }
        self.listed.iter().for_each(|listed| listed.belong_to(identity));
        self.socket.belong_to(identity);
        self.socket.allow(self.app.options.message_bytes_max);
        self.publishes.forget_access();
        self.subscriptions.end_forbidden(identity, &mut self.out);
        self.auth.set_session(session);
    }
}
