//! The callback of a request.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::error::Error;

/// The whole frame that answers a request, or the reason why there is none.
pub(crate) type Outcome<'a> = Result<&'a [u8], Error>;

type Function = dyn FnOnce(Outcome<'_>) + Send;

/// A caller that waits for an answer and may give up.
pub(crate) trait Recipient: Send + Sync {
    fn receive(&self, outcome: Outcome<'_>);

    /// Returns false if the caller has given up. The request may then be dropped, unless it was sent.
    fn is_waiting(&self) -> bool;
}

enum Target {
    Function(Box<Function>),
    /// Cell that a future waits at. It has an allocation anyway, so it needs no second one.
    Recipient(Arc<dyn Recipient>),
}

/// A target that is called exactly once: with an outcome, or with [`Error::Closed`] if it is dropped for whatever
/// reason.
pub(crate) struct Callback {
    target: Option<Target>,
}

impl Callback {
    #[inline]
    pub(crate) fn new(function: impl FnOnce(Outcome<'_>) + Send + 'static) -> Callback {
        Callback { target: Some(Target::Function(Box::new(function))) }
    }

    pub(crate) fn to(recipient: Arc<dyn Recipient>) -> Callback {
        Callback { target: Some(Target::Recipient(recipient)) }
    }

    /// Returns false if the caller has given up. Functions always want their answer.
    pub(crate) fn is_wanted(&self) -> bool {
        match &self.target {
            Some(Target::Recipient(recipient)) => recipient.is_waiting(),
            Some(Target::Function(_)) | None => true,
        }
    }

    /// Calls the target. A panic in it is reported like any other panic, but does not unwind further: the thread has
    /// other callbacks to serve.
    pub(crate) fn call(mut self, outcome: Outcome<'_>) {
        self.call_once(outcome);
    }

    fn call_once(&mut self, outcome: Outcome<'_>) {
        let Some(target) = self.target.take() else { return };
        let _ = catch_unwind(AssertUnwindSafe(|| match target {
            Target::Function(function) => function(outcome),
            Target::Recipient(recipient) => recipient.receive(outcome),
        }));
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        self.call_once(Err(Error::Closed));
    }
}
