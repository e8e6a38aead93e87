//! The command `durable`: what people do with a store of runs.

mod args;
mod care;
mod client;
mod code;
mod copy;
mod failed;
mod line;
mod list;
mod log;
mod people;
mod screen;
mod stop;
mod table;
mod text;

use std::{io, process::ExitCode};

use args::{Colours, Command, CommandLine};
use clap::{CommandFactory as _, FromArgMatches as _, parser::ValueSource};
use failed::{Exit, Failed};
use screen::{BAD, Screen, styled};

fn main() -> ExitCode {
    let parsed = CommandLine::command().try_get_matches().and_then(|matches| {
        let named = matches.value_source("store") == Some(ValueSource::CommandLine);
        Ok((CommandLine::from_arg_matches(&matches)?, named))
    });
    let (line, named) = match parsed {
        Ok(line) => line,
        Err(error) => {
            // Help that nobody reads to its end is help.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() };
        }
    };
    match line.color {
        Colours::Auto => {}
        Colours::Always => anstream::ColorChoice::Always.write_global(),
        Colours::Never => anstream::ColorChoice::Never.write_global(),
    }
    let json = line.json;
    match run(line, named) {
        Ok(exit) => exit.into(),
        Err(failed) => {
            if !failed.silent {
                tell(&failed, json);
            }
            failed.exit.into()
        }
    }
}

/// Says on standard error why it was not done.
fn tell(failed: &Failed, json: bool) {
    use std::io::Write as _;
    let mut err = anstream::stderr();
    // There is nobody else to tell.
    let _ = match json {
        true => {
            let error = serde_json::json!({ "error": { "code": failed.code, "message": failed.message } });
            writeln!(err, "{error}")
        }
        false => writeln!(err, "{} {}", styled(BAD, "error:"), text::clean_lines(&failed.message)),
    };
}

/// `named`: the command line names the store, so those that it tells of must too.
fn run(line: CommandLine, named: bool) -> Result<Exit, Failed> {
    let CommandLine { store, json, escaped, command, .. } = line;
    let screen = Screen::new(json, named.then_some(&*store));
    let id = |run: String| match escaped {
        true => text::unescape(&run).map_err(Failed::usage),
        false => Ok(run),
    };
    match command {
        Command::Runs(args) => list::runs(&screen, &store, args),
        Command::Show(args) => list::show(&screen, &store, id(args.run)?, args.steps),
        Command::Log(args) => log::log(&screen, &store, id(args.run)?, args.generation, args.follow),
        Command::Signal(args) => people::signal(&screen, &store, id(args.run)?, args.name, args.value, args.id),
        Command::Ask => people::ask(&screen, &store),
        Command::Answer(args) => people::answer(&screen, &store, args),
        Command::Holds => people::holds(&screen, &store),
        Command::Resolve(mut args) => {
            args.run = id(args.run)?;
            people::resolve(&screen, &store, args)
        }
        Command::Cancel(args) => stop::cancel(&screen, &store, id(args.run)?, args.reason, args.who.by),
        Command::Retry(args) => stop::retry(&screen, &store, id(args.run)?),
        Command::Export(args) => copy::export(&screen, &store, id(args.run)?, args.output.as_deref()),
        Command::Import(args) => copy::import(&screen, &store, &args.file, args.unfinished),
        Command::Purge(args) => care::purge(&screen, &store, args),
        Command::Compact => care::compact(&screen, &store),
        Command::Doctor(args) => care::doctor(&screen, &store, args.accept_loss),
        Command::Workflows(args) => code::workflows(&screen, &store, args),
        Command::Explain(args) => code::explain(&screen, &args.code),
        Command::Completions(args) => {
            let mut script = Vec::new();
            clap_complete::generate(args.shell, &mut CommandLine::command(), "durable", &mut script);
            io::Write::write_all(&mut io::stdout(), &script)?;
            Ok(Exit::Done)
        }
    }
}
