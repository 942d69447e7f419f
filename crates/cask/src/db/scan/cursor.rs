//! The position of one range among the windows.

use super::block::Block;
use super::pass::Passes;
use super::request::Request;
use super::window::ScanWindow;
use crate::index::ordered::Side;
use std::sync::Arc;
use tierce_storage::disk::span::ReadBuf;

/// Position of a range in a pass. It keeps the current window in memory.
pub(crate) struct Cursor {
    passes: Arc<Passes>,
    window: Option<Arc<ScanWindow>>,
    buf: ReadBuf,
}

impl Cursor {
    pub(crate) fn new(passes: &Arc<Passes>) -> Self {
        passes.register();
        Cursor { passes: passes.clone(), window: None, buf: ReadBuf::default() }
    }

    /// Returns the block with the range's next keys. `None`: there are none, or no memory for them.
    pub(crate) fn block(&mut self, request: &Request<'_>) -> Option<Arc<Block>> {
        let mut request = *request;
        loop {
            if let Some(window) = &self.window
                && window.serves(&request.audience, request.position())
            {
                match window.blocks(&mut self.buf, |blocks| choose(blocks, &request)) {
                    Some(block) => {
                        window.touch(self.passes.now_ms());
                        return block;
                    }
                    // The window was dropped, since this range was too slow: another pass begins
                    // here.
                    None => request.after = None,
                }
            } else {
                request.after = self.window.as_ref().map(|left| (left.id, left.bytes));
            }
            // Enter the next one before leaving this one, so that it stays in use.
            let entered = self.passes.enter(&request);
            let left = std::mem::replace(&mut self.window, entered);
            if let Some(left) = left {
                self.passes.leave(&left);
            }
            let entered = self.window.as_ref()?;
            self.passes.load_ahead(entered, &request);
        }
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        if let Some(window) = &self.window {
            self.passes.leave(window);
        }
        self.passes.unregister();
    }
}

/// Returns the block of a position.
fn choose(blocks: &[Arc<Block>], request: &Request<'_>) -> Option<Arc<Block>> {
    let position = request.position();
    match request.audience.side {
        Side::Lower => {
            let at = blocks.partition_point(|block| block.upper <= *position);
            blocks.get(at).cloned()
        }
        Side::Upper => {
            let at = blocks.partition_point(|block| block.lower < *position);
            blocks.get(at.checked_sub(1)?).cloned()
        }
    }
}
