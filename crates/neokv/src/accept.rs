//! `neokv accept-lost-log`: gives up what a damaged log has lost, on a folder on which no node runs.
//!
//! A command of its own and not a flag of the server: nobody leaves it in a script by mistake.

use std::path::Path;

use rocks::DataDir;

/// Cuts the log of a data directory where it has lost something; in one line why not.
pub fn run(dir: &Path) -> Result<(), String> {
    if !dir.join("FORMAT").exists() {
        return Err(format!("{} is not a data directory", dir.display()));
    }
    let data = DataDir::open(dir).map_err(|error| error.to_string())?;
    let accepted = data.accept_lost_log().map_err(|error| error.to_string())?;
    let Some(accepted) = accepted else {
        println!(
            "The log of {} has lost nothing; it was not changed.",
            dir.display()
        );
        return Ok(());
    };
    for lost in &accepted.lost {
        println!("LOST: {lost}");
    }
    println!(
        "The log ends there now. Acknowledged writes behind that place are gone; what is left of them is in {}. \
         Start the server again as usual.",
        accepted.kept_in.display()
    );
    Ok(())
}
