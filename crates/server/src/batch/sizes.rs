//! Finds the large requests and replies of a batch, for their logs.

use tierce_wire::resp::Batch;

use super::REQUESTS_MAX;
use crate::clients::Client;
use crate::kernel::Kernel;
use crate::pipeline;
use crate::pipeline::sizes::Sizes;

/// Some of the requests of a batch.
#[derive(Default)]
pub(super) struct Requests(u128);

const _: () = assert!(REQUESTS_MAX <= u128::BITS as usize);

impl Requests {
    pub(super) fn add(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    fn has(&self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }
}

/// Notes the large ones of the first `through` requests of a batch, except for those that have not run, and their
/// replies of these lengths. `value_bytes` of a request with a side buffer are not in the input.
#[cold]
pub(super) fn note_large(
    kernel: &Kernel,
    client: &Client,
    (batch, input, value_bytes): (&Batch, &[u8], usize),
    (through, not_run): (usize, &Requests),
    replies: &[usize],
) {
    // With CLIENT REPLY or SUBSCRIBE among the requests, replies cannot be attributed.
    let replies = if replies.len() == through { replies } else { &[] };
    let mut before = 0;
    for index in 0..through {
        let end = batch.end(index);
        let request_bytes = end - before + value_bytes;
        before = end;
        let args = batch.get(index, input);
        let Ok(command) = pipeline::resolve(kernel, args) else { continue };
        if not_run.has(index) {
            continue;
        }
        Sizes(kernel).note_request((command, args), client, request_bytes);
        if let Some(&bytes) = replies.get(index) {
            Sizes(kernel).note_reply((command, args), client, bytes);
        }
    }
}
