//! Body of a command (the function that runs it), and its arity, which follows from the function's type.
//!
//! A body gets the arguments after the name: required ones as an array, and repeated ones as a [`Rest`],
//! whose methods cannot fail:
//!
//! | function | macro | arity |
//! |---|---|---|
//! | `fn(&mut Context)` | `no_arguments!(f)` | 1 |
//! | `fn(&mut Context, [&[u8]; 2])` | `exactly!(f)` | 3 |
//! | `fn(&mut Context, [&[u8]; 1], Rest)` | `at_least!(f)` | -2 |
//! | `fn(&mut Context, [&[u8]; 1], Rest<1>)` | `at_least!(f)` | -3 |
//! | `fn(&mut Context, Rest<1>)` | `many!(f)` | -2 |
//!
//! So the arity is stated nowhere else, and a body never gets fewer arguments than it names. Subcommands have two
//! words before their arguments: `exactly!(sub f)`.

use tierce_wire::resp::Rest;

use super::Context;
use crate::command::accepts;
use crate::error::CommandError;

/// Result of a body. An error is the reply; the body has not replied then.
pub type Done = Result<(), CommandError>;

/// Function that runs a command.
pub type Handler = fn(&mut Context<'_, '_>) -> Done;

/// Function of a command, with its arity.
#[derive(Clone, Copy)]
pub struct Body {
    /// Number of arguments with the name; negative for a minimum.
    pub(super) arity: i16,
    /// Number of words of the name.
    pub(super) words: u8,
    pub(super) run: Handler,
}

impl Body {
    /// Used by the macros of this file.
    pub(crate) const fn exactly(words: usize, arguments: usize, run: Handler) -> Self {
        Self { arity: (words + arguments) as i16, words: words as u8, run }
    }

    /// Creates the body of a command that is always refused. It gets no arguments; only their number is checked.
    pub(crate) const fn refusal(words: u8, arity: i16, run: Handler) -> Self {
        Self { arity, words, run }
    }

    /// Returns true if a call may have `argc` arguments, the name included.
    pub(crate) const fn accepts(&self, argc: usize) -> bool {
        accepts(self.arity, argc)
    }

    /// Runs the body.
    ///
    /// # Errors
    /// Errors of the body.
    pub(crate) fn enter(&self, ctx: &mut Context<'_, '_>) -> Done {
        (self.run)(ctx)
    }

    /// Used by the macros of this file.
    pub(crate) const fn at_least(words: usize, arguments: usize, run: Handler) -> Self {
        Self { arity: -((words + arguments) as i16), words: words as u8, run }
    }
}

/// Functions whose types determine the number of arguments of a body.
pub(crate) mod shape {
    use super::{CommandError, Context, Done, Rest};

    pub(crate) const fn no_arguments(_: fn(&mut Context<'_, '_>) -> Done) -> usize {
        0
    }

    pub(crate) const fn exactly<const N: usize>(
        _: fn(&mut Context<'_, '_>, [&[u8]; N]) -> Done,
    ) -> usize {
        N
    }

    pub(crate) const fn at_least<const N: usize, const MIN: usize>(
        _: fn(&mut Context<'_, '_>, [&[u8]; N], Rest<'_, MIN>) -> Done,
    ) -> usize {
        N + MIN
    }

    pub(crate) const fn many<const MIN: usize>(
        _: fn(&mut Context<'_, '_>, Rest<'_, MIN>) -> Done,
    ) -> usize {
        MIN
    }

    #[inline(always)]
    pub(crate) fn run_no_arguments(
        words: usize,
        ctx: &mut Context<'_, '_>,
        body: impl FnOnce(&mut Context<'_, '_>) -> Done,
    ) -> Done {
        run_exactly(words, ctx, |ctx, []| body(ctx))
    }

    #[inline(always)]
    pub(crate) fn run_exactly<const N: usize>(
        words: usize,
        ctx: &mut Context<'_, '_>,
        body: impl FnOnce(&mut Context<'_, '_>, [&[u8]; N]) -> Done,
    ) -> Done {
        match ctx.call.arguments(words) {
            Some((first, rest)) if rest.is_empty() => body(ctx, first),
            _ => wrong_number(ctx),
        }
    }

    #[inline(always)]
    pub(crate) fn run_at_least<const N: usize, const MIN: usize>(
        words: usize,
        ctx: &mut Context<'_, '_>,
        body: impl FnOnce(&mut Context<'_, '_>, [&[u8]; N], Rest<'_, MIN>) -> Done,
    ) -> Done {
        let arguments = ctx.call.arguments(words);
        match arguments.and_then(|(first, rest)| Some((first, rest.with_at_least()?))) {
            Some((first, rest)) => body(ctx, first, rest),
            None => wrong_number(ctx),
        }
    }

    #[inline(always)]
    pub(crate) fn run_many<const MIN: usize>(
        words: usize,
        ctx: &mut Context<'_, '_>,
        body: impl FnOnce(&mut Context<'_, '_>, Rest<'_, MIN>) -> Done,
    ) -> Done {
        run_at_least(words, ctx, |ctx, [], rest| body(ctx, rest))
    }

    /// Returns the error for a wrong number of arguments, for callers that bypass the checks of the table.
    #[cold]
    fn wrong_number(ctx: &Context<'_, '_>) -> Done {
        Err(CommandError::arity(ctx.name()))
    }
}

/// Creates a body of one of these shapes, whose name has this many words.
macro_rules! shaped {
    ($kind:ident, $shape:ident, $run:ident, $words:literal, $body:expr) => {
        $crate::pipeline::Body::$kind($words, $crate::pipeline::shape::$shape($body), |ctx| {
            $crate::pipeline::shape::$run($words, ctx, $body)
        })
    };
}

/// Creates a body without arguments.
macro_rules! no_arguments {
    (sub $body:expr) => {
        $crate::pipeline::shaped!(exactly, no_arguments, run_no_arguments, 2, $body)
    };
    ($body:expr) => {
        $crate::pipeline::shaped!(exactly, no_arguments, run_no_arguments, 1, $body)
    };
}

/// Creates a body with a fixed number of arguments.
macro_rules! exactly {
    (sub $body:expr) => {
        $crate::pipeline::shaped!(exactly, exactly, run_exactly, 2, $body)
    };
    ($body:expr) => {
        $crate::pipeline::shaped!(exactly, exactly, run_exactly, 1, $body)
    };
}

/// Creates a body with some required arguments, and others after them.
macro_rules! at_least {
    (sub $body:expr) => {
        $crate::pipeline::shaped!(at_least, at_least, run_at_least, 2, $body)
    };
    ($body:expr) => {
        $crate::pipeline::shaped!(at_least, at_least, run_at_least, 1, $body)
    };
}

/// Creates a body whose arguments are all alike, or all options.
macro_rules! many {
    (sub $body:expr) => {
        $crate::pipeline::shaped!(at_least, many, run_many, 2, $body)
    };
    ($body:expr) => {
        $crate::pipeline::shaped!(at_least, many, run_many, 1, $body)
    };
}

pub(crate) use {at_least, exactly, many, no_arguments, shaped};
