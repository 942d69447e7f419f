//! Publish/subscribe.

mod inspect;
mod publish;
mod subscribe;

use crate::pipeline::Defined;

pub(super) const COMMANDS: &[&[Defined]] =
    &[subscribe::COMMANDS, publish::COMMANDS, inspect::COMMANDS];
