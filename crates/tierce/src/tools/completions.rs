//! `tierce completions`: scripts for shells to complete the command line.

use clap::{Args, ValueEnum};
use clap_complete::{generate, shells};

use crate::tools;
use crate::upkeep::print;

/// Print the completions of a shell.
///
/// They complete tools, their options, and the directives of the server with the values of those that have a list.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// The shells that people use where Tierce runs; what others need would only make the program larger.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl CompletionsArgs {
    /// Prints the completions.
    pub fn run(&self) {
        let mut script = Vec::new();
        let mut program = tools::program_with_directives();
        match self.shell {
            Shell::Bash => generate(shells::Bash, &mut program, "tierce", &mut script),
            Shell::Zsh => generate(shells::Zsh, &mut program, "tierce", &mut script),
            Shell::Fish => generate(shells::Fish, &mut program, "tierce", &mut script),
        }
        print(&String::from_utf8_lossy(&script));
    }
}
