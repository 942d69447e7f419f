//! Publish/subscribe.

mod inspect;
mod publish;
mod subscribe;

use crate::command::Spec;

pub(super) const COMMANDS: &[&[Spec]] =
    &[subscribe::COMMANDS, publish::COMMANDS, inspect::COMMANDS];
