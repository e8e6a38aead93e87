//! The control socket: whoever may open the store's directory as the same user can ask the process that holds it.
//!
//! It has a thread of its own with its own event loop. What clients do, or fail to do, costs that thread and nothing else: runs are
//! polled elsewhere, and a client that neither reads nor writes is dropped after a while.

use std::{
    io,
    path::Path,
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, unix::OwnedWriteHalf},
    sync::{Semaphore, mpsc},
    time::timeout,
};

use super::{
    ANSWERS_WAITING_MAX, Answer, Call, PROTOCOL, Refusal, Request, Sort, handle,
    place::{Bound, bind},
};
use crate::{
    runtime::{BesideRuntime, Runtime},
    worker::Shared,
};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take for a line, and for reading one.
const PATIENCE: Duration = Duration::from_secs(20);
/// What a line may have beyond four times the longest value: names, texts, and what JSON makes of them.
const LINE_BYTES_BESIDE: usize = 1 << 20;

/// Offers the socket in the store's directory, until the runtime is shut down or dropped.
///
/// Without it the runtime goes on: a directory may be on a file system that has no sockets.
pub(crate) fn serve(runtime: &Runtime, store: &Path) {
    if let Err(error) = begin(runtime, store) {
        tracing::warn!(%error, store = %store.display(), "there is no control socket: the command `durable` cannot reach this process");
    }
}

fn begin(runtime: &Runtime, store: &Path) -> io::Result<()> {
    let bound = bind(store)?;
    bound.listener.set_nonblocking(true)?;
    let events = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let beside = runtime.beside();
    let counted = Counted::new(runtime.shared());
    thread::Builder::new().name("durable-control".into()).spawn(move || {
        if let Err(error) = events.block_on(listen(&bound, &beside)) {
            tracing::warn!(%error, "the control socket has failed");
        }
        // Connections end here, at whatever they wait for.
        events.shutdown_background();
        // Before the store is free for another process, whose socket this must not remove.
        drop(bound);
        drop(counted);
    })?;
    Ok(())
}

/// One of the runtime's tasks: a shutdown waits for it, and the store is not closed before.
struct Counted(Arc<Shared>);

impl Counted {
    fn new(shared: &Arc<Shared>) -> Counted {
        shared.tasks.fetch_add(1, Ordering::SeqCst);
        Counted(shared.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.tasks.fetch_sub(1, Ordering::SeqCst);
        self.0.idle.notify_waiters();
    }
}

async fn listen(bound: &Bound, beside: &BesideRuntime) -> io::Result<()> {
    let listener = UnixListener::from_std(bound.listener.try_clone()?)?;
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            biased;
            () = beside.closing() => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Such as too many open files: that passes.
                tracing::warn!(%error, "a connection to the control socket was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let peer = stream.peer_cred().map(|peer| peer.uid());
        let Some(runtime) = beside.runtime() else { return Ok(()) };
        let permit = connections.clone().try_acquire_owned();
        let refused = refused(peer, bound.owner, permit.is_ok());
        tokio::spawn(async move {
            // Held as long as the connection lasts.
            let _permit = permit;
            let (read, mut write) = stream.into_split();
            let _ = match refused {
                Some(refusal) => send(&mut write, &Answer::Refused(refusal)).await,
                None => converse(&runtime, BufReader::new(read), &mut write).await,
            };
        });
    }
}

/// Why a connection is not served. `peer`: the user at the other end.
fn refused(peer: io::Result<u32>, owner: u32, room: bool) -> Option<Refusal> {
    match peer {
        Err(error) => Some(Refusal::new(Sort::Store, format!("who asks cannot be found out: {error}"))),
        Ok(peer) if peer != owner => Some(foreign(peer, owner)),
        Ok(_) if !room => Some(Refusal::new(Sort::Store, format!("{CONNECTIONS_MAX} connections are open; try again"))),
        Ok(_) => None,
    }
}

/// What somebody else than the socket's owner is told.
fn foreign(peer: u32, owner: u32) -> Refusal {
    let what = format!("the store is held by a process of user {owner}, and user {peer} asks; ask as user {owner}");
    Refusal::new(Sort::Store, what)
}

/// One connection: one request, its lines, its answers.
async fn converse<R: AsyncBufRead + Unpin>(
    runtime: &Runtime,
    mut read: R,
    write: &mut OwnedWriteHalf,
) -> io::Result<()> {
    let most = runtime.shared().limits.value_bytes_max.saturating_mul(4).saturating_add(LINE_BYTES_BESIDE);
    let call = match line(&mut read, most).await {
        Ok(Some(line)) => serde_json::from_str::<Call>(&line).map_err(|error| error.to_string()),
        Ok(None) => return Ok(()),
        Err(error) => Err(error.to_string()),
    };
    let request = match call {
        Ok(Call { protocol: PROTOCOL, request }) => request,
        Ok(Call { protocol, .. }) => {
            let what = format!(
                "this process speaks version {PROTOCOL} of the protocol, not {protocol}; use the command of its version"
            );
            return send(write, &Answer::Refused(Refusal::new(Sort::Other, what))).await;
        }
        Err(error) => {
            let what = format!("this is no request that this version knows: {error}");
            return send(write, &Answer::Refused(Refusal::new(Sort::Invalid, what))).await;
        }
    };
    let (lines, rest) = mpsc::channel(1);
    let (answers, mut said) = mpsc::channel(ANSWERS_WAITING_MAX);
    let takes_lines = matches!(request, Request::Import { .. });
    let listening = async move {
        match takes_lines {
            true => upload(&mut read, most, lines).await,
            false => hung_up(&mut read).await,
        }
    };
    let telling = async move {
        while let Some(answer) = said.recv().await {
            send(write, &answer).await?;
        }
        Ok(())
    };
    let carrying_out = handle(runtime, request, rest, answers);
    tokio::pin!(listening, carrying_out);
    let working = async {
        tokio::select! {
            () = &mut carrying_out => {}
            // Nobody waits for the rest of it.
            () = &mut listening => if takes_lines { carrying_out.await },
        }
    };
    let ((), told) = tokio::join!(working, telling);
    told
}

/// Passes on the lines that follow a request, as they are taken.
async fn upload(read: &mut (impl AsyncBufRead + Unpin), most: usize, lines: mpsc::Sender<String>) {
    while let Ok(Some(line)) = line(read, most).await {
        if lines.send(line).await.is_err() {
            return;
        }
    }
}

/// Returns when the client has gone.
async fn hung_up(read: &mut (impl AsyncBufRead + Unpin)) {
    let mut ignored = [0; 64];
    while !matches!(read.read(&mut ignored).await, Ok(0) | Err(_)) {}
}

/// The next line, without its end; `None` where there is none.
async fn line(read: &mut (impl AsyncBufRead + Unpin), most: usize) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut reading = read.take(most as u64 + 1);
    let read = timeout(PATIENCE, reading.read_until(b'\n', &mut line)).await;
    read.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no line has come")))?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => String::from_utf8(line).map(Some).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e)),
        Some(_) if line.len() >= most => {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line has more than {most} bytes")))
        }
        Some(_) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the line is cut off")),
    }
}

async fn send(write: &mut OwnedWriteHalf, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let sent = timeout(PATIENCE, write.write_all(&line)).await;
    sent.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sockets_owner_is_served_and_only_while_there_is_room() {
        assert!(refused(Ok(1000), 1000, true).is_none());
        let said = |refusal: Option<Refusal>| refusal.map(|refusal| refusal.message).unwrap_or_default();
        assert!(said(refused(Ok(1001), 1000, true)).contains("user 1001 asks"));
        assert!(said(refused(Ok(0), 1000, true)).contains("user 0 asks"), "root is somebody else too");
        assert!(said(refused(Ok(1000), 1000, false)).contains("try again"));
        assert!(said(refused(Err(io::Error::other("gone")), 1000, true)).contains("gone"));
        assert!(said(refused(Ok(1001), 1000, false)).contains("user 1001 asks"), "whoever it is comes first");
    }

    #[tokio::test]
    async fn a_line_is_read_up_to_its_limit() {
        async fn read(bytes: &[u8], most: usize) -> Result<Option<String>, io::ErrorKind> {
            line(&mut BufReader::new(bytes), most).await.map_err(|error| error.kind())
        }
        assert_eq!(read(b"", 3).await, Ok(None));
        assert_eq!(read(b"abc\nd", 3).await, Ok(Some("abc".into())));
        assert_eq!(read(b"abcd\n", 3).await, Err(io::ErrorKind::InvalidData));
        assert_eq!(read(b"abc", 5).await, Err(io::ErrorKind::UnexpectedEof));
        assert_eq!(read(b"\xFF\n", 5).await, Err(io::ErrorKind::InvalidData));
    }
}
