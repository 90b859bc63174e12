//! `lease completions` and `lease man`: texts that are generated from the definition of the command line.

use std::io::{Write, stdout};

use clap_complete::{Shell, generate};
use clap_mangen::Man;

use crate::arguments::definition;
use crate::exit::{Exit, Failure};

pub(crate) fn completions(shell: Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    generate(shell, &mut definition(), "lease", &mut script);
    stdout().write_all(&script)?;
    Ok(Exit::SUCCESS)
}

/// Prints one page with all commands.
pub(crate) fn man() -> Result<Exit, Failure> {
    let mut page = Vec::new();
    let command = definition();
    let man = Man::new(command.clone());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    for subcommand in command.get_subcommands() {
        writeln!(page, ".SH \"LEASE {}\"", subcommand.get_name().to_uppercase())?;
        let man = Man::new(subcommand.clone().bin_name(format!("lease {}", subcommand.get_name())));
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
    }
    man.render_extra_section(&mut page)?;
    man.render_version_section(&mut page)?;
    stdout().write_all(&page)?;
    Ok(Exit::SUCCESS)
}
