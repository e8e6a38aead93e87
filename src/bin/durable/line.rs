//! The line to the process that holds the store: it may be stopped, and then says nothing.

use std::{fs, path::Path, time::Duration};
#[cfg(unix)]
use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::PathBuf,
};

#[cfg(unix)]
use durable_runtime::control;

#[cfg(unix)]
use crate::screen::Screen;

/// The file in a store's directory that names who holds it.
const LOCK: &str = "LOCK";
/// So long an opening of a store waits for its lock.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(1);
/// After so long without a word it is asked whether there is anybody.
#[cfg(unix)]
const SILENCE: Duration = Duration::from_secs(2);

/// Who holds a store, in words.
pub(crate) fn holder(store: &Path) -> String {
    match pid(store) {
        Some(pid) => format!("process {pid}, which holds the store,"),
        None => "the process that holds the store".to_owned(),
    }
}

fn pid(store: &Path) -> Option<u32> {
    fs::read_to_string(store.join(LOCK)).ok()?.trim().parse().ok()
}

/// A connection for one request.
#[cfg(unix)]
pub(crate) struct Line {
    stream: BufReader<UnixStream>,
    screen: Screen,
    store: PathBuf,
    /// It was said that nobody answers.
    told: bool,
}

#[cfg(unix)]
impl Line {
    pub(crate) fn open(screen: &Screen, store: &Path) -> io::Result<Line> {
        let stream = control::connect(store)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Line { stream: BufReader::new(stream), screen: screen.clone(), store: store.to_owned(), told: false })
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.get_mut().write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if is_silence(&error) => self.silent(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Nothing more is written.
    pub(crate) fn end(&self) {
        let _ = self.stream.get_ref().shutdown(Shutdown::Write);
    }

    /// The next line; `None` where there is none any more.
    pub(crate) fn read(&mut self) -> Option<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            match self.stream.read_until(b'\n', &mut line) {
                Ok(_) => return (line.pop() == Some(b'\n')).then_some(line),
                Err(error) if is_silence(&error) => self.silent(),
                Err(_) => return None,
            }
        }
    }

    /// Nothing has come for a while. There may be nothing to say; or nobody.
    fn silent(&mut self) {
        if self.told || answers(&self.store) {
            return;
        }
        self.told = true;
        let what = match pid(&self.store).filter(|pid| is_stopped(*pid)) {
            Some(pid) => format!("is stopped: kill -CONT {pid} lets it go on"),
            None => "does not answer".to_owned(),
        };
        let who = holder(&self.store);
        self.screen.waits(&format!("{who} {what}; waiting for its answer (Ctrl-C ends the wait)"));
    }
}

#[cfg(unix)]
fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Whether whoever listens on the socket says anything at all, be it only that this is no request. One that has gone is not
/// silent: the line says so itself.
#[cfg(unix)]
fn answers(store: &Path) -> bool {
    let Ok(mut stream) = control::connect(store) else { return true };
    let asked = stream.set_read_timeout(Some(SILENCE)).and_then(|()| stream.write_all(b"\n"));
    match asked.and_then(|()| stream.read(&mut [0])) {
        Err(error) => !is_silence(&error),
        Ok(_) => true,
    }
}

/// Whether a process is stopped, as Ctrl-Z does it, where the system tells.
#[cfg(unix)]
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything.
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['T', 't']))
}
