//! One way to ask a store: the process that holds it, over its socket; or, if none does, this process.

use std::{
    io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use durable::{
    Code, Runtime,
    store::{
        Store as _,
        sled::{SledOptions, SledStore},
    },
};
use durable_runtime::control::{self, Answer, Call, Done, PROTOCOL, Request};
use tokio::sync::mpsc;

#[cfg(unix)]
use crate::line::Line;
use crate::{
    failed::{Exit, Failed},
    line::{LOCK_WAIT, holder},
    screen::Screen,
};

/// A process that has just taken the store offers its socket within this.
const SOCKET_WAIT: Duration = Duration::from_secs(2);
/// A process that ends lets go of the store within this: what it runs may take its time to end.
const ENDING_WAIT: Duration = Duration::from_secs(60);
/// What takes longer than this to end is named.
const ENDING_SILENCE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A store that can be asked.
pub(crate) struct Client {
    screen: Screen,
    store: PathBuf,
    here: Option<Here>,
    /// The last request was made once more, because the process that was asked first has ended.
    asked_again: bool,
}

/// A store that this process holds. It runs nothing.
struct Here {
    tokio: tokio::runtime::Runtime,
    runtime: Runtime,
}

impl Drop for Here {
    fn drop(&mut self) {
        // What was acknowledged is durable already.
        let _ = self.tokio.block_on(self.runtime.shutdown(Duration::ZERO));
    }
}

/// How to open a store that no process holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Open {
    Whole,
    /// Also if its newest writes are lost.
    AcceptLoss,
}

impl Client {
    pub(crate) fn open(screen: &Screen, store: &Path) -> Result<Client, Failed> {
        Client::open_as(screen, store, Open::Whole).map_err(|mut failed| {
            if failed.code.as_deref() == Some("DUR-0031") {
                failed.message.push_str(&format!("; {} doctor says what can be done", screen.durable));
            }
            failed
        })
    }

    pub(crate) fn open_as(screen: &Screen, store: &Path, how: Open) -> Result<Client, Failed> {
        let mut client = Client { screen: screen.clone(), store: store.to_owned(), here: None, asked_again: false };
        if live(store)? {
            return Ok(client);
        }
        match Here::open(store, how) {
            Ok(here) => client.here = Some(here),
            Err(error) if error.code() == Code::StoreInUse => {
                if !wait_for_socket(store, SOCKET_WAIT)? {
                    let mut failed = Failed::from(error);
                    failed.message.push_str(
                        "; it offers no control socket (Builder::control(false), or it is being opened or shut down)",
                    );
                    return Err(failed);
                }
            }
            Err(error) if error.code() == Code::NotAStore => {
                let mut failed = Failed::from(error);
                failed.message.push_str("; name a store by --store or DURABLE_STORE");
                return Err(failed);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(client)
    }

    /// Opens a store, or makes one where there is nothing.
    pub(crate) fn open_or_make(screen: &Screen, store: &Path) -> Result<Client, Failed> {
        match Client::open(screen, store) {
            Err(failed) if failed.code.as_deref() == Some("DUR-0032") => {
                let made = SledStore::open(store, SledOptions::new()).and_then(|made| made.close());
                // What is something else than a store stays what it is.
                made.map_err(durable::Error::from)?;
                Client::open(screen, store)
            }
            opened => opened,
        }
    }

    /// Whether another process holds the store.
    pub(crate) fn is_live(&self) -> bool {
        self.here.is_none()
    }

    /// Whether the last request was made once more: what it was to do may have been done already.
    pub(crate) fn asked_again(&self) -> bool {
        self.asked_again
    }

    /// Lets go of the store, so that another process can take it.
    pub(crate) fn release(&mut self) {
        self.here = None;
    }

    /// Opens the store anew, once the process that held it has let go of it, or another one has taken it.
    pub(crate) fn reopen(&mut self) -> Result<(), Failed> {
        self.here = None;
        let mut waited = Duration::ZERO;
        loop {
            if live(&self.store)? {
                return Ok(());
            }
            match Here::open(&self.store, Open::Whole) {
                Ok(here) => {
                    self.here = Some(here);
                    return Ok(());
                }
                Err(error) if error.code() == Code::StoreInUse && waited < ENDING_WAIT => {
                    // An opening waits for a while itself.
                    waited += LOCK_WAIT + LOOK_EVERY;
                    if waited >= ENDING_SILENCE && waited < ENDING_SILENCE + LOCK_WAIT + LOOK_EVERY {
                        let who = holder(&self.store);
                        self.screen.waits(&format!(
                            "{who} offers no control socket (it is being opened or shut down, or has none); waiting for it"
                        ));
                    }
                    thread::sleep(LOOK_EVERY);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Asks.
    pub(crate) fn ask(&self, request: Request) -> Result<Answers, Failed> {
        self.ask_with(request, |_| Ok(()))
    }

    /// Asks, with lines that follow the request.
    pub(crate) fn ask_with(
        &self,
        request: Request,
        lines: impl FnOnce(&mut dyn FnMut(String)) -> Result<(), Failed>,
    ) -> Result<Answers, Failed> {
        match &self.here {
            None => over_socket(&self.screen, &self.store, request, lines),
            Some(here) => here.ask(request, lines),
        }
    }

    /// Asks, and takes all answers up to the last. If the process that is asked ends before it has answered anything, whoever can be asked
    /// then is: a request that was carried out already is the same request, and its answer says so.
    pub(crate) fn each(
        &mut self,
        request: Request,
        mut take: impl FnMut(Answer) -> Result<(), Failed>,
    ) -> Result<Done, Failed> {
        self.asked_again = false;
        loop {
            let mut answered = false;
            let done = self.ask(request.clone()).and_then(|answers| {
                answers.each(|answer| {
                    answered |= !matches!(answer, Answer::Accepted);
                    take(answer)
                })
            });
            match done {
                Err(failed) if failed.gone && !answered => {
                    self.asked_again = true;
                    self.reopen()?;
                }
                Err(mut failed) if self.asked_again && failed.exit == Exit::No => {
                    let what = "the process that held the store ended before it had answered; asked again: ";
                    failed.message.insert_str(0, what);
                    return Err(failed);
                }
                done => return done,
            }
        }
    }

    /// Asks for what has no answers but that it is done.
    pub(crate) fn request(&mut self, request: Request) -> Result<Done, Failed> {
        self.each(request, |_| Ok(()))
    }
}

impl Here {
    fn open(store: &Path, how: Open) -> Result<Here, durable::Error> {
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let tokio = tokio.map_err(|error| durable::StoreError::Io {
            doing: "start an event loop".into(),
            error: error.to_string().into(),
        })?;
        let builder = match how {
            Open::Whole => Runtime::builder(),
            Open::AcceptLoss => Runtime::builder().accept_loss(),
        };
        let runtime = tokio.block_on(builder.observe(store))?;
        Ok(Here { tokio, runtime })
    }

    fn ask(
        &self,
        request: Request,
        lines: impl FnOnce(&mut dyn FnMut(String)) -> Result<(), Failed>,
    ) -> Result<Answers, Failed> {
        let (line, rest) = mpsc::channel(1);
        let (answers, said) = mpsc::channel(control::ANSWERS_WAITING_MAX);
        let runtime = self.runtime.clone();
        self.tokio.spawn(async move { control::handle(&runtime, request, rest, answers).await });
        // If nobody takes the lines, the answers say why.
        lines(&mut |text| drop(line.blocking_send(text)))?;
        Ok(Answers::Here(said))
    }
}

/// Whether a process offers the store's socket.
pub(crate) fn live(store: &Path) -> Result<bool, Failed> {
    #[cfg(unix)]
    match control::connect(store) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(false),
        Err(error) => {
            let what = format!("cannot connect to {}: {error}", store.join(control::SOCKET).display());
            Err(Failed::new(Exit::Store, what))
        }
    }
    #[cfg(not(unix))]
    Ok(false)
}

/// Waits until a process offers the store's socket.
fn wait_for_socket(store: &Path, most: Duration) -> Result<bool, Failed> {
    for _ in 0..most.as_millis() / LOOK_EVERY.as_millis() {
        if live(store)? {
            return Ok(true);
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(false)
}

#[cfg(unix)]
fn over_socket(
    screen: &Screen,
    store: &Path,
    request: Request,
    lines: impl FnOnce(&mut dyn FnMut(String)) -> Result<(), Failed>,
) -> Result<Answers, Failed> {
    let gone = |error: io::Error| {
        let what = format!("the process that holds the store has gone: {error}");
        Failed { gone: true, ..Failed::new(Exit::Store, what) }
    };
    let mut line = Line::open(screen, store).map_err(gone)?;
    let takes_lines = matches!(request, Request::Import { .. });
    let mut call = serde_json::to_string(&Call { protocol: PROTOCOL, request }).map_err(io::Error::from)?;
    call.push('\n');
    // One that does not take it says why before it hangs up.
    let mut writing = line.write(call.as_bytes());
    if takes_lines {
        lines(&mut |mut text| {
            text.push('\n');
            if writing.is_ok() {
                writing = line.write(text.as_bytes());
            }
        })?;
        line.end();
    }
    Ok(Answers::Live(line))
}

#[cfg(not(unix))]
fn over_socket(
    _: &Screen,
    _: &Path,
    _: Request,
    _: impl FnOnce(&mut dyn FnMut(String)) -> Result<(), Failed>,
) -> Result<Answers, Failed> {
    Err(Failed::new(Exit::Store, "this system has no control sockets"))
}

/// Answers, one after the other.
pub(crate) enum Answers {
    Here(mpsc::Receiver<Answer>),
    #[cfg(unix)]
    Live(Line),
}

impl Answers {
    fn next(&mut self) -> Result<Option<Answer>, Failed> {
        match self {
            Answers::Here(said) => Ok(said.blocking_recv()),
            #[cfg(unix)]
            Answers::Live(line) => {
                let Some(line) = line.read() else { return Ok(None) };
                serde_json::from_slice(&line).map(Some).map_err(|error| {
                    let what = format!("the process that holds the store speaks another version's protocol: {error}");
                    Failed::new(Exit::Other, what)
                })
            }
        }
    }

    /// Takes all answers up to the last.
    pub(crate) fn each(mut self, mut take: impl FnMut(Answer) -> Result<(), Failed>) -> Result<Done, Failed> {
        loop {
            match self.next()? {
                Some(Answer::Done(done)) => return Ok(done),
                Some(Answer::Refused(refusal)) => return Err(refusal.into()),
                Some(answer) => take(answer)?,
                None => {
                    let what = "the process that holds the store ended before it had answered";
                    return Err(Failed { gone: true, ..Failed::new(Exit::Store, what) });
                }
            }
        }
    }
}
