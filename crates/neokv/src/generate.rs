//! `neokv generate`: files that packages and `make install` place beside the program, made from the command line's own
//! declaration: man pages, completions for shells. The sample configuration is a page (`neokv page sample`).

use std::fs::{self, File};
use std::path::Path;

use clap::Command;
use clap_complete::Shell;

/// Which files.
#[derive(Debug, Clone, Copy)]
pub enum Files {
    Man,
    Completions,
}

/// Writes them into a folder, which is made if it is missing.
pub fn write(files: Files, command: Command, folder: &Path) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(wrong)?;
    match files {
        Files::Man => clap_mangen::generate_to(command, folder).map_err(wrong),
        Files::Completions => completions(command, folder).map_err(wrong),
    }
}

/// Named as each shell looks for them.
fn completions(mut command: Command, folder: &Path) -> std::io::Result<()> {
    for (shell, name) in [
        (Shell::Bash, "neokv"),
        (Shell::Zsh, "_neokv"),
        (Shell::Fish, "neokv.fish"),
    ] {
        let place = folder.join(shell.to_string());
        fs::create_dir_all(&place)?;
        let mut file = File::create(place.join(name))?;
        clap_complete::generate(shell, &mut command, "neokv", &mut file);
    }
    Ok(())
}
