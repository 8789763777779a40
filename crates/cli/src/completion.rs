//! `azekura completion`: scripts for shells.

use crate::exit::Outcome;
use crate::output::write_failure;
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::Write;

/// Print a completion script for a shell.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura completion bash > ~/.local/share/bash-completion/completions/azekura
  azekura completion zsh > ~/.zfunc/_azekura")]
pub struct CompletionArgs {
    /// Which shell
    shell: Shell,
}

/// Runs the command for the parser `Cli`.
pub fn run<Cli: CommandFactory>(args: &CompletionArgs) -> Outcome {
    // The generator panics when it cannot write: let it write to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "azekura", &mut script);
    let script = without_hidden(args.shell, &String::from_utf8_lossy(&script));
    std::io::stdout().lock().write_all(script.as_bytes()).map_err(write_failure)
}

/// The generators offer an option that help does not show, too: as one word of a list, or on a line
/// of its own.
fn without_hidden(shell: Shell, script: &str) -> String {
    let script = script
        .replace(" --answer-as ", " ")
        .replace(" --answer-as\"", "\"")
        .replace(" answer-as= ", " ");
    if shell == Shell::Bash {
        return script;
    }
    let shown = script.lines().filter(|line| !line.contains("answer-as"));
    shown.flat_map(|line| [line, "\n"]).collect()
}
