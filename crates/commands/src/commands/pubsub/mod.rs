//! Publish/subscribe.

mod inspect;
mod publish;
mod subscribe;

use crate::execute::Defined;

pub(super) const COMMANDS: &[&[Defined]] =
    &[subscribe::COMMANDS, publish::COMMANDS, inspect::COMMANDS];
