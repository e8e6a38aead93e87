//! `export` and `import`.

use std::{
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    path::Path,
};

use durable_runtime::control::{Answer, Reader, Request};
use serde_json::json;

use crate::{
    client::Client,
    failed::{Exit, Failed},
    screen::Screen,
    text::{clean, quoted, run_word},
};

/// Longer than any line of an export: an entry of the longest kind, as bytes and in words.
const LINE_BYTES_MAX: u64 = 1 << 29;

pub(crate) fn export(screen: &Screen, store: &Path, run: String, output: Option<&Path>) -> Result<Exit, Failed> {
    let mut client = Client::open(screen, store)?;
    let request = Request::Export { run: run.clone(), readable: true };
    let Some(path) = output.filter(|path| *path != Path::new("-")) else {
        let mut out = BufWriter::new(io::stdout().lock());
        let done = client.each(request, |answer| written(&mut out, answer))?;
        out.flush()?;
        tell_children(screen, &done.children);
        return Ok(Exit::Done);
    };
    let named = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let what =
                format!("{} is there already, and is not overwritten: name another file, or remove it", path.display());
            Failed::new(Exit::No, what)
        }
        _ => Failed::new(Exit::Other, format!("cannot write {}: {error}", path.display())),
    };
    let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(named)?;
    let mut out = BufWriter::new(&file);
    let exported = client.each(request, |answer| written(&mut out, answer));
    let kept = exported.and_then(|done| {
        out.flush().and_then(|()| file.sync_all()).map_err(named)?;
        Ok(done.children)
    });
    let children = match kept {
        Ok(children) => children,
        Err(failed) => {
            // Half an export is none.
            let _ = fs::remove_file(path);
            return Err(failed);
        }
    };
    let words = format!("run {} is in {}", clean(&run), path.display());
    let mut document = json!({ "run": run, "file": path.display().to_string() });
    if !children.is_empty() {
        document["children"] = json!(children);
    }
    screen.said(&document, words)?;
    tell_children(screen, &children);
    Ok(Exit::Done)
}

/// Says which runs the export does not hold although its run waits for them.
fn tell_children(screen: &Screen, children: &[String]) {
    for child in children {
        let (name, word) = (clean(child), run_word(child));
        screen.remark(format!("it waits for its child {name}, a run of its own: {} export {word}", screen.durable));
    }
}

fn written(out: &mut impl Write, answer: Answer) -> Result<(), Failed> {
    if let Answer::Line(line) = answer {
        out.write_all(line.as_bytes())?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

pub(crate) fn import(screen: &Screen, store: &Path, path: &Path, unfinished: bool) -> Result<Exit, Failed> {
    let named = |error: io::Error| Failed::usage(format!("cannot read {}: {error}", path.display()));
    let mut from: Box<dyn BufRead> = match path == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(path).map_err(named)?)),
    };
    // Read whole, and found whole, before the store is touched.
    if from.fill_buf().map_err(named)?.first().is_some_and(|first| *first != b'{') {
        // It may have no end, nor any line.
        return Err(Failed::usage("this is no exported run: it does not begin with a JSON object"));
    }
    let mut reader = Reader::new();
    while let Some(line) = line(&mut from).map_err(named)? {
        reader.take(&line).map_err(|error| Failed::usage(error.to_string()))?;
    }
    let exported = reader.finish().map_err(|error| Failed::usage(error.to_string()))?;
    let client = Client::open_or_make(screen, store)?;
    let answers = client.ask_with(Request::Import { unfinished }, |line| {
        exported.bare_lines(line).map_err(|error| Failed::usage(error.to_string()))
    })?;
    let missing = answers.each(|_| Ok(()))?.children;
    let run = exported.run.as_str();
    let mut document = json!({ "run": run, "imported": true });
    let mut words = format!("run {} is in the store", clean(run));
    if !missing.is_empty() {
        document["missing"] = json!(missing);
        words.push_str(", and waits for children that are not: in the store that it comes from, and then here,");
        for child in &missing {
            let file = quoted(&format!("{}.jsonl", clean(child).replace(['/', '\\'], "-")));
            let _ = write!(
                words,
                "\n  durable export {} -o {file}\n  {} import {file} --unfinished",
                run_word(child),
                screen.durable
            );
        }
    }
    screen.said(&document, words)?;
    Ok(Exit::Done)
}

/// The next line, without its end. A file that has none is not read whole to find that out.
fn line(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    from.take(LINE_BYTES_MAX).read_line(&mut line)?;
    if line.len() as u64 == LINE_BYTES_MAX {
        return Err(io::Error::other(format!(
            "a line has {LINE_BYTES_MAX} bytes or more, and none of an exported run has"
        )));
    }
    if line.is_empty() {
        return Ok(None);
    }
    let end = line.trim_end_matches(['\r', '\n']).len();
    line.truncate(end);
    Ok(Some(line))
}
